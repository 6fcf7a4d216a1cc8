"""Tasks that no longer tell checkpoints apart: a suite's next version leaves them out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.registry.checkpoints.suites import read_versions
from penstock.registry.checkpoints.tables import benchmark_attempt

#: With fourteen equal attempts, an attempt ends otherwise less often than one in five, with 95
#: percent confidence.
CHECKPOINTS_MIN, ATTEMPTS_MIN = 3, 14


@dataclass(frozen=True)
class SettledTask:
    """A task that all of the newest checkpoints pass, or all fail, at every attempt."""

    task: str
    passed: bool
    checkpoints: int
    attempts: int


def settled(task: str, newest_first: Iterable[Sequence[float]]) -> SettledTask | None:
    """Judge a task by its scores at checkpoints. As many are looked at as the least numbers ask
    for, so that older ones do not hold it."""
    scores: list[float] = []
    for number, of_checkpoint in enumerate(newest_first, 1):
        scores += of_checkpoint
        if min(scores) != max(scores) or scores[0] not in (0, 1):
            return None
        if number >= CHECKPOINTS_MIN and len(scores) >= ATTEMPTS_MIN:
            return SettledTask(task, scores[0] == 1, number, len(scores))
    return None


def settled_tasks(database: Database, tenant: str, suite: str) -> list[SettledTask]:
    """The settled tasks of a suite's newest version; attempts at the same task in older ones
    count."""
    columns = benchmark_attempt.c
    query = (
        sa.select(columns.suite_version, columns.checkpoint, columns.task, columns.score)
        .where(columns.tenant == tenant, columns.suite == suite, columns.score.is_not(None))
        .order_by(columns.scored_at.desc(), columns.checkpoint, columns.attempt)
    )
    by_task: dict[str, dict[str, list[float]]] = {}
    with database.read() as connection:
        versions = read_versions(connection, tenant, suite)
        shared = {each.version: each.shares(versions[-1]) for each in versions}
        for version, checkpoint, task, score in connection.execute(query):
            if task in shared.get(version, ()):
                by_task.setdefault(task, {}).setdefault(checkpoint, []).append(score)
    found = (settled(task, scores.values()) for task, scores in sorted(by_task.items()))
    return [each for each in found if each is not None]
