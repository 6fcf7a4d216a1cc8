"""Ingest's steps of an erasure: events that wait in the event log, and rejected lines."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.orders import (
    CONTENT,
    LINEAGE,
    LOG,
    ErasedPart,
    ErasureOrder,
    ErasureScope,
    ErasureStep,
    LogNotCovered,
)
from penstock.access.privacy.tombstones import SESSION, TENANT
from penstock.backends.database.engine import insert_of, portions
from penstock.core.clock import SystemClock
from penstock.core.metrics import Metrics
from penstock.ingest.partition_writer import WriterParts
from penstock.ingest.rejected_lines import FOLDER, SUFFIX, contents_of
from penstock.ingest.settings import IngestSettings
from penstock.ingest.tables import rejected, rejection_fuse
from penstock.ingest.writer import Writer, hurried_writers, wait_while
from penstock.lake import FileLost
from penstock.lake.buckets import SessionId
from penstock.lake.catalog import (
    NO_PARTITION,
    announce_files,
    read_next_offsets,
    schedule_deletion,
    withdraw_intents,
)
from penstock.lake.lake import Lake
from penstock.lake.segments import new_name
from penstock.lake.tables import ledger, redaction_count

#: How long storing the log may make no progress, beyond the time of a flush.
_STORE_SECONDS_MAX = 120.0
_PAGE = 500
_BROKER_KEEPS = (
    "The broker of the event log was told to delete the records; their bytes leave its disks when"
    " it rolls its files (segment.ms), and where it refuses, with the topic's retention."
)


def _erase_from_log(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Store waiting events except the erased ones, then empty the log."""
    lake = order.lake
    lake.log.refresh()
    ends = {number: lake.log.set_apart(number) for number in range(lake.log.partitions)}
    if not Writer(WriterParts(lake, SystemClock(), Metrics())).drain():
        patience_s = lake.settings.room(IngestSettings).flush_seconds_max + _STORE_SECONDS_MAX
        with hurried_writers(lake):
            if not wait_while(lambda: _left_to_cover(lake, ends), patience_s):
                raise LogNotCovered(seconds=round(patience_s))
    with lake.database.read() as connection:
        covered = read_next_offsets(connection)
    gone = [lake.log.forget(number, covered[number].next_offset) for number in ends]
    yield ErasedPart(
        {"log partitions emptied": sum(gone)}, notes=[] if all(gone) else [_BROKER_KEEPS]
    )


def _left_to_cover(lake: Lake, ends: dict[int, int]) -> int:
    """Count the offsets before these ends that the lake does not cover yet. Where nothing follows
    what it covers, as in a log that was emptied before, no writer goes on to the end."""
    with lake.database.read() as connection:
        covered = read_next_offsets(connection)
    known = {number: covered[number].next_offset if number in covered else 0 for number in ends}
    left = {number: end - known[number] for number, end in ends.items() if end > known[number]}
    return sum(
        count for number, count in left.items() if lake.log.bytes_beyond(number, known[number])
    )


# Rejected lines, which may name a session or an erased user although they are no events.

_SESSION = re.compile(rb'"session_id"\s*:\s*"((?:[^"\\]|\\.)*)"')


def _erase_rejected(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Remove lines that name the erased anywhere, and all lines of an erased tenant."""
    lake, tenant, after = order.lake, order.scope.tenant, 0
    query = sa.select(rejected).where(rejected.c.tenant == tenant).order_by(rejected.c.id)
    meant: set[int] = set()
    files: set[str] = set()
    while True:
        with lake.database.read() as connection:
            rows = connection.execute(query.where(rejected.c.id > after).limit(_PAGE)).mappings()
            page = rows.all()
        if not page:
            break
        after = page[-1]["id"]
        raws = dict(contents_of(lake.store, page))
        for row in page:
            if _is_meant(order, raws[row["id"]], row["reason"]):
                meant.add(row["id"])
                files.add(row["file"])
    for name in sorted(files):
        _rewrite_file(order, name, meant)
    with lake.database.write() as connection:
        # The reason of a fuse quotes a line of an unknown session.
        fuses = rejection_fuse.c.tenant == tenant
        if order.scope.kind == TENANT:
            connection.execute(sa.delete(rejection_fuse).where(fuses))
        else:
            connection.execute(sa.update(rejection_fuse).where(fuses).values(reason="erased"))
    yield ErasedPart({"rejected lines": len(meant)})


def _is_meant(order: ErasureOrder, raw: bytes, reason: str) -> bool:
    scope = order.scope
    if scope.kind == TENANT:
        return True
    names = [scope.value.encode(), json.dumps(scope.value)[1:-1].encode()]
    if any(name in raw or name.decode() in reason for name in names):
        return True
    sessions = [SessionId(scope.tenant, text) for text in _sessions_in(raw)]
    return scope.kind != SESSION and None in order.chosen(sessions).values()


def _sessions_in(raw: bytes) -> Iterator[str]:
    for text in _SESSION.findall(raw):
        try:
            yield json.loads(b'"' + text + b'"')
        except ValueError:
            continue


def _rewrite_file(order: ErasureOrder, name: str, meant: set[int]) -> None:
    """Move the remaining lines of a file into a new one."""
    lake = order.lake
    query = sa.select(rejected).where(rejected.c.file == name).order_by(rejected.c.start)
    with lake.database.read() as connection:
        rows = connection.execute(query).mappings().all()
    kept = [row for row in rows if row["id"] not in meant]
    raws = dict(contents_of(lake.store, kept))
    fresh = new_name(order.scope.tenant, 0, "rewritten", FOLDER, SUFFIX)
    if kept:
        announce_files(lake.database, [fresh], NO_PARTITION, owner=order.id)
        with lake.store.create(fresh) as file:
            for row in kept:
                file.write(raws[row["id"]] + b"\n")
    with lake.database.write() as connection:
        start = 0
        for row in kept:
            place = {"file": fresh, "start": start}
            line = rejected.c.id == row["id"]
            connection.execute(sa.update(rejected).where(line).values(**place))
            start += row["length"] + 1
        if kept and not withdraw_intents(connection, [fresh]):
            raise FileLost(name=fresh)
        for batch in portions(row["id"] for row in rows if row["id"] in meant):
            connection.execute(sa.delete(rejected).where(rejected.c.id.in_(batch)))
        schedule_deletion(connection, [name])
    lake.store.delete(name)


# Names of sources, whose counts cannot be split by session or user.


def _erase_sources(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Move a tenant's counts in the ledger and of redaction to no source."""
    merged = 0
    if order.scope.kind == TENANT:
        with order.lake.database.write() as connection:
            merged += _without_sources(connection, ledger, order.scope)
            merged += _without_sources(connection, redaction_count, order.scope)
    yield ErasedPart({"counts of sources": merged})


def _without_sources(connection: Connection, table: sa.Table, scope: ErasureScope) -> int:
    """Delete the rows and add up their counts, without losing what is counted meanwhile."""
    mine = (table.c.tenant == scope.tenant, table.c.source != "", table.c.hour <= scope.until_us)
    named = sa.delete(table).where(*mine).returning(*table.columns)
    keys = [column.name for column in table.primary_key.columns]
    sums: defaultdict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    rows = connection.execute(named).mappings().all()
    for row in rows:
        place = tuple("" if name == "source" else row[name] for name in keys)
        sums[place].update({name: row[name] or 0 for name in row if name not in keys})
    for place, counts in sums.items():
        insert: Any = insert_of(connection)(table).values(
            **dict(zip(keys, place, strict=True)), **counts
        )
        added = {
            name: sa.func.coalesce(table.c[name], 0) + insert.excluded[name] for name in counts
        }
        connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=added))
    return len(rows)


LOG_PART = ErasureStep(LOG, _erase_from_log)
REJECTED_PART = ErasureStep(CONTENT, _erase_rejected)
#: Runs when everything removed from segments was counted by its source.
SOURCES_PART = ErasureStep(LINEAGE, _erase_sources)
