"""Rewrites of segments without some of their events, for erasure and retention.

A file of the other events is announced and written, and replaces the old one in one transaction.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import now_us, portions
from penstock.lake import CompactionConflict
from penstock.lake.buckets import SessionId, open_events, read_changed
from penstock.lake.catalog import (
    NO_PARTITION,
    Segment,
    announce_files,
    claim_files,
    current,
    schedule_deletion,
    withdraw_intents,
    writer_is_gone,
)
from penstock.lake.commits import LedgerCounts, LedgerKey, add_to_ledger, insert_segment, next_snap
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, ROW_GROUPS
from penstock.lake.segments import (
    SegmentFile,
    SegmentWriter,
    SessionPrefixes,
    discard,
    find_summaries,
    may_hold,
    open_segment,
    read_filter,
    sessions_name,
    write_summaries,
)
from penstock.lake.tables import segment, segment_intent
from penstock.lake.upkeep.merges import replace_segments
from penstock.lake.upkeep.sorted_merge import in_row_groups

REWRITE = "rewrite"
_HOUR_US = 3_600_000_000
_PAGE_ROWS = 200
#: What tells which events to remove.
_LABELS = ["tenant", "session_id", "user", "project", "ts", "received_at"]
#: Makes a mask of the rows to remove.
RowMask = Callable[[pa.Table], pa.ChunkedArray]
#: Chooses what to remove from a segment with these sessions; None for nothing.
ChooseRows = Callable[[Collection[SessionId]], RowMask | None]


class RewrittenSegment(msgspec.Struct, frozen=True):
    old_name: str
    #: Removed rows that were live: rows of replaced segments are not counted twice.
    events: int
    rows: int
    bytes: int


def rewrite_segments(
    lake: Lake, prefixes: SessionPrefixes, choose: ChooseRows, *, live: bool = True
) -> Iterator[RewrittenSegment]:
    """Remove events from every segment, also as snapshots and earlier times see it; without
    `live` only from replaced segments. `prefixes` are sorted, of all sessions
    with such events.

    The old files are left to `delete_replaced`. May be cut off anywhere. Raises LakeDamaged, what
    the store raises."""
    rewritten = True
    while rewritten:  # merges go on meanwhile
        rewritten = False
        for row in _candidates(lake, prefixes, live=live):
            changed = row.added_snap if row.changed_snap is None else row.changed_snap
            facts = (row.id, row.name, row.partition, row.rows, row.bytes, changed, row.tenant)
            put, is_live = partial(_put_in_place, row=row), row.removed_snap is None
            if chosen := _chosen(lake, row.id, row.name, choose):
                rewritten = True
                if outcome := _rewrite(lake, Segment(*facts), chosen, put, live=is_live):
                    yield outcome


def segments_older(lake: Lake, tenant: str, until_us: int) -> list[Segment]:
    older = sa.select(segment.c.id).where(segment.c.tenant == tenant, segment.c.ts_min <= until_us)
    ids = set(lake.database.scalars(older.where(segment.c.removed_snap.is_(None))))
    return [stored for stored in current(lake.database).segments if stored.id in ids]


def retire_sessions(
    lake: Lake, live: Sequence[Segment], choose: ChooseRows
) -> Iterator[RewrittenSegment]:
    """Remove the chosen events from live segments by a new commit. Snapshots and earlier times
    still see them. May be cut off anywhere. Raises LakeDamaged, what the store raises."""
    for stored in live:
        if chosen := _chosen(lake, stored.id, stored.name, choose):
            put = partial(_retire, stored=stored)
            if outcome := _rewrite(lake, stored, chosen, put, live=True):
                yield outcome


def _candidates(lake: Lake, prefixes: SessionPrefixes, *, live: bool) -> Iterator[sa.Row[Any]]:
    """Find segments whose filters name one of the sessions, a few rows at a time in memory."""
    after = 0
    while True:
        query = sa.select(segment).where(segment.c.id > after).order_by(segment.c.id)
        if not live:
            query = query.where(segment.c.removed_snap.is_not(None))
        rows = lake.database.rows(query.limit(_PAGE_ROWS))
        if not rows:
            return
        after = rows[-1].id
        for row in rows:
            session_filter = read_filter(row.session_filter)
            shorter, longer = sorted((prefixes, session_filter), key=len)
            if may_hold(longer, shorter).any():
                yield row


def _chosen(lake: Lake, id_: int, name: str, choose: ChooseRows) -> RowMask | None:
    """Choose rows of a segment; None if there are none, or if it was merged and collected
    meanwhile: its rows are in another one."""
    if not lake.database.scalar(sa.select(sa.exists().where(segment.c.id == id_))):
        return None
    with suppress(FileNotFoundError):
        rows = find_summaries(lake.store, name, ["tenant", "session_id"])
        columns = (column.to_pylist() for column in rows.columns)
        mask = choose(list({SessionId(*session) for session in zip(*columns, strict=True)}))
        if mask is not None:
            with open_segment(lake.store, name) as file:
                for number in range(file.metadata.num_row_groups):
                    rows = file.read_row_group(number, _LABELS, use_threads=False)
                    if pc.any(mask(rows)).as_py():
                        return mask
    return None


def _rewrite(
    lake: Lake,
    stored: Segment,
    chosen: RowMask,
    put: Callable[[Connection, str, SegmentFile | None], None],
    *,
    live: bool,
) -> RewrittenSegment | None:
    """Rewrite a segment; None if a merge or collection was faster."""
    folder, _, _ = stored.name.rpartition("/")
    name = f"{folder}/rewritten-{uuid.uuid4().hex[:12]}.parquet"
    removed: dict[LedgerKey, int] = {}
    try:
        written = _write_without(lake, stored, name, chosen, removed)
        with lake.database.write() as connection:
            put(connection, name, written)
            if live:
                counts = {key: LedgerCounts(stored=-n, erased=n) for key, n in removed.items()}
                add_to_ledger(connection, stored.partition, counts)
    except (FileNotFoundError, CompactionConflict):
        discard(lake.store, name)
        return None
    count = sum(removed.values())
    return RewrittenSegment(stored.name, count if live else 0, count, stored.bytes)


def _write_without(
    lake: Lake, stored: Segment, name: str, chosen: RowMask, removed: dict[LedgerKey, int]
) -> SegmentFile | None:
    """Write the other rows; None if there are none."""
    changed = read_changed(lake.store, [stored])
    announce_files(lake.database, [name], stored.partition, owner=uuid.uuid4().hex)
    rows = in_row_groups(_rows_without(lake, stored.name, chosen, removed), ROW_GROUPS)
    first = next(rows, None)
    if first is None:
        return None
    with SegmentWriter(lake.store, name, stored.tenant, ROW_GROUPS, merged=True) as writer:
        writer.write(first)
        for group in rows:
            writer.write(group)
    return replace(writer.finished, **write_summaries(lake.store, name, changed))


def _rows_without(
    lake: Lake, name: str, chosen: RowMask, removed: dict[LedgerKey, int]
) -> Iterator[pa.Table]:
    """Read the other rows, a row group at a time, and count the removed ones."""
    with open_events(lake, name) as file:
        for number in range(file.metadata.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            rows = rows.select(EVENT_ROWS.names).cast(EVENT_ROWS)
            gone = chosen(rows)
            if pc.any(gone).as_py():
                _count(rows.filter(gone), removed)
                rows = rows.filter(pc.invert(gone))
            if rows.num_rows:
                yield rows


def _count(rows: pa.Table, removed: dict[LedgerKey, int]) -> None:
    hours = pc.divide(rows["received_at"].cast(pa.int64()), _HOUR_US)
    keys = pa.table({
        "tenant": rows["tenant"],
        "source": pc.fill_null(rows["source"], ""),
        "hour": pc.multiply(hours, _HOUR_US),
    })  # fmt: skip
    counts = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    columns = (counts[name].to_pylist() for name in (*keys.column_names, "count_all"))
    for *place, count in zip(*columns, strict=True):
        key = LedgerKey(*place)
        removed[key] = removed.get(key, 0) + count


def _put_in_place(
    connection: Connection, name: str, written: SegmentFile | None, row: sa.Row[Any]
) -> None:
    """Put the new file in the place of the old one, from the same commit up to the same commit.
    Raises CompactionConflict if the old one is not as it was read."""
    same = (
        segment.c.name == row.name,
        segment.c.removed_snap.is_not_distinct_from(row.removed_snap),
    )
    claim_files(connection, to_collect=True)  # readers that begin now see the new file
    gone = connection.execute(sa.delete(segment).where(*same)).rowcount == 1
    if not gone or not withdraw_intents(connection, [name]):
        raise CompactionConflict
    note_replaced(connection, row.name)
    next_snap(connection, REWRITE)
    if written is not None:
        origin = {**row._mapping, **asdict(written)}
        for field in ("id", "added_snap", *asdict(written)):
            origin.pop(field)
        insert_segment(connection, written, row.added_snap, **origin)


def _retire(
    connection: Connection, name: str, written: SegmentFile | None, stored: Segment
) -> None:
    if written is None:
        withdraw_intents(connection, [name])
    replace_segments(connection, [stored], written)


# Old files wait as intents, which nobody can commit and collection keeps for its grace.

REPLACED = "rewritten"


def note_replaced(connection: Connection, name: str) -> None:
    """Record a replaced file, in the transaction that replaces it."""
    row = {"name": name, "partition": NO_PARTITION, "owner": REPLACED, "created_at": now_us()}
    connection.execute(sa.insert(segment_intent).values(**row))


def read_replaced(connection: Connection) -> list[str]:
    mine = (segment_intent.c.owner == REPLACED, segment_intent.c.claimed_at.is_(None))
    return list(connection.scalars(sa.select(segment_intent.c.name).where(*mine)))


def delete_replaced(lake: Lake) -> int:
    """Delete the old files now, even if somebody reads them, and unfinished ones of writers and
    merges that were killed. Merges under way begin again. Returns how many."""
    unfinished = segment_intent.c.name.startswith("events/") & segment_intent.c.claimed_at.is_(None)
    nobodys = unfinished & (segment_intent.c.epoch.is_(None) | writer_is_gone())
    with lake.database.write() as connection:
        claim_files(connection, to_collect=True)
        killed = connection.scalars(sa.select(segment_intent.c.name).where(nobodys))
        names = list({*read_replaced(connection), *killed})
        for batch in portions(names):
            gone = sa.delete(segment_intent).where(segment_intent.c.name.in_(batch))
            connection.execute(gone)
            schedule_deletion(connection, batch)
    for name in names:
        lake.store.delete(name)
        lake.store.delete(sessions_name(name))
    return len(names)
