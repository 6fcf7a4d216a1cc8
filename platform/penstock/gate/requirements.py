"""Whether a requirement of the policy is met, and whether a guard holds: pure.

A guard relative to the incumbent is a limit on a mean over tasks as well: `candidate − (1 + limit)
× incumbent` is at most 0. So no ratio of two uncertain numbers has to be bounded, and tasks stay
paired.
"""

from dataclasses import asdict, dataclass
from typing import Any

from penstock.gate.policy import SHARES, TASKS_LEAST, Guard, Requirement
from penstock.gate.power import Spread, attempts_for, spread_of, tasks_for
from penstock.gate.results import Amounts, SuiteResults, metric_values, task_values
from penstock.gate.statistics import (
    Comparison,
    Estimate,
    Values,
    compare_values,
    estimate,
    reach_of,
)
from penstock.gate.verdict import Finding, Outcome, PartVerdict, worst_of


def judge_requirement(one: Requirement, looked: SuiteResults, alpha: float) -> PartVerdict:
    """`alpha` is the requirement's own, or what a correction leaves of it."""
    facts = asdict(one) | {"alpha": alpha, "alpha_asked": one.alpha}
    told = metric_values(looked, one.metric, one.attempts)
    if told.gaps:
        return PartVerdict(worst_of(told.gaps), "; ".join(gap.why for gap in told.gaps), facts)
    tasks = sorted(told.candidate)
    facts["tasks"] = len(tasks)
    facts["attempts_found"] = _attempt_counts(told.candidate, told.incumbent)
    if len(tasks) < max(TASKS_LEAST, 2):
        why = f"{len(tasks)} tasks are too few to say anything: {TASKS_LEAST} at least"
        return PartVerdict("INCONCLUSIVE", why, facts)
    found = [*_against_limit(one, told.candidate, alpha, facts)]
    if told.incumbent is not None and one.margin is not None:
        found.append(_against_incumbent(one, told.candidate, told.incumbent, alpha, facts))
    if not found:
        return PartVerdict("PASS", "there is no incumbent to compare with", facts, idle=True)
    outcome, why = worst_of(found), "; ".join(gap.why for gap in found)
    if outcome == "PASS" and len(tasks) < one.min_tasks:
        return PartVerdict(
            "INCONCLUSIVE", f"{len(tasks)} tasks of {one.min_tasks} that are asked", facts
        )
    return PartVerdict(outcome, why, facts)


def _against_incumbent(
    one: Requirement, candidate: Amounts, incumbent: Amounts, alpha: float, facts: dict[str, Any]
) -> Finding:
    margin = one.margin or 0.0
    tasks = sorted(candidate)
    (ours_mean, ours), (theirs_mean, theirs) = (
        task_values(side, tasks) for side in (candidate, incumbent)
    )
    scale = _metric_scale(one, (ours_mean + theirs_mean) / 2)
    found = compare_values(
        ours, theirs, margin=margin, alpha=alpha, direction=one.direction, scale=scale
    )
    facts |= asdict(found) | {"alpha": alpha}
    if found.lower >= -margin:
        return Finding(
            "PASS", f"worse by {max(-found.lower, 0):.4g} at most, and {margin:g} may be"
        )
    if found.upper < -margin:
        return Finding("FAIL", f"worse by {-found.upper:.4g} at least, and {margin:g} may be")
    facts["decides"] = needs = _needs(found, _spread(one, candidate, incumbent), scale or 1.0)
    return Finding("INCONCLUSIVE", f"it may be worse by {-found.lower:.4g}; {_advice(needs)}")


def _against_limit(
    one: Requirement, candidate: Amounts, alpha: float, facts: dict[str, Any]
) -> list[Finding]:
    """Its own mean, beside a limit."""
    limit = one.minimum if one.direction == "max" else one.maximum
    if limit is None:
        return []
    mean, ours = task_values(candidate, sorted(candidate))
    found = _bounds(one, ours, limit, alpha)
    own = {"mean": mean, "lower": found.lower, "upper": found.upper, "p": found.p}
    facts["candidate_mean"], facts["own"] = mean, own
    most = one.direction == "min"
    if most:
        own |= {"lower": -found.upper, "upper": -found.lower}
    sure = own["upper"] if most else own["lower"]
    word, name = ("at most", "maximum") if most else ("at least", "minimum")
    told = f"it is shown to be {word} {sure:.4g}, and the {name} is {limit:g}"
    sign = -1 if most else 1
    if found.lower >= sign * limit:
        return [Finding("PASS", told)]
    if found.upper < sign * limit:
        return [
            Finding("FAIL", f"its {one.metric} of {mean:.4g} is shown to miss the {name} {limit:g}")
        ]
    return [Finding("INCONCLUSIVE", told)]


def _bounds(one: Requirement, ours: Values, limit: float, alpha: float) -> Estimate:
    sign = 1.0 if one.direction == "max" else -1.0
    values = sign * ours
    ends = sorted((0.0, sign))
    scale = _metric_scale(one, limit)
    if scale is not None:
        reach = reach_of(values, scale)
        ends = [float(values.mean()) - reach, float(values.mean()) + reach]
    return estimate(values, worst=ends[0], best=ends[1], limit=sign * limit, alpha=alpha)


def _metric_scale(one: Requirement, mean: float) -> float | None:
    """None between 0 and 1. A ratio of sums is linear in tasks only around itself, and may leave
    that span."""
    if one.metric == "invalid_tool_calls":
        return 1.0
    return None if one.metric in SHARES else abs(mean)


def _attempt_counts(candidate: Amounts, incumbent: Amounts | None) -> dict[str, list[int]]:
    """The fewest and the most of a task."""
    sides = {"candidate": candidate, "incumbent": incumbent}
    counted = {name: [len(one) for one in side.values()] for name, side in sides.items() if side}
    return {name: [min(each), max(each)] for name, each in counted.items()}


def _plain(side: Amounts) -> dict[str, list[float]]:
    return {task: [amount for amount, _ in each] for task, each in side.items()}


def _spread(one: Requirement, candidate: Amounts, incumbent: Amounts) -> Spread | None:
    if one.metric == "invalid_tool_calls":
        return None
    return spread_of(_plain(candidate), _plain(incumbent))


def _needs(found: Comparison, spread: Spread | None, scale: float) -> dict[str, int | None]:
    """How many tasks or attempts would decide, four times in five, if things are as they seem."""
    deviation = found.standard_error * found.tasks**0.5 / scale
    asked, seems = found.margin / scale, found.difference / scale
    if seems < -asked:  # then it is the FAIL that would be shown
        asked, seems = -asked, -seems
    tasks = tasks_for(deviation, margin=asked, alpha=found.alpha, difference=seems)
    attempts = None
    if spread is not None:
        of_unit = Spread(between=spread.between / scale**2, within=spread.within / scale**2)
        attempts = attempts_for(
            of_unit, found.tasks, margin=asked, alpha=found.alpha, difference=seems
        )
    return {"tasks": max(tasks, found.tasks + 1) if tasks else None, "attempts": attempts}


def _advice(needs: dict[str, int | None]) -> str:
    tasks, attempts = needs["tasks"], needs["attempts"]
    if tasks is None:
        return "no number of tasks would decide soon: what is measured lies at the margin"
    more = f"if that stays so, {tasks} tasks decide"
    return more + (f", or {attempts} attempts at each of these" if attempts is not None else "")


@dataclass(frozen=True, kw_only=True)
class GuardMeasurement:
    """`value` lies between `lower` and `upper`; each is wrong in alpha of all cases. It is the
    relative change towards the worse, where the limit is relative to an incumbent that is not 0."""

    outcome: Outcome
    why: str
    tasks: int
    candidate_mean: float
    incumbent_mean: float | None = None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None


def measure_guard(guard: Guard, candidate: Amounts, incumbent: Amounts | None) -> GuardMeasurement:
    """Both have the same tasks, at least two. Without an incumbent a relative limit is kept."""
    tasks = sorted(candidate)
    mean, ours = task_values(candidate, tasks)
    if guard.kind in {"max", "min"}:
        return _absolute_guard(guard, mean, ours)
    if incumbent is None:
        why = "there is no incumbent to compare with"
        return GuardMeasurement(outcome="PASS", why=why, tasks=len(tasks), candidate_mean=mean)
    before, theirs = task_values(incumbent, tasks)
    return _relative_guard(guard, (mean, ours), (before, theirs))


def _absolute_guard(guard: Guard, mean: float, ours: Values) -> GuardMeasurement:
    sign = 1.0 if guard.kind == "max" else -1.0
    over = sign * (ours - guard.limit)
    lower, upper, p = _excess(guard, over, scale=guard.limit)
    ends = (guard.limit + sign * lower, guard.limit + sign * upper)
    outcome, shown = _guard_outcome(guard, lower, upper)
    why = f"it is {mean:.3g}, and {'at most' if sign > 0 else 'at least'} {guard.limit:g} may be"
    return GuardMeasurement(
        outcome=outcome, why=f"{why}: {shown}", tasks=ours.size, candidate_mean=mean, value=mean,
        lower=min(ends), upper=max(ends), p=p,
    )  # fmt: skip


def _relative_guard(
    guard: Guard, candidate: tuple[float, Values], incumbent: tuple[float, Values]
) -> GuardMeasurement:
    (mean, ours), (before, theirs) = candidate, incumbent
    if before == 0 and guard.slack == 0:
        return _of_nothing(guard, mean, ours.size)
    if guard.kind == "max_increase":
        over = ours - (1 + guard.limit) * theirs - guard.slack
    else:
        over = (1 - guard.limit) * theirs - guard.slack - ours
    lower, upper, p = _excess(guard, over, scale=before)
    outcome, why = _guard_outcome(guard, lower, upper)
    limit = guard.limit + (guard.slack / before if before else 0.0)
    shown = (
        {
            "value": limit + float(over.mean()) / before,
            "lower": limit + lower / before,
            "upper": limit + upper / before,
        }
        if before
        else {}
    )
    return GuardMeasurement(
        outcome=outcome, why=why, tasks=ours.size, candidate_mean=mean, incumbent_mean=before,
        p=p, **shown,
    )  # fmt: skip


def _of_nothing(guard: Guard, mean: float, tasks: int) -> GuardMeasurement:
    """Nothing cannot decrease, and no increase is a share of nothing."""
    if guard.kind == "max_decrease":
        outcome: Outcome = "PASS"
        why = "the incumbent's is 0, which cannot decrease"
    else:
        outcome = "INCONCLUSIVE"
        why = "the incumbent's is 0, and no increase is a share of that: give the guard a slack"
    return GuardMeasurement(
        outcome=outcome, why=why, tasks=tasks, candidate_mean=mean, incumbent_mean=0.0
    )


def _excess(guard: Guard, over: Values, *, scale: float) -> tuple[float, float, float]:
    """By how much the limit is exceeded: from, to, and how likely so little an excess is if there
    is one."""
    ends = 1.0 if guard.metric in SHARES else abs(scale)
    reach = reach_of(over, ends)
    mean = float(over.mean())
    worst, best = mean - reach, mean + reach
    found = estimate(over, worst=worst, best=best, limit=0.0, alpha=guard.alpha)
    return found.lower, found.upper, found.p_worse


def _guard_outcome(guard: Guard, lower: float, upper: float) -> tuple[Outcome, str]:
    if upper <= 0:
        return "PASS", "it holds"
    if lower > 0:
        return "FAIL", "it is breached"
    return "INCONCLUSIVE", "neither that it holds nor that it is breached is shown"
