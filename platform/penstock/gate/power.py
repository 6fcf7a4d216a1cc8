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

from penstock.checkpoints.attempt import AttemptScope
from penstock.checkpoints.registration import find
from penstock.checkpoints.scores import attempts_of
from penstock.checkpoints.suites import suite_versions
from penstock.checkpoints.tables import benchmark_attempt
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.policy import SHARES, Policy, Requirement
from penstock.gate.results import amounts_by_task
from penstock.gate.statistics import lower_bound

#: How likely a plan wants its verdict to be.
POWER = 0.8
TASKS_MOST = 100_000
ATTEMPTS_MOST = 64
#: Samples of up to so many tasks are made to see what the bound says of them.
_MADE = 400
#: Of realistic tasks, where a suite has no attempts to learn from: chances to solve them spread as
#: Beta(0.6, 0.6), many nearly always or nearly never solved. The variance of one attempt at one.
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
    """Learnt from attempts. None where no task was tried twice: what is chance is unknown then."""
    tasks = sorted(candidate.keys() & incumbent.keys())
    sides = [_within([side[task] for task in tasks]) for side in (candidate, incumbent)]
    known = [one for one in sides if one is not None]
    if len(tasks) < 2 or not known:
        return None
    # A side whose tasks were tried once is taken to vary as the other one does.
    each = [one if one is not None else known[0] for one in sides]
    noise = sum(
        variance * float(np.mean([1 / len(side[task]) for task in tasks]))
        for variance, side in zip(each, (candidate, incumbent), strict=True)
    )
    differences = [np.mean(candidate[task]) - np.mean(incumbent[task]) for task in tasks]
    between = max(float(np.var(differences, ddof=1)) - noise, 0.0)
    return Spread(between=between, within=sum(each), source="the recorded attempts of both")


def spread_of_one(attempts: Mapping[str, Sequence[float]]) -> Spread | None:
    """As if an equal candidate followed."""
    within = _within(list(attempts.values()))
    if within is None:
        return None
    return Spread(between=0.0, within=2 * within, source="the recorded attempts of one checkpoint")


def _within(tasks: Sequence[Sequence[float]]) -> float | None:
    variances = [float(np.var(one, ddof=1)) for one in tasks if len(one) > 1]
    return float(np.mean(variances)) if variances else None


@lru_cache(maxsize=512)
def distance(tasks: int, deviation: float, alpha: float) -> float:
    """How far the lower bound lies below a mean of so many tasks, whose differences are spread as
    the normal distribution. By the gate's own bound, on a sample that is exactly so."""
    from scipy.special import ndtri

    drawn = ndtri((np.arange(tasks) + 0.5) / tasks) * deviation
    values = np.clip(drawn, -1, 1)
    return float(values.mean()) - lower_bound(values, -1.0, alpha)


def power(
    tasks: int, deviation: float, *, margin: float, alpha: float, difference: float = 0.0
) -> float:
    """How likely a candidate passes whose mean differs so much from the incumbent's."""
    return _power(tasks, deviation, margin + difference, alpha)


def tasks_for(
    deviation: float, *, margin: float, alpha: float, difference: float = 0.0
) -> int | None:
    """The fewest tasks with which it passes with the chance POWER; None where too many."""
    return _least(
        2,
        TASKS_MOST,
        lambda tasks: _power(tasks, deviation, margin + difference, alpha) >= POWER,
    )


def attempts_for(
    spread: Spread, tasks: int, *, margin: float, alpha: float, difference: float = 0.0
) -> int | None:
    """The same with more attempts at the same tasks; None where no number of them does it."""
    return _least(
        1,
        ATTEMPTS_MOST,
        lambda count: _power(tasks, spread.deviation(count), margin + difference, alpha) >= POWER,
    )


def _power(tasks: int, deviation: float, room: float, alpha: float) -> float:
    from scipy.special import ndtr

    room -= (
        distance(tasks, deviation, alpha) if tasks <= _MADE else _scaled(tasks, deviation, alpha)
    )
    if deviation == 0:
        return float(room >= 0)
    return float(ndtr(room / (deviation / tasks**0.5)))


def _scaled(tasks: int, deviation: float, alpha: float) -> float:
    """Without making a sample: the bound's parts fall as 1 / √tasks and as 1 / tasks."""
    from scipy.special import ndtri

    known = distance(_MADE, deviation, alpha)
    root = -float(ndtri(alpha)) * deviation
    return float(root / tasks**0.5 + max(known - root / _MADE**0.5, 0.0) * _MADE / tasks)


def _least(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    """Where from some number on all are enough."""
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return high


_TASKS = (30, 80, 200, 500)
_ATTEMPTS = (1, 2, 4, 8)
_MARGINS = (0.01, 0.02, 0.05, 0.1)
#: So many checkpoints' attempts are learnt from.
_LEARNT_FROM = 2


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
    """One for each requirement on the suite that has a margin. Raises InvalidInput,
    CheckpointUnknown."""
    asked = [one for one in policy.require if one.suite == suite and one.margin is not None]
    asked = [one for one in asked if one.metric in SHARES and one.metric != "invalid_tool_calls"]
    if not asked:
        why = f"it has no [[require]] on the suite {suite} with a margin for a score or a rate"
        raise InvalidInput(what="The policy", why=why)
    if len(checkpoints) > _LEARNT_FROM:
        raise InvalidInput(what="--checkpoint", why="one or two checkpoints can be learnt from")
    version = policy.versions.get(suite) or _newest(database, tenant, suite)
    names = [find(database, tenant, one).name for one in checkpoints]
    if not names and version is not None:
        names = _most_tried(database, tenant, suite, version)
    chances = len(policy.require) if policy.combine == "any" else 1
    known_tasks = _known_tasks(database, tenant, suite, version)
    found = []
    for one in asked:
        spread = _spread(database, tenant, (suite, version), names, one)
        counts = sorted({*(tasks or (*_TASKS, *known_tasks))})
        tries = sorted({*(attempts or _ATTEMPTS)})
        alpha = one.alpha / chances
        found.append(_plan(one, spread, (counts, tries), alpha=alpha, difference=difference))
    return found


def _plan(
    one: Requirement,
    spread: Spread,
    sizes: tuple[Sequence[int], Sequence[int]],
    *,
    alpha: float,
    difference: float,
) -> PowerPlan:
    (tasks, attempts), margin = sizes, one.margin or 0.0
    margins = sorted({*_MARGINS, margin})
    cells = [
        PowerCell(
            count, tries, each,
            power(count, spread.deviation(tries), margin=each, alpha=alpha, difference=difference),
        )
        for count in tasks
        for tries in attempts
        for each in margins
    ]  # fmt: skip
    needs = [
        TasksNeeded(
            tries,
            tasks_for(spread.deviation(tries), margin=margin, alpha=alpha, difference=difference),
        )
        for tries in attempts
    ]
    return PowerPlan(
        suite=one.suite, metric=one.metric, margin=margin, alpha=alpha, difference=difference,
        source=spread.source, spread=spread, cells=cells, needs=needs,
    )  # fmt: skip


def _newest(database: Database, tenant: str, suite: str) -> str | None:
    known = suite_versions(database, tenant, suite)
    return known[-1].version if known else None


def _known_tasks(database: Database, tenant: str, suite: str, version: str | None) -> list[int]:
    known = [one for one in suite_versions(database, tenant, suite) if one.version == version]
    return [len(known[-1].tasks)] if known and len(known[-1].tasks) > 1 else []


def _most_tried(database: Database, tenant: str, suite: str, version: str) -> list[str]:
    mine = benchmark_attempt.c
    query = (
        sa.select(mine.checkpoint)
        .where(mine.tenant == tenant, mine.suite == suite, mine.suite_version == version)
        .where(mine.status == "scored")
        .group_by(mine.checkpoint)
        .order_by(sa.func.count().desc(), sa.func.max(mine.scored_at).desc(), mine.checkpoint)
        .limit(_LEARNT_FROM)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def _spread(
    database: Database,
    tenant: str,
    place: tuple[str, str | None],
    names: Sequence[str],
    one: Requirement,
) -> Spread:
    suite, version = place
    if version is None:
        return ASSUMED
    sides = []
    for name in names:
        kept = attempts_of(database, AttemptScope(tenant, suite, version, name))
        scored = [each for each in kept if each.result.error is None]
        said = amounts_by_task(scored, one.metric)
        if said:
            sides.append({task: [amount for amount, _ in each] for task, each in said.items()})
    found = None
    if len(sides) == _LEARNT_FROM:
        found = spread_of(sides[0], sides[1])
    elif sides:
        found = spread_of_one(sides[0])
    return found or ASSUMED
