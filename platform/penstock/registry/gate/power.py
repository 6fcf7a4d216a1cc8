"""The power of a policy on a suite: how likely it decides, and how many tasks that takes."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Annotated, Any

import msgspec
import numpy as np
import sqlalchemy as sa
from msgspec import Meta
from numpy.typing import NDArray

from penstock.backends.database.engine import Database
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import RecordedAttempt, attempts_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.registration import find
from penstock.registry.checkpoints.suites import suite_versions
from penstock.registry.checkpoints.tables import benchmark_attempt
from penstock.registry.gate.amounts import amounts_by_task, plain_amounts
from penstock.registry.gate.policy import SHARES, parse
from penstock.registry.gate.statistics import Ranges, Values, lower_bound

POWER = 0.8
_TASKS_MOST, _ATTEMPTS_MOST = 100_000, 64
#: The bound is computed for at most this many tasks, and scaled beyond.
_COMPUTED_TASKS_MAX = 400
#: The variance of one attempt, assumed for a suite without attempts. Chances to solve tasks follow
#: Beta(0.6, 0.6): many are nearly always or nearly never solved.
_WITHIN_ASSUMED = 0.136
#: The defaults of a plan.
_TASKS, _ATTEMPTS, _MARGINS = (30, 80, 200, 500), (1, 2, 4, 8), (0.01, 0.02, 0.05, 0.1)
#: A spread is learned from at most this many checkpoints.
_SIDES_MAX = 2
_TINY = 1e-12


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Variances of the difference of two checkpoints: between tasks, and of one attempt of each."""

    between: float
    within: float

    def deviation(self, attempts: int) -> float:
        return float((self.between + self.within / attempts) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class MissingShares:
    """Shares of attempts with errors and of tasks without a score; a task's mean score."""

    errors: float = 0.0
    unscored: float = 0.0
    mean: float = 0.5

    @property
    def variance(self) -> float:
        """The variance between tasks that unscored tasks add."""
        return self.unscored * self.mean * (1 - self.mean)

    def widen(self, values: Values, attempts: int) -> Ranges:
        """Ranges of values, with missing ones spread evenly among them."""
        low, high, seen = values.copy(), values.copy(), values.copy()
        touched = 1 - (1 - self.errors) ** (2 * attempts)  # tasks with an error
        at = _evenly(values.size, touched)
        low[at] -= self.errors / max(touched, _TINY)
        high[at] += self.errors / max(touched, _TINY)
        at = _evenly(values.size, self.unscored)
        solved = _evenly(at.size, max(self.mean, 1 - self.mean))  # by the other side
        low[at], high[at], seen[at] = 0.0, 1.0, np.nan
        low[at[solved]], high[at[solved]] = -1.0, 0.0
        return Ranges(np.maximum(low, -1), np.minimum(high, 1), seen)


NOTHING_MISSING = MissingShares()

ASSUMED = Spread(between=0.0, within=2 * _WITHIN_ASSUMED)
#: Texts by the number of checkpoints that the spread was learned from.
_SOURCES = (
    "assumed: tasks solved with chances spread as Beta(0.6, 0.6), and an equal candidate",
    "the recorded attempts of one checkpoint",
    "the recorded attempts of both",
)


def _evenly(size: int, share: float) -> NDArray[np.intp]:
    return np.linspace(0, size - 1, round(share * size) + 2)[1:-1].round().astype(np.intp)


def spread_of(
    candidate: Mapping[str, Sequence[float]], incumbent: Mapping[str, Sequence[float]]
) -> Spread | None:
    """Learn the spread from attempts. None if no task was tried twice, since chance is then
    unknown."""
    tasks = sorted(candidate.keys() & incumbent.keys())
    sides = [_within([side[task] for task in tasks]) for side in (candidate, incumbent)]
    known = [variance for variance in sides if variance is not None]
    if len(tasks) < 2 or not known:
        return None
    # A side with single attempts is assumed to vary like the other one.
    variances = [known[0] if variance is None else variance for variance in sides]
    noise = sum(
        variance * float(np.mean([1 / len(side[task]) for task in tasks]))
        for variance, side in zip(variances, (candidate, incumbent), strict=True)
    )
    differences = [np.mean(candidate[task]) - np.mean(incumbent[task]) for task in tasks]
    between = max(float(np.var(differences, ddof=1)) - noise, 0.0)
    return Spread(between=between, within=sum(variances))


def _within(tasks: Sequence[Sequence[float]]) -> float | None:
    variances = [float(np.var(scores, ddof=1)) for scores in tasks if len(scores) > 1]
    return float(np.mean(variances)) if variances else None


def power(
    tasks: int,
    deviation: float,
    *,
    margin: float,
    alpha: float,
    difference: float = 0.0,
    missing: tuple[MissingShares, int] = (NOTHING_MISSING, 1),
) -> float:
    """The chance that a candidate with this difference passes. `missing` holds for this many
    attempts."""
    from scipy.special import ndtr

    room = margin + difference - _distance(tasks, deviation, alpha, *missing)
    if deviation == 0:
        return float(room >= 0)
    varied = (deviation**2 + missing[0].variance) ** 0.5
    return float(ndtr(room / (varied / tasks**0.5)))


def tasks_for(deviation: float, **assumed: Any) -> int | None:
    """The fewest tasks that pass with the chance POWER; None if too many."""
    return _least(2, _TASKS_MOST, lambda tasks: power(tasks, deviation, **assumed) >= POWER)


def attempts_for(spread: Spread, tasks: int, **assumed: Any) -> int | None:
    """The fewest attempts per task that pass with the chance POWER; None if too many."""
    return _least(
        1, _ATTEMPTS_MOST, lambda count: power(tasks, spread.deviation(count), **assumed) >= POWER
    )


@lru_cache(maxsize=512)
def _distance(
    tasks: int, deviation: float, alpha: float, missing: MissingShares, attempts: int
) -> float:
    """The distance between the mean of a normal sample and the gate's lower bound."""
    from scipy.special import ndtri

    if tasks > _COMPUTED_TASKS_MAX:  # parts of the bound shrink with 1 / √tasks and 1 / tasks
        whole = NOTHING_MISSING, 1
        computed = _distance(_COMPUTED_TASKS_MAX, deviation, alpha, *whole)
        root = -float(ndtri(alpha)) * deviation
        rest = max(computed - root / _COMPUTED_TASKS_MAX**0.5, 0.0)
        # Missing results cost the same with any number of tasks.
        cost = _distance(_COMPUTED_TASKS_MAX, deviation, alpha, missing, attempts) - computed
        return float(root / tasks**0.5 + rest * _COMPUTED_TASKS_MAX / tasks + cost)
    drawn = ndtri((np.arange(tasks) + 0.5) / tasks) * deviation
    values = np.clip(drawn, -1, 1)
    return float(values.mean()) - lower_bound(missing.widen(values, attempts), -1.0, alpha)


def _least(low: int, high: int, enough: Callable[[int], bool]) -> int | None:
    if not enough(high):
        return None
    return low + bisect_left(range(low, high), x=True, key=enough)


class PowerCell(msgspec.Struct, frozen=True):
    tasks: int
    attempts: int
    margin: float
    power: float


class TasksNeeded(msgspec.Struct, frozen=True):
    attempts: int
    tasks: int | None


class PowerPlan(msgspec.Struct, frozen=True):
    suite: str
    metric: str
    margin: float
    alpha: float
    difference: float
    source: str
    spread: Spread
    missing: MissingShares
    cells: list[PowerCell]
    needs: list[TasksNeeded]


def plan_power(database: Database, tenant: str, asked: "PlanRequest") -> list[PowerPlan]:
    """Plan each requirement on the suite with a margin. Raises InvalidInput, CheckpointUnknown."""
    suite, policy = asked.suite, parse(asked.policy, "the policy")
    planned = [
        each
        for each in policy.require
        if each.suite == suite and each.margin is not None
        if each.metric in SHARES and each.metric != "invalid_tool_calls"
    ]
    if not planned:
        why = f"it has no [[require]] on the suite {suite} with a margin for a score or a rate"
        raise InvalidInput(what="The policy", why=why)
    if len(asked.checkpoints) > _SIDES_MAX:
        raise InvalidInput(what="--checkpoint", why="a plan learns from one or two checkpoints")
    versions = suite_versions(database, tenant, suite)
    version = policy.versions.get(suite) or (versions[-1].version if versions else "")
    names = [find(database, tenant, name).name for name in asked.checkpoints]
    names = names or _most_tried(database, tenant, suite, version)
    left_out = policy.left_out(suite)
    recorded = []
    for name in names:
        tried = attempts_of(database, AttemptScope(tenant, suite, version, name))
        recorded.append([each for each in tried if each.result.task not in left_out])
    listed = {task.name for known in versions if known.version == version for task in known.tasks}
    listed -= left_out.keys()
    usual = [*_TASKS, len(listed)] if len(listed) > 1 else _TASKS
    sizes = sorted({*(asked.tasks or usual)})
    tries = sorted({*(asked.attempts or _ATTEMPTS)})
    plans = []
    for required in planned:
        sides = []
        for side in recorded:
            scored = [each for each in side if each.result.error is None]
            if amounts := amounts_by_task(scored, required.metric, required.halved_by):
                sides.append(plain_amounts(amounts))
        missing = missing_shares(recorded, sides, listed)
        if asked.errors is not None:
            missing = replace(missing, errors=asked.errors)
        if asked.unscored is not None:
            missing = replace(missing, unscored=asked.unscored)
        # With one checkpoint, the candidate is assumed equal to it.
        learned = spread_of(sides[0], sides[-1]) if sides else None
        source, spread = _SOURCES[len(sides) if learned else 0], learned or ASSUMED
        margin, alpha = required.margin or 0.0, required.alpha / policy.chances
        question = suite, required.metric, margin, alpha, asked.difference
        cells: list[PowerCell] = []
        needs: list[TasksNeeded] = []
        for count in tries:
            assumed: dict[str, Any] = {"alpha": alpha, "missing": (missing, count)}
            assumed |= {"difference": asked.difference}
            deviation = spread.deviation(count)
            needs.append(TasksNeeded(count, tasks_for(deviation, margin=margin, **assumed)))
            for size, each in product(sizes, sorted({*_MARGINS, margin})):
                chance = power(size, deviation, margin=each, **assumed)
                cells.append(PowerCell(size, count, each, chance))
        cells.sort(key=lambda cell: (cell.tasks, cell.attempts))
        plans.append(PowerPlan(*question, source, spread, missing, cells, needs))
    return plans


def missing_shares(
    recorded: Sequence[Sequence[RecordedAttempt]],
    scores: Sequence[Mapping[str, Sequence[float]]],
    tasks: Collection[str],
) -> MissingShares:
    """Missing shares as recorded. If the suite's tasks are unknown, the tried ones count."""
    attempts = [each.result for side in recorded for each in side]
    tasks = tasks or {attempt.task for attempt in attempts}
    if not scores or not tasks:
        return MissingShares()
    every = [score for side in scores for each in side.values() for score in each]
    lacking = sum(len({*tasks} - side.keys()) for side in scores) / len(scores) * _SIDES_MAX
    scored = set.intersection(*({*side} for side in scores))
    counted = [attempt for attempt in attempts if attempt.task in scored]
    failed = sum(attempt.error is not None for attempt in counted)
    return MissingShares(
        errors=failed / max(len(counted), 1),
        unscored=min(lacking / len(tasks), 1.0),
        mean=float(np.mean(every)),
    )


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
    return list(database.scalars(query))


class PlansAnswer(msgspec.Struct):
    plans: list[PowerPlan]


Attempts = Annotated[int, Meta(ge=1, le=64)]
Tasks = Annotated[int, Meta(ge=10, le=2_000)]
Share = Annotated[float, Meta(ge=0, le=1)]


class PlanRequest(Request):
    """`policy` is TOML text; `difference` is the true advantage of the candidate."""

    suite: str
    policy: str
    checkpoints: list[str] = []  # noqa: RUF012  # msgspec copies it
    attempts: Annotated[list[Attempts], Meta(max_length=8)] = []  # noqa: RUF012
    tasks: Annotated[list[Tasks], Meta(max_length=8)] = []  # noqa: RUF012
    difference: float = 0.0
    errors: Share | None = None
    unscored: Share | None = None


def _plan(lake: Lake, caller: Caller, request: PlanRequest) -> PlansAnswer:
    return PlansAnswer(plan_power(lake.database, caller.tenant, request))


PLAN_POWER = Endpoint(
    "POST /v1/suites/{suite}/plan",
    _plan,
    ("read", "promote"),
    "How likely a candidate passes a policy; changes nothing",
    refused={404: "The checkpoint does not exist."},
    reads_rows=True,
)

ENDPOINTS: Endpoints = [PLAN_POWER]
