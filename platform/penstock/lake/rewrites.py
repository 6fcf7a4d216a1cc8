"""Rewriting segments without some of their sessions, for erasure and retention.

Every segment that holds such a session is replaced, also those that only snapshots or older times
still see: the new file stands for the old one from the same commit on and up to the same commit.
So reading as of any time gives what it gave, without the sessions. The file goes through the same
protocol as a merged one: announced, written, put in its place in one transaction.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import now_us, portions
from penstock.lake.buckets import SessionId, of_sessions, open_events, read_changed
from penstock.lake.catalog import (
    Segment,
    announce_file,
    claim_files,
    current,
    give_up_files,
    withdraw_intent,
)
from penstock.lake.commits import (
    COMPACT,
    LedgerCounts,
    LedgerKey,
    add_to_ledger,
    insert_segment,
    next_snap,
)
from penstock.lake.errors import CompactionConflict
from penstock.lake.lake import Lake
from penstock.lake.merges import replace_segments
from penstock.lake.rows import EVENT_ROWS, ROW_GROUPS
from penstock.lake.segments import (
    SegmentFile,
    SegmentWriter,
    SessionPrefixes,
    discard,
    may_hold,
    open_segment,
    read_filter,
    sessions_name,
)
from penstock.lake.sorted_merge import in_row_groups
from penstock.lake.tables import segment, segment_intent

REWRITE = "rewrite"
_HOUR_US = 3_600_000_000
_PAGE_ROWS = 200
#: Which of these sessions are to go.
ChooseSessions = Callable[[Collection[SessionId]], Collection[SessionId]]


@dataclass(frozen=True)
class RewrittenSegment:
    """What became of one segment. Events that merges replaced, or will, are counted once: only
    those that were live are `events`."""

    old_name: str
    events: int
    rows: int
    bytes: int


def rewrite_segments(
    lake: Lake, prefixes: SessionPrefixes, choose: ChooseSessions, *, live: bool = True
) -> Iterator[RewrittenSegment]:
    """Take the chosen sessions out of every segment that holds any, and go on until none does;
    without `live`, out of those that only snapshots and older times see.
    `prefixes` are sorted, of all that may be chosen. The old files are still there afterwards: see
    `delete_replaced`. May be cut off at any point. Raises LakeDamaged, what the store raises."""
    rewritten = True
    while rewritten:  # merges go on meanwhile
        rewritten = False
        for row in _candidates(lake, prefixes, live=live):
            chosen = choose(_sessions_of(lake, row.name)) if _is_there(lake, row.id) else ()
            if chosen:
                outcome = _rewrite(lake, row, chosen)
                rewritten = True
                if outcome is not None:
                    yield outcome


def _candidates(lake: Lake, prefixes: SessionPrefixes, *, live: bool) -> Iterator[sa.Row[Any]]:
    """Segments whose filters name one of the sessions, live or not; a few rows at a time are in
    memory."""
    after = 0
    while True:
        query = sa.select(segment).where(segment.c.id > after).order_by(segment.c.id)
        if not live:
            query = query.where(segment.c.removed_snap.is_not(None))
        with lake.database.read() as connection:
            rows = connection.execute(query.limit(_PAGE_ROWS)).all()
        if not rows:
            return
        after = rows[-1].id
        for row in rows:
            session_filter = read_filter(row.session_filter)
            shorter, longer = sorted((prefixes, session_filter), key=len)
            if may_hold(longer, shorter).any():
                yield row


def _is_there(lake: Lake, id_: int) -> bool:
    with lake.database.read() as connection:
        return bool(connection.scalar(sa.select(sa.exists().where(segment.c.id == id_))))


def _sessions_of(lake: Lake, name: str) -> list[SessionId]:
    try:
        with open_segment(lake.store, sessions_name(name)) as file:
            rows = file.read(["tenant", "session_id"])
    except FileNotFoundError:  # merged and collected meanwhile: its rows are in another one
        return []
    columns = (rows[column].to_pylist() for column in ("tenant", "session_id"))
    return list({SessionId(*session) for session in zip(*columns, strict=True)})


def _rewrite(
    lake: Lake, row: sa.Row[Any], chosen: Collection[SessionId]
) -> RewrittenSegment | None:
    """None where a merge or collection was faster."""
    name, removed = _new_name(row.name), dict[LedgerKey, int]()
    try:
        changed = _changed(lake, row)
        written = _write_without(lake, row, name, chosen, changed=changed, removed=removed)
        if not _swap(lake, row, name, written, removed):
            discard(lake.store, name)
            return None
    except FileNotFoundError:  # collected meanwhile
        discard(lake.store, name)
        return None
    count = sum(removed.values())
    live = row.removed_snap is None
    return RewrittenSegment(row.name, count if live else 0, count, row.bytes)


def _new_name(old_name: str) -> str:
    folder, _, _ = old_name.rpartition("/")
    return f"{folder}/rewritten-{uuid.uuid4().hex[:12]}.parquet"


def _write_without(
    lake: Lake,
    stored: Any,
    name: str,
    chosen: Collection[SessionId],
    *,
    changed: dict[tuple[str, str], int] | None,
    removed: dict[LedgerKey, int],
) -> SegmentFile | None:
    """The rows of the other sessions as a file of this name; None where there are none."""
    announce_file(lake.database, name, stored.partition, owner=uuid.uuid4().hex)
    rows = in_row_groups(_rows_without(lake, stored.name, chosen, removed), ROW_GROUPS)
    first = next(rows, None)
    if first is None:
        return None
    with SegmentWriter(
        lake.store, name, stored.tenant, ROW_GROUPS, lake.summariser, changed=changed
    ) as writer:
        writer.write(first)
        for group in rows:
            writer.write(group)
    return writer.finished


def _changed(lake: Lake, row: sa.Row[Any]) -> dict[tuple[str, str], int] | None:
    """Of a merged segment: the newest commit that brought an event of each session."""
    if row.kind != COMPACT:
        return None
    changed_snap = row.added_snap if row.changed_snap is None else row.changed_snap
    stored = Segment(row.id, row.name, row.partition, row.rows, row.bytes, changed_snap, row.tenant)
    return read_changed(lake.store, [stored])


def _rows_without(
    lake: Lake, name: str, chosen: Collection[SessionId], removed: dict[LedgerKey, int]
) -> Iterator[pa.Table]:
    """The rows of other sessions, in their order, a row group at a time; counts the others."""
    with open_events(lake, name) as file:
        for number in range(file.metadata.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            rows = rows.select(EVENT_ROWS.names).cast(EVENT_ROWS)
            gone = of_sessions(rows, chosen)
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
    for tenant, source, hour, count in zip(*columns, strict=True):
        key = LedgerKey(tenant, source, hour)
        removed[key] = removed.get(key, 0) + count


def _swap(
    lake: Lake,
    row: sa.Row[Any],
    name: str,
    written: SegmentFile | None,
    removed: Mapping[LedgerKey, int],
) -> bool:
    """The new file in the place of the old one, if that is still as it was read."""
    same = (
        segment.c.name == row.name,
        segment.c.removed_snap.is_not_distinct_from(row.removed_snap),
    )
    with suppress(CompactionConflict), lake.database.write() as connection:
        claim_files(connection, to_collect=True)  # readers that begin now see the new file
        gone = connection.execute(sa.delete(segment).where(*same)).rowcount == 1
        if not gone or not withdraw_intent(connection, name):
            raise CompactionConflict
        note_replaced(connection, row.name)
        next_snap(connection, REWRITE)
        if row.removed_snap is None:  # events that were live are not counted as stored any more
            counts = {key: LedgerCounts(stored=-n, erased=n) for key, n in removed.items()}
            add_to_ledger(connection, row.partition, counts)
        if written is not None:
            origin = {**row._mapping, **asdict(written)}
            for field in ("id", "added_snap", *asdict(written)):
                origin.pop(field)
            insert_segment(connection, written, row.added_snap, **origin)
        return True
    return False


# Retiring: a new commit without the sessions. What a snapshot or an older time sees stays as it is,
# and collection deletes the old files when nobody needs them.


def segments_older(lake: Lake, tenant: str, until_us: int) -> list[Segment]:
    """A tenant's live segments with events up to a time."""
    older = sa.select(segment.c.id).where(segment.c.tenant == tenant, segment.c.ts_min <= until_us)
    with lake.database.read() as connection:
        ids = set(connection.scalars(older.where(segment.c.removed_snap.is_(None))))
    return [stored for stored in current(lake.database).segments if stored.id in ids]


def retire_sessions(
    lake: Lake, live: Sequence[Segment], choose: ChooseSessions
) -> Iterator[RewrittenSegment]:
    """Take the chosen sessions out of these segments, and leave alone those that are not live any
    more. May be cut off at any point. Raises LakeDamaged, what the store raises."""
    for stored in live:
        chosen = choose(_sessions_of(lake, stored.name)) if _is_there(lake, stored.id) else ()
        if chosen:
            with suppress(CompactionConflict):  # a merge or an erasure was faster: the next time
                yield _retire(lake, stored, chosen)


def _retire(lake: Lake, stored: Segment, chosen: Collection[SessionId]) -> RewrittenSegment:
    """Raises CompactionConflict."""
    name, removed = _new_name(stored.name), dict[LedgerKey, int]()
    try:
        changed = read_changed(lake.store, [stored])
        written = _write_without(lake, stored, name, chosen, changed=changed, removed=removed)
        with lake.database.write() as connection:
            if written is None:
                withdraw_intent(connection, name)
            replace_segments(connection, [stored], written)
            counts = {key: LedgerCounts(stored=-n, erased=n) for key, n in removed.items()}
            add_to_ledger(connection, stored.partition, counts)
    except (FileNotFoundError, CompactionConflict):
        discard(lake.store, name)
        raise CompactionConflict from None
    count = sum(removed.values())
    return RewrittenSegment(stored.name, count, count, stored.bytes)


# Old files. They wait as intents that nobody can commit and collection leaves alone for its grace.

REPLACED = "rewritten"


def note_replaced(connection: Connection, name: str) -> None:
    """In the transaction that replaces the file."""
    row = {"name": name, "partition": -1, "owner": REPLACED, "created_at": now_us()}
    connection.execute(sa.insert(segment_intent).values(**row))


def read_replaced(connection: Connection) -> list[str]:
    """Files that were rewritten and are still there."""
    mine = (segment_intent.c.owner == REPLACED, segment_intent.c.claimed_at.is_(None))
    return list(connection.scalars(sa.select(segment_intent.c.name).where(*mine)))


def delete_replaced(lake: Lake) -> int:
    """Delete the old files now, whoever reads them; how many."""
    with lake.database.write() as connection:
        claim_files(connection, to_collect=True)
        names = read_replaced(connection)
        for batch in portions(names):
            gone = sa.delete(segment_intent).where(segment_intent.c.name.in_(batch))
            connection.execute(gone)
            give_up_files(connection, batch)
    for name in names:
        lake.store.delete(name)
        lake.store.delete(sessions_name(name))
    return len(names)
