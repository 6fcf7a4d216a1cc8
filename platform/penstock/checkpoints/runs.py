"""Runs of suites: who was tried how, and what was to be said of it."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.attempts import Place
from penstock.checkpoints.tables import benchmark_attempt, benchmark_run
from penstock.database.engine import Database, now_us


@dataclass(frozen=True)
class Run:
    id: str
    #: `run`, or the format of an import.
    kind: str
    source: str
    conditions: Mapping[str, Any]
    problems: Sequence[Any]
    started_at: int
    finished_at: int | None


def begin_run(
    database: Database, place: Place, *, source: str, conditions: Mapping[str, Any]
) -> str:
    """The id of a new run."""
    run = uuid.uuid4().hex
    with database.write() as connection:
        connection.execute(
            sa.insert(benchmark_run).values(
                id=run, tenant=place.tenant, suite=place.suite, suite_version=place.suite_version,
                checkpoint=place.checkpoint, kind="run", source=source,
                conditions=_text(conditions), problems="[]", started_at=now_us(),
            )
        )  # fmt: skip
    return run


def note_problem(connection: Connection, run: str, problem: Mapping[str, Any]) -> None:
    """Beside the attempt that it is about, in one transaction."""
    mine = benchmark_run.c.id == run
    # Read and written by whoever does the run, and by nobody else.
    known = connection.scalar(sa.select(benchmark_run.c.problems).where(mine)) or "[]"
    problems = [*msgspec.json.decode(known), problem]
    connection.execute(sa.update(benchmark_run).where(mine).values(problems=_text(problems)))


def finish_run(database: Database, run: str) -> None:
    with database.write() as connection:
        connection.execute(
            sa.update(benchmark_run).where(benchmark_run.c.id == run).values(finished_at=now_us())
        )


def runs_of(database: Database, place: Place) -> list[Run]:
    """All runs and imports of a checkpoint at one version of a suite, the oldest first."""
    mine = benchmark_run.c
    query = (
        sa.select(benchmark_run)
        .where(
            mine.tenant == place.tenant, mine.suite == place.suite,
            mine.suite_version == place.suite_version, mine.checkpoint == place.checkpoint,
        )
        .order_by(mine.started_at, mine.id)
    )  # fmt: skip
    with database.read() as connection:
        return [_run(row) for row in connection.execute(query)]


def tried_at(database: Database, tenant: str, suite: str) -> list[str]:
    """The checkpoints that were tried at a suite, by name."""
    mine = benchmark_attempt.c
    query = (
        sa.select(mine.checkpoint)
        .where(mine.tenant == tenant, mine.suite == suite)
        .distinct()
        .order_by(mine.checkpoint)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def _run(row: sa.Row[Any]) -> Run:
    problems = msgspec.json.decode(row.problems) if row.problems else []
    return Run(
        id=row.id,
        kind=row.kind,
        source=row.source,
        conditions=msgspec.json.decode(row.conditions) if row.conditions else {},
        problems=problems if isinstance(problems, list) else [problems],
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
