"""What the attempts at a suite say of one metric, task by task."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite

import numpy as np

from penstock.checkpoints.attempts import Attempt, Kept
from penstock.gate.comparing import Values
from penstock.gate.policy import Metric

_DIGITS = 12
#: A clock that is put right goes back by less, and what was written just before seems to be later.
_CLOCK_BACK_SECONDS_MAX = 60
#: By task, for each attempt: an amount, and what it is a share of.
Amounts = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Sifted:
    """What counts of one side: scored attempts that are fresh enough."""

    scored: Sequence[Kept]
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


def sift(attempts: Sequence[Kept], now: int, max_age_s: int | None) -> Sifted:
    """Errors say nothing about the model, and what is too old nothing about today."""
    oldest = now - max_age_s * 1_000_000 if max_age_s is not None else None
    fresh = [one for one in attempts if oldest is None or one.scored_at >= oldest]
    scored = [one for one in fresh if one.result.error is None]
    return Sifted(
        scored=sorted(scored, key=lambda one: (one.result.task, one.result.attempt)),
        errors=len(fresh) - len(scored),
        stale=len(attempts) - len(fresh),
        future=sum(is_from_the_future(one.scored_at, now) for one in attempts),
        by_task=_errors_by_task(fresh),
    )


def is_from_the_future(moment: int, now: int) -> bool:
    """Whether one of the two clocks was wrong."""
    return moment > now + _CLOCK_BACK_SECONDS_MAX * 1_000_000


def _errors_by_task(attempts: Sequence[Kept]) -> float:
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


def amounts(scored: Sequence[Kept], metric: Metric) -> Amounts:
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
