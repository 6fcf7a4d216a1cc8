"""Comparison of attempts, runs and versions of suites with what the journal recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import Attempt, BenchmarkRun, RecordedAttempt
from penstock.registry.checkpoints.journal import (
    ATTEMPT_COLUMNS,
    AttemptScope,
    Journal,
    Place,
    Row,
    json_text,
    read_journal,
)
from penstock.registry.checkpoints.suites import version_entry
from penstock.registry.checkpoints.tables import (
    benchmark_attempt,
    benchmark_journal,
    benchmark_run,
    suite_version,
)

_NAMED = 3
_RUN_COLUMNS = [field.name for field in fields(BenchmarkRun)]

Key = TypeVar("Key", str, Place)


class CheckedRows(msgspec.Struct, frozen=True):
    """A journal, and the attempts; or `alterations`: which rows differ from the journal."""

    journal: Journal
    alterations: Sequence[str]
    attempts: Sequence[RecordedAttempt]


def read_checked(connection: Connection, scope: AttemptScope) -> CheckedRows:
    journal, present = read_journal(connection, scope), _present(connection, scope)
    altered = list(_alterations(scope, journal, present))
    more = [f"and {len(altered) - _NAMED} more rows differ from the record"]
    named = altered[:_NAMED] + (more if len(altered) > _NAMED else [])
    attempts = () if altered else map(_recorded, present.attempts.values())
    return CheckedRows(journal, named, list(attempts))


def recorded_scopes(
    connection: Connection, tenant: str, suite: str, checkpoint: str
) -> list[AttemptScope]:
    found: set[str] = set()
    for table in (benchmark_journal, benchmark_attempt, benchmark_run):
        query = sa.select(table.c.suite_version).distinct()
        query = query.filter_by(tenant=tenant, suite=suite, checkpoint=checkpoint)
        found.update(connection.scalars(query))
    return [AttemptScope(tenant, suite, version, checkpoint) for version in sorted(found)]


def restore(connection: Connection, scope: AttemptScope) -> Sequence[str]:
    """Restore attempts and runs from the journal; returns what was altered. Raises InvalidInput."""
    journal, present = read_journal(connection, scope), _present(connection, scope)
    if journal.damage is not None:
        why = f"{journal.damage}: restore a backup of the database"
        raise InvalidInput(what=f"{scope.checkpoint} on {scope.suite}", why=why)
    columns = benchmark_attempt.c
    for place, _ in _changes(journal.attempts, present.attempts):
        own = (columns.task == place[0]) & (columns.attempt == place[1])
        own &= scope.condition(benchmark_attempt)
        connection.execute(sa.delete(benchmark_attempt).where(own))
        if place in journal.attempts:
            row = asdict(scope) | journal.attempts[place]
            connection.execute(sa.insert(benchmark_attempt).values(row))
    for name, _ in _changes(journal.runs, present.runs):
        connection.execute(sa.delete(benchmark_run).where(benchmark_run.c.id == name))
        if name in journal.runs:
            row = asdict(scope) | journal.runs[name]
            row |= {part: json_text(row[part]) for part in ("conditions", "problems")}
            connection.execute(sa.insert(benchmark_run).values(row))
    return list(_alterations(scope, journal, present))


def _present(connection: Connection, scope: AttemptScope) -> Journal:
    """Read the rows as their journal should have them. Text that is not JSON stays text."""
    found = Journal()
    columns = benchmark_attempt.c
    query = sa.select(*(columns[name] for name in ATTEMPT_COLUMNS))
    query = query.where(scope.condition(benchmark_attempt)).order_by(columns.task, columns.attempt)
    for values in connection.execute(query):
        attempt = dict(zip(ATTEMPT_COLUMNS, values, strict=True))
        found.attempts[attempt["task"], attempt["attempt"]] = attempt
    query = sa.select(*(benchmark_run.c[name] for name in _RUN_COLUMNS))
    for row in connection.execute(query.where(scope.condition(benchmark_run))):
        found.runs[row.id] = facts = row._asdict()
        for name, empty in (("conditions", "{}"), ("problems", "[]")):
            try:
                facts[name] = msgspec.json.decode(facts[name] or empty)
            except msgspec.DecodeError:
                continue
    if not scope.checkpoint:
        names = ("version", "tasks", "content", "created_at")
        query = sa.select(*(suite_version.c[name] for name in names))
        for row in connection.execute(query.filter_by(tenant=scope.tenant, suite=scope.suite)):
            found.versions[row.version] = version_entry(*row)
    return found


def _alterations(scope: AttemptScope, journal: Journal, present: Journal) -> Iterator[str]:
    where = f"{scope.checkpoint} on {scope.suite}" if scope.checkpoint else scope.suite
    if journal.damage is not None:
        yield f"{where}: {journal.damage}"
        return
    for (task, number), change in _changes(journal.attempts, present.attempts):
        yield f"attempt {number} at {task} of {where} {change}"
    for name, change in _changes(journal.runs, present.runs):
        yield f"the run {name} of {where} {change}"
    for name, change in _changes(journal.versions, present.versions):
        yield f"the version {name} of {where} {change}"


def _changes(recorded: Mapping[Key, Row], present: Mapping[Key, Row]) -> Iterator[tuple[Key, str]]:
    for key in sorted(recorded.keys() | present.keys()) if recorded != present else ():
        before, after = recorded.get(key), present.get(key)
        if before is None:
            yield key, "was added without Penstock"
        elif after is None:
            yield key, "was removed"
        elif before != after:
            yield key, _edit(before, after)


def _edit(before: Row, after: Row) -> str:
    names = [name for name in before if before[name] != after[name]]
    name = "score" if "score" in names else names[0]
    if any(isinstance(each[name], (list, dict)) for each in (before, after)):
        return f"was edited: its {name} differ from the record"
    now, then = _shown(after[name]), _shown(before[name])
    return f"was edited: its {name} is {now}; {then} was recorded"


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _recorded(row: Row) -> RecordedAttempt:
    result = dict(row)
    run, scored_at, _status = (result.pop(name) for name in ("run", "scored_at", "status"))
    return RecordedAttempt(Attempt(**result), run, scored_at)
