"""Rejected lines: storing them in files of the store, reading them, and replaying them."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.retention import RetentionCount, RetentionPart, RetentionScope
from penstock.backends.database.engine import Database, insert_new, now_us
from penstock.backends.eventlog.log import EventLogSettings
from penstock.backends.storage.object_store import ObjectStore
from penstock.core.clock import Clock
from penstock.core.errors import InvalidInput, one_line
from penstock.core.metrics import Metrics
from penstock.events.validation import EventInvalid, validate_line
from penstock.ingest.gateway import Acceptor
from penstock.ingest.rejection_rules import (
    DAYS_MAX,
    RejectedRow,
    RejectionKind,
    RejectionPlan,
    Source,
    SourceLines,
    StoredRejections,
)
from penstock.ingest.tables import rejected, rejection_fuse
from penstock.lake.catalog import schedule_deletion
from penstock.lake.lake import Lake
from penstock.lake.upkeep.verification import VerificationFinding

_BATCH = 500
_DAY_SECONDS = 24 * 3600
FOLDER = "rejected"
SUFFIX = ".lines"


@dataclass(frozen=True, kw_only=True)
class RejectedEntry(RejectedRow):
    """A stored row. `raw` holds all of its lines if they had been acknowledged."""

    id: int
    replayed_at: int | None
    #: The number of lines that the row represents.
    lines: int
    #: Whether `raw` is no longer what was stored.
    damaged: bool


_COLUMNS = [name.name for name in fields(RejectedEntry) if name.name not in ("raw", "damaged")]


class ReplayOutcome(msgspec.Struct, frozen=True):
    accepted: int
    #: By id, why the line was rejected again.
    refused: dict[int, str]


@dataclass(frozen=True)
class TrippedFuse:
    """A source whose lines were mostly rejected when its fuse tripped."""

    tenant: str
    source: str
    tripped_at: int
    rejected: int
    seen: int
    reason: str


# Storing, by the writer


def read_stored(database: Database, tenants: Iterable[str]) -> dict[str, StoredRejections]:
    columns = rejected.c
    mine = (columns.tenant.in_(set(tenants)), columns.replayed_at.is_(None))
    sizes = sa.select(columns.tenant, sa.func.count(), sa.func.sum(columns.length)).where(*mine)
    newest = sa.select(columns.tenant, columns.source, columns.kind, sa.func.max(columns.id))
    newest = newest.where(*mine, columns.acknowledged.is_(sa.false()))
    fuses = sa.select(rejection_fuse.c.tenant, rejection_fuse.c.source)
    stored: defaultdict[str, StoredRejections] = defaultdict(StoredRejections)
    with database.read() as connection:
        for tenant, rows, size_bytes in connection.execute(sizes.group_by(columns.tenant)):
            stored[tenant] = StoredRejections(rows, size_bytes or 0)
        groups = newest.group_by(columns.tenant, columns.source, columns.kind)
        for tenant, source, kind, id_ in connection.execute(groups):
            stored[tenant].newest[RejectionKind(source, kind)] = id_
        for tenant, source in connection.execute(fuses):
            stored[tenant].tripped.add(source)
    return stored


def write_rejected(store: ObjectStore, name: str, plan: RejectionPlan) -> None:
    with store.create(name) as file:
        for lines in plan.stored:
            file.write(lines.content + b"\n")


def enter_rejected(connection: Connection, name: str, plan: RejectionPlan) -> None:
    """Insert the rows of a plan whose lines are in the named file."""
    rows: list[dict[str, object]] = []
    start = 0
    for lines in plan.stored:
        length, sha256 = len(lines.content), hashlib.sha256(lines.content).hexdigest()
        place = {"file": name, "start": start, "length": length, "sha256": sha256}
        row = asdict(lines.first) | place | {"lines": lines.lines}
        del row["raw"]
        rows.append(row | lines.kind._asdict())
        start += length + 1
    if rows:
        connection.execute(sa.insert(rejected), rows)
    for id_, count in sorted(plan.counted.items()):
        more = rejected.c.lines + count
        connection.execute(sa.update(rejected).where(rejected.c.id == id_).values(lines=more))


def trip_fuses(connection: Connection, trips: Mapping[Source, SourceLines]) -> None:
    for source, lines in sorted(trips.items()):
        row = {
            "tenant": source.tenant,
            "source": source.name,
            "tripped_at": now_us(),
            "rejected": round(lines.rejected),
            "seen": round(lines.seen),
            "reason": lines.reason,
        }
        insert_new(connection, rejection_fuse, row)


def remove_old_lines(lake: Lake, _metrics: Metrics) -> str | None:
    """Remove old lines, and files without lines: an upkeep job."""
    removed = _remove_lines(lake, rejected.c.received_at < now_us(-DAYS_MAX * _DAY_SECONDS))
    return f"removed {removed} rejected lines older than {DAYS_MAX} days" if removed else None


def _remove_lines(lake: Lake, old: sa.ColumnElement[bool]) -> int:
    with lake.database.write() as connection:
        files = set(connection.scalars(sa.select(rejected.c.file).where(old).distinct()))
        removed = connection.execute(sa.delete(rejected).where(old)).rowcount
        used = sa.select(rejected.c.file).where(rejected.c.file.in_(files)).distinct()
        schedule_deletion(connection, files - set(connection.scalars(used)))
    return removed


def _aged(scope: RetentionScope) -> sa.ColumnElement[bool]:
    return (rejected.c.tenant == scope.tenant) & (rejected.c.received_at <= scope.until_us)


def _count_aged(lake: Lake, scope: RetentionScope) -> RetentionCount:
    sums = sa.func.count(), sa.func.sum(rejected.c.length)
    with lake.database.read() as connection:
        rows, size = connection.execute(sa.select(*sums).where(_aged(scope))).one()
    return RetentionCount(rows=rows, bytes=int(size or 0))


def _remove_aged(lake: Lake, scope: RetentionScope) -> RetentionCount:
    count = _count_aged(lake, scope)
    return replace(count, rows=_remove_lines(lake, _aged(scope)))


AGED_LINES = RetentionPart(_count_aged, _remove_aged)


# Fuses


def list_fuses(database: Database) -> list[TrippedFuse]:
    query = sa.select(rejection_fuse).order_by(*rejection_fuse.primary_key.columns)
    return [TrippedFuse(**row._mapping) for row in database.rows(query)]


def fuse_warnings(database: Database) -> list[str]:
    """Warnings for everybody, which must not name a tenant."""
    query = sa.select(sa.func.count()).select_from(rejection_fuse)
    count = database.scalar(query)
    sources = "1 source" if count == 1 else f"{count} sources"
    hint = "other lines are stored as usual; see `penstock rejected fuses`"
    return [f"Most lines of {sources} are rejected; {hint}"] if count else []


def release_fuse(database: Database, tenant: str, source: str) -> None:
    """Store a source's rejected lines again. Raises InvalidInput."""
    columns = rejection_fuse.c
    fuse = sa.delete(rejection_fuse).where(columns.tenant == tenant, columns.source == source)
    with database.write() as connection:
        if not connection.execute(fuse).rowcount:
            what = f"The fuse of the source {source!r} of {tenant}"
            raise InvalidInput(what=what, why="it has not tripped; see `penstock rejected fuses`")


# Reading


def list_rejected(
    lake: Lake,
    limit: int,
    *,
    replayed: bool = False,
    tenant: str | None = None,
    before: int | None = None,
) -> list[RejectedEntry]:
    """List rejected lines, the newest first, of all tenants or one; with `replayed` also replayed
    ones."""
    query = _of(tenant).order_by(rejected.c.id.desc()).limit(limit)
    if not replayed:
        query = query.where(rejected.c.replayed_at.is_(None))
    if before is not None:
        query = query.where(rejected.c.id < before)
    return _read(lake, query)


def read_rejected(lake: Lake, entry_id: int, *, tenant: str | None = None) -> RejectedEntry:
    entries = _read(lake, _of(tenant).where(rejected.c.id == entry_id))
    if not entries:
        raise InvalidInput(what=f"The rejected line {entry_id}", why="there is none")
    return entries[0]


def _of(tenant: str | None) -> sa.Select[Any]:
    query = sa.select(rejected)
    return query if tenant is None else query.where(rejected.c.tenant == tenant)


def _read(lake: Lake, query: sa.Select[tuple[object, ...]]) -> list[RejectedEntry]:
    with lake.database.read() as connection:
        rows = connection.execute(query).mappings().all()
    entries, contents = [], dict(contents_of(lake.store, rows))
    for row in rows:
        raw, facts = contents[row["id"]], {name: row[name] for name in _COLUMNS}
        entries.append(RejectedEntry(**facts, raw=raw, damaged=_is_damaged(row, raw)))
    return entries


def _is_damaged(row: sa.RowMapping, content: bytes) -> bool:
    return bool(row["sha256"] != hashlib.sha256(content).hexdigest())


def contents_of(store: ObjectStore, rows: Sequence[sa.RowMapping]) -> Iterator[tuple[int, bytes]]:
    """Read the lines of these rows, by id. What a file no longer holds is made up of zeros."""
    by_file: defaultdict[str, list[sa.RowMapping]] = defaultdict(list)
    for row in rows:
        by_file[row["file"]].append(row)
    for name, of_file in by_file.items():
        try:
            source = store.open(name)
        except FileNotFoundError:
            source = pa.BufferReader(b"")
        with source:
            for row in of_file:
                start = min(row["start"], source.size())
                found = source.read_at(row["length"], start)
                yield row["id"], found.ljust(row["length"], b"\0")


def find_damage(lake: Lake) -> Iterator[VerificationFinding]:
    """Find rejected lines that their files do not hold as they were stored."""
    query = sa.select(rejected).order_by(rejected.c.file, rejected.c.start)
    with lake.database.read() as connection:
        rows = connection.execute(query).mappings().all()
    for name, of_file in groupby(rows, key=itemgetter("file")):
        lines = list(of_file)
        try:
            contents = dict(contents_of(lake.store, lines))
        except OSError as error:
            yield VerificationFinding(name, f"cannot be read: {one_line(error)}")
            continue
        if damaged := [row["id"] for row in lines if _is_damaged(row, contents[row["id"]])]:
            problem = f"{len(damaged)} of its {len(lines)} rejected lines are not as they were"
            yield VerificationFinding(name, f"{problem} stored; the first is {damaged[0]}")


# Replaying


def replay_rejected(
    lake: Lake, clock: Clock, ids: list[int] | None = None, *, tenant: str | None = None
) -> ReplayOutcome:
    """Append those lines, or all waiting ones, that are accepted now.

    After a kill it can be repeated: a line that is appended twice is one event."""
    for entry_id in ids or ():
        read_rejected(lake, entry_id, tenant=tenant)
    query = _of(tenant).where(rejected.c.replayed_at.is_(None))
    if ids:
        query = query.where(rejected.c.id.in_(ids))
    query = query.order_by(rejected.c.id).limit(_BATCH)
    refused: dict[int, str] = {}
    accepted = after = 0
    while entries := _read(lake, query.where(rejected.c.id > after)):
        after = entries[-1].id
        values: defaultdict[int, list[bytes]] = defaultdict(list)
        done = []
        for entry in entries:
            try:
                accepted += _accept_again(lake, clock, entry, values)
            except EventInvalid as error:
                refused[entry.id] = str(error)
            else:
                done.append(entry.id)
        if done:
            lake.log.append(values)
            sent_again = sa.update(rejected).where(rejected.c.id.in_(done))
            with lake.database.write() as connection:
                connection.execute(sent_again.values(replayed_at=now_us()))
    return ReplayOutcome(accepted, refused)


def _accept_again(
    lake: Lake, clock: Clock, entry: RejectedEntry, values: defaultdict[int, list[bytes]]
) -> int:
    """Append all lines of an entry or none; the answer counts them."""
    if entry.damaged:
        raise EventInvalid("its bytes are no longer those that were stored")
    if entry.truncated:
        raise EventInvalid("only its beginning was stored")
    if entry.lines > 1 and not entry.acknowledged:
        raise EventInvalid(f"it stands for {entry.lines} lines, of which only this one was kept")
    lines = entry.raw.split(b"\n") if entry.acknowledged else [entry.raw]
    for line in lines:
        validate_line(line, lake.settings.room(EventLogSettings).event_bytes_max)
    acceptor = Acceptor(entry.tenant, lake.settings, lake.log, lake.redactor)
    for piece in acceptor.accept([entry.raw], clock.now_us()):
        for partition, of_partition in piece.values.items():
            values[partition] += of_partition
    return len(lines)
