"""What a channel demands of a checkpoint, as people write it in TOML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from penstock.checkpoints.digests import text_digest
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

_Part = TypeVar("_Part")
METRICS: tuple[Metric, ...] = get_args(Metric)
#: Metrics between 0 and 1; the others have no upper end.
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
#: With fewer tasks no test keeps its error rate, whatever a policy says.
TASKS_LEAST = 10


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What a checkpoint has to show on a suite: its mean over the tasks is at least `minimum` (at
    most `maximum` where the direction is `min`), and at most `margin` worse than the incumbent's.
    """

    suite: str
    metric: Metric = "score"
    direction: Direction = "max"
    minimum: float | None = None
    maximum: float | None = None
    margin: float | None = None
    alpha: float = 0.05
    min_tasks: int = 30
    #: How many attempts each task needs on both sides.
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A limit. `max_increase` and `max_decrease` are shares of the incumbent's value, and `slack`
    is added to them; `max` and `min` are absolute."""

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
    #: How many sessions with a value each checkpoint needs; with fewer nothing passes.
    min_sessions: int = 100
    #: Of a reward: its definition and its horizon; None means those of the definition itself.
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
    #: Whether every requirement has to be met or one of them; guards always have to hold.
    combine: Combine = "all"
    #: The versions of suites that count, where it is not the newest one.
    versions: Mapping[str, str]

    @property
    def digest(self) -> str:
        return text_digest(self.text)

    @property
    def suites(self) -> list[str]:
        named = {required.suite for required in self.require}
        return sorted(named | {guard.suite for guard in self.guards})

    @property
    def chances(self) -> int:
        """How many chances a checkpoint has to be lucky: an alpha is divided by them."""
        return len(self.require) if self.combine == "any" else 1


def parse(content: str, where: str) -> Policy:
    """`where` says in messages whose policy it is. Raises InvalidInput."""
    document = parse_toml(content, where)
    tables = ("require", "guard", "live", "canary", "evidence", "gate", "suites")
    refuse_unknown(document, tables, where)
    require = _entries(document, "require", where, _requirement)
    if not require:
        raise InvalidInput(what=where, why="it has no [[require]]: it would let anything pass")
    gate = table(document, "gate", where)
    refuse_unknown(gate, ("combine",), f"[gate] of {where}")
    suites = table(document, "suites", where)
    policy = Policy(
        text=content,
        require=require,
        guards=_entries(document, "guard", where, _guard),
        live=_entries(document, "live", where, _live_requirement),
        canary=_canary_steps(document["canary"], where) if "canary" in document else None,
        evidence=_evidence_rules(table(document, "evidence", where), f"[evidence] of {where}"),
        combine=choice(gate, "combine", get_args(Combine), "all", f"[gate] of {where}"),
        versions={name: text(suites, name, f"[suites] of {where}") for name in suites},
    )
    refuse_unknown(policy.versions, policy.suites, f"[suites] of {where}")
    return policy


def _entries(
    document: Mapping[str, Any],
    key: str,
    where: str,
    read: Callable[[Mapping[str, Any], str], _Part],
) -> tuple[_Part, ...]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInput(what=where, why=f"{key} is written as [[{key}]]")
    return tuple(read(entry, f"[[{key}]] {at} of {where}") for at, entry in enumerate(entries, 1))


def _requirement(entry: Mapping[str, Any], where: str) -> Requirement:
    refuse_unknown(entry, (field.name for field in fields(Requirement)), where)
    metric = _metric(entry, where, "score")
    # Nobody wants more costs; where it is a matter of taste the policy says so.
    better: Direction = "max" if metric in {"score", "edited", "asked"} else "min"
    direction: Direction = choice(entry, "direction", get_args(Direction), better, where)
    most = 1 if metric in SHARES else None
    absolute, other = ("minimum", "maximum") if direction == "max" else ("maximum", "minimum")
    if other in entry:
        why = f"with direction {direction!r} the limit is its {absolute}, not its {other}"
        raise InvalidInput(what=where, why=why)
    margin = _limit(entry, "margin", where, most=most)
    if margin is None and absolute not in entry:
        raise InvalidInput(what=where, why=f"it needs a margin, a {absolute} or both")
    if margin == 0:
        why = "a margin of 0 asks to show that it is better; write the least loss that matters"
        raise InvalidInput(what=where, why=why)
    minimum, maximum = (_limit(entry, key, where, most=most) for key in ("minimum", "maximum"))
    if (most and margin == 1) or minimum == 0 or (most and maximum == 1):
        why = "a margin of 1, a minimum of 0 or a maximum of 1 would let anything pass"
        raise InvalidInput(what=where, why=why)
    return Requirement(
        suite=text(entry, "suite", where),
        metric=metric,
        direction=direction,
        minimum=minimum,
        maximum=maximum,
        margin=margin,
        alpha=_alpha(entry, where),
        min_tasks=whole(entry, "min_tasks", 30, where, least=TASKS_LEAST),
        attempts=whole(entry, "attempts", 1, where, least=1),
    )


def _guard(entry: Mapping[str, Any], where: str) -> Guard:
    refuse_unknown(entry, ("suite", "metric", "alpha", "slack", *_LIMITS), where)
    kinds = [kind for kind in _LIMITS if kind in entry]
    if len(kinds) != 1:
        raise InvalidInput(what=where, why=f"it needs exactly one of {', '.join(_LIMITS)}")
    kind = kinds[0]
    if "slack" in entry and kind in {"max", "min"}:
        raise InvalidInput(what=where, why=f"slack has no meaning beside {kind}")
    limit = _limit(entry, kind, where) or 0.0
    if kind == "max_decrease" and limit > 1:
        raise InvalidInput(what=where, why=f"max_decrease is a share, and is {limit!r}")
    return Guard(
        suite=text(entry, "suite", where),
        metric=_metric(entry, where, None),
        kind=kind,
        limit=limit,
        slack=_limit(entry, "slack", where) or 0.0,
        alpha=_alpha(entry, where),
    )


def _live_requirement(entry: Mapping[str, Any], where: str) -> LiveRequirement:
    refuse_unknown(entry, (field.name for field in fields(LiveRequirement)), where)
    margin = _limit(entry, "margin", where)
    if not margin:
        raise InvalidInput(what=where, why="it needs a margin over 0")
    metric = text(entry, "metric", where)
    better: Direction = "min" if metric in LESS_IS_BETTER else "max"
    return LiveRequirement(
        metric=metric,
        direction=choice(entry, "direction", get_args(Direction), better, where),
        margin=margin,
        alpha=_alpha(entry, where),
        min_sessions=whole(entry, "min_sessions", 100, where, least=1),
        definition=text_or_none(entry, "definition", where),
        horizon_s=whole_or_none(entry, "horizon_s", where, least=0),
    )


def _canary_steps(entry: Any, where: str) -> CanarySteps:
    where = f"[canary] of {where}"
    if not isinstance(entry, dict):
        raise InvalidInput(what=where, why="it is written as a table")
    refuse_unknown(entry, ("steps", "min_age", "auto_step", "watch"), where)
    steps = entry.get("steps", list(CanarySteps.steps))
    if not isinstance(steps, list) or not steps:
        raise InvalidInput(what=where, why=f"steps has to be a list of shares, and is {steps!r}")
    shares = tuple(number(step, "steps", where) for step in steps)
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


def _evidence_rules(entry: Mapping[str, Any], where: str) -> EvidenceRules:
    refuse_unknown(entry, ("max_age", "max_error_share"), where)
    return EvidenceRules(
        max_age_s=duration_s(entry, "max_age", where),
        max_error_share=share(entry, "max_error_share", EvidenceRules.max_error_share, where),
    )


def _metric(entry: Mapping[str, Any], where: str, default: Metric | None) -> Metric:
    name = entry.get("metric", default)
    if name is None:
        raise InvalidInput(what=where, why=f"it needs a metric: {', '.join(METRICS)}")
    for metric in METRICS:
        if name == metric:
            return metric
    raise InvalidInput(what=f"{name!r} in {where}", why=unknown(str(name), METRICS))


def _alpha(entry: Mapping[str, Any], where: str) -> float:
    alpha = number(entry.get("alpha", 0.05), "alpha", where)
    if not 0.0001 <= alpha <= 0.25:
        raise InvalidInput(what=where, why=f"alpha lies from 0.0001 to 0.25, and is {alpha!r}")
    return alpha


def _limit(
    entry: Mapping[str, Any], key: str, where: str, *, most: float | None = None
) -> float | None:
    if key not in entry:
        return None
    value = number(entry[key], key, where)
    if value < 0 or (most is not None and value > most):
        span = "not be negative" if most is None else f"lie between 0 and {most:g}"
        raise InvalidInput(what=where, why=f"{key} has to {span}, and is {value!r}")
    return value
