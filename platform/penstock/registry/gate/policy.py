"""The policy of a channel: its requirements for a checkpoint, written in TOML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from penstock.core import toml_document as toml
from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.digests import text_digest

#: Metrics of attempts; `invalid_tool_calls` is a share of all tool calls, and `worth` is a score
#: reduced by its completion tokens.
Metric = Literal[
    "score", "completion_tokens", "prompt_tokens", "cost_usd", "latency_s", "steps",
    "invalid_tool_calls", "edited", "asked", "bits_per_byte", "worth",
]  # fmt: skip
Direction = Literal["max", "min"]
Combine = Literal["all", "any"]
DataRule = Literal["warn", "block"]
HarnessRule = Literal["any", "same"]
LimitKind = Literal["max_increase", "max_decrease", "max", "min"]

METRICS: tuple[Metric, ...] = get_args(Metric)
#: Metrics between 0 and 1; the others have no upper end.
SHARES = frozenset[Metric]({"score", "invalid_tool_calls", "edited", "asked", "worth"})
_LIMITS: tuple[LimitKind, ...] = get_args(LimitKind)
#: Live metrics where less is better.
LESS_IS_BETTER = frozenset(
    {
        "asked_instead", "censored", "clarifying_questions", "completion_tokens",
        "dissatisfied", "duration_s", "errors", "excluded", "failed_tool_calls",
        "feedback_negative", "interrupts", "judged_follow_up", "latency", "latency_ms",
        "model_calls", "negative_by_rule", "prompt_tokens", "reported_cost_usd", "reported_tokens",
        "reported_tool_calls", "self_rework", "tool_calls", "ttft_ms", "user_messages",
    }
)  # fmt: skip
#: With fewer tasks no test keeps its error rate.
TASKS_LEAST = 10
#: No suite shows a smaller difference.
_MARGIN_MIN = 1e-6


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """The mean over tasks against a limit, or against the incumbent within a `margin`."""

    suite: str
    metric: Metric = "score"
    direction: Direction = "max"
    minimum: toml.Number | None = None
    maximum: toml.Number | None = None
    margin: toml.Number | None = None
    alpha: toml.Number = 0.05
    min_tasks: Annotated[int, TASKS_LEAST] = 30
    attempts: toml.Positive = 1
    #: The largest value of an attempt, for metrics without an upper end. It bounds missing values.
    most: toml.Number | None = None
    #: For `worth`: with so many completion tokens an attempt is worth half of its score.
    halved_by: toml.Positive | None = None


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A limit relative to the incumbent, plus `slack`; `max` and `min` are absolute."""

    suite: str
    metric: Metric
    kind: LimitKind
    limit: toml.Number
    slack: toml.Number = 0.0
    alpha: toml.Number = 0.05
    #: As in a requirement; for invalid tool calls, the most calls of an attempt.
    most: toml.Number | None = None


@dataclass(frozen=True, kw_only=True)
class LiveRequirement:
    metric: str
    direction: Direction = "max"
    margin: toml.Number
    alpha: toml.Number = 0.05
    #: Sessions with a value that each checkpoint needs to pass.
    min_sessions: toml.Positive = 100
    #: The definition and horizon of a reward; None for the current definition's.
    definition: str | None = None
    horizon_s: toml.NotNegative | None = None


@dataclass(frozen=True, kw_only=True)
class CanarySteps:
    """The traffic shares of a canary, and the shortest time at each."""

    steps: tuple[toml.Number, ...] = (0.05, 0.25, 0.5)
    min_age_s: toml.Seconds = 1_800
    auto_step: bool = False
    #: How long a new checkpoint is compared with the former one.
    watch_s: toml.Seconds = 86_400

    def __post_init__(self) -> None:
        steps = self.steps
        if not steps or sorted(set(steps)) != list(steps) or not 0 < steps[0] <= steps[-1] < 1:
            raise ValueError(f"steps must grow between 0 and 1, not {list(steps)!r}")


@dataclass(frozen=True, kw_only=True)
class EvidenceRules:
    """The oldest age of attempts. A larger share of errors makes the suite an ERROR."""

    max_age_s: toml.Seconds | None = None
    max_error_share: float = 0.25
    #: Whether attempts of both sides must have the same harness.
    harness: HarnessRule = "any"


@dataclass(frozen=True, kw_only=True)
class DataRules:
    """Whether learned sessions that were erased or lost their consent cause a warning or block a
    PASS."""

    erased: DataRule = "warn"
    withdrawn: DataRule = "warn"


@dataclass(frozen=True, kw_only=True)
class ApprovalRule:
    """Approvals before the last rollback, or older than `max_age`, do not count."""

    people: toml.Positive = 1


@dataclass(frozen=True, kw_only=True)
class LeftOutTasks:
    suite: str
    tasks: tuple[str, ...]
    reason: str

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("it names no tasks")


@dataclass(frozen=True, kw_only=True)
class Policy:
    text: str
    require: tuple[Requirement, ...]
    guards: tuple[Guard, ...] = ()
    live: tuple[LiveRequirement, ...] = ()
    canary: CanarySteps | None = None
    evidence: EvidenceRules = EvidenceRules()
    #: Whether all requirements must be met, or any; guards must always hold.
    combine: Combine = "all"
    #: Versions of suites that count; by default the newest.
    versions: Mapping[str, str]
    leave_out: tuple[LeftOutTasks, ...] = ()
    data: DataRules = DataRules()
    approval: ApprovalRule | None = None

    @property
    def digest(self) -> str:
        return text_digest(self.text)

    @property
    def suites(self) -> list[str]:
        named = {required.suite for required in self.require}
        return sorted(named | {guard.suite for guard in self.guards})

    def left_out(self, suite: str) -> dict[str, str]:
        """The left out tasks of a suite, each with the reason."""
        entries = (entry for entry in self.leave_out if entry.suite == suite)
        return {task: entry.reason for entry in entries for task in entry.tasks}

    @property
    def chances(self) -> int:
        """The number of chances to pass by luck; alpha is divided by it."""
        return len(self.require) if self.combine == "any" else 1


_Part = TypeVar("_Part", Requirement, Guard, LiveRequirement, LeftOutTasks)
_Section = TypeVar("_Section", CanarySteps, EvidenceRules, DataRules, ApprovalRule, "_GateRules")


@dataclass(frozen=True, kw_only=True)
class _GateRules:
    combine: Combine = "all"


def parse(content: str, where: str) -> Policy:
    """Parse a policy. `where` names it in messages. Raises InvalidInput."""
    document = toml.parse_toml(content, where)
    tables = ("canary", "evidence", "gate", "suites", "data", "approval")
    toml.refuse_unknown(document, ("require", "guard", "live", "leave_out", *tables), where)
    require = _entries(document, "require", where, _requirement)
    if not require:
        raise InvalidInput(what=where, why="it has no [[require]], so anything would pass")
    suites = toml.table(document, "suites", where)

    def section(kind: type[_Section], key: str) -> _Section:
        return toml.read_section(kind, toml.table(document, key, where), f"[{key}] of {where}")

    policy = Policy(
        text=content,
        require=require,
        guards=_entries(document, "guard", where, _guard),
        live=_entries(document, "live", where, _live_requirement),
        canary=section(CanarySteps, "canary") if "canary" in document else None,
        evidence=section(EvidenceRules, "evidence"),
        combine=section(_GateRules, "gate").combine,
        versions={name: toml.text(suites, name, f"[suites] of {where}") for name in suites},
        leave_out=_entries(document, "leave_out", where, _left_out_tasks),
        data=section(DataRules, "data"),
        approval=section(ApprovalRule, "approval") if "approval" in document else None,
    )
    toml.refuse_unknown(policy.versions, policy.suites, f"[suites] of {where}")
    left_out: set[tuple[str, str]] = set()
    for number, entry in enumerate(policy.leave_out, 1):
        place = f"[[leave_out]] {number} of {where}"
        toml.refuse_unknown([entry.suite], policy.suites, place)
        for task in entry.tasks:
            if (entry.suite, task) in left_out:
                raise InvalidInput(what=place, why=f"{task} of {entry.suite} is left out twice")
            left_out.add((entry.suite, task))
    return policy


def _entries(
    document: Mapping[str, Any],
    key: str,
    where: str,
    read: Callable[[Mapping[str, Any], str], _Part],
) -> tuple[_Part, ...]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInput(what=where, why=f"{key} must be written as [[{key}]]")
    parts = []
    for number, entry in enumerate(entries, 1):
        place = f"[[{key}]] {number} of {where}"
        parts.append(read(entry, place))
        if not 0.0001 <= (alpha := getattr(parts[-1], "alpha", 0.05)) <= 0.25:
            raise InvalidInput(what=place, why=f"alpha must be from 0.0001 to 0.25, not {alpha!r}")
    return tuple(parts)


def _requirement(entry: Mapping[str, Any], where: str) -> Requirement:
    metric = _metric(entry, where, "score")
    # Lower is better for costs. For matters of taste the policy says so.
    better = "max" if metric in {"score", "edited", "asked", "worth"} else "min"
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
    elif (metric == "worth") != (required.halved_by is not None):
        why = "halved_by belongs to the metric worth: so many completion tokens halve a score"
    elif required.minimum == 0 or (most and 1 in (required.margin, required.maximum)):
        why = "with a margin of 1, a minimum of 0 or a maximum of 1 anything would pass"
    elif required.margin is not None and required.margin < _MARGIN_MIN:
        why = (
            f"a margin below {_MARGIN_MIN:g} requires an improvement, which an equal checkpoint"
            " never shows: write the least loss that matters, such as margin = 0.02"
        )
    if why:
        raise InvalidInput(what=where, why=why)
    _check_most(entry, required.metric, where)
    return required


def _guard(entry: Mapping[str, Any], where: str) -> Guard:
    toml.refuse_unknown(entry, ("suite", "metric", "alpha", "slack", "most", *_LIMITS), where)
    kinds = [kind for kind in _LIMITS if kind in entry]
    if entry.get("metric") == "worth":
        raise InvalidInput(what=where, why="worth is for [[require]]; guard completion_tokens")
    if len(kinds) != 1:
        raise InvalidInput(what=where, why=f"it needs exactly one of {', '.join(_LIMITS)}")
    kind = kinds[0]
    if "slack" in entry and kind in {"max", "min"}:
        raise InvalidInput(what=where, why=f"slack has no meaning beside {kind}")
    _check_limit(entry, kind, where)
    if kind == "max_decrease" and entry[kind] > 1:
        raise InvalidInput(what=where, why=f"max_decrease is a share, and is {entry[kind]!r}")
    _check_limit(entry, "slack", where)
    _check_most(entry, _metric(entry, where, None), where)
    section = {key: value for key, value in entry.items() if key != kind}
    guard = toml.read_section(Guard, section | {"kind": kind, "limit": entry[kind]}, where)
    if guard.limit == 0 and guard.slack == 0 and kind != "min":
        why = (
            f"{kind} = 0 leaves no room, so an equal checkpoint never passes: write the least"
            f" change that matters, such as {kind} = 0.05"
        )
        raise InvalidInput(what=where, why=why)
    return guard


def _live_requirement(entry: Mapping[str, Any], where: str) -> LiveRequirement:
    better = "min" if str(entry.get("metric")) in LESS_IS_BETTER else "max"
    section = {"direction": better, "margin": 0, **entry}
    required = toml.read_section(LiveRequirement, section, where)
    if required.margin < _MARGIN_MIN:
        raise InvalidInput(what=where, why=f"it needs a margin of {_MARGIN_MIN:g} at least")
    return required


def _left_out_tasks(entry: Mapping[str, Any], where: str) -> LeftOutTasks:
    if not str(entry.get("reason", "")).strip():
        raise InvalidInput(what=where, why="it needs a reason, which verdicts repeat")
    return toml.read_section(LeftOutTasks, entry, where)


def _check_most(entry: Mapping[str, Any], metric: Metric, where: str) -> None:
    if "most" not in entry:
        return
    if metric in SHARES and metric != "invalid_tool_calls":
        why = f"{metric} is at most 1, so `most` has no meaning"
        raise InvalidInput(what=where, why=why)
    if (value := toml.number(entry["most"], "most", where)) <= 0:
        raise InvalidInput(what=where, why=f"most must be over 0, not {value!r}")


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
        span = "at least 0" if most is None else f"between 0 and {most:g}"
        raise InvalidInput(what=where, why=f"{key} must be {span}, not {value!r}")
