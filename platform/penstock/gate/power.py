"""The power of a policy on a suite: how likely it decides, and how many tasks or attempts it takes.

The differences between tasks come from two sources: attempts at one task differ, which more
attempts average out, and checkpoints change some tasks more than others, which only more tasks
average out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import sqlalchemy as sa

from penstock.checkpoints.attempts import AttemptScope, attempts_of
from penstock.checkpoints.registration import find
from penstock.checkpoints.suites import suite_versions
from penstock.checkpoints.tables import benchmark_attempt
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.policy import SHARES, Policy, Requirement
from penstock.gate.results import amounts_by_task
from penstock.gate.statistics import lower_bound

#: How likely a planned candidate is to pass.
POWER = 0.8
TASKS_MOST = 100_000
ATTEMPTS_MOST = 64
#: For samples of up to so many tasks the bound is computed, beyond that it is scaled.
_COMPUTED_TASKS_MAX = 400
#: The variance of one attempt at a realistic task, where a suite has no attempts to learn from:
#: chances to solve tasks spread as Beta(0.6, 0.6), many nearly always or nearly never solved.
WITHIN_ASSUMED = 0.136


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Variances of the difference of two checkpoints at a task: of what tasks really differ in,
    and of one attempt of each."""

    between: float
    within: float
    #: Where it is from, for the reader.
    source: str = ""

    def deviation(self, attempts: int) -> float:
        return float((self.between + self.within / attempts) ** 0.5)


ASSUMED = Spread(
    between=0.0,
    within=2 * WITHIN_ASSUMED,
    source="assumed: tasks solved with chances spread as Beta(0.6, 0.6), and an equal candidate",
)


def spread_of(
    candidate: Mapping[str, Sequence[float]], incumbent: Mapping[str, Sequence[float]]
) -> Spread | None:
    """Learned from attempts. None where no task was tried twice: what is chance is unknown then."""
    tasks = sorted(candidate.keys() & incumbent.keys())
    sides = [_within([side[task] for task in tasks]) for side in (candidate, incumbent)]
    known = [variance for variance in sides if variance is not None]
    if len(tasks) < 2 or not known:
        return None
    # A side whose tasks were tried once is taken to vary as the other one does.
    variances = [known[0] if variance is None else variance for variance in sides]
    noise = sum(
        variance * float(np.mean([1 / len(side[task]) for task in tasks]))
        for variance, side in zip(variances, (candidate, incumbent), strict=True)
    )
    differences = [np.mean(candidate[task]) - np.mean(incumbent[task]) for task in tasks]
    between = max(float(np.var(differences, ddof=1)) - noise, 0.0)
    return Spread(between=between, within=sum(variances), source="the recorded attempts of both")


def spread_of_one(attempts: Mapping[str, Sequence[float]]) -> Spread | None:
    """As if an equal candidate followed."""
    within = _within(list(attempts.values()))
    if within is None:
        return None
    return Spread(between=0.0, within=2 * within, source="the recorded attempts of one checkpoint")


def _within(tasks: Sequence[Sequence[float]]) -> float | None:
    variances = [float(np.var(scores, ddof=1)) for scores in tasks if len(scores) > 1]
    return float(np.mean(variances)) if variances else None


def power(
    tasks: int, deviation: float, *, margin: float, alpha: float, difference: float = 0.0
) -> float:
    """How likely a candidate passes whose mean differs so much from the incumbent's."""
    from scipy.special import ndtr

    room = margin + difference - _distance(tasks, deviation, alpha)
    if deviation == 0:
        return float(room >= 0)
    return float(ndtr(room / (deviation / tasks**0.5)))


def tasks_for(
    deviation: float, *, margin: float, alpha: float, difference: float = 0.0
) -> int | None:
    """The fewest tasks with which it passes with the chance POWER; None where too many."""

    def enough(tasks: int) -> bool:
        return power(tasks, deviation, margin=margin, alpha=alpha, difference=difference) >= POWER

    return _least(2, TASKS_MOST, enough)


def attempts_for(
    spread: Spread, tasks: int, *, margin: float, alpha: float, difference: float = 0.0
) -> int | None:
    """The same with more attempts at the same tasks; None where no number of them does it."""

    def enough(attempts: int) -> bool:
        deviation = spread.deviation(attempts)
        return power(tasks, deviation, margin=margin, alpha=alpha, difference=difference) >= POWER

    return _least(1, ATTEMPTS_MOST, enough)


@lru_cache(maxsize=512)
def _distance(tasks: int, deviation: float, alpha: float) -> float:
    """How far the gate's own lower bound lies below the mean of a normally spread sample."""
    from scipy.special import ndtri

    if tasks > _COMPUTED_TASKS_MAX:  # the bound's parts fall as 1 / √tasks and as 1 / tasks
        computed = _distance(_COMPUTED_TASKS_MAX, deviation, alpha)
        root = -float(ndtri(alpha)) * deviation
        rest = max(computed - root / _COMPUTED_TASKS_MAX**0.5, 0.0)
        return float(root / tasks**0.5 + rest * _COMPUTED_TASKS_MAX / tasks)
    drawn = ndtri((np.arange(tasks) + 0.5) / tasks) * deviation
    values = np.clip(drawn, -1, 1)
    return float(values.mean()) - lower_bound(values, -1.0, alpha)


def _least(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    """The number from which on all are enough."""
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return high


#: What a plan shows where the caller names nothing else.
_TASKS = (30, 80, 200, 500)
_ATTEMPTS = (1, 2, 4, 8)
_MARGINS = (0.01, 0.02, 0.05, 0.1)
#: From the attempts of at most so many checkpoints a spread is learned.
_SIDES_MAX = 2


@dataclass(frozen=True)
class PowerCell:
    tasks: int
    attempts: int
    margin: float
    power: float


@dataclass(frozen=True)
class TasksNeeded:
    """The tasks that give a power of 80 % at the policy's margin."""

    attempts: int
    tasks: int | None


@dataclass(frozen=True, kw_only=True)
class PowerPlan:
    suite: str
    metric: str
    margin: float
    alpha: float
    difference: float
    source: str
    spread: Spread
    cells: list[PowerCell]
    needs: list[TasksNeeded]


def plan_power(
    database: Database,
    tenant: str,
    suite: str,
    policy: Policy,
    *,
    checkpoints: Sequence[str],
    attempts: Sequence[int],
    tasks: Sequence[int],
    difference: float,
) -> list[PowerPlan]:
    """For each requirement on the suite with a margin. Raises InvalidInput, CheckpointUnknown."""
    planned = [
        required
        for required in policy.require
        if required.suite == suite and required.margin is not None
        if required.metric in SHARES and required.metric != "invalid_tool_calls"
    ]
    if not planned:
        why = f"it has no [[require]] on the suite {suite} with a margin for a score or a rate"
        raise InvalidInput(what="The policy", why=why)
    if len(checkpoints) > _SIDES_MAX:
        why = "a plan learns from one or two checkpoints"
        raise InvalidInput(what="--checkpoint", why=why)
    versions = suite_versions(database, tenant, suite)
    newest = versions[-1].version if versions else None
    version = policy.versions.get(suite) or newest
    names = [find(database, tenant, name).name for name in checkpoints]
    if not names and version is not None:
        names = _most_tried(database, tenant, suite, version)
    listed = [len(known.tasks) for known in versions if known.version == version]
    counts = sorted({*(tasks or (*_TASKS, *(count for count in listed if count > 1)))})
    tries = sorted({*(attempts or _ATTEMPTS)})
    plans = []
    for required in planned:
        sides = []
        for name in names if version is not None else ():
            recorded = attempts_of(database, AttemptScope(tenant, suite, version or "", name))
            scored = [attempt for attempt in recorded if attempt.result.error is None]
            if amounts := amounts_by_task(scored, required.metric):
                plain = {task: [amount for amount, _ in each] for task, each in amounts.items()}
                sides.append(plain)
        spread = None
        if sides:
            spread = spread_of(*sides) if len(sides) == _SIDES_MAX else spread_of_one(sides[0])
        alpha = required.alpha / policy.chances
        plans.append(_plan(required, spread or ASSUMED, (counts, tries), alpha, difference))
    return plans


def _plan(
    required: Requirement,
    spread: Spread,
    sizes: tuple[Sequence[int], Sequence[int]],
    alpha: float,
    difference: float,
) -> PowerPlan:
    """`sizes` are numbers of tasks and of attempts at each."""
    (tasks, attempts), margin = sizes, required.margin or 0.0
    assumed = {"alpha": alpha, "difference": difference}
    cells = [
        PowerCell(count, tries, each, power(count, spread.deviation(tries), margin=each, **assumed))
        for count in tasks
        for tries in attempts
        for each in sorted({*_MARGINS, margin})
    ]
    needs = [
        TasksNeeded(tries, tasks_for(spread.deviation(tries), margin=margin, **assumed))
        for tries in attempts
    ]
    return PowerPlan(
        suite=required.suite, metric=required.metric, margin=margin, alpha=alpha,
        difference=difference, source=spread.source, spread=spread, cells=cells, needs=needs,
    )  # fmt: skip


def _most_tried(database: Database, tenant: str, suite: str, version: str) -> list[str]:
    columns = benchmark_attempt.c
    query = (
        sa.select(columns.checkpoint)
        .where(columns.tenant == tenant, columns.suite == suite, columns.suite_version == version)
        .where(columns.status == "scored")
        .group_by(columns.checkpoint)
        .order_by(sa.func.count().desc(), sa.func.max(columns.scored_at).desc(), columns.checkpoint)
        .limit(_SIDES_MAX)
    )
    with database.read() as connection:
        return list(connection.scalars(query))
