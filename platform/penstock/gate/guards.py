"""Guards: limits on what a checkpoint costs and how it behaves.

A limit relative to the incumbent is one on a mean over tasks as well: `candidate − (1 + limit) ×
incumbent` is at most 0. No ratio of two uncertain numbers has to be bounded, and tasks stay paired.
"""

from dataclasses import dataclass

from penstock.gate.amounts import Amounts, task_values
from penstock.gate.comparing import Values, estimate, reach_of
from penstock.gate.policy import SHARES, Guard
from penstock.gate.verdicts import Outcome


@dataclass(frozen=True, kw_only=True)
class GuardFound:
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


def measure(guard: Guard, candidate: Amounts, incumbent: Amounts | None) -> GuardFound:
    """Both have the same tasks, at least two. Without an incumbent a relative limit is kept."""
    tasks = sorted(candidate)
    mean, ours = task_values(candidate, tasks)
    if guard.kind in {"max", "min"}:
        return _absolute(guard, mean, ours)
    if incumbent is None:
        why = "there is no incumbent to compare with"
        return GuardFound(outcome="PASS", why=why, tasks=len(tasks), candidate_mean=mean)
    before, theirs = task_values(incumbent, tasks)
    return _relative(guard, (mean, ours), (before, theirs))


def _absolute(guard: Guard, mean: float, ours: Values) -> GuardFound:
    sign = 1.0 if guard.kind == "max" else -1.0
    over = sign * (ours - guard.limit)
    lower, upper, p = _excess(guard, over, scale=guard.limit)
    ends = (guard.limit + sign * lower, guard.limit + sign * upper)
    outcome, shown = _outcome(guard, lower, upper)
    why = f"it is {mean:.3g}, and {'at most' if sign > 0 else 'at least'} {guard.limit:g} may be"
    return GuardFound(
        outcome=outcome, why=f"{why}: {shown}", tasks=ours.size, candidate_mean=mean, value=mean,
        lower=min(ends), upper=max(ends), p=p,
    )  # fmt: skip


def _relative(
    guard: Guard, candidate: tuple[float, Values], incumbent: tuple[float, Values]
) -> GuardFound:
    (mean, ours), (before, theirs) = candidate, incumbent
    if before == 0 and guard.slack == 0:
        return _of_nothing(guard, mean, ours.size)
    if guard.kind == "max_increase":
        over = ours - (1 + guard.limit) * theirs - guard.slack
    else:
        over = (1 - guard.limit) * theirs - guard.slack - ours
    lower, upper, p = _excess(guard, over, scale=before)
    outcome, why = _outcome(guard, lower, upper)
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
    return GuardFound(
        outcome=outcome, why=why, tasks=ours.size, candidate_mean=mean, incumbent_mean=before,
        p=p, **shown,
    )  # fmt: skip


def _of_nothing(guard: Guard, mean: float, tasks: int) -> GuardFound:
    """Nothing cannot decrease, and no increase is a share of nothing."""
    if guard.kind == "max_decrease":
        outcome: Outcome = "PASS"
        why = "the incumbent's is 0, which cannot decrease"
    else:
        outcome = "INCONCLUSIVE"
        why = "the incumbent's is 0, and no increase is a share of that: give the guard a slack"
    return GuardFound(
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


def _outcome(guard: Guard, lower: float, upper: float) -> tuple[Outcome, str]:
    if upper <= 0:
        return "PASS", "it holds"
    if lower > 0:
        return "FAIL", "it is breached"
    return "INCONCLUSIVE", "neither that it holds nor that it is breached is shown"
