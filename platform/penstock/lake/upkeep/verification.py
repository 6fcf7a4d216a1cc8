"""Verification of the lake: files, event log and database, and each event against the promise that
it is there once, in its place."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from penstock.backends.audit.chain import check_audit
from penstock.backends.execution.executor import Executor
from penstock.core.errors import one_line
from penstock.core.room import rooms
from penstock.core.settings import Settings
from penstock.events.event import session_key
from penstock.lake import LakeDamaged
from penstock.lake.buckets import (
    Bucket,
    BucketTask,
    SessionId,
    group_ranges,
    open_events,
    read_groups,
    run_over_buckets,
)
from penstock.lake.catalog import file_tables, pinned
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, SORT_KEYS, SORTED_BY
from penstock.lake.segments import (
    find_summaries,
    make_filter,
    open_segment,
    segment_name,
    sessions_name,
)
from penstock.lake.tables import ledger, segment, segment_intent

_READ_BYTES = 8 * 1024 * 1024  # a request each, where the store is elsewhere
_FILES_PER_TASK = 8  # opening a lake is a small part of a task
_SEGMENTS = "events"


class VerificationFinding(msgspec.Struct, frozen=True):
    name: str
    problem: str


@dataclass(frozen=True)
class Verification:
    segments: int
    rows: int
    #: Files of other rooms in the lake, by table.
    others: dict[str, int]
    findings: list[VerificationFinding]


@dataclass(frozen=True)
class CheckTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    folder: str
    ids: tuple[int, ...]


# Files


def verify(lake: Lake, executor: Executor | None = None) -> Verification:
    """Check every file. Others may write, merge and collect meanwhile."""
    tables = file_tables()
    present = _present(lake, tables)  # each of these was announced before it appeared
    with lake.database.read() as connection:
        rows = {
            folder: connection.execute(sa.select(table).order_by(table.c.id)).all()
            for folder, table in tables.items()
        }
        intents = set(connection.execute(sa.select(segment_intent.c.name)).scalars())
        stored = connection.execute(sa.select(sa.func.sum(ledger.c.stored))).scalar() or 0
    findings = []
    for folder, files in rows.items():
        if executor is None:
            findings += _check_each(lake, tables[folder], files)
            continue
        ids = [file.id for file in files]
        tasks = (
            CheckTask(lake.settings, folder, tuple(ids[at : at + _FILES_PER_TASK]))
            for at in range(0, len(ids), _FILES_PER_TASK)
        )
        done = sorted(executor.run(check_on_worker, tasks), key=lambda result: result.task.ids)
        findings += [finding for result in done for finding in result.result]
    known = {file.name for files in rows.values() for file in files} | intents
    orphans = {name for name in present if segment_name(name) not in known}
    findings += [
        VerificationFinding(name, "orphan: the database has no row and no intent for it")
        for name in sorted(orphans and orphans & _present(lake, tables))  # others were collected
    ]
    segments = rows.pop(_SEGMENTS)
    live = sum(file.rows for file in segments if file.removed_snap is None)
    if live != stored:
        problem = f"{stored} events were stored, {live} rows are live"
        findings.append(VerificationFinding("ledger", problem))
    findings += [*_damage_of_log(lake), *_damage_of_database(lake)]
    findings += [finding for room in rooms() for check in room.checks() for finding in check(lake)]
    others = {tables[folder].name: len(files) for folder, files in rows.items()}
    return Verification(len(segments), live, others, findings)


def _damage_of_log(lake: Lake) -> Iterator[VerificationFinding]:
    for part in lake.log.damage(look=True):
        problem = f"{part.bytes} bytes of the event log could not be read; this is their copy"
        yield VerificationFinding(part.name, problem)


def _damage_of_database(lake: Lake) -> Iterator[VerificationFinding]:
    for problem in lake.database.damage():
        yield VerificationFinding("the metadata database", problem)
    for tenant, _, flaw in check_audit(lake.database):
        if flaw is not None:
            name = f"the audit of tenant {tenant or 'none'}, entry {flaw.number}"
            yield VerificationFinding(name, flaw.why)


def _present(lake: Lake, folders: Iterable[str]) -> set[str]:
    return {file.name for folder in folders for file in lake.store.list(folder)}


def check_on_worker(task: CheckTask) -> list[VerificationFinding]:
    table = file_tables()[task.folder]
    query = sa.select(table).where(table.c.id.in_(task.ids)).order_by(table.c.id)
    with Lake(task.settings) as lake:
        rows = lake.database.rows(query)
        return _check_each(lake, table, rows)


def _check_each(
    lake: Lake, table: sa.Table, rows: Sequence[sa.Row[Any]]
) -> list[VerificationFinding]:
    findings: list[VerificationFinding] = []
    for row in rows:
        problems = list(check_files(lake, row, unreadable_is_finding=True))
        if not problems and table is segment:
            problems += _misleading(lake, row)
        if problems:
            query = sa.select(table.c.id).where(table.c.name == row.name)
            with lake.database.read() as connection:
                if connection.execute(query).one_or_none() is not None:  # or it was collected
                    findings += problems
    return findings


def check_files(
    lake: Lake, row: sa.Row[Any], *, unreadable_is_finding: bool = False
) -> Iterator[VerificationFinding]:
    """Compare a file and its file of sessions with their row in the database. A file that cannot be
    read raises OSError, or is a finding with `unreadable_is_finding`."""
    beside = sessions_name(row.name)
    for name, size, sha256, rows in (
        (row.name, row.bytes, row.sha256, row.rows),
        (beside, row.sessions_bytes, row.sessions_sha256, None),
    ):
        if not sha256:  # there is no file of sessions yet
            continue
        try:
            problem = _problem_of(lake, name, size, sha256, rows)
        except OSError as error:
            if not unreadable_is_finding:
                raise
            problem = f"cannot be read: {one_line(error)}"
        if problem is not None:
            yield VerificationFinding(name, problem)


def _misleading(lake: Lake, row: sa.Row[Any]) -> Iterator[VerificationFinding]:
    """Find what the row of a whole segment says wrongly: queries leave segments out by it."""
    try:
        with open_segment(lake.store, row.name) as file:
            place = file.schema_arrow.get_field_index("ts")
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            times = [group.column(place).statistics for group in groups]
        sessions = find_summaries(lake.store, row.name, ["tenant", "session_id"])
    except FileNotFoundError:
        return  # it was collected meanwhile
    # Raw, since a line that passed no gateway may have a time that no calendar has.
    span = (min(each.min_raw for each in times), max(each.max_raw for each in times))
    if span != (row.ts_min, row.ts_max):
        yield VerificationFinding(row.name, "its row names other times than its events have")
    columns = (sessions[name].to_pylist() for name in ("tenant", "session_id"))
    if make_filter(map(session_key, *columns)) != row.session_filter:
        yield VerificationFinding(row.name, "its row names other sessions than it holds")


def _problem_of(lake: Lake, name: str, size: int, sha256: str, rows: int | None) -> str | None:
    digest, size_read = hashlib.sha256(), 0
    try:
        with lake.store.open(name) as source:
            while part := source.read(_READ_BYTES):
                digest.update(part)
                size_read += len(part)
    except FileNotFoundError:
        return "missing"
    if size_read != size:
        return f"{size_read} bytes, the database says {size}"
    if digest.hexdigest() != sha256:
        return "its checksum does not match"
    if rows is not None:
        with lake.store.open(name) as source, pq.ParquetFile(source) as file:
            if (rows_read := file.metadata.num_rows) != rows:
                return f"{rows_read} rows, the database says {rows}"
    return None


# Events

_COLUMNS = [*SORTED_BY, "event_id", "key"]
_EMPTY = EVENT_ROWS.empty_table().select(_COLUMNS)
_EVENT = ["tenant", "session_id", "key"]
#: More findings of one bucket are counted, not listed.
_FINDINGS_MAX = 100


def verify_deep(lake: Lake, executor: Executor) -> list[VerificationFinding]:
    """Check every event of the lake as it is now. Raises what the executor raises."""
    with pinned(lake.database, None, renewed=True) as pin:
        try:
            results = run_over_buckets(lake, executor, pin, check_bucket)
        except (LakeDamaged, OSError) as error:  # an OSError names the file of sessions
            return [_finding_of(error, "sessions")]
    findings = [finding for found, _ in results for finding in found]
    events, expected = sum(count for _, count in results), sum(file.rows for file in pin.segments)
    if events != expected:
        problem = f"{events} are in the buckets, the database says {expected}"
        findings.append(VerificationFinding("events", problem))
    return list(dict.fromkeys(findings))


def check_bucket(task: BucketTask) -> tuple[list[VerificationFinding], int]:
    """Check that each event is there once, in its place. Returns findings and the number of
    events."""
    findings: list[VerificationFinding] = []
    parts = [_EMPTY.append_column("segment", pa.nulls(0, pa.string()))]
    with Lake(task.settings) as lake:
        for name in task.bucket.segments:
            try:
                rows, in_order = _read_unsorted(lake, task.bucket, name)
            except (LakeDamaged, OSError) as error:
                findings.append(_finding_of(error, name))
                continue
            if not in_order:
                problem = "its rows are not in the order of a segment"
                findings.append(VerificationFinding(name, problem))
            parts.append(rows.append_column("segment", pa.repeat(name, rows.num_rows)))
    rows = pa.concat_tables(parts)
    findings += _repeated_events(rows)
    if more := findings[_FINDINGS_MAX:]:
        problem = f"{len(more)} more findings of the same bucket"
        findings[_FINDINGS_MAX:] = [VerificationFinding("events", problem)]
    return findings, rows.num_rows


def _finding_of(error: LakeDamaged | OSError, name: str) -> VerificationFinding:
    if isinstance(error, LakeDamaged):
        return VerificationFinding(str(error.facts["path"]), str(error.facts["why"]))
    return VerificationFinding(name, f"cannot be read: {one_line(error)}")


def _read_unsorted(lake: Lake, bucket: Bucket, name: str) -> tuple[pa.Table, bool]:
    """Read the bucket's rows in a segment, and whether they are in order: in each row group rows
    before the bucket, then its own, sorted, then rows behind it."""
    with open_events(lake, name) as file:
        ranges = [sessions for sessions in group_ranges(file.metadata) if sessions is not None]
    in_order = all(a.last <= b.first for a, b in pairwise(ranges))
    parts = [_EMPTY]
    for group in read_groups(lake, bucket, name, _COLUMNS):
        # -1 before the bucket, 0 in it, 1 behind it: for each row.
        sides = np.zeros(group.num_rows, np.int8)
        if bucket.low is not None:
            sides[_before(group, bucket.low)] = -1
        if bucket.high is not None:
            sides[~_before(group, bucket.high)] = 1
        rows = group.filter(pa.array(sides == 0))
        order = np.asarray(pc.sort_indices(rows, sort_keys=SORT_KEYS)).astype(np.int64)
        in_order = in_order and bool((np.diff(sides) >= 0).all() and (np.diff(order) > 0).all())
        parts.append(rows.cast(_EMPTY.schema))
    return pa.concat_tables(parts), in_order


def _before(rows: pa.Table, bound: SessionId) -> npt.NDArray[np.bool_]:
    tenant, session = rows["tenant"], rows["session_id"]
    same = pc.and_(pc.equal(tenant, bound.tenant), pc.less(session, bound.session_id))
    return np.asarray(pc.or_(pc.less(tenant, bound.tenant), same))


def _repeated_events(rows: pa.Table) -> Iterator[VerificationFinding]:
    counts = rows.group_by(_EVENT).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts["count_all"], 1))
    repeated = repeated.sort_by([(name, "ascending") for name in _EVENT])
    for number, group in enumerate(repeated.to_pylist()):
        listed = number < _FINDINGS_MAX  # the others are counted alone
        copies = rows.filter(pc.equal(rows["key"], group["key"])) if listed else rows
        event = copies["event_id"][0].as_py() or group["key"].hex()
        names = ", ".join(sorted(set(copies["segment"].to_pylist())))
        yield VerificationFinding(
            f"session {group['session_id']} of {group['tenant']}",
            f"its event {event} is there {group['count_all']} times: {names}",
        )
