"""Checking the lake against the metadata database, file by file."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.execution import Executor
from penstock.lake.catalog import file_tables
from penstock.lake.lake import Lake
from penstock.lake.segments import segment_name, sessions_name
from penstock.lake.tables import ledger, segment_intent
from penstock.settings import Settings

_READ_BYTES = 8 * 1024 * 1024  # a request each, where the store is elsewhere
#: So that starting a worker and opening a lake are a small part of a task.
_FILES_PER_TASK = 8


@dataclass(frozen=True)
class Finding:
    """Something that does not match."""

    name: str
    problem: str


@dataclass(frozen=True)
class Verification:
    segments: int
    rows: int
    #: How many files other rooms keep in the lake, by their table.
    others: dict[str, int]
    findings: list[Finding]


@dataclass(frozen=True)
class CheckTask:
    """Files to check, for a worker."""

    settings: Settings = field(repr=False)  # addresses may hold passwords
    folder: str
    ids: tuple[int, ...]


def verify(lake: Lake, executor: Executor | None = None) -> Verification:
    """Read every file, here or on the workers of an executor. Changes nothing, and may run while
    others write, merge and collect."""
    tables = file_tables()
    present = _present(lake, tables)  # each of these was announced before it appeared
    with lake.database.read() as connection:
        found = {folder: _rows(connection, table) for folder, table in tables.items()}
        intents = set(connection.execute(sa.select(segment_intent.c.name)).scalars())
        stored = connection.execute(sa.select(sa.func.sum(ledger.c.stored))).scalar() or 0
    findings = []
    for folder, rows in found.items():
        if executor is None:
            findings += _check(lake, tables[folder], rows)
        else:
            findings += _spread(lake, folder, rows, executor)
    known = {one.name for rows in found.values() for one in rows} | intents
    orphans = {name for name in present if segment_name(name) not in known}
    findings += [
        Finding(name, "orphan: the database has no row and no intent for it")
        for name in sorted(
            orphans and orphans & _present(lake, tables)
        )  # others were collected just now
    ]
    segments = found["events"]
    live = sum(one.rows for one in segments if one.removed_snap is None)
    if live != stored:
        findings.append(Finding("ledger", f"{stored} events were stored, {live} rows are live"))
    others = {
        tables[folder].name: len(rows) for folder, rows in found.items() if rows is not segments
    }
    return Verification(len(segments), live, others, findings)


def _rows(connection: Connection, table: sa.Table) -> Sequence[sa.Row[Any]]:
    return connection.execute(sa.select(table).order_by(table.c.id)).all()


def _spread(
    lake: Lake, folder: str, rows: Sequence[sa.Row[Any]], executor: Executor
) -> list[Finding]:
    ids = [one.id for one in rows]
    starts = range(0, len(ids), _FILES_PER_TASK)
    tasks = (
        CheckTask(lake.settings, folder, tuple(ids[at : at + _FILES_PER_TASK])) for at in starts
    )
    done = sorted(executor.run(check_files, tasks), key=lambda one: one.task.ids)
    return [finding for one in done for finding in one.result]


def check_files(task: CheckTask) -> list[Finding]:
    """On a worker. Files that were collected meanwhile are none of its concern."""
    table = file_tables()[task.folder]
    query = sa.select(table).where(table.c.id.in_(task.ids)).order_by(table.c.id)
    with Lake(task.settings) as lake:
        with lake.database.read() as connection:
            rows = connection.execute(query).all()
        return _check(lake, table, rows)


def _check(lake: Lake, table: sa.Table, rows: Sequence[sa.Row[Any]]) -> list[Finding]:
    return [
        finding
        for one in rows
        if (found := _check_one(lake, one)) and _still_known(lake, table, one.name)
        for finding in found
    ]


def _check_one(lake: Lake, one: sa.Row[Any]) -> list[Finding]:
    findings: list[Finding] = []
    for recorded in _files_of(one):
        try:
            findings += _check_file(lake, recorded)
        except OSError as error:
            findings.append(Finding(recorded.name, f"cannot be read: {error}"))
    return findings


def _present(lake: Lake, folders: Iterable[str]) -> set[str]:
    return {file.name for folder in folders for file in lake.store.list(folder)}


def _still_known(lake: Lake, table: sa.Table, name: str) -> bool:
    """False for a file that was collected meanwhile."""
    query = sa.select(table.c.id).where(table.c.name == name)
    with lake.database.read() as connection:
        return connection.execute(query).one_or_none() is not None


class _Recorded(NamedTuple):
    """A file as the database knows it; `rows` of a segment, not of its sessions."""

    name: str
    size: int
    digest: str
    rows: int | None


def _files_of(one: sa.Row[Any]) -> list[_Recorded]:
    return [
        _Recorded(one.name, one.bytes, one.sha256, one.rows),
        _Recorded(sessions_name(one.name), one.sessions_bytes, one.sessions_sha256, None),
    ]


def check_segment(lake: Lake, one: sa.Row[Any]) -> Iterator[Finding]:
    """Whether the two files of a segment are what its row in the database says. Raises OSError
    where they cannot be read."""
    for recorded in _files_of(one):
        yield from _check_file(lake, recorded)


def _check_file(lake: Lake, recorded: _Recorded) -> Iterator[Finding]:
    name, size, digest, rows = recorded
    try:
        found_size, found_digest = _digest(lake, name)
    except FileNotFoundError:
        yield Finding(name, "missing")
        return
    if found_size != size:
        yield Finding(name, f"{found_size} bytes, the database says {size}")
    elif found_digest != digest:
        yield Finding(name, "its checksum does not match")
    elif rows is not None:
        with lake.store.open(name) as source, pq.ParquetFile(source) as file:
            if (found := file.metadata.num_rows) != rows:
                yield Finding(name, f"{found} rows, the database says {rows}")


def _digest(lake: Lake, name: str) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with lake.store.open(name) as source:
        while part := source.read(_READ_BYTES):
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()
