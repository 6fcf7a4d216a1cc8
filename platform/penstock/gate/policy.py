"""What a channel demands of a checkpoint, as people write it in TOML."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from penstock.errors import InvalidInput
from penstock.toml_document import (
    choice,
    duration_s,
    flag,
    number,
    parse_toml,
    refuse_unknown,
    share,
    table,
    text,
    text_or_none,
    unknown,
    whole,
    whole_or_none,
)

#: What a suite's attempts are compared by; `invalid_tool_calls` is their share of all tool calls.
Metric = Literal[
    "score", "completion_tokens", "prompt_tokens", "cost_usd", "latency_s", "steps",
    "invalid_tool_calls", "edited", "asked",
]  # fmt: skip
Direction = Literal["max", "min"]
Combine = Literal["all", "any"]
LimitKind = Literal["max_increase", "max_decrease", "max", "min"]

METRICS: tuple[Metric, ...] = get_args(Metric)
#: Those that lie between 0 and 1; the others have no upper end.
SHARES = frozenset[Metric]({"score", "invalid_tool_calls", "edited", "asked"})
_LIMITS: tuple[LimitKind, ...] = get_args(LimitKind)
#: Live metrics of which nobody wants more.
LESS_IS_BETTER = frozenset(
    {
        "asked_instead", "censored", "clarifying_questions", "completion_tokens",
        "duration_s", "errors", "excluded", "failed_tool_calls", "feedback_negative", "interrupts",
        "latency", "latency_ms", "model_calls", "negative_by_rule", "prompt_tokens", "self_rework",
        "tool_calls", "ttft_ms", "user_messages",
    }
)  # fmt: skip
#: With fewer tasks no test keeps its error, whatever a policy says.
TASKS_LEAST = 10


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What has to be shown on a suite: a mean over its tasks of at least `minimum`, and one that
    is worse than the incumbent's by at most `margin`. Lower is better where direction is `min`;
    there the mean is at most `maximum`."""

    suite: str
    metric: Metric = "score"
    direction: Direction = "max"
    minimum: float | None = None
    maximum: float | None = None
    margin: float | None = None
    alpha: float = 0.05
    min_tasks: int = 30
    #: That each task has on both sides.
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A limit. `max_increase` and `max_decrease` are relative to the incumbent, and allow `slack`
    besides; `max` and `min` are absolute."""

    suite: str
    metric: Metric
    kind: LimitKind
    limit: float
    slack: float = 0.0
    alpha: float = 0.05


@dataclass(frozen=True, kw_only=True)
class LiveRequirement:
    """What real traffic of a canary has to show before it gets all of it."""

    metric: str
    direction: Direction = "max"
    margin: float
    alpha: float = 0.05
    #: Of each checkpoint, with a value. With fewer nothing is a pass.
    min_sessions: int = 100
    #: For rewards: by which definition, and at which horizon; None is the definition's own.
    definition: str | None = None
    horizon_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class CanarySteps:
    """The shares of traffic that a canary gets, and how long it keeps each at least."""

    steps: tuple[float, ...] = (0.05, 0.25, 0.5)
    min_age_s: int = 1_800
    #: Whether the watcher raises the share by itself.
    auto_step: bool = False
    #: How long a new current checkpoint is watched, beside the one before.
    watch_s: int = 86_400


@dataclass(frozen=True, kw_only=True)
class EvidenceRules:
    """How old an attempt may be, and which share of the attempts may be errors."""

    max_age_s: int | None = None
    max_error_share: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Policy:
    text: str
    require: tuple[Requirement, ...]
    guards: tuple[Guard, ...] = ()
    live: tuple[LiveRequirement, ...] = ()
    canary: CanarySteps | None = None
    evidence: EvidenceRules = EvidenceRules()
    #: Whether all requirements have to be met or one of them; guards always all.
    combine: Combine = "all"
    #: Versions of suites that count, where it is not the newest one registered.
    versions: Mapping[str, str]

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    @property
    def suites(self) -> list[str]:
        """Each suite that it names."""
        named = {one.suite for one in self.require} | {one.suite for one in self.guards}
        return sorted(named)


def digest_of(policy: str) -> str:
    """The name of a policy: of its text as it was written."""
    return f"sha256:{hashlib.sha256(policy.encode()).hexdigest()}"


_TABLES = ("require", "guard", "live", "canary", "evidence", "gate", "suites")


def parse(content: str, where: str) -> Policy:
    """`where` says whose policy it is, in messages. Raises InvalidInput."""
    found = parse_toml(content, where)
    refuse_unknown(found, _TABLES, where)
    require = tuple(_requirement(one, at) for one, at in _each(found, "require", where))
    if not require:
        raise InvalidInput(what=where, why="it has no [[require]]: it would let anything pass")
    gate = table(found, "gate", where)
    refuse_unknown(gate, ("combine",), f"[gate] of {where}")
    policy = Policy(
        text=content,
        require=require,
        guards=tuple(_guard(one, at) for one, at in _each(found, "guard", where)),
        live=tuple(_live(one, at) for one, at in _each(found, "live", where)),
        canary=_canary(found, where) if "canary" in found else None,
        evidence=_evidence(found, where),
        combine=choice(gate, "combine", get_args(Combine), "all", f"[gate] of {where}"),
        versions=_versions(found, where),
    )
    refuse_unknown(policy.versions, policy.suites, f"[suites] of {where}")
    return policy


def _each(found: Mapping[str, Any], key: str, where: str) -> list[tuple[dict[str, Any], str]]:
    entries = found.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise InvalidInput(what=where, why=f"{key} is written as [[{key}]]")
    return [(one, f"[[{key}]] {at} of {where}") for at, one in enumerate(entries, 1)]


def _requirement(found: Mapping[str, Any], where: str) -> Requirement:
    refuse_unknown(found, (one.name for one in fields(Requirement)), where)
    metric = _metric(found, where, "score")
    direction: Direction = choice(found, "direction", get_args(Direction), _better(metric), where)
    most = 1 if metric in SHARES else None
    absolute, other = ("minimum", "maximum") if direction == "max" else ("maximum", "minimum")
    if other in found:
        why = f"with direction {direction!r} the limit is its {absolute}, not its {other}"
        raise InvalidInput(what=where, why=why)
    margin = _limit(found, "margin", where, most=most)
    if margin is None and absolute not in found:
        raise InvalidInput(what=where, why=f"it needs a margin, a {absolute} or both")
    if margin == 0:
        why = "a margin of 0 asks to show that it is better; write the least loss that matters"
        raise InvalidInput(what=where, why=why)
    minimum, maximum = (_limit(found, key, where, most=most) for key in ("minimum", "maximum"))
    if (most and margin == 1) or minimum == 0 or (most and maximum == 1):
        why = "a margin of 1, a minimum of 0 or a maximum of 1 would let anything pass"
        raise InvalidInput(what=where, why=why)
    return Requirement(
        suite=text(found, "suite", where),
        metric=metric,
        direction=direction,
        minimum=minimum,
        maximum=maximum,
        margin=margin,
        alpha=_alpha(found, where),
        min_tasks=whole(found, "min_tasks", 30, where, least=TASKS_LEAST),
        attempts=whole(found, "attempts", 1, where, least=1),
    )


def _guard(found: Mapping[str, Any], where: str) -> Guard:
    known = ("suite", "metric", "alpha", "slack", *_LIMITS)
    refuse_unknown(found, known, where)
    kinds = [one for one in _LIMITS if one in found]
    if len(kinds) != 1:
        raise InvalidInput(what=where, why=f"it needs exactly one of {', '.join(_LIMITS)}")
    kind = kinds[0]
    if "slack" in found and kind in {"max", "min"}:
        raise InvalidInput(what=where, why=f"slack has no meaning beside {kind}")
    limit = _limit(found, kind, where, most=None)
    if kind == "max_decrease" and limit is not None and limit > 1:
        raise InvalidInput(what=where, why=f"max_decrease is a share, and is {limit!r}")
    return Guard(
        suite=text(found, "suite", where),
        metric=_metric(found, where, None),
        kind=kind,
        limit=limit or 0.0,
        slack=_limit(found, "slack", where, most=None) or 0.0,
        alpha=_alpha(found, where),
    )


def _live(found: Mapping[str, Any], where: str) -> LiveRequirement:
    refuse_unknown(found, (one.name for one in fields(LiveRequirement)), where)
    margin = _limit(found, "margin", where, most=None)
    if not margin:
        raise InvalidInput(what=where, why="it needs a margin over 0")
    return LiveRequirement(
        metric=text(found, "metric", where),
        direction=choice(found, "direction", get_args(Direction), _better_live(found), where),
        margin=margin,
        alpha=_alpha(found, where),
        min_sessions=whole(found, "min_sessions", 100, where, least=1),
        definition=text_or_none(found, "definition", where),
        horizon_s=whole_or_none(found, "horizon_s", where, least=0),
    )


def _canary(found: Mapping[str, Any], where: str) -> CanarySteps:
    where = f"[canary] of {where}"
    entry = found["canary"]
    if not isinstance(entry, dict):
        raise InvalidInput(what=where, why="it is written as a table")
    refuse_unknown(entry, ("steps", "min_age", "auto_step", "watch"), where)
    steps = entry.get("steps", list(CanarySteps.steps))
    if not isinstance(steps, list) or not steps:
        raise InvalidInput(what=where, why=f"steps has to be a list of shares, and is {steps!r}")
    shares = tuple(number(one, "steps", where) for one in steps)
    if sorted(set(shares)) != list(shares) or not 0 < shares[0] <= shares[-1] < 1:
        why = f"steps have to grow, between 0 and 1, and are {steps!r}"
        raise InvalidInput(what=where, why=why)
    age, watch = duration_s(entry, "min_age", where), duration_s(entry, "watch", where)
    return CanarySteps(
        steps=shares,
        min_age_s=CanarySteps.min_age_s if age is None else age,
        auto_step=flag(entry, "auto_step", CanarySteps.auto_step, where),
        watch_s=CanarySteps.watch_s if watch is None else watch,
    )


def _evidence(found: Mapping[str, Any], where: str) -> EvidenceRules:
    entry, where = table(found, "evidence", where), f"[evidence] of {where}"
    refuse_unknown(entry, ("max_age", "max_error_share"), where)
    return EvidenceRules(
        max_age_s=duration_s(entry, "max_age", where),
        max_error_share=share(entry, "max_error_share", EvidenceRules.max_error_share, where),
    )


def _versions(found: Mapping[str, Any], where: str) -> dict[str, str]:
    entry = table(found, "suites", where)
    return {name: text(entry, name, f"[suites] of {where}") for name in entry}


def _metric(found: Mapping[str, Any], where: str, default: Metric | None) -> Metric:
    name = found.get("metric", default)
    if name is None:
        raise InvalidInput(what=where, why=f"it needs a metric: {', '.join(METRICS)}")
    for known in METRICS:
        if name == known:
            return known
    raise InvalidInput(what=f"{name!r} in {where}", why=unknown(str(name), METRICS))


def _better_live(found: Mapping[str, Any]) -> Direction:
    return "min" if found.get("metric") in LESS_IS_BETTER else "max"


def _better(metric: Metric) -> Direction:
    """Nobody wants more costs; for what is a matter of taste the policy has to say so."""
    return "max" if metric in {"score", "edited", "asked"} else "min"


def _alpha(found: Mapping[str, Any], where: str) -> float:
    alpha = number(found.get("alpha", 0.05), "alpha", where)
    if not 0.0001 <= alpha <= 0.25:
        raise InvalidInput(what=where, why=f"alpha lies from 0.0001 to 0.25, and is {alpha!r}")
    return alpha


def _limit(found: Mapping[str, Any], key: str, where: str, *, most: float | None) -> float | None:
    if key not in found:
        return None
    value = number(found[key], key, where)
    if value < 0 or (most is not None and value > most):
        span = "not be negative" if most is None else f"lie between 0 and {most:g}"
        raise InvalidInput(what=where, why=f"{key} has to {span}, and is {value!r}")
    return value
