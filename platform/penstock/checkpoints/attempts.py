"""Attempts of checkpoints at tasks: kept once, read whole."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.errors import AttemptConflict
from penstock.checkpoints.tables import benchmark_attempt
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput

Status = Literal["scored", "error"]

#: How many rows one statement inserts: databases bound a statement's parameters.
_ROWS_A_STATEMENT = 500


@dataclass(frozen=True)
class Place:
    """Whose attempts: of a checkpoint at one version of a suite."""

    tenant: str
    suite: str
    suite_version: str
    checkpoint: str


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
    def status(self) -> Status:
        return "scored" if self.error is None else "error"


@dataclass(frozen=True)
class Kept:
    """An attempt as it is in the database."""

    result: Attempt
    run: str
    scored_at: int


_RESULT = [one.name for one in fields(Attempt)]


def check(result: Attempt) -> None:
    """Raises InvalidInput for what no attempt can be."""
    if why := _why_unfit(result):
        what = f"Attempt {result.attempt} at the task {result.task!r}"
        raise InvalidInput(what=what, why=why)


def _why_unfit(result: Attempt) -> str | None:
    if not 0 < len(result.task) <= 255 or not result.task.isprintable():
        return "a task's name is a printable text of at most 255 characters"
    if not 0 <= result.attempt < 2**31:
        return "attempts count from 0"
    if (result.score is None) == (result.error is None):
        return "it has either a score or an error"
    if result.score is not None and not 0 <= result.score <= 1:  # NaN neither
        return f"its score is {result.score}, and scores lie between 0 and 1"
    for name in _RESULT[4:]:
        value = getattr(result, name)
        if isinstance(value, (int, float)) and not 0 <= value < 2**63:  # NaN neither
            return f"its {name} is {value}, which nothing can be"
    return None


def record(
    connection: Connection, place: Place, run: str, results: Iterable[Attempt]
) -> list[Attempt]:
    """Keep results; those that are there already are no news. An error says nothing about the
    model: a score takes its place, and no error that of a score. Returns the new ones. Raises
    InvalidInput, and AttemptConflict where another score is there."""
    wanted = {(one.task, one.attempt): one for one in results}
    for one in wanted.values():
        check(one)
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


def news(connection: Connection, place: Place, results: Sequence[Attempt]) -> list[Attempt]:
    """What `record` would keep of results of which no two have the same number. Raises
    AttemptConflict as it does."""
    there = {(one.result.task, one.result.attempt) for one in read_attempts(connection, place)}
    known = [one for one in results if (one.task, one.attempt) in there]
    new = [one for one in results if (one.task, one.attempt) not in there]
    return new + (_better(connection, place, known) if known else [])


def _row(place: Place, run: str, one: Attempt) -> dict[str, Any]:
    return asdict(place) | asdict(one) | {"status": one.status, "run": run, "scored_at": now_us()}


def _better(connection: Connection, place: Place, known: Sequence[Attempt]) -> list[Attempt]:
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


def _instead(place: Place, one: Attempt) -> sa.Update:
    mine = {**asdict(place), "task": one.task, "attempt": one.attempt, "status": "error"}
    places = (benchmark_attempt.c[name] == value for name, value in mine.items())
    return sa.update(benchmark_attempt).where(*places)


def attempts_of(database: Database, place: Place) -> list[Kept]:
    """By task and attempt."""
    with database.read() as connection:
        return read_attempts(connection, place)


def versions_of(database: Database, tenant: str, suite: str, checkpoint: str) -> list[str]:
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


def read_attempts(connection: Connection, place: Place) -> list[Kept]:
    """The same within a transaction."""
    mine: dict[str, Any] = asdict(place)
    columns = [benchmark_attempt.c[name] for name in (*_RESULT, "run", "scored_at")]
    query = (
        sa.select(*columns)
        .where(*(benchmark_attempt.c[name] == value for name, value in mine.items()))
        .order_by(benchmark_attempt.c.task, benchmark_attempt.c.attempt)
    )
    return [
        Kept(Attempt(**dict(zip(_RESULT, row, strict=False))), row.run, row.scored_at)
        for row in connection.execute(query)
    ]
