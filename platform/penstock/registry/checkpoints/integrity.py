"""Comparison of attempts, runs and versions of suites with what the journal recorded."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import Attempt, BenchmarkRun, RecordedAttempt
from penstock.registry.checkpoints.journal import (
    ATTEMPT_COLUMNS,
    AttemptRow,
    AttemptScope,
    Journal,
    Place,
    json_text,
    read_journal,
)
from penstock.registry.checkpoints.suites import suite_scope, version_entry
from penstock.registry.checkpoints.tables import (
    benchmark_attempt,
    benchmark_journal,
    benchmark_run,
    suite_version,
)

_NAMED = 3
_RUN_COLUMNS = [field.name for field in fields(BenchmarkRun)]

Key = TypeVar("Key", str, Place)
Recorded = AttemptRow | dict[str, Any]


class CheckedAttempts(msgspec.Struct, frozen=True):
    """Attempts, their journal, and `alterations`: which rows differ from it."""

    attempts: Sequence[RecordedAttempt]
    journal: Journal
    alterations: Sequence[str]


def read_checked_attempts(connection: Connection, scope: AttemptScope) -> CheckedAttempts:
    journal, present = read_journal(connection, scope), _attempts(connection, scope)
    altered = _altered(scope, journal, present, _runs(connection, scope))
    return CheckedAttempts([_recorded(row) for row in present.values()], journal, _first(altered))


def read_checked_suite(
    connection: Connection, tenant: str, suite: str
) -> tuple[Journal, Sequence[str]]:
    """Read the journal of a suite's versions, and which rows differ from it."""
    journal = read_journal(connection, suite_scope(tenant, suite))
    columns = suite_version.c
    query = sa.select(columns.version, columns.tasks, columns.content, columns.created_at)
    query = query.where(columns.tenant == tenant, columns.suite == suite)
    present = {row.version: version_entry(*row) for row in connection.execute(query)}
    if journal.damage is not None:
        return journal, (f"the versions of {suite}: {journal.damage}",)
    changes = _changes(journal.versions, present)
    return journal, _first(f"the version {name} of {suite} {change}" for name, change in changes)


def recorded_scopes(
    connection: Connection, tenant: str, suite: str, checkpoint: str
) -> list[AttemptScope]:
    found: set[str] = set()
    for table in (benchmark_journal, benchmark_attempt, benchmark_run):
        columns = table.c
        query = sa.select(columns.suite_version).where(columns.tenant == tenant).distinct()
        query = query.where(columns.suite == suite, columns.checkpoint == checkpoint)
        found.update(connection.scalars(query))
    return [AttemptScope(tenant, suite, version, checkpoint) for version in sorted(found)]


def restore(connection: Connection, scope: AttemptScope) -> Sequence[str]:
    """Restore attempts and runs from the journal; returns what was altered. Raises InvalidInput."""
    journal = read_journal(connection, scope)
    attempts, runs = _attempts(connection, scope), _runs(connection, scope)
    if journal.damage is not None:
        why = f"{journal.damage}: restore a backup of the database"
        raise InvalidInput(what=f"{scope.checkpoint} on {scope.suite}", why=why)
    columns = benchmark_attempt.c
    for place, _ in _changes(journal.attempts, attempts):
        own = (columns.task == place[0]) & (columns.attempt == place[1])
        own &= scope.condition(benchmark_attempt)
        connection.execute(sa.delete(benchmark_attempt).where(own))
        if place in journal.attempts:
            row = asdict(scope) | _named(journal.attempts[place])
            connection.execute(sa.insert(benchmark_attempt).values(row))
    for name, _ in _changes(journal.runs, runs):
        connection.execute(sa.delete(benchmark_run).where(benchmark_run.c.id == name))
        if name in journal.runs:
            row = asdict(scope) | journal.runs[name]
            row |= {part: json_text(row[part]) for part in ("conditions", "problems")}
            connection.execute(sa.insert(benchmark_run).values(row))
    return list(_altered(scope, journal, attempts, runs))


def _attempts(connection: Connection, scope: AttemptScope) -> dict[Place, AttemptRow]:
    columns = benchmark_attempt.c
    query = sa.select(*(columns[name] for name in ATTEMPT_COLUMNS))
    query = query.where(scope.condition(benchmark_attempt)).order_by(columns.task, columns.attempt)
    return {(row[0], row[1]): tuple(row) for row in connection.execute(query)}


def _runs(connection: Connection, scope: AttemptScope) -> dict[str, dict[str, Any]]:
    """Read runs as the journal has them. Text that is not JSON stays text."""
    columns = benchmark_run.c
    query = sa.select(*(columns[name] for name in _RUN_COLUMNS))
    runs = {}
    for row in connection.execute(query.where(scope.condition(benchmark_run))):
        runs[row.id] = facts = row._asdict()
        for name, empty in (("conditions", "{}"), ("problems", "[]")):
            try:
                facts[name] = msgspec.json.decode(facts[name] or empty)
            except msgspec.DecodeError:
                continue
    return runs


def _altered(
    scope: AttemptScope,
    journal: Journal,
    attempts: Mapping[Place, AttemptRow],
    runs: Mapping[str, dict[str, Any]],
) -> Iterator[str]:
    where = f"{scope.checkpoint} on {scope.suite}"
    if journal.damage is not None:
        yield f"{where}: {journal.damage}"
        return
    for (task, number), change in _changes(journal.attempts, attempts):
        yield f"attempt {number} at {task} of {where} {change}"
    for name, change in _changes(journal.runs, runs):
        yield f"the run {name} of {where} {change}"


def _changes(
    recorded: Mapping[Key, Recorded], present: Mapping[Key, Recorded]
) -> Iterator[tuple[Key, str]]:
    if recorded == present:
        return
    for key in sorted(recorded.keys() | present.keys()):
        before, after = recorded.get(key), present.get(key)
        if before is None:
            yield key, "was added without Penstock"
        elif after is None:
            yield key, "was removed"
        elif before != after:
            yield key, _edit(_named(before), _named(after))


def _edit(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    names = [name for name in before if before[name] != after[name]]
    name = "score" if "score" in names else names[0]
    if any(isinstance(each[name], (list, dict)) for each in (before, after)):
        return f"was edited: its {name} differ from the record"
    now, then = _shown(after[name]), _shown(before[name])
    return f"was edited: its {name} is {now}; {then} was recorded"


def _named(row: Recorded) -> dict[str, Any]:
    return row if isinstance(row, dict) else dict(zip(ATTEMPT_COLUMNS, row, strict=True))


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _recorded(row: AttemptRow) -> RecordedAttempt:
    facts = _named(row)
    run, scored_at, _status = (facts.pop(name) for name in ("run", "scored_at", "status"))
    return RecordedAttempt(Attempt(**facts), run, scored_at)


def _first(alterations: Iterable[str]) -> Sequence[str]:
    known = list(alterations)
    more = [f"and {len(known) - _NAMED} more rows differ from the record"]
    return tuple(known[:_NAMED] + (more if len(known) > _NAMED else []))
