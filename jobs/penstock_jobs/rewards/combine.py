"""The reward of a session, from the rewards that its definition names. A pure function.

    mean:  Σ weight · clip(value) / Σ |weight|        sum:  Σ weight · clip(value)

over the terms that are scored, clipped at last by the definition's own bounds. A term that is
pending keeps the session pending. One that is censored or invalid censors the session where the
definition says so; else the rest counts without it, and the reason names it. Where nothing is
left the session is censored. So a session is never worth nothing because nobody looked.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.definition import Definition, Term
from penstock_jobs.rewards.rows import REWARD_ROWS, State, reward_row


@dataclass(frozen=True)
class Standing:
    """A reward of a session, at the horizon that counts."""

    state: State
    value: float | None = None
    reason: str | None = None


#: The name of the rows that a definition's sum makes.
NAME = "reward"
UNKNOWN = Standing("censored", reason="no_rows")


def combine(definition: Definition, found: Mapping[str, Standing]) -> Standing:
    """`found` is by the rewards' names."""
    standings = [(term, found.get(term.reward.name, UNKNOWN)) for term in definition.counted()]
    waiting = [term.reward.name for term, one in standings if one.state == "pending"]
    if waiting:
        return Standing("pending", reason=_names(waiting))
    missing = [(term, one) for term, one in standings if one.state != "scored"]
    for term, one in missing:
        if term.missing == "censor":
            return Standing("censored", reason=f"{term.reward.name}: {one.reason}")
    scored = [(term, one.value) for term, one in standings if one.value is not None]
    if not scored:
        reasons = {f"{term.reward.name}: {one.reason}" for term, one in missing}
        return Standing("censored", reason="; ".join(sorted(reasons)))
    left_out = [term.reward.name for term, _ in missing]
    reason = f"without {_names(left_out)}" if left_out else None
    return Standing("scored", _total(definition, scored), reason)


def session_rewards(definition: Definition, rows: pa.Table) -> pa.Table:
    """The reward of each session that the rows of the definition's terms name."""
    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    sessions: defaultdict[str, dict[str, Standing]] = defaultdict(dict)
    for row in rows.filter(pc.equal(rows["target_kind"], "session")).to_pylist():
        found = sessions[row["session_id"]]
        if row["name"] in horizons and row["horizon_s"] == horizons[row["name"]]:
            found[row["name"]] = Standing(row["state"], row["value"], row["reason"])
    made = [_row(session, combine(definition, found)) for session, found in sessions.items()]
    return pa.Table.from_pylist(made, REWARD_ROWS)


def _row(session: str, standing: Standing) -> dict[str, Any]:
    row = reward_row(
        session, ("session", session), NAME, value=standing.value, reason=standing.reason
    )
    return row | {"state": standing.state}


def _total(definition: Definition, scored: list[tuple[Term, float]]) -> float:
    total = sum(term.weight * _clipped(value, term.clip) for term, value in scored)
    if definition.combine == "mean":
        total /= sum(abs(term.weight) for term, _ in scored)
    return _clipped(total, definition.clip)


def _clipped(value: float, bounds: tuple[float, float] | None) -> float:
    if bounds is None:
        return value
    return min(max(value, bounds[0]), bounds[1])


def _names(names: list[str]) -> str:
    return ", ".join(sorted(names))
