"""A metric by task: observed amounts, missing ones, and the range of each task's value.

An attempt is missing if it has no score, lacks the metric, or was never made."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from math import isfinite, nan
from typing import Any, Literal

import msgspec
import numpy as np

from penstock.registry.checkpoints.attempts import Attempt, RecordedAttempt, listed
from penstock.registry.gate.policy import SHARES, Metric
from penstock.registry.gate.results import SideResults, SuiteResults
from penstock.registry.gate.statistics import Ranges, Values
from penstock.registry.gate.verdict import Outcome, worst_of

#: Per task, for each attempt: an amount, and the whole that it is a share of.
Amounts = dict[str, list[tuple[float, float]]]
ROLES = ("candidate", "incumbent")


class SideAmounts(msgspec.Struct, frozen=True):
    """`missing` counts missing attempts per task."""

    amounts: Amounts
    missing: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def facts(self) -> dict[str, int]:
        short = [count for task, count in self.missing.items() if task in self.amounts]
        return {"tasks": len(self.missing) - len(short), "attempts": sum(short)}


class MetricAmounts(msgspec.Struct, frozen=True):
    """Amounts of the candidate, and of the incumbent if there is one. A `gap` prevents any
    decision."""

    metric: Metric
    tasks: Sequence[str]
    sides: Sequence[SideAmounts]
    #: The largest amount of an attempt; infinite if unknown.
    most: float
    gap: tuple[Outcome, str] | None = None

    @property
    def missing(self) -> list[str]:
        """Tasks with missing attempts on either side."""
        lacking: set[str] = set().union(*(side.missing for side in self.sides))
        return [task for task in self.tasks if task in lacking]

    @property
    def scored(self) -> list[str]:
        """Tasks with amounts on all sides."""
        if not self.sides:
            return []
        return [task for task in self.tasks if all(task in side.amounts for side in self.sides)]

    def ranges(self, side: SideAmounts) -> tuple[float, Ranges]:
        """The mean over the tasks with amounts on all sides, and each task's range."""
        mean, _ = task_values(side.amounts, self.scored)
        is_ratio = self.metric == "invalid_tool_calls"
        return mean, value_ranges(side, self.tasks, self.most, is_ratio=is_ratio)

    @property
    def facts(self) -> dict[str, Any]:
        if not self.sides:
            return {}
        counts = [[*map(len, side.amounts.values())] or [0] for side in self.sides]
        spans = ([min(each), max(each)] for each in counts)
        facts: dict[str, Any] = {"tasks": len(self.tasks)}
        facts["attempts_found"] = dict(zip(ROLES, spans, strict=False))
        if self.missing:
            facts["tasks_scored"] = len(self.scored)
            missing = (side.facts for side in self.sides)
            facts["missing"] = dict(zip(ROLES, missing, strict=False))
        return facts

    def missing_text(self, how: Literal["at their worst", "at their best"]) -> str:
        if not (missing := self.missing):
            return ""
        if len(missing) == 1:
            return f"; 1 of {len(self.tasks)} tasks counts {how.replace('their', 'its')}"
        return f"; {len(missing)} of {len(self.tasks)} tasks count {how}"

    @property
    def endless_text(self) -> str:
        missing = f"{len(self.missing)} of {len(self.tasks)} tasks lack it ({listed(self.missing)})"
        if self.metric == "invalid_tool_calls":
            end, most = "an attempt may make any number of tool calls", "makes"
        else:
            end, most = f"{self.metric} has no upper end", "can have"
        return f"{end}, and {missing}: set `most` in the policy to the most that an attempt {most}"


def metric_amounts(
    results: SuiteResults,
    metric: Metric,
    attempts: int,
    most: float | None,
    halved_by: int | None = None,
) -> MetricAmounts:
    gaps: dict[str, Outcome] = {}
    if results.problems:
        gaps["; ".join(results.problems)] = "ERROR"
    elif results.design is not None and results.look == 0:
        plan = f"the plan of {results.sides[0].name} on {results.suite}"
        gaps[f"{plan} has not reached its first look"] = "INCONCLUSIVE"
    sides = []
    for side in results.sides:
        amounts = amounts_by_task(side.scored, metric, halved_by)
        wanted = {task: side.wanted(task, attempts) for task in results.tasks}
        lacking = {task: count - len(amounts.get(task, ())) for task, count in wanted.items()}
        missing = {task: count for task, count in lacking.items() if count > 0}
        sides.append(SideAmounts(amounts, missing))
        if results.problems:
            continue
        if why := _impossible(results, side, metric):
            return MetricAmounts(metric, results.tasks, (), np.inf, ("ERROR", why))
        if why := _problem(results, side, sides[-1], metric):
            gaps[why] = "ERROR"
    end = 1.0 if metric in SHARES and metric != "invalid_tool_calls" else most or np.inf
    if any(side.missing for side in sides) and (why := _over(results, sides, metric, end)):
        gaps[why] = "ERROR"
    gap = (worst_of(gaps.values()), "; ".join(gaps)) if gaps else None
    return MetricAmounts(metric, results.tasks, sides, end, gap)


def amounts_by_task(
    scored: Sequence[RecordedAttempt], metric: Metric, halved_by: int | None = None
) -> Amounts:
    """Amounts of attempts by task, without attempts that lack the metric."""
    amounts: Amounts = defaultdict(list)
    for recorded in scored:
        attempt = recorded.result
        amount = worth_of(attempt, halved_by) if halved_by else getattr(attempt, metric)
        whole = attempt.tool_calls if metric == "invalid_tool_calls" else 1
        if amount is not None and whole is not None:
            amounts[attempt.task].append((float(amount), float(whole)))
    return dict(amounts)


def worth_of(attempt: Attempt, halved_by: int) -> float | None:
    """The score, halved by so many completion tokens, and by twice as many to a third."""
    if attempt.score is None or attempt.completion_tokens is None:
        return None
    return attempt.score / (1 + attempt.completion_tokens / halved_by)


def plain_amounts(amounts: Amounts) -> dict[str, list[float]]:
    return {task: [amount for amount, _ in each] for task, each in amounts.items()}


def task_values(amounts: Amounts, tasks: Sequence[str]) -> tuple[float, Values]:
    """The mean over tasks, and each task's contribution. A ratio is linearized around its mean."""
    if not tasks:
        return nan, np.zeros(0)
    means = np.array([np.sort(np.array(amounts[task]), axis=0).mean(axis=0) for task in tasks])
    amount, whole = means[:, 0], means[:, 1]
    if (whole == 1).all():
        return float(amount.mean()), amount
    if not whole.any():
        return 0.0, np.zeros(len(tasks))
    ratio = amount.mean() / whole.mean()
    return float(ratio), np.asarray(ratio + (amount - ratio * whole) / whole.mean())


def value_ranges(
    side: SideAmounts, tasks: Sequence[str], most: float, *, is_ratio: bool = False
) -> Ranges:
    """Bounds of each task's value over all completions of what is missing."""
    scored = [task for task in tasks if task in side.amounts]
    observed = dict(zip(scored, task_values(side.amounts, scored)[1], strict=True))
    seen = np.array([observed.get(task, nan) for task in tasks])
    if not side.missing:
        return Ranges.of(seen)
    if is_ratio:
        low, high = _ratio_ends(side, tasks, most)
        return Ranges(low, high, seen)
    low, high = seen.copy(), seen.copy()
    for at, task in enumerate(tasks):
        if missing := side.missing.get(task, 0):
            known = [amount for amount, _ in side.amounts.get(task, ())]
            count, total = missing + len(known), sum(sorted(known))
            low[at], high[at] = total / count, (total + missing * most) / count
    return Ranges(low, high, seen)


def _ratio_ends(side: SideAmounts, tasks: Sequence[str], most: float) -> tuple[Values, Values]:
    """Bounds of a ratio's values. Missing attempts make up to `most` calls, any number of them
    invalid."""
    fewest, ends = [], []
    for task in tasks:
        known, missing = side.amounts.get(task, []), side.missing.get(task, 0)
        amount, whole = (sum(sorted(pair[at] for pair in known)) for at in (0, 1))
        more, count = missing * most if missing else 0.0, missing + len(known)
        # Missing attempts make no call, only valid calls, or only invalid ones.
        ends.append([(amount / count, whole / count), (amount / count, (whole + more) / count)])
        ends[-1].append(((amount + more) / count, (whole + more) / count))
        fewest.append(whole / count)
    places = np.array(ends)  # axes: task, end, and amount or whole
    calls = float(np.mean(fewest)), float(places[:, 2, 1].mean())
    if calls[0] <= 0 or not np.isfinite(places).all():
        return np.full(len(tasks), -np.inf), np.full(len(tasks), np.inf)
    least = float(places[:, 1, 0].mean() / calls[1])
    greatest = float(places[:, 2, 0].mean() / calls[1])
    values = [
        ratio + (places[..., 0] - ratio * places[..., 1]) / mean
        for ratio, mean in product((least, greatest), calls)
    ]
    return np.min(values, axis=(0, 2)), np.max(values, axis=(0, 2))


def _problem(
    results: SuiteResults, side: SideResults, amounts: SideAmounts, metric: Metric
) -> str | None:
    """The reason that a side's results of a metric cannot be judged, or None."""
    where = f"{side.name} on {results.suite}"
    if not amounts.amounts:
        return f"no result of {where} has the metric {metric}"
    if stale := sorted((side.evidence.tasks - side.tried.keys()) & amounts.missing.keys()):
        tasks = f"{len(stale)} of {len(results.tasks)} tasks ({listed(stale)})"
        return f"all results of {where} at {tasks} are too old: run them again"
    return None


def _impossible(results: SuiteResults, side: SideResults, metric: Metric) -> str | None:
    for recorded in side.scored:
        attempt = recorded.result
        if why := _why_impossible(attempt, metric):
            where = f"{attempt.task} of {side.name} on {results.suite}"
            return f"attempt {attempt.attempt} at {where} {why}"
    return None


def _over(
    results: SuiteResults, sides: Sequence[SideAmounts], metric: Metric, most: float
) -> str | None:
    at = 1 if metric == "invalid_tool_calls" else 0
    for side, amounts in zip(results.sides, sides, strict=True):
        for task, each in sorted(amounts.amounts.items()):
            if (top := max(pair[at] for pair in each)) > most:
                what = "tool calls" if at else metric
                return (
                    f"an attempt at {task} of {side.name} on {results.suite} has {top:g} {what},"
                    f" but the policy sets `most` to {most:g}: raise it"
                )
    return None


def _why_impossible(attempt: Attempt, metric: Metric) -> str | None:
    """The reason that no scored attempt can have these values, or None."""
    if attempt.score is None:
        return "is scored and has no score"
    measured = "completion_tokens" if metric == "worth" else metric
    amount, calls = getattr(attempt, measured), attempt.tool_calls
    if amount is None:
        return None
    if not isfinite(amount) or amount < 0 or (metric == "score" and amount > 1):
        return f"has the {metric} {amount}"
    if metric == "invalid_tool_calls" and calls is not None and amount > calls:
        return f"has {amount} invalid tool calls of {calls}"
    return None
