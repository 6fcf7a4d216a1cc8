"""Versions of suites, as the registry knows them: which tasks there are."""

from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.tables import suite_version
from penstock.database.engine import Database, insert_new, now_us


@dataclass(frozen=True)
class SuiteTask:
    name: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteContent:
    """By what a suite's tasks are known where they turn up: shards leave out sessions that hold
    them."""

    #: By task: what it asks, and what answers it.
    texts: tuple[tuple[str, str], ...] = ()
    #: Where tasks were taken from.
    sessions: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteVersion:
    """`version` is the digest of the suite's content, or the name that an import gave. Of an
    import nobody knows which tasks there should be, nor what they say."""

    suite: str
    version: str
    tasks: tuple[SuiteTask, ...]
    content: SuiteContent | None = None


def add_suite(database: Database, tenant: str, one: SuiteVersion) -> bool:
    """False when it was there already. A version never changes."""
    tasks, content = (msgspec.json.encode(part).decode() for part in (one.tasks, one.content))
    row = {
        "tenant": tenant, "suite": one.suite, "version": one.version, "tasks": tasks,
        "content": content, "created_at": now_us(),
    }  # fmt: skip
    with database.write() as connection:
        return insert_new(connection, suite_version, row)


def suite_versions(database: Database, tenant: str, suite: str) -> list[SuiteVersion]:
    """All versions of a suite, the newest last."""
    with database.read() as connection:
        return read_versions(connection, tenant, suite)


def read_versions(connection: Connection, tenant: str, suite: str) -> list[SuiteVersion]:
    """The same within a transaction."""
    query = (
        sa.select(suite_version)
        .where(suite_version.c.tenant == tenant, suite_version.c.suite == suite)
        .order_by(suite_version.c.created_at, suite_version.c.version)
    )
    rows = connection.execute(query).all()
    return [
        SuiteVersion(row.suite, row.version, _tasks(row.tasks), _content(row.content))
        for row in rows
    ]


def suite_names(database: Database, tenant: str) -> list[str]:
    query = (
        sa.select(suite_version.c.suite)
        .where(suite_version.c.tenant == tenant)
        .distinct()
        .order_by(suite_version.c.suite)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def _tasks(text: str) -> tuple[SuiteTask, ...]:
    return msgspec.json.decode(text, type=tuple[SuiteTask, ...])


def _content(text: str) -> SuiteContent | None:
    return msgspec.json.decode(text, type=SuiteContent | None)
