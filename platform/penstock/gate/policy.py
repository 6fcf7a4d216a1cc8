"""What a channel demands of a checkpoint, as people write it in TOML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from penstock import toml_document as toml
from penstock.checkpoints.digests import text_digest
from penstock.errors import InvalidInput

#: What a suite's attempts are compared by; `invalid_tool_calls` is their share of all tool calls.
Metric = Literal[
    "score", "completion_tokens", "prompt_tokens", "cost_usd", "latency_s", "steps",
    "invalid_tool_calls", "edited", "asked",
]  # fmt: skip
Direction = Literal["max", "min"]
Combine = Literal["all", "any"]
LimitKind = Literal["max_increase", "max_decrease", "max", "min"]

METRICS: tuple[Metric, ...] = get_args(Metric)
#: Metrics between 0 and 1; the others have no upper end.
SHARES = frozenset[Metric]({"score", "invalid_tool_calls", "edited", "asked"})
_LIMITS: tuple[LimitKind, ...] = get_args(LimitKind)
#: Live metrics of which nobody wants more.
LESS_IS_BETTER = frozenset(
    {
        "asked_instead", "censored", "clarifying_questions", "completion_tokens",
        "dissatisfied", "duration_s", "errors", "excluded", "failed_tool_calls",
        "feedback_negative", "interrupts", "judged_follow_up", "latency", "latency_ms",
        "model_calls", "negative_by_rule", "prompt_tokens", "self_rework", "tool_calls", "ttft_ms",
        "user_messages",
    }
)  # fmt: skip
#: With fewer tasks no test keeps its error rate, whatever a policy says.
TASKS_LEAST = 10


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A checkpoint's mean over the tasks of a suite is at least `minimum` (at most `maximum` where
    the direction is `min`), and at most `margin` worse than the incumbent's."""

    suite: str
    metric: Metric = "score"
    direction: Direction = "max"
    minimum: toml.Number | None = None
    maximum: toml.Number | None = None
    margin: toml.Number | None = None
    alpha: toml.Number = 0.05
    min_tasks: Annotated[int, TASKS_LEAST] = 30
    #: How many attempts each task needs on both sides.
    attempts: toml.Positive = 1


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A limit. `max_increase` and `max_decrease` are shares of the incumbent's value, and `slack`
    is added to them; `max` and `min` are absolute."""

    suite: str
    metric: Metric
    kind: LimitKind
    limit: toml.Number
    slack: toml.Number = 0.0
    alpha: toml.Number = 0.05


@dataclass(frozen=True, kw_only=True)
class LiveRequirement:
    """What real traffic of a canary has to show before it gets all of it."""

    metric: str
    direction: Direction = "max"
    margin: toml.Number
    alpha: toml.Number = 0.05
    #: How many sessions with a value each checkpoint needs; with fewer nothing passes.
    min_sessions: toml.Positive = 100
    #: Of a reward: its definition and its horizon; None means those of the definition itself.
    definition: str | None = None
    horizon_s: toml.NotNegative | None = None


@dataclass(frozen=True, kw_only=True)
class CanarySteps:
    """The shares of traffic that a canary gets, and how long it keeps each at least."""

    steps: tuple[toml.Number, ...] = (0.05, 0.25, 0.5)
    min_age_s: toml.Seconds = 1_800
    #: Whether the watcher raises the share by itself.
    auto_step: bool = False
    #: How long a new current checkpoint is watched, beside the one before.
    watch_s: toml.Seconds = 86_400

    def __post_init__(self) -> None:
        steps = self.steps
        if not steps or sorted(set(steps)) != list(steps) or not 0 < steps[0] <= steps[-1] < 1:
            raise ValueError(f"steps have to grow, between 0 and 1, and are {list(steps)!r}")


@dataclass(frozen=True, kw_only=True)
class EvidenceRules:
    """How old an attempt may be, and which share of the attempts may be errors."""

    max_age_s: toml.Seconds | None = None
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


_Part = TypeVar("_Part", Requirement, Guard, LiveRequirement)


def parse(content: str, where: str) -> Policy:
    """`where` says in messages whose policy it is. Raises InvalidInput."""
    document = toml.parse_toml(content, where)
    tables = ("require", "guard", "live", "canary", "evidence", "gate", "suites")
    toml.refuse_unknown(document, tables, where)
    require = _entries(document, "require", where, _requirement)
    if not require:
        raise InvalidInput(what=where, why="it has no [[require]]: it would let anything pass")
    canary, evidence, gate, suites = (toml.table(document, key, where) for key in tables[3:])
    toml.refuse_unknown(gate, ("combine",), f"[gate] of {where}")
    policy = Policy(
        text=content,
        require=require,
        guards=_entries(document, "guard", where, _guard),
        live=_entries(document, "live", where, _live_requirement),
        canary=toml.read_section(CanarySteps, canary, f"[canary] of {where}")
        if "canary" in document
        else None,
        evidence=toml.read_section(EvidenceRules, evidence, f"[evidence] of {where}"),
        combine=toml.choice(gate, "combine", get_args(Combine), "all", f"[gate] of {where}"),
        versions={name: toml.text(suites, name, f"[suites] of {where}") for name in suites},
    )
    toml.refuse_unknown(policy.versions, policy.suites, f"[suites] of {where}")
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
    parts = []
    for number, entry in enumerate(entries, 1):
        place = f"[[{key}]] {number} of {where}"
        parts.append(read(entry, place))
        if not 0.0001 <= (alpha := parts[-1].alpha) <= 0.25:
            raise InvalidInput(what=place, why=f"alpha lies from 0.0001 to 0.25, and is {alpha!r}")
    return tuple(parts)


def _requirement(entry: Mapping[str, Any], where: str) -> Requirement:
    metric = _metric(entry, where, "score")
    # Nobody wants more costs; where it is a matter of taste the policy says so.
    better = "max" if metric in {"score", "edited", "asked"} else "min"
    required = toml.read_section(Requirement, {"direction": better, **entry}, where)
    most = 1 if metric in SHARES else None
    for key in ("minimum", "maximum", "margin"):
        _check_limit(entry, key, where, most=most)
    absolute, other = "minimum", "maximum"
    if required.direction == "min":
        absolute, other = other, absolute
    why = ""
    if other in entry:
        why = f"with direction {required.direction!r} the limit is its {absolute}, not its {other}"
    elif required.margin is None and absolute not in entry:
        why = f"it needs a margin, a {absolute} or both"
    elif required.margin == 0:
        why = "a margin of 0 asks to show that it is better; write the least loss that matters"
    elif required.minimum == 0 or (most and 1 in (required.margin, required.maximum)):
        why = "a margin of 1, a minimum of 0 or a maximum of 1 would let anything pass"
    if why:
        raise InvalidInput(what=where, why=why)
    return required


def _guard(entry: Mapping[str, Any], where: str) -> Guard:
    toml.refuse_unknown(entry, ("suite", "metric", "alpha", "slack", *_LIMITS), where)
    kinds = [kind for kind in _LIMITS if kind in entry]
    if len(kinds) != 1:
        raise InvalidInput(what=where, why=f"it needs exactly one of {', '.join(_LIMITS)}")
    kind = kinds[0]
    if "slack" in entry and kind in {"max", "min"}:
        raise InvalidInput(what=where, why=f"slack has no meaning beside {kind}")
    _check_limit(entry, kind, where)
    if kind == "max_decrease" and entry[kind] > 1:
        raise InvalidInput(what=where, why=f"max_decrease is a share, and is {entry[kind]!r}")
    _check_limit(entry, "slack", where)
    _metric(entry, where, None)
    section = {key: value for key, value in entry.items() if key != kind}
    return toml.read_section(Guard, section | {"kind": kind, "limit": entry[kind]}, where)


def _live_requirement(entry: Mapping[str, Any], where: str) -> LiveRequirement:
    better = "min" if str(entry.get("metric")) in LESS_IS_BETTER else "max"
    section = {"direction": better, "margin": 0, **entry}
    required = toml.read_section(LiveRequirement, section, where)
    if required.margin <= 0:
        raise InvalidInput(what=where, why="it needs a margin over 0")
    return required


def _metric(entry: Mapping[str, Any], where: str, default: Metric | None) -> Metric:
    name = entry.get("metric", default)
    if name is None:
        raise InvalidInput(what=where, why=f"it needs a metric: {', '.join(METRICS)}")
    if name not in METRICS:
        raise InvalidInput(what=f"{name!r} in {where}", why=toml.unknown(str(name), METRICS))
    return cast(Metric, name)


def _check_limit(
    entry: Mapping[str, Any], key: str, where: str, *, most: float | None = None
) -> None:
    if key not in entry:
        return
    value = toml.number(entry[key], key, where)
    if value < 0 or (most is not None and value > most):
        span = "not be negative" if most is None else f"lie between 0 and {most:g}"
        raise InvalidInput(what=where, why=f"{key} has to {span}, and is {value!r}")
