"""Whether a requirement is met: pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.gate.amounts import Amounts, task_values
from penstock.gate.comparing import Comparison, Estimate, Values, compare_values, estimate, reach_of
from penstock.gate.looking import Gap, Looked, tell
from penstock.gate.planning import Spread, attempts_for, spread_of, tasks_for
from penstock.gate.policy import SHARES, TASKS_LEAST, Requirement
from penstock.gate.verdicts import Outcome


@dataclass(frozen=True)
class Part:
    """What one part of the policy came to; `facts` go into the document."""

    outcome: Outcome
    why: str
    facts: dict[str, Any] = field(default_factory=dict)
    #: Nothing had to be shown, since there is no incumbent.
    idle: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "why": self.why, **self.facts}


def require(one: Requirement, looked: Looked, alpha: float) -> Part:
    """`alpha` is the requirement's own, or what a correction leaves of it."""
    facts = asdict(one) | {"alpha": alpha, "alpha_asked": one.alpha}
    told = tell(looked, one.metric, one.attempts)
    if told.gaps:
        return Part(worst_of(told.gaps), "; ".join(gap.why for gap in told.gaps), facts)
    tasks = sorted(told.candidate)
    facts["tasks"] = len(tasks)
    facts["attempts_found"] = _attempts(told.candidate, told.incumbent)
    if len(tasks) < max(TASKS_LEAST, 2):
        why = f"{len(tasks)} tasks are too few to say anything: {TASKS_LEAST} at least"
        return Part("INCONCLUSIVE", why, facts)
    found = [*_absolute(one, told.candidate, alpha, facts)]
    if told.incumbent is not None and one.margin is not None:
        found.append(_against(one, told.candidate, told.incumbent, alpha, facts))
    if not found:
        return Part("PASS", "there is no incumbent to compare with", facts, idle=True)
    outcome, why = worst_of(found), "; ".join(gap.why for gap in found)
    if outcome == "PASS" and len(tasks) < one.min_tasks:
        return Part("INCONCLUSIVE", f"{len(tasks)} tasks of {one.min_tasks} that are asked", facts)
    return Part(outcome, why, facts)


def worst_of(found: Sequence[Gap]) -> Outcome:
    order: tuple[Outcome, ...] = ("ERROR", "FAIL", "INCONCLUSIVE", "PASS")
    outcomes = {one.outcome for one in found}
    return next(one for one in order if one in outcomes)


def _against(
    one: Requirement, candidate: Amounts, incumbent: Amounts, alpha: float, facts: dict[str, Any]
) -> Gap:
    margin = one.margin or 0.0
    tasks = sorted(candidate)
    (ours_mean, ours), (theirs_mean, theirs) = (
        task_values(side, tasks) for side in (candidate, incumbent)
    )
    scale = _scale(one, (ours_mean + theirs_mean) / 2)
    found = compare_values(
        ours, theirs, margin=margin, alpha=alpha, direction=one.direction, scale=scale
    )
    facts |= asdict(found) | {"alpha": alpha}
    if found.lower >= -margin:
        return Gap("PASS", f"worse by {max(-found.lower, 0):.4g} at most, and {margin:g} may be")
    if found.upper < -margin:
        return Gap("FAIL", f"worse by {-found.upper:.4g} at least, and {margin:g} may be")
    facts["decides"] = needs = _needs(found, _spread(one, candidate, incumbent), scale or 1.0)
    return Gap("INCONCLUSIVE", f"it may be worse by {-found.lower:.4g}; {_advice(needs)}")


def _absolute(
    one: Requirement, candidate: Amounts, alpha: float, facts: dict[str, Any]
) -> list[Gap]:
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
        return [Gap("PASS", told)]
    if found.upper < sign * limit:
        return [
            Gap("FAIL", f"its {one.metric} of {mean:.4g} is shown to miss the {name} {limit:g}")
        ]
    return [Gap("INCONCLUSIVE", told)]


def _bounds(one: Requirement, ours: Values, limit: float, alpha: float) -> Estimate:
    sign = 1.0 if one.direction == "max" else -1.0
    values = sign * ours
    ends = sorted((0.0, sign))
    scale = _scale(one, limit)
    if scale is not None:
        reach = reach_of(values, scale)
        ends = [float(values.mean()) - reach, float(values.mean()) + reach]
    return estimate(values, worst=ends[0], best=ends[1], limit=sign * limit, alpha=alpha)


def _scale(one: Requirement, mean: float) -> float | None:
    """None between 0 and 1. A ratio of sums is linear in tasks only around itself, and may leave
    that span."""
    if one.metric == "invalid_tool_calls":
        return 1.0
    return None if one.metric in SHARES else abs(mean)


def _attempts(candidate: Amounts, incumbent: Amounts | None) -> dict[str, list[int]]:
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
