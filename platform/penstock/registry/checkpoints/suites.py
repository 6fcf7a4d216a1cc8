"""Versions of suites: their tasks, the content that identifies these in sessions, and which tasks
the next version leaves out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import Database, clock_us, insert_new
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.journal import AttemptScope, append_entry, json_text
from penstock.registry.checkpoints.tables import benchmark_attempt, suite_version


class SuiteTask(msgspec.Struct, frozen=True):
    name: str
    tags: tuple[str, ...] = ()
    #: Of all that its result depends on; None if an import brought it.
    digest: str | None = None


class SuiteContent(msgspec.Struct, frozen=True):
    """The content of tasks. Shards leave out sessions that contain it."""

    #: By task: its question and its answer.
    texts: tuple[tuple[str, str], ...] = ()
    sessions: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteVersion:
    """`version` is the digest of the content, or the name that an import gave."""

    suite: str
    version: str
    tasks: tuple[SuiteTask, ...]
    content: SuiteContent | None = None

    def shares(self, other: "SuiteVersion") -> set[str]:
        """The tasks that are the same in both."""
        known = {task.name: task.digest for task in self.tasks}
        return {
            task.name
            for task in other.tasks
            if self is other or (task.digest is not None and known.get(task.name) == task.digest)
        }


def add_suite(database: Database, tenant: str, suite: SuiteVersion) -> bool:
    """Add a version. False if it already exists; versions never change."""
    row: dict[str, Any] = {"tenant": tenant, "suite": suite.suite, "version": suite.version}
    for name, part in (("tasks", suite.tasks), ("content", suite.content)):
        row[name] = json_text(part)
    with database.write() as connection:
        row["created_at"] = now = clock_us(connection)
        if not insert_new(connection, suite_version, row):
            return False
        entry = version_entry(suite.version, row["tasks"], row["content"], now)
        append_entry(connection, suite_scope(tenant, suite.suite), "version", entry)
        return True


def suite_scope(tenant: str, suite: str) -> AttemptScope:
    return AttemptScope(tenant, suite, "", "")


def version_entry(version: str, tasks: str, content: str, created_at: int) -> dict[str, Any]:
    """The journal's entry of a version. It keeps digests, since the texts of tasks may be large."""
    digests = {"tasks": text_digest(tasks), "content": text_digest(content)}
    return {"version": version, "created_at": created_at} | digests


def suite_versions(database: Database, tenant: str, suite: str) -> list[SuiteVersion]:
    """All versions of a suite, the newest last."""
    with database.read() as connection:
        return read_versions(connection, tenant, suite)


def read_versions(connection: Connection, tenant: str, suite: str) -> list[SuiteVersion]:
    query = (
        sa.select(suite_version)
        .where(suite_version.c.tenant == tenant, suite_version.c.suite == suite)
        .order_by(suite_version.c.created_at, suite_version.c.version)
    )
    versions = []
    for row in connection.execute(query):
        tasks = msgspec.json.decode(row.tasks, type=tuple[SuiteTask, ...])
        content = msgspec.json.decode(row.content, type=SuiteContent | None)
        versions.append(SuiteVersion(row.suite, row.version, tasks, content))
    return versions


def version_names(database: Database, tenant: str, suite: str) -> list[str]:
    columns = suite_version.c
    query = sa.select(columns.version).where(columns.tenant == tenant, columns.suite == suite)
    return list(database.scalars(query.order_by(columns.created_at, columns.version)))


def suite_names(database: Database, tenant: str) -> list[str]:
    columns = suite_version.c
    query = sa.select(columns.suite).where(columns.tenant == tenant)
    return list(database.scalars(query.distinct().order_by(columns.suite)))


# Tasks that no longer tell checkpoints apart: a suite's next version leaves them out

#: With fourteen equal attempts, an attempt ends otherwise less often than one in five, with 95
#: percent confidence.
CHECKPOINTS_MIN, ATTEMPTS_MIN = 3, 14


class SettledTask(msgspec.Struct, frozen=True):
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
