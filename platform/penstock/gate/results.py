"""The results of a suite: which attempts count, what is wrong with them, and a metric by task.

Pure, and without statistics: what cannot be compared is reported before anything is compared."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite

import numpy as np

from penstock.checkpoints.attempts import Attempt, RecordedAttempt, error_groups, listed
from penstock.checkpoints.journal import NOTHING_RECORDED, JournalHead
from penstock.gate.designs import Design, count_attempts
from penstock.gate.evidence import Evidence, SideEvidence, SuiteEvidence
from penstock.gate.policy import TASKS_LEAST, EvidenceRules, Metric
from penstock.gate.statistics import Values
from penstock.gate.verdict import Outcome, worst_of

#: A clock that is put right goes back by less; what was written just before then seems later.
_CLOCK_BACK_SECONDS_MAX = 60
#: How many different errors a verdict names.
_ERRORS_SHOWN = 3
#: By task, for each attempt: an amount, and what it is a share of.
Amounts = dict[str, list[tuple[float, float]]]


def is_from_the_future(moment: int, now: int) -> bool:
    """Whether one of the two clocks was wrong."""
    return moment > now + _CLOCK_BACK_SECONDS_MAX * 1_000_000


@dataclass(frozen=True, kw_only=True)
class SideResults:
    name: str
    #: The digest of all its attempts.
    digest: str
    #: The attempts that count: fresh enough and no errors, in their order.
    scored: Sequence[RecordedAttempt]
    errors: int
    stale: int
    journal: JournalHead = NOTHING_RECORDED


@dataclass(frozen=True)
class SuiteResults:
    """A suite whose results may be compared, unless it has `problems`."""

    suite: str
    version: str | None
    #: The tasks of which each side needs results.
    tasks: Sequence[str]
    #: Whether the suite itself lists them; else these are the tasks that anybody tried.
    listed: bool
    #: Of the candidate, and of the incumbent if there is one.
    sides: Sequence[SideResults]
    problems: Sequence[str]
    #: The candidate's, and the last look that is complete.
    design: Design | None = None
    look: int = 0
    journal: JournalHead = NOTHING_RECORDED

    def level(self, alpha: float) -> float:
        """The level at which a test errs in at most alpha of all cases, over all looks."""
        return self.design.level(self.look, alpha) if self.design else alpha


def suite_results(evidence: Evidence, suite: SuiteEvidence, rules: EvidenceRules) -> SuiteResults:
    if suite.version is None:
        problem = suite.unlisted or f"there is no suite {suite.suite}"
        pinned = evidence.policy.versions.get(suite.suite) if evidence.policy else None
        if suite.unlisted is None and pinned is not None:
            problem = f"there is no version {pinned} of {suite.suite}, which the policy names"
        return SuiteResults(suite.suite, None, (), False, (), [*suite.alterations, problem])
    candidate, design, look = suite.candidate, suite.candidate.design, 0
    if design is not None:
        look, attempts = count_attempts(design, candidate.attempts)
        candidate = replace(candidate, attempts=attempts) if look else candidate
    sides = [(evidence.candidate.name, candidate)]
    if evidence.incumbent is not None:
        sides.append((evidence.incumbent.name, suite.incumbent or SideEvidence()))
    results, problems = [], list(suite.alterations)
    for name, side in sides:
        result, why = _side_results(suite, name, side, evidence.at, rules)
        results.append(replace(result, journal=side.journal))
        problems += side.alterations or ([why] if why else [])
    tasks, listed = tuple(suite.tasks), bool(suite.tasks)
    if not listed:
        tasks = tuple(sorted({each.result.task for _, side in sides for each in side.attempts}))
    return SuiteResults(
        suite.suite, suite.version, tasks, listed, results, problems, design, look, suite.journal
    )


def _side_results(
    suite: SuiteEvidence, name: str, side: SideEvidence, now: int, rules: EvidenceRules
) -> tuple[SideResults, str | None]:
    """The second value is why they cannot be compared. Errors say nothing about the model, and old
    results nothing about today."""
    oldest = now - rules.max_age_s * 1_000_000 if rules.max_age_s is not None else 0
    fresh = [each for each in side.attempts if each.scored_at >= oldest]
    tried = Counter(each.result.task for each in fresh)
    failed = Counter(each.result.task for each in fresh if each.result.error is not None)
    scored = sorted(
        (each for each in fresh if each.result.error is None),
        key=lambda each: (each.result.task, each.result.attempt),
    )
    errors, stale = len(fresh) - len(scored), len(side.attempts) - len(fresh)
    results = SideResults(name=name, digest=side.digest, scored=scored, errors=errors, stale=stale)
    if not side.attempts and side.elsewhere:
        return results, (
            f"{name} was scored on another version of {suite.suite} ({listed(side.elsewhere)}),"
            f" and {suite.version} counts: score it there, or name the version that counts under"
            " [suites] of the policy"
        )
    if not side.attempts:
        return results, f"{name} has no results on {suite.suite}"
    if future := sum(is_from_the_future(each.scored_at, now) for each in side.attempts):
        return results, f"{future} results of {name} on {suite.suite} are from the future"
    if suite.tasks and (others := {each.result.task for each in side.attempts} - {*suite.tasks}):
        strange = f"tasks that {suite.suite} does not have ({listed(others)})"
        return results, f"{name} has results of {strange}"
    # The mean over tasks of the share of errors; rounded, so that a share at its limit is within.
    shares = fsum(failed[task] / tried[task] for task in failed)
    by_task = round(shares / max(len(tried), 1), 12)
    if errors and max(errors / len(fresh), by_task) > rules.max_error_share:
        return results, (
            f"{errors} of {len(fresh)} attempts of {name} on {suite.suite} are errors,"
            f" {by_task:.1%} of a task's on average; at most {rules.max_error_share:.1%} are"
            f" allowed: {_errors_text(fresh)}"
        )
    if not scored:
        reason = "are too old" if stale else f"are errors: {_errors_text(fresh)}"
        return results, f"all results of {name} on {suite.suite} {reason}"
    return results, None


def _errors_text(attempts: Sequence[RecordedAttempt]) -> str:
    groups = error_groups(recorded.result for recorded in attempts)
    more = f"; and {len(groups) - _ERRORS_SHOWN} other errors" if groups[_ERRORS_SHOWN:] else ""
    return "; ".join(group.text for group in groups[:_ERRORS_SHOWN]) + more


def metric_values(
    results: SuiteResults, metric: Metric, attempts: int
) -> tuple[list[Amounts], tuple[Outcome, str] | None]:
    """A metric for each task of both sides, or why it cannot be judged."""
    amounts: list[Amounts] = []
    gaps: dict[str, Outcome] = {}
    if results.design is not None and results.look == 0:
        plan = f"the plan of {results.sides[0].name} on {results.suite}"
        gaps[f"{plan} has not come to its first look"] = "INCONCLUSIVE"
    for side in results.sides:
        amounts.append(amounts_by_task(side.scored, metric))
        if gap := _gap(results, side, amounts[-1], metric, attempts):
            gaps[gap[1]] = gap[0]
    if gaps:
        return [], (worst_of(gaps.values()), "; ".join(gaps))
    if len(amounts[0]) < TASKS_LEAST:
        why = f"{len(amounts[0])} tasks are too few: at least {TASKS_LEAST} are needed"
        return amounts, ("INCONCLUSIVE", why)
    return amounts, None


def amounts_by_task(scored: Sequence[RecordedAttempt], metric: Metric) -> Amounts:
    """Attempts without the metric are left out: a missing value is no 0."""
    amounts: Amounts = defaultdict(list)
    for recorded in scored:
        attempt = recorded.result
        amount = getattr(attempt, metric)
        whole = attempt.tool_calls if metric == "invalid_tool_calls" else 1
        if amount is not None and whole is not None:
            amounts[attempt.task].append((float(amount), float(whole)))
    return dict(amounts)


def plain_amounts(amounts: Amounts) -> dict[str, list[float]]:
    return {task: [amount for amount, _ in each] for task, each in amounts.items()}


def task_values(amounts: Amounts, tasks: Sequence[str]) -> tuple[float, Values]:
    """The mean over tasks, and what each task adds to it. A share of tool calls is one of all
    calls, so its tasks are those of the ratio, linear around it (the mean stays the ratio)."""
    means = np.array([np.sort(np.array(amounts[task]), axis=0).mean(axis=0) for task in tasks])
    amount, whole = means[:, 0], means[:, 1]
    if (whole == 1).all():
        return float(amount.mean()), amount
    if not whole.any():
        return 0.0, np.zeros(len(tasks))
    ratio = amount.mean() / whole.mean()
    return float(ratio), np.asarray(ratio + (amount - ratio * whole) / whole.mean())


def _gap(
    results: SuiteResults, side: SideResults, amounts: Amounts, metric: Metric, attempts: int
) -> tuple[Outcome, str] | None:
    where = f"{side.name} on {results.suite}"
    for recorded in side.scored:
        attempt = recorded.result
        if why := _why_impossible(attempt, metric):
            return "ERROR", f"attempt {attempt.attempt} at {attempt.task} of {where} {why}"
    if not amounts:
        return "ERROR", f"no result of {where} has the metric {metric}"
    silent = len(side.scored) - sum(map(len, amounts.values()))
    if silent:
        return "INCONCLUSIVE", f"{silent} results of {where} do not have the metric {metric}"
    missing = [task for task in results.tasks if task not in amounts]
    short = [task for task in results.tasks if len(amounts.get(task, ())) < attempts]
    if short and side.stale:
        return "ERROR", f"{side.stale} results of {where} are too old: run it again"
    if missing:
        why = f"{len(missing)} of {len(results.tasks)} tasks have no result of {where}"
        return "INCONCLUSIVE", f"{why} ({listed(missing)})"
    if short:
        lacking = sum(attempts - len(amounts[task]) for task in short)
        why = f"{lacking} attempts of {where} are missing: each task needs {attempts}"
        return "INCONCLUSIVE", f"{why} ({listed(short)})"
    return None


def _why_impossible(attempt: Attempt, metric: Metric) -> str | None:
    """Why no scored attempt can have these values; it may lack the metric."""
    if attempt.score is None:
        return "is scored and has no score"
    amount, calls = getattr(attempt, metric), attempt.tool_calls
    if amount is None:
        return None
    if not isfinite(amount) or amount < 0 or (metric == "score" and amount > 1):
        return f"has the {metric} {amount}"
    if metric == "invalid_tool_calls" and calls is not None and amount > calls:
        return f"has {amount} invalid tool calls of {calls}"
    return None
