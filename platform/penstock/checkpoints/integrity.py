"""Whether attempts, runs and versions of suites are as the journal says that they were recorded."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.attempts import Attempt, AttemptScope, RecordedAttempt
from penstock.checkpoints.journal import ATTEMPT_COLUMNS, Journal, Place, read_journal
from penstock.checkpoints.suites import suite_scope, version_entry
from penstock.checkpoints.tables import (
    benchmark_attempt,
    benchmark_journal,
    benchmark_run,
    suite_version,
)
from penstock.errors import InvalidInput

#: How many altered rows of a journal are named.
_NAMED = 3
_RUN_COLUMNS = ("kind", "source", "conditions", "problems", "started_at", "finished_at")


@dataclass(frozen=True)
class BoundAttempts:
    """The attempts of a checkpoint at a version of a suite, and which rows about them are not as
    they were recorded."""

    attempts: Sequence[RecordedAttempt]
    journal: Journal
    alterations: Sequence[str]


def read_bound_attempts(connection: Connection, scope: AttemptScope) -> BoundAttempts:
    journal, present = read_journal(connection, scope), _present(connection, scope)
    return BoundAttempts(
        attempts=[_recorded(row) for row in present.values()],
        journal=journal,
        alterations=_first(_altered(connection, scope, journal, present)),
    )


def read_bound_suite(
    connection: Connection, tenant: str, suite: str
) -> tuple[Journal, Sequence[str]]:
    """The journal of a suite's versions, and which rows are not as they were recorded."""
    journal = read_journal(connection, suite_scope(tenant, suite))
    columns = suite_version.c
    query = sa.select(columns.version, columns.tasks, columns.content, columns.created_at)
    query = query.where(columns.tenant == tenant, columns.suite == suite)
    present = {row.version: version_entry(*row) for row in connection.execute(query)}
    return journal, _first(_altered_versions(suite, journal, present))


def recorded_scopes(
    connection: Connection, tenant: str, suite: str, checkpoint: str
) -> list[AttemptScope]:
    """The versions of a suite of which anything was recorded of a checkpoint, or is there."""
    found: set[str] = set()
    for table in (benchmark_journal, benchmark_attempt, benchmark_run):
        columns = table.c
        query = sa.select(columns.suite_version).where(columns.tenant == tenant).distinct()
        query = query.where(columns.suite == suite, columns.checkpoint == checkpoint)
        found.update(connection.scalars(query))
    return [AttemptScope(tenant, suite, version, checkpoint) for version in sorted(found)]


def restore(connection: Connection, scope: AttemptScope) -> Sequence[str]:
    """Put attempts and runs back as the journal has them; what was altered. Raises InvalidInput
    where the journal itself was."""
    journal, present = read_journal(connection, scope), _present(connection, scope)
    if journal.damage is not None:
        why = f"{journal.damage}: restore a copy of the database"
        raise InvalidInput(what=f"{scope.checkpoint} on {scope.suite}", why=why)
    altered = list(_altered(connection, scope, journal, present))
    attempt, run = benchmark_attempt.c, benchmark_run.c
    for place in {*journal.attempts, *present}:
        if journal.attempts.get(place) == present.get(place):
            continue
        own = (attempt.task == place[0]) & (attempt.attempt == place[1])
        connection.execute(
            sa.delete(benchmark_attempt).where(scope.condition(benchmark_attempt), own)
        )
        if place in journal.attempts:
            row = dict(zip(ATTEMPT_COLUMNS, journal.attempts[place], strict=True))
            connection.execute(sa.insert(benchmark_attempt).values(asdict(scope) | row))
    runs = _runs(connection, scope)
    for name in {*journal.runs, *runs}:
        if journal.runs.get(name) == runs.get(name):
            continue
        connection.execute(sa.delete(benchmark_run).where(run.id == name))
        if name in journal.runs:
            facts = dict(journal.runs[name])
            for part in ("conditions", "problems"):
                facts[part] = msgspec.json.encode(facts[part]).decode()
            connection.execute(sa.insert(benchmark_run).values(asdict(scope) | facts))
    return altered


def _present(connection: Connection, scope: AttemptScope) -> dict[Place, tuple[Any, ...]]:
    """The rows of attempts, in order."""
    columns = benchmark_attempt.c
    query = sa.select(*(columns[name] for name in ATTEMPT_COLUMNS))
    query = query.where(scope.condition(benchmark_attempt)).order_by(columns.task, columns.attempt)
    return {(row[0], row[1]): tuple(row) for row in connection.execute(query)}


def _altered(
    connection: Connection,
    scope: AttemptScope,
    journal: Journal,
    present: Mapping[Place, tuple[Any, ...]],
) -> Iterator[str]:
    where = f"{scope.checkpoint} on {scope.suite}"
    if journal.damage is not None:
        yield f"{where}: {journal.damage}"
        return
    if journal.attempts != present:
        for place in sorted(journal.attempts.keys() | present.keys()):
            before, after = journal.attempts.get(place), present.get(place)
            if before != after:
                yield f"attempt {place[1]} at {place[0]} of {where} {_alteration(before, after)}"
    runs = _runs(connection, scope)
    for name in sorted(journal.runs.keys() | runs.keys()):
        if (change := _change(journal.runs.get(name), runs.get(name))) is not None:
            yield f"the run {name} of {where} {change}"


def _altered_versions(
    suite: str, journal: Journal, present: Mapping[str, dict[str, Any]]
) -> Iterator[str]:
    if journal.damage is not None:
        yield f"the versions of {suite}: {journal.damage}"
        return
    for name in sorted(journal.versions.keys() | present.keys()):
        if (change := _change(journal.versions.get(name), present.get(name))) is not None:
            yield f"the version {name} of {suite} {change}"


def _alteration(before: tuple[Any, ...] | None, after: tuple[Any, ...] | None) -> str:
    named = [
        dict(zip(ATTEMPT_COLUMNS, row, strict=True)) if row else None for row in (before, after)
    ]
    return str(_change(*named))


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str | None:
    """None where they are the same."""
    if before is None:
        return "was added past Penstock"
    if after is None:
        return "was removed"
    names = [name for name in before if before[name] != after[name]]
    if not names:
        return None
    name = "score" if "score" in names else names[0]
    if any(isinstance(each[name], (list, dict)) for each in (before, after)):
        return f"was edited: its {name} are not those that were recorded"
    return (
        f"was edited: its {name} is {_shown(after[name])}, and {_shown(before[name])} was recorded"
    )


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _runs(connection: Connection, scope: AttemptScope) -> dict[str, dict[str, Any]]:
    columns = benchmark_run.c
    query = sa.select(columns.id, *(columns[name] for name in _RUN_COLUMNS))
    return {
        row.id: _run_facts(row._asdict())
        for row in connection.execute(query.where(scope.condition(benchmark_run)))
    }


def _run_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """As the journal has them. A text that is no JSON any more stays a text."""
    for name, empty in (("conditions", "{}"), ("problems", "[]")):
        try:
            facts[name] = msgspec.json.decode(facts[name] or empty)
        except msgspec.DecodeError:
            continue
    return facts


def _recorded(row: tuple[Any, ...]) -> RecordedAttempt:
    facts = dict(zip(ATTEMPT_COLUMNS, row, strict=True))
    run, scored_at, _status = (facts.pop(name) for name in ("run", "scored_at", "status"))
    return RecordedAttempt(Attempt(**facts), run, scored_at)


def _first(alterations: Iterable[str]) -> tuple[str, ...]:
    """The first of them by name, and how many there are besides."""
    known = list(alterations)
    more = [f"and {len(known) - _NAMED} more rows are not as they were recorded"]
    return tuple(known[:_NAMED] + (more if len(known) > _NAMED else []))
