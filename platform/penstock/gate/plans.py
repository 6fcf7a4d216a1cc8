"""The power of a policy on a suite, from what is recorded of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.checkpoints.attempts import Place, attempts_of
from penstock.checkpoints.checkpoints import find
from penstock.checkpoints.suites import suite_versions
from penstock.checkpoints.tables import benchmark_attempt
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.amounts import amounts
from penstock.gate.planning import ASSUMED, Spread, power, spread_of, spread_of_one, tasks_for
from penstock.gate.policy import SHARES, Policy, Requirement

_TASKS = (30, 80, 200, 500)
_ATTEMPTS = (1, 2, 4, 8)
_MARGINS = (0.01, 0.02, 0.05, 0.1)
#: So many checkpoints' attempts are learnt from.
_LEARNT_FROM = 2


@dataclass(frozen=True)
class Cell:
    tasks: int
    attempts: int
    margin: float
    power: float


@dataclass(frozen=True)
class Need:
    """The tasks that give a power of 80 % at the policy's margin."""

    attempts: int
    tasks: int | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    suite: str
    metric: str
    margin: float
    alpha: float
    difference: float
    source: str
    spread: Spread
    cells: list[Cell]
    needs: list[Need]


def plan_of(
    database: Database,
    tenant: str,
    suite: str,
    policy: Policy,
    *,
    checkpoints: Sequence[str],
    attempts: Sequence[int],
    tasks: Sequence[int],
    difference: float,
) -> list[Plan]:
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
) -> Plan:
    (tasks, attempts), margin = sizes, one.margin or 0.0
    margins = sorted({*_MARGINS, margin})
    cells = [
        Cell(
            count, tries, each,
            power(count, spread.deviation(tries), margin=each, alpha=alpha, difference=difference),
        )
        for count in tasks
        for tries in attempts
        for each in margins
    ]  # fmt: skip
    needs = [
        Need(
            tries,
            tasks_for(spread.deviation(tries), margin=margin, alpha=alpha, difference=difference),
        )
        for tries in attempts
    ]
    return Plan(
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
        kept = attempts_of(database, Place(tenant, suite, version, name))
        scored = [each for each in kept if each.result.error is None]
        said = amounts(scored, one.metric)
        if said:
            sides.append({task: [amount for amount, _ in each] for task, each in said.items()})
    found = None
    if len(sides) == _LEARNT_FROM:
        found = spread_of(sides[0], sides[1])
    elif sides:
        found = spread_of_one(sides[0])
    return found or ASSUMED
