"""What checkpoints scored: attempts and runs in the database, written once."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.attempt import (
    RESULT_FIELDS,
    Attempt,
    AttemptScope,
    RecordedAttempt,
    check_attempt,
)
from penstock.checkpoints.errors import AttemptConflict
from penstock.checkpoints.tables import benchmark_attempt, benchmark_run
from penstock.database.engine import Database, insert_of, now_us

#: How many rows one statement inserts: databases bound a statement's parameters.
_ROWS_A_STATEMENT = 500


def record_attempts(
    connection: Connection, place: AttemptScope, run: str, results: Iterable[Attempt]
) -> list[Attempt]:
    """Keep results; those that are there already are no news. An error says nothing about the
    model: a score takes its place, and no error that of a score. Returns the new ones. Raises
    InvalidInput, and AttemptConflict where another score is there."""
    wanted = {(one.task, one.attempt): one for one in results}
    for one in wanted.values():
        check_attempt(one)
    rows = [_row(place, run, one) for one in wanted.values()]
    added: set[tuple[str, int]] = set()
    for start in range(0, len(rows), _ROWS_A_STATEMENT):
        some = rows[start : start + _ROWS_A_STATEMENT]
        made = insert_of(connection)(benchmark_attempt).values(some)
        keys = (benchmark_attempt.c.task, benchmark_attempt.c.attempt)
        new = connection.execute(made.on_conflict_do_nothing().returning(*keys))
        added.update((row.task, row.attempt) for row in new)
    if known := wanted.keys() - added:
        for one in _better(connection, place, [wanted[key] for key in sorted(known)]):
            connection.execute(_instead(place, one).values(_row(place, run, one)))
            added.add((one.task, one.attempt))
    return [wanted[key] for key in wanted if key in added]


def new_attempts(
    connection: Connection, place: AttemptScope, results: Sequence[Attempt]
) -> list[Attempt]:
    """What `record` would keep of results of which no two have the same number. Raises
    AttemptConflict as it does."""
    there = {(one.result.task, one.result.attempt) for one in read_attempts(connection, place)}
    known = [one for one in results if (one.task, one.attempt) in there]
    new = [one for one in results if (one.task, one.attempt) not in there]
    return new + (_better(connection, place, known) if known else [])


def _row(place: AttemptScope, run: str, one: Attempt) -> dict[str, Any]:
    return asdict(place) | asdict(one) | {"status": one.status, "run": run, "scored_at": now_us()}


def _better(connection: Connection, place: AttemptScope, known: Sequence[Attempt]) -> list[Attempt]:
    """Those of attempts that are known as errors which have a score now."""
    there = {(one.result.task, one.result.attempt): one for one in read_attempts(connection, place)}
    better = []
    for one in known:
        found = there[one.task, one.attempt]
        if found.result.status == "error":
            better += [one] if one.status == "scored" else []
        elif one.status == "scored" and found.result != one:
            raise AttemptConflict(
                attempt=one.attempt, task=one.task, checkpoint=place.checkpoint, suite=place.suite,
                run=found.run,
            )  # fmt: skip
    return better


def _instead(place: AttemptScope, one: Attempt) -> sa.Update:
    mine = {**asdict(place), "task": one.task, "attempt": one.attempt, "status": "error"}
    places = (benchmark_attempt.c[name] == value for name, value in mine.items())
    return sa.update(benchmark_attempt).where(*places)


def attempts_of(database: Database, place: AttemptScope) -> list[RecordedAttempt]:
    """By task and attempt."""
    with database.read() as connection:
        return read_attempts(connection, place)


def versions_tried(database: Database, tenant: str, suite: str, checkpoint: str) -> list[str]:
    """The versions of a suite that a checkpoint was tried at, the latest last."""
    mine = benchmark_attempt.c
    query = (
        sa.select(mine.suite_version)
        .where(mine.tenant == tenant, mine.suite == suite, mine.checkpoint == checkpoint)
        .group_by(mine.suite_version)
        .order_by(sa.func.max(mine.scored_at), mine.suite_version)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def read_attempts(connection: Connection, place: AttemptScope) -> list[RecordedAttempt]:
    """The same within a transaction."""
    mine: dict[str, Any] = asdict(place)
    columns = [benchmark_attempt.c[name] for name in (*RESULT_FIELDS, "run", "scored_at")]
    query = (
        sa.select(*columns)
        .where(*(benchmark_attempt.c[name] == value for name, value in mine.items()))
        .order_by(benchmark_attempt.c.task, benchmark_attempt.c.attempt)
    )
    return [
        RecordedAttempt(
            Attempt(**dict(zip(RESULT_FIELDS, row, strict=False))), row.run, row.scored_at
        )
        for row in connection.execute(query)
    ]


@dataclass(frozen=True)
class BenchmarkRun:
    id: str
    #: `run`, or the format of an import.
    kind: str
    source: str
    conditions: Mapping[str, Any]
    problems: Sequence[Any]
    started_at: int
    finished_at: int | None


def begin_run(
    database: Database, place: AttemptScope, *, source: str, conditions: Mapping[str, Any]
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


def runs_of(database: Database, place: AttemptScope) -> list[BenchmarkRun]:
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


def checkpoints_tried(database: Database, tenant: str, suite: str) -> list[str]:
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


def _run(row: sa.Row[Any]) -> BenchmarkRun:
    problems = msgspec.json.decode(row.problems) if row.problems else []
    return BenchmarkRun(
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
