"""The reward of a session, from the rewards that its definition names. A pure function.

    mean:  Σ weight · clip(value) / Σ |weight|        sum:  Σ weight · clip(value)

over the terms that are scored, clipped at last by the definition's own bounds. A term that is
pending keeps the session pending. One that is censored or invalid censors the session where the
definition says so; else the rest counts without it, and the reason names it. Where nothing is
left, or nothing of what the definition needs, the session is censored. So a session is never worth
nothing because nobody looked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock_jobs.rewards.definition import Definition, Term
from penstock_jobs.rewards.rows import State, latest_due


@dataclass(frozen=True)
class Standing:
    """A reward of a session, at the horizon that counts."""

    state: State
    value: float | None = None
    reason: str | None = None
    #: As in REWARD_ROWS.
    due_us: int | None = None


#: The name of the rows that a definition's sum makes.
NAME = "reward"
UNKNOWN = Standing("censored", reason="no_rows")


def combine(definition: Definition, found: Mapping[str, Standing]) -> Standing:
    """`found` is by the rewards' names."""
    standings = [(term, found.get(term.reward.name, UNKNOWN)) for term in definition.counted()]
    waiting = {term.reward.name: one for term, one in standings if one.state == "pending"}
    if waiting:
        due_us = latest_due(one.due_us for one in waiting.values())
        return Standing("pending", reason=_names(waiting), due_us=due_us)
    missing = [(term, one) for term, one in standings if one.state != "scored"]
    for term, one in missing:
        if term.missing == "censor":
            return Standing("censored", reason=f"{term.reward.name}: {one.reason}")
    scored = [(term, one.value) for term, one in standings if one.value is not None]
    known = {term.reward.name for term, _ in scored}
    needed = set(definition.needs_any)
    if not known or (needed and not known & needed):
        asked = [(term.reward.name, one.reason) for term, one in missing]
        reasons = {f"{name}: {reason}" for name, reason in asked if not needed or name in needed}
        return Standing("censored", reason="; ".join(sorted(reasons)))
    left_out = [term.reward.name for term, _ in missing]
    reason = f"without {_names(left_out)}" if left_out else None
    return Standing("scored", _total(definition, scored), reason)


def _total(definition: Definition, scored: list[tuple[Term, float]]) -> float:
    total = sum(term.weight * _clipped(value, term.clip) for term, value in scored)
    if definition.combine == "mean":
        total /= sum(abs(term.weight) for term, _ in scored)
    return _clipped(total, definition.clip)


def _clipped(value: float, bounds: tuple[float, float] | None) -> float:
    if bounds is None:
        return value
    return min(max(value, bounds[0]), bounds[1])


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
