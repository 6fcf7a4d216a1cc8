"""The results of a suite: which attempts count, what is wrong with them, and a metric by task.

Pure. No statistics happen here: what cannot be compared is said before anything is compared.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import fsum, isfinite

import numpy as np

from penstock.checkpoints.attempt import Attempt, RecordedAttempt
from penstock.gate.designs import CountedAttempts, count_attempts
from penstock.gate.evidence import CheckpointIdentity, Evidence, SideEvidence, SuiteEvidence
from penstock.gate.policy import EvidenceRules, Metric
from penstock.gate.statistics import Values
from penstock.gate.verdict import Finding

_DIGITS = 12
#: A clock that is put right goes back by less, and what was written just before seems to be later.
_CLOCK_BACK_SECONDS_MAX = 60
#: By task, for each attempt: an amount, and what it is a share of.
Amounts = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class SiftedAttempts:
    """What counts of one side: scored attempts that are fresh enough."""

    scored: Sequence[RecordedAttempt]
    errors: int
    stale: int
    future: int
    #: The mean over tasks of the share of errors.
    by_task: float = 0.0

    @property
    def error_share(self) -> float:
        """Of all attempts, or of a task on average where that is more: many attempts at one task
        hide no errors at the others."""
        everything = len(self.scored) + self.errors
        return max(self.errors / everything, self.by_task) if everything else 0.0


def sift_attempts(
    attempts: Sequence[RecordedAttempt], now: int, max_age_s: int | None
) -> SiftedAttempts:
    """Errors say nothing about the model, and what is too old nothing about today."""
    oldest = now - max_age_s * 1_000_000 if max_age_s is not None else None
    fresh = [one for one in attempts if oldest is None or one.scored_at >= oldest]
    scored = [one for one in fresh if one.result.error is None]
    return SiftedAttempts(
        scored=sorted(scored, key=lambda one: (one.result.task, one.result.attempt)),
        errors=len(fresh) - len(scored),
        stale=len(attempts) - len(fresh),
        future=sum(is_from_the_future(one.scored_at, now) for one in attempts),
        by_task=_errors_by_task(fresh),
    )


def is_from_the_future(moment: int, now: int) -> bool:
    """Whether one of the two clocks was wrong."""
    return moment > now + _CLOCK_BACK_SECONDS_MAX * 1_000_000


def _errors_by_task(attempts: Sequence[RecordedAttempt]) -> float:
    tried = Counter(one.result.task for one in attempts)
    failed = Counter(one.result.task for one in attempts if one.result.error is not None)
    shares = fsum(failed[task] / tried[task] for task in failed)
    return round(shares / max(len(tried), 1), _DIGITS)  # a share at its limit is within it


def unfit(one: Attempt, metric: Metric) -> str | None:
    """Why a scored attempt is what nothing can be. Not saying a metric is another matter."""
    if one.score is None:
        return "is scored and has no score"
    amount = getattr(one, metric)
    if amount is None:
        return None
    if not isfinite(amount) or amount < 0 or (metric == "score" and amount > 1):
        return f"has the {metric} {amount}"
    if metric == "invalid_tool_calls" and one.tool_calls is not None and amount > one.tool_calls:
        return f"has {amount} invalid tool calls of {one.tool_calls}"
    return None


def amounts_by_task(scored: Sequence[RecordedAttempt], metric: Metric) -> Amounts:
    """Attempts that do not say it are left out: that is no 0."""
    found: Amounts = defaultdict(list)
    for kept in scored:
        one = kept.result
        amount = getattr(one, metric)
        whole = one.tool_calls if metric == "invalid_tool_calls" else 1
        if amount is not None and whole is not None:
            found[one.task].append((float(amount), float(whole)))
    return dict(found)


def task_values(found: Amounts, tasks: Sequence[str]) -> tuple[float, Values]:
    """The mean over tasks, and what each task adds to it. A share of tool calls is one of all
    calls, so its tasks are those of the ratio, linear around it (the mean stays the ratio)."""
    means = np.array([np.sort(np.array(found[task]), axis=0).mean(axis=0) for task in tasks])
    amount, whole = means[:, 0], means[:, 1]
    if (whole == 1).all():
        return float(amount.mean()), amount
    if not whole.any():
        return 0.0, np.zeros(len(tasks))
    ratio = amount.mean() / whole.mean()
    return float(ratio), np.asarray(ratio + (amount - ratio * whole) / whole.mean())


#: How many names a sentence lists.
_NAMES = 3


@dataclass(frozen=True)
class SideResults:
    """What one of the two has shown on a suite."""

    name: str
    sifted: SiftedAttempts
    digest: str


@dataclass(frozen=True)
class SuiteResults:
    """A suite whose results may be compared, unless it has `problems`."""

    suite: str
    version: str | None
    #: Those that each side has to have results of.
    tasks: Sequence[str]
    #: Whether the suite itself says so; else these are the tasks that anybody tried.
    listed: bool
    candidate: SideResults | None
    incumbent: SideResults | None
    problems: Sequence[str]
    #: Which of the candidate's attempts count, where a design says it.
    counted: CountedAttempts | None = None

    def level(self, alpha: float) -> float:
        """With which level a test errs in at most alpha of all cases, over all looks."""
        return alpha if self.counted is None else self.counted.level(alpha)

    @property
    def sides(self) -> list[SideResults]:
        return [one for one in (self.candidate, self.incumbent) if one is not None]


@dataclass(frozen=True)
class MetricValues:
    """A metric of both sides, or what is missing of it."""

    candidate: Amounts = field(default_factory=dict)
    incumbent: Amounts | None = None
    gaps: Sequence[Finding] = ()


def suite_results(evidence: Evidence, suite: SuiteEvidence, rules: EvidenceRules) -> SuiteResults:
    """Raises nothing: what is wrong stands in `problems`."""
    if suite.version is None:
        return SuiteResults(
            suite.suite, None, (), False, None, None, [_unknown_version(evidence, suite)]
        )
    pairs: list[tuple[CheckpointIdentity, SideEvidence]] = [(evidence.candidate, suite.candidate)]
    if evidence.incumbent is not None:
        pairs.append((evidence.incumbent, suite.incumbent or SideEvidence()))
    counted = None
    if (design := suite.candidate.design) is not None:
        counted = count_attempts(design, suite.candidate.attempts)
        if counted.look:
            pairs[0] = evidence.candidate, replace(suite.candidate, attempts=counted.attempts)
    shown = [
        SideResults(
            who.name, sift_attempts(side.attempts, evidence.at, rules.max_age_s), side.digest
        )
        for who, side in pairs
    ]
    tried = sorted({one.result.task for _, side in pairs for one in side.attempts})
    problems: list[str] = []
    for (_, side), one in zip(pairs, shown, strict=True):
        problems += _problems(suite, side, one, rules)
    return SuiteResults(
        suite=suite.suite,
        version=suite.version,
        tasks=tuple(suite.tasks) or tuple(tried),
        listed=bool(suite.tasks),
        candidate=shown[0],
        incumbent=shown[1] if len(shown) > 1 else None,
        problems=problems,
        counted=counted,
    )


def _unknown_version(evidence: Evidence, suite: SuiteEvidence) -> str:
    if suite.unlisted is not None:
        return suite.unlisted
    pinned = evidence.policy.versions.get(suite.suite) if evidence.policy else None
    if pinned is not None:
        return f"there is no version {pinned} of the suite {suite.suite}, which the policy names"
    return f"there is no suite {suite.suite}"


def _problems(
    suite: SuiteEvidence, side: SideEvidence, one: SideResults, rules: EvidenceRules
) -> list[str]:
    sifted = one.sifted
    if not side.attempts:
        if side.elsewhere:
            return [
                f"{one.name} was scored on another version of {suite.suite}"
                f" ({listed(side.elsewhere)}), and {suite.version} counts"
            ]
        return [f"{one.name} has no results on {suite.suite}"]
    if sifted.future:
        return [f"{sifted.future} results of {one.name} on {suite.suite} are from the future"]
    if suite.tasks and (others := {each.result.task for each in side.attempts} - {*suite.tasks}):
        return [f"{one.name} has results of tasks that {suite.suite} has not ({listed(others)})"]
    if sifted.errors and sifted.error_share > rules.max_error_share:
        return [
            f"{sifted.errors} of {sifted.errors + len(sifted.scored)} attempts of {one.name} on"
            f" {suite.suite} are errors, {sifted.by_task:.1%} of a task's on average, and at most"
            f" {rules.max_error_share:.1%} may be"
        ]
    if not sifted.scored:
        what = "are too old" if sifted.stale else "are errors"
        return [f"all results of {one.name} on {suite.suite} {what}"]
    return []


def metric_values(looked: SuiteResults, metric: Metric, attempts: int) -> MetricValues:
    """A metric for each task of both sides."""
    found: list[Amounts] = []
    gaps: list[Finding] = []
    if looked.counted is not None and looked.counted.look == 0:
        why = f"the plan of {looked.sides[0].name} on {looked.suite} has not come to its first look"
        gaps.append(Finding("INCONCLUSIVE", why))
    for one in looked.sides:
        said = amounts_by_task(one.sifted.scored, metric)
        found.append(said)
        if gap := _gap(looked, one, said, metric, attempts):
            gaps.append(gap)
    return MetricValues(found[0], found[1] if len(found) > 1 else None, gaps)


def _gap(
    looked: SuiteResults, one: SideResults, said: Amounts, metric: Metric, attempts: int
) -> Finding | None:
    where = f"{one.name} on {looked.suite}"
    for kept in one.sifted.scored:
        if why := unfit(kept.result, metric):
            return Finding("ERROR", f"{_attempt(kept.result)} of {where} {why}")
    if not said:
        return Finding("ERROR", f"no result of {where} says its {metric}")
    silent = len(one.sifted.scored) - sum(map(len, said.values()))
    if silent:
        return Finding("INCONCLUSIVE", f"{silent} results of {where} do not say their {metric}")
    missing = [task for task in looked.tasks if task not in said]
    short = [task for task in looked.tasks if len(said.get(task, ())) < attempts]
    if short and one.sifted.stale:
        return Finding("ERROR", f"{one.sifted.stale} results of {where} are too old: run it again")
    if missing:
        why = f"{len(missing)} of {len(looked.tasks)} tasks have no result of {where}"
        return Finding("INCONCLUSIVE", f"{why} ({listed(missing)})")
    if short:
        lacking = sum(attempts - len(said[task]) for task in short)
        why = f"{lacking} attempts of {where} are missing: {attempts} are asked of each task"
        return Finding("INCONCLUSIVE", f"{why} ({listed(short)})")
    return None


def _attempt(one: Attempt) -> str:
    return f"attempt {one.attempt} at {one.task}"


def listed(names: Sequence[str] | set[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - _NAMES} more" if len(known) > _NAMES else ""
    return ", ".join(known[:_NAMES]) + more
