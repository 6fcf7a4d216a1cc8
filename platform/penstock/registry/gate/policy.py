"""The policy of a channel: its requirements for a checkpoint, written in TOML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_args

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

#: Metrics between 0 and 1; the others have no upper end.
SHARES = frozenset[Metric]({"score", "invalid_tool_calls", "edited", "asked", "worth"})
_LIMITS: tuple[LimitKind, ...] = get_args(LimitKind)
_LISTS = ("require", "guard", "live", "leave_out")
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


@dataclass(frozen=True, kw_only=True)
class _GateRules:
    combine: Combine = "all"


@dataclass(frozen=True, kw_only=True)
class _Sections:
    canary: CanarySteps | None = None
    evidence: EvidenceRules = EvidenceRules()
    gate: _GateRules = _GateRules()
    data: DataRules = DataRules()
    approval: ApprovalRule | None = None


_Part = TypeVar("_Part", Requirement, Guard, LiveRequirement, LeftOutTasks)


def parse(content: str, where: str) -> Policy:
    """Parse a policy. `where` names it in messages. Raises InvalidInput."""
    document = toml.parse_toml(content, where)
    names = [each.name for each in fields(_Sections)]
    toml.refuse_unknown(document, (*_LISTS, *names, "suites"), where)
    tables = {name: document[name] for name in names if name in document}
    sections = toml.read_section(_Sections, tables, where)
    suites = toml.table(document, "suites", where)
    policy = Policy(
        text=content,
        require=_entries(document, "require", where, _requirement),
        guards=_entries(document, "guard", where, _guard),
        live=_entries(document, "live", where, _live_requirement),
        canary=sections.canary,
        evidence=sections.evidence,
        combine=sections.gate.combine,
        versions={name: toml.text(suites, name, f"[suites] of {where}") for name in suites},
        leave_out=_entries(document, "leave_out", where, _left_out_tasks),
        data=sections.data,
        approval=sections.approval,
    )
    if not policy.require:
        raise InvalidInput(what=where, why="it has no [[require]], so anything would pass")
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
    read: Callable[[dict[str, Any], str], tuple[_Part, str | None]],
) -> tuple[_Part, ...]:
    """Read entries. `read` also says why one cannot be meant."""
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInput(what=where, why=f"{key} must be written as [[{key}]]")
    parts = []
    for number, entry in enumerate(entries, 1):
        place = f"[[{key}]] {number} of {where}"
        part, why = read(entry, place)
        if not 0.0001 <= (alpha := getattr(part, "alpha", 0.05)) <= 0.25:
            why = f"alpha must be from 0.0001 to 0.25, not {alpha!r}"
        if why:
            raise InvalidInput(what=place, why=why)
        parts.append(part)
    return tuple(parts)


def _requirement(entry: dict[str, Any], where: str) -> tuple[Requirement, str | None]:
    # Lower is better for costs. For matters of taste the policy says so.
    better = "max" if entry.get("metric", "score") in SHARES - {"invalid_tool_calls"} else "min"
    each = toml.read_section(Requirement, {"direction": better, **entry}, where)
    limits = {"minimum": each.minimum, "maximum": each.maximum, "margin": each.margin}
    most = 1 if each.metric in SHARES else None
    absolute, other = "minimum", "maximum"
    if each.direction == "min":
        absolute, other = other, absolute
    why = _unfit_limits(limits, most) or _unfit_most(each)
    if limits[other] is not None:
        why = f"with direction {each.direction!r} the limit is its {absolute}, not its {other}"
    elif each.margin is None and limits[absolute] is None:
        why = f"it needs a margin, a {absolute} or both"
    elif (each.metric == "worth") != (each.halved_by is not None):
        why = "halved_by belongs to the metric worth: so many completion tokens halve a score"
    elif each.minimum == 0 or (most and 1 in (each.margin, each.maximum)):
        why = "with a margin of 1, a minimum of 0 or a maximum of 1 anything would pass"
    elif each.margin is not None and 0 <= each.margin < _MARGIN_MIN:
        why = (
            f"a margin below {_MARGIN_MIN:g} requires an improvement, which an equal checkpoint"
            " never shows: write the least loss that matters, such as margin = 0.02"
        )
    return each, why


def _guard(entry: dict[str, Any], where: str) -> tuple[Guard, str | None]:
    toml.refuse_unknown(entry, ("suite", "metric", "alpha", "slack", "most", *_LIMITS), where)
    kinds = [kind for kind in _LIMITS if kind in entry]
    if len(kinds) != 1:
        raise InvalidInput(what=where, why=f"it needs exactly one of {', '.join(_LIMITS)}")
    kind = kinds[0]
    section = {key: value for key, value in entry.items() if key != kind}
    guard = toml.read_section(Guard, section | {"kind": kind, "limit": entry[kind]}, where)
    most = 1 if kind == "max_decrease" else None
    why = _unfit_limits({kind: guard.limit}, most) or _unfit_limits({"slack": guard.slack}, None)
    why = why or _unfit_most(guard)
    if guard.metric == "worth":
        why = "worth is for [[require]]; guard completion_tokens"
    elif "slack" in entry and kind in {"max", "min"}:
        why = f"slack has no meaning beside {kind}"
    elif guard.limit == 0 and guard.slack == 0 and kind != "min":
        why = (
            f"{kind} = 0 leaves no room, so an equal checkpoint never passes: write the least"
            f" change that matters, such as {kind} = 0.05"
        )
    return guard, why


def _live_requirement(entry: dict[str, Any], where: str) -> tuple[LiveRequirement, str | None]:
    better = "min" if str(entry.get("metric")) in LESS_IS_BETTER else "max"
    each = toml.read_section(LiveRequirement, {"direction": better, "margin": 0, **entry}, where)
    few = each.margin < _MARGIN_MIN
    return each, f"it needs a margin of {_MARGIN_MIN:g} at least" if few else None


def _left_out_tasks(entry: dict[str, Any], where: str) -> tuple[LeftOutTasks, str | None]:
    each = toml.read_section(LeftOutTasks, {"reason": " ", **entry}, where)
    return each, None if each.reason.strip() else "it needs a reason, which verdicts repeat"


def _unfit_most(each: Requirement | Guard) -> str | None:
    if each.most is None:
        return None
    if each.metric in SHARES and each.metric != "invalid_tool_calls":
        return f"{each.metric} is at most 1, so `most` has no meaning"
    return None if each.most > 0 else f"most must be over 0, not {each.most!r}"


def _unfit_limits(limits: Mapping[str, float | None], most: float | None) -> str | None:
    for key, value in limits.items():
        if value is not None and (value < 0 or (most is not None and value > most)):
            span = "at least 0" if most is None else f"between 0 and {most:g}"
            return f"{key} must be {span}, not {value!r}"
    return None
