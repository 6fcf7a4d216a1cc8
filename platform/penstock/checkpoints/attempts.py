"""Attempts: the results of checkpoints at the tasks of suites, and the runs that made them."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.errors import AttemptConflict
from penstock.checkpoints.tables import benchmark_attempt, benchmark_run
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput

#: How many rows one statement inserts: databases bound a statement's parameters.
_ROWS_A_STATEMENT = 500


@dataclass(frozen=True)
class AttemptScope:
    """Whose attempts: of a checkpoint at one version of a suite."""

    tenant: str
    suite: str
    suite_version: str
    checkpoint: str

    def condition(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """The rows of a table that belong to it."""
        return sa.and_(*(table.c[name] == value for name, value in asdict(self).items()))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A result. With `error` it says nothing about the model, and has no score."""

    task: str
    attempt: int
    score: float | None = None
    error: str | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    steps: int | None = None
    tool_calls: int | None = None
    invalid_tool_calls: int | None = None
    edited: bool | None = None
    asked: bool | None = None
    retries: int = 0

    @property
    def status(self) -> Literal["scored", "error"]:
        return "scored" if self.error is None else "error"

    @property
    def place(self) -> tuple[str, int]:
        return self.task, self.attempt


@dataclass(frozen=True)
class ErrorGroup:
    """Attempts that ended in the same error, by the words before its first colon."""

    error: str
    count: int
    tasks: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.count} × {self.error} ({listed(self.tasks)})"


def error_groups(attempts: Iterable[Attempt]) -> tuple[ErrorGroup, ...]:
    """What went wrong, and at which tasks; the most frequent first."""
    tasks: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.error is not None:
            tasks.setdefault(error_kind(attempt.error), []).append(attempt.task)
    groups = [ErrorGroup(kind, len(at), tuple(sorted({*at}))) for kind, at in tasks.items()]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.error)))


def error_kind(error: str) -> str:
    return error.partition(": ")[0] or "error"


def listed(names: Iterable[str]) -> str:
    """The first three of them."""
    known = sorted(names)
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


RESULT_FIELDS = tuple(field.name for field in fields(Attempt))
#: The fields of a result as a tuple.
result_values: Callable[[Attempt], tuple[Any, ...]] = attrgetter(*RESULT_FIELDS)


@dataclass(frozen=True)
class RecordedAttempt:
    result: Attempt
    run: str
    scored_at: int


def check_attempt(attempt: Attempt) -> None:
    """Raises InvalidInput for a result that no attempt can have."""
    why = ""
    if not 0 < len(attempt.task) <= 255 or not attempt.task.isprintable():
        why = "a task's name is a printable text of at most 255 characters"
    elif not 0 <= attempt.attempt < 2**31:
        why = "attempts count from 0"
    elif (attempt.score is None) == (attempt.error is None):
        why = "it has either a score or an error"
    elif attempt.score is not None and not 0 <= attempt.score <= 1:  # NaN neither
        why = f"its score is {attempt.score}, and scores lie between 0 and 1"
    else:
        for name in RESULT_FIELDS[4:]:
            value = getattr(attempt, name)
            if isinstance(value, (int, float)) and not 0 <= value < 2**63:  # NaN neither
                why = f"its {name} is {value}, which is impossible"
                break
    if why:
        what = f"Attempt {attempt.attempt} at the task {attempt.task!r}"
        raise InvalidInput(what=what, why=why)


def record_attempts(
    connection: Connection, scope: AttemptScope, run: str, attempts: Iterable[Attempt]
) -> list[Attempt]:
    """Keep results, and return the new ones. A score replaces an error, an error no score. Raises
    InvalidInput, and AttemptConflict where another score is there."""
    by_place = {attempt.place: attempt for attempt in attempts}
    for attempt in by_place.values():
        check_attempt(attempt)
    rows = [_row(scope, run, attempt) for attempt in by_place.values()]
    columns = benchmark_attempt.c
    added: set[tuple[str, int]] = set()
    for start in range(0, len(rows), _ROWS_A_STATEMENT):
        insert = insert_of(connection)(benchmark_attempt)
        insert = insert.values(rows[start : start + _ROWS_A_STATEMENT]).on_conflict_do_nothing()
        inserted = connection.execute(insert.returning(columns.task, columns.attempt))
        added.update((row.task, row.attempt) for row in inserted)
    if known := by_place.keys() - added:
        for attempt in new_attempts(connection, scope, [by_place[at] for at in sorted(known)]):
            own = (columns.task == attempt.task) & (columns.attempt == attempt.attempt)
            connection.execute(
                sa.update(benchmark_attempt)
                .where(scope.condition(benchmark_attempt), own, columns.status == "error")
                .values(_row(scope, run, attempt))
            )
            added.add(attempt.place)
    return [attempt for place, attempt in by_place.items() if place in added]


def new_attempts(
    connection: Connection, scope: AttemptScope, attempts: Sequence[Attempt]
) -> list[Attempt]:
    """What `record_attempts` would keep; no two have the same place. Raises AttemptConflict."""
    recorded = {each.result.place: each for each in read_attempts(connection, scope)}
    new = []
    for attempt in attempts:
        before = recorded.get(attempt.place)
        if before is None or (before.result.error is not None and attempt.error is None):
            new.append(attempt)
        elif attempt.error is None and before.result != attempt:
            place = {"checkpoint": scope.checkpoint, "suite": scope.suite, "run": before.run}
            raise AttemptConflict(attempt=attempt.attempt, task=attempt.task, **place)
    return new


def _row(scope: AttemptScope, run: str, attempt: Attempt) -> dict[str, Any]:
    facts = {"status": attempt.status, "run": run, "scored_at": now_us()}
    return asdict(scope) | asdict(attempt) | facts


def attempts_of(database: Database, scope: AttemptScope) -> list[RecordedAttempt]:
    """By task and attempt."""
    with database.read() as connection:
        return read_attempts(connection, scope)


def read_attempts(connection: Connection, scope: AttemptScope) -> list[RecordedAttempt]:
    """The same within a transaction."""
    columns = benchmark_attempt.c
    query = (
        sa.select(*(columns[name] for name in (*RESULT_FIELDS, "run", "scored_at")))
        .where(scope.condition(benchmark_attempt))
        .order_by(columns.task, columns.attempt)
    )
    return [
        RecordedAttempt(Attempt(**dict(zip(RESULT_FIELDS, row, strict=False))), *row[-2:])
        for row in connection.execute(query)
    ]


def versions_tried(database: Database, tenant: str, suite: str, checkpoint: str) -> list[str]:
    """The versions of a suite at which a checkpoint was tried, the latest last."""
    columns = benchmark_attempt.c
    query = (
        sa.select(columns.suite_version)
        .where(columns.tenant == tenant, columns.suite == suite, columns.checkpoint == checkpoint)
        .group_by(columns.suite_version)
        .order_by(sa.func.max(columns.scored_at), columns.suite_version)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def checkpoints_tried(database: Database, tenant: str, suite: str) -> list[str]:
    columns = benchmark_attempt.c
    query = sa.select(columns.checkpoint).where(columns.tenant == tenant, columns.suite == suite)
    with database.read() as connection:
        return list(connection.scalars(query.distinct().order_by(columns.checkpoint)))


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
    database: Database, scope: AttemptScope, *, source: str, conditions: Mapping[str, Any]
) -> str:
    run = uuid.uuid4().hex
    row = asdict(scope) | {"id": run, "kind": "run", "source": source, "started_at": now_us()}
    row |= {"conditions": msgspec.json.encode(conditions).decode(), "problems": "[]"}
    with database.write() as connection:
        connection.execute(sa.insert(benchmark_run).values(row))
    return run


def note_problem(connection: Connection, run: str, problem: Mapping[str, Any]) -> None:
    """Recorded in the transaction of the attempt that it is about."""
    own = benchmark_run.c.id == run  # read and written by the process of the run alone
    known = connection.scalar(sa.select(benchmark_run.c.problems).where(own)) or "[]"
    problems = msgspec.json.encode([*msgspec.json.decode(known), problem])
    connection.execute(sa.update(benchmark_run).where(own).values(problems=problems.decode()))


def finish_run(database: Database, run: str) -> None:
    own = sa.update(benchmark_run).where(benchmark_run.c.id == run)
    with database.write() as connection:
        connection.execute(own.values(finished_at=now_us()))


def runs_of(database: Database, scope: AttemptScope) -> list[BenchmarkRun]:
    """All runs and imports of a checkpoint at one version of a suite, the oldest first."""
    columns = benchmark_run.c
    query = (
        sa.select(*(columns[field.name] for field in fields(BenchmarkRun)))
        .where(scope.condition(benchmark_run))
        .order_by(columns.started_at, columns.id)
    )
    runs = []
    with database.read() as connection:
        for row in connection.execute(query):
            problems = msgspec.json.decode(row.problems or "[]")
            decoded = {
                "conditions": msgspec.json.decode(row.conditions or "{}"),
                "problems": problems if isinstance(problems, list) else [problems],
            }
            runs.append(BenchmarkRun(**{**row._mapping, **decoded}))
    return runs
