"""A definition: which rewards are computed, and how they combine into the reward of a session.

It is a TOML file; its digest is its version. The reward of a session is

    mean:  Σ weight · clip(value) / Σ |weight|        sum:  Σ weight · clip(value)

over the scored terms, clipped by the definition's own bounds. A pending term keeps the session
pending. A censored or invalid term censors it if the definition says so; else the other terms count
without it. If no needed term is left, the session is censored: no session is worth 0 because nobody
looked.
"""

import hashlib
import importlib
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pyarrow as pa

from penstock.core import toml_document as toml
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock_jobs.rewards.bucket import Bucket, Columns, EditParameters
from penstock_jobs.rewards.rows import Standing, State

#: Columns of each view that the shipped rewards and the outcomes read.
_READ: dict[str, tuple[str, ...]] = {
    "edits": ("event_id", "checkpoint", "edit_id", "path", "before", "after"),
    "observations": ("event_id", "path", "text", "deleted", "branch_changed"),
    "turns": (
        "turn", "last_ts", "checkpoint", "text", "model_calls", "tool_calls", "edits",
    ),
    "user_messages": (),
    "model_calls": (
        "event_id", "call_id", "checkpoint", "text", "tool_call_count", "completion_tokens",
        "thinking_tokens",
    ),
    "tool_calls": (
        "checkpoint", "tool", "arguments", "ok", "error_class", "output", "result_ts",
    ),
    "feedback": ("positive", "kind", "target", "value_number"),
    "events": ("event_id", "type", "payload"),
}  # fmt: skip
_READ_FROM_ALL = ("session_id", "ts", "seq", "consent")
_MEASURES = "penstock_jobs.rewards.measures"
_GROUP = "penstock.rewards"
#: A reward with an argument in brackets.
_CALLED = re.compile(r"(\w+)\(([^()]+)\)")


@dataclass(frozen=True)
class NoParameters:
    """No parameters."""


@dataclass(frozen=True)
class Reward:
    """A reward. `version` grows when `compute` gives other rows for the same input."""

    name: str
    version: int
    compute: Callable[[Bucket, Any], pa.Table]
    parameters: type = NoParameters
    #: Raises if the settings lack what the reward needs with these parameters.
    check: Callable[[Any, Settings], None] | None = None
    only_named: bool = False
    #: The parameter that a definition may give in brackets: `reported_reward(resolved)`.
    argument: str = ""

    def page(self) -> str:
        return cleandoc(self.compute.__doc__ or "")


@cache
def all_rewards() -> dict[str, Reward]:
    """Collect rewards by name, from `measures` and entry points. Raises InvalidInput."""
    package = importlib.import_module(_MEASURES)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{_MEASURES}.{name}") for name in names]
    shipped = [reward for module in modules for reward in module.REWARDS]
    rewards: dict[str, Reward] = {}
    for reward in [*shipped, *(entry.load() for entry in entry_points(group=_GROUP))]:
        if reward.name in rewards:
            raise InvalidInput(what=f"The reward {reward.name}", why="two modules define it")
        rewards[reward.name] = reward
    return dict(sorted(rewards.items()))


def columns_of(rewards: Iterable[Reward]) -> Columns | None:
    """Return the columns that rewards read; None (all) if one comes from an entry point."""
    if all(reward.compute.__module__.startswith("penstock_jobs.") for reward in rewards):
        return {name: (*_READ_FROM_ALL, *columns) for name, columns in _READ.items()}
    return None


DEFAULT = "default"
SURVIVAL = "survival"
_SHIPPED = files("penstock_jobs.rewards") / "definitions"
NAME = "reward"
Combine = Literal["mean", "sum"]
Missing = Literal["leave_out", "censor"]
Bounds = tuple[float, float] | None
_VERSION_HEX = 16
_TOP = ("name", "combine", "clip", "needs_any", "listed", "parameters", "reward")
_TERM = ("name", "weight", "clip", "horizon_s", "missing", "parameters")


@dataclass(frozen=True)
class Term:
    """A reward of a definition. With weight 0 it is computed but does not count."""

    reward: Reward
    parameters: Any
    weight: float = 0.0
    clip: Bounds = None
    horizon_s: int | None = None
    missing: Missing = "leave_out"


@dataclass(frozen=True)
class Definition:
    name: str
    version: str
    terms: tuple[Term, ...]
    combine: Combine = "mean"
    clip: Bounds = None
    #: A session without a score of any of these rewards is censored.
    needs_any: tuple[str, ...] = ()
    #: Whether sessions are shown by its outcomes where nobody names a definition.
    listed: bool = True
    text: str = field(default="", repr=False)

    def counted(self) -> list[Term]:
        return [term for term in self.terms if term.weight]

    def horizons_s(self) -> list[int]:
        """Return the horizons of all rewards of edits, in order."""
        parameters = [term.parameters for term in self.terms]
        of_edits = [own for own in parameters if isinstance(own, EditParameters)]
        return sorted({horizon_s for own in of_edits for horizon_s in own.horizons_s})


def shipped() -> list[str]:
    names = (entry.name for entry in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def find_definition(text: str = DEFAULT) -> Definition:
    """Read a file or a shipped definition. Raises InvalidInput."""
    if text in shipped():
        content = _SHIPPED.joinpath(f"{text}.toml").read_text(encoding="utf-8")
        return parse_definition(content, text)
    if not Path(text).exists():
        why = f"it is neither a file nor one of {', '.join(shipped())}"
        raise InvalidInput(what=text, why=why)
    return parse_definition(toml.read_text(Path(text)), text)


def parse_definition(content: str, where: str) -> Definition:
    document = toml.parse_toml(content, where)
    toml.refuse_unknown(document, _TOP, where)
    name = toml.text(document, "name", where)
    shared = toml.table(document, "parameters", where)
    rows = document.get("reward")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(what=where, why="it names no reward: [[reward]]")
    terms = tuple(_term(row, shared, where) for row in rows)
    for reward, count in Counter(term.reward.name for term in terms).items():
        if count > 1:
            raise InvalidInput(what=where, why=f"it names the reward {reward} twice")
    parameters = {parameter.name for term in terms for parameter in fields(term.reward.parameters)}
    toml.refuse_unknown(shared, parameters, f"{where}, parameters")
    combine = toml.choice(document, "combine", get_args(Combine), "mean", where)
    clip = _clip(document, where)
    counted = [term.reward.name for term in terms if term.weight]
    if not counted:
        raise InvalidInput(what=where, why="no reward has a weight, so sessions have no reward")
    needs_any = tuple(sorted(toml.texts(document, "needs_any", where)))
    toml.refuse_unknown(needs_any, counted, where)
    version = _version(terms, combine=combine, clip=clip, needs_any=needs_any)
    listed = toml.flag(document, "listed", where, default=True)
    return Definition(name, version, terms, combine, clip, needs_any, listed, content)


def _term(row: Mapping[str, Any], shared: Mapping[str, Any], where: str) -> Term:
    name = toml.text(row, "name", where)
    known = all_rewards()
    kind, argument = (match[1], match[2]) if (match := _CALLED.fullmatch(name)) else (name, "")
    if kind not in known or (argument and not known[kind].argument):
        raise InvalidInput(what=f"The reward {name!r} in {where}", why=toml.unknown(kind, known))
    reward, where = replace(known[kind], name=name), f"{where}, reward {name}"
    toml.refuse_unknown(row, _TERM, where)
    horizon_s = row.get("horizon_s")
    if horizon_s is not None and (not isinstance(horizon_s, int) or horizon_s < 0):
        raise InvalidInput(what=where, why=f"horizon_s must be seconds, but is {horizon_s!r}")
    names = [parameter.name for parameter in fields(reward.parameters)]
    own = toml.table(row, "parameters", where)
    toml.refuse_unknown(own, names, where)
    values = _made_defaults(reward.parameters)
    values |= {name: value for name, value in shared.items() if name in names} | dict(own)
    values |= {reward.argument: argument} if argument else {}
    try:
        parameters: Any = msgspec.convert(values, reward.parameters)
    except msgspec.ValidationError as error:
        raise InvalidInput(what=f"The parameters of {where}", why=str(error)) from error
    return Term(
        reward=reward,
        parameters=parameters,
        weight=toml.number(row.get("weight", 0.0), "weight", where),
        clip=_clip(row, where),
        horizon_s=horizon_s,
        missing=toml.choice(row, "missing", get_args(Missing), "leave_out", where),
    )


def _made_defaults(parameters: type[Any]) -> dict[str, Any]:
    """Call default factories, for which msgspec takes a parent class's default instead."""
    makers = ((parameter.name, parameter.default_factory) for parameter in fields(parameters))
    return {name: make() for name, make in makers if make is not MISSING}


def _version(terms: Iterable[Term], **others: object) -> str:
    """Digest what is computed. Comments and the order of keys do not change it."""
    facts = []
    for term in sorted(terms, key=lambda term: term.reward.name):
        parameters = asdict(term.parameters)  # defaults too
        reward = {"reward": term.reward.name, "version": term.reward.version}
        facts.append({**vars(term), **reward, "parameters": parameters})
    content = msgspec.json.encode({"terms": facts, **others}, order="deterministic")
    return hashlib.sha256(content).hexdigest()[:_VERSION_HEX]


def _clip(row: Mapping[str, Any], where: str) -> Bounds:
    value = row.get("clip")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidInput(what=where, why=f"clip must be [low, high], but is {value!r}")
    low, high = (toml.number(bound, "clip", where) for bound in value)
    if low > high:
        raise InvalidInput(what=where, why=f"the bounds of clip are reversed: {value!r}")
    return low, high


UNKNOWN = Standing("censored", reason="no_rows")


def together(parts: Sequence[Standing]) -> Standing:
    """Combine parts into their weighted mean, or into the reason why there is none."""
    if len(parts) == 1:
        state, value, reason, _, due_us = parts[0]
        return Standing(state, value, reason, due_us=due_us)
    waiting = [part for part in parts if part.state == "pending"]
    if waiting:
        return Standing("pending", due_us=latest_due(part.due_us for part in waiting))
    scored = [(part.weight, part.value) for part in parts if part.value is not None]
    if total := sum(weight for weight, _ in scored):
        return Standing("scored", sum(weight * value for weight, value in scored) / total)
    if scored:
        return Standing("scored", sum(value for _, value in scored) / len(scored))
    counts = Counter((part.state, part.reason) for part in parts)
    state, reason = min(counts, key=lambda kind: (-counts[kind], str(kind)))
    return Standing(state, reason=reason)


def combine(definition: Definition, standings: Mapping[str, Standing]) -> Standing:
    terms = [(term, standings.get(term.reward.name, UNKNOWN)) for term in definition.counted()]
    waiting = {term.reward.name: own for term, own in terms if own.state == "pending"}
    if waiting:
        due_us = latest_due(standing.due_us for standing in waiting.values())
        return Standing("pending", reason=", ".join(sorted(waiting)), due_us=due_us)
    missing = [(term, own.reason) for term, own in terms if own.state != "scored"]
    for term, reason in missing:
        if term.missing == "censor":
            return Standing("censored", reason=f"{term.reward.name}: {reason}")
    scored = [(term, own.value) for term, own in terms if own.value is not None]
    known = {term.reward.name for term, _ in scored}
    needed = set(definition.needs_any)
    reasons = {term.reward.name: reason for term, reason in missing}
    if not known or (needed and not known & needed):
        lacking = [name for name in reasons if not needed or name in needed]
        why = "; ".join(sorted(f"{name}: {reasons[name]}" for name in lacking))
        return Standing("censored", reason=why)
    total = sum(term.weight * _clipped(value, term.clip) for term, value in scored)
    if definition.combine == "mean":
        total /= sum(abs(term.weight) for term, _ in scored)
    left_out = f"without {', '.join(sorted(reasons))}" if reasons else None
    return Standing("scored", _clipped(total, definition.clip), left_out)


@dataclass(frozen=True)
class TermShare:
    name: str
    weight: float
    horizon_s: int | None
    state: State
    #: The measured value, and what it adds to the reward: weighted and clipped.
    value: float | None
    counted: float | None
    reason: str | None


def term_shares(definition: Definition, standings: Mapping[str, Standing]) -> list[TermShare]:
    terms = [(term, standings.get(term.reward.name, UNKNOWN)) for term in definition.counted()]
    divisor = 1.0
    if definition.combine == "mean":
        divisor = sum(abs(term.weight) for term, own in terms if own.value is not None) or 1.0
    shares = []
    for term, own in terms:
        counted = None
        if own.value is not None:
            counted = term.weight * _clipped(own.value, term.clip) / divisor
        named = (term.reward.name, term.weight, term.horizon_s)
        shares.append(TermShare(*named, own.state, own.value, counted, own.reason))
    return sorted(shares, key=lambda share: -abs(share.counted or 0.0))


def mean_shares(parts: Sequence[tuple[float, Sequence[TermShare]]]) -> list[TermShare]:
    """Return the shares of a whole, from its parts with their weights."""
    of_terms: defaultdict[str, list[tuple[float, TermShare]]] = defaultdict(list)
    for weight, shares in parts:
        for share in shares:
            of_terms[share.name].append((weight, share))
    total = sum(weight for weight, _ in parts)
    means = []
    for own in of_terms.values():
        known = together([Standing(each.state, each.value, each.reason, n) for n, each in own])
        counted = sum(n * (each.counted or 0) for n, each in own) / total
        share = replace(own[0][1], state=known.state, value=known.value, reason=known.reason)
        means.append(replace(share, counted=None if known.value is None else counted))
    return sorted(means, key=lambda share: -abs(share.counted or 0.0))


def _clipped(value: float, bounds: Bounds) -> float:
    return value if bounds is None else min(max(value, bounds[0]), bounds[1])


def latest_due(dues: Iterable[int | None]) -> int | None:
    """Return when the last pending part is decided; None if one waits for an event."""
    known = list(dues)
    return None if None in known else max((due for due in known if due is not None), default=None)
