"""Buckets of sessions: the pieces in which heavy jobs go over the lake; and which sessions changed.

A bucket is a range of sessions in the order of a segment, so a segment's part of it lies
together and a job reads the lake about once. Buckets of a hash would be spread over every row
group: n buckets would read much of the lake n times.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from penstock.events.event import session_key
from penstock.lake.catalog import Pin, Segment, visible_at
from penstock.lake.errors import LakeDamaged
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, SORT_KEYS, SORTED_BY
from penstock.lake.segments import (
    may_hold,
    open_segment,
    read_filter,
    session_prefixes,
    sessions_name,
)
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import segment
from penstock.storage import ObjectStore

#: How finely a segment is looked at: sessions between two samples may fall to either bucket.
_SAMPLES_PER_BUCKET = 16
_ORDER = [*SORT_KEYS, ("key", "ascending")]
#: Rows are put in order so many at a time: Arrow makes room for twice the text that it takes.
_ROWS_TAKEN = 4_096


class SessionId(NamedTuple):
    """A session, as segments are sorted."""

    tenant: str
    session_id: str


def ids_by_tenant(sessions: Iterable[SessionId]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for tenant, session_id in sessions:
        ids.setdefault(tenant, []).append(session_id)
    return ids


def of_sessions(rows: pa.Table, sessions: Iterable[SessionId]) -> pa.ChunkedArray:
    """For each row whether it is of one of these."""
    mask = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    for tenant, ids in ids_by_tenant(sessions).items():
        mine = pc.equal(rows["tenant"], tenant)
        if pc.any(mine).as_py():
            mine = pc.and_(mine, pc.is_in(rows["session_id"], pa.array(ids, pa.string())))
            mask = pc.or_(mask, mine)
    return mask


@dataclass(frozen=True)
class Bucket:
    """The sessions from `low` to before `high`, as of a snap; None is without end."""

    number: int
    snap: int
    low: SessionId | None
    high: SessionId | None
    segments: tuple[str, ...]
    #: What became known of these sessions after their rows were written.
    consents: tuple[tuple[SessionId, str], ...]
    #: Only these, sorted; None is all between the two.
    sessions: tuple[SessionId, ...] | None = None
    #: Of these, the ones that are only read with the others.
    beside: frozenset[SessionId] = frozenset()

    def __repr__(self) -> str:
        return f"bucket {self.number} of snap {self.snap}"

    def may_hold(self, sessions: "SessionRange | None") -> bool:
        """Whether sessions of the bucket may be in the range."""
        if sessions is None:
            return True
        if self.sessions is not None:
            at = bisect_left(self.sessions, sessions.first)
            return at < len(self.sessions) and self.sessions[at] <= sessions.last
        begins_after = self.low is not None and sessions.last < self.low
        ends_before = self.high is not None and sessions.first >= self.high
        return not (begins_after or ends_before)


class SizeSample(NamedTuple):
    """So many bytes lie at about this session."""

    session: SessionId
    bytes: float


class SessionRange(NamedTuple):
    """The first and the last session of a row group, or of a segment."""

    first: SessionId
    last: SessionId


# The plan


def plan_buckets(lake: Lake, pin: Pin) -> list[Bucket]:
    """Buckets of about `bucket_bytes_target` that together are the pinned lake; a session larger
    than that is a bucket. The same for the same snap, whoever asks. Raises LakeDamaged."""
    target = lake.settings.room(LakeSettings).bucket_bytes_target
    ranges: dict[str, SessionRange] = {}
    samples: list[SizeSample] = []
    for stored in pin.segments:
        if (sessions := _read_sessions(lake, stored)).num_rows:
            ranges[stored.name] = SessionRange(_session_at(sessions, 0), _session_at(sessions, -1))
            samples += sample(sessions, stored.bytes, target / _SAMPLES_PER_BUCKET)
    if not ranges:
        return []
    points = cut_points(samples, target)
    names: list[list[str]] = [[] for _ in range(len(points) + 1)]
    for name, (first, last) in ranges.items():
        for number in range(bisect_right(points, first), bisect_right(points, last) + 1):
            names[number].append(name)
    consents: list[list[tuple[SessionId, str]]] = [[] for _ in names]
    for known, consent in pin.consents.items():
        consents[bisect_right(points, SessionId(*known))].append((SessionId(*known), consent))
    bounds = [None, *points, None]
    return [
        Bucket(n, pin.snap, bounds[n], bounds[n + 1], tuple(names[n]), tuple(consents[n]))
        for n in range(len(names))
    ]


def sample(sessions: pa.Table, size: int, unit: float) -> Iterator[SizeSample]:
    """A few sessions of a segment that stand for all, one for about `unit` bytes."""
    events = sessions["events"].to_numpy()
    ends = np.cumsum(events) * (size / max(events.sum(), 1))
    places = np.arange(unit / 2, size, unit) if size > unit else np.array([size / 2])
    for at in np.minimum(np.searchsorted(ends, places), len(ends) - 1).tolist():
        yield SizeSample(_session_at(sessions, at), size / len(places))


def cut_points(samples: Iterable[SizeSample], target: float) -> list[SessionId]:
    """Where a bucket ends and the next begins; sorted, each once."""
    points: list[SessionId] = []
    filled = 0.0
    previous: SessionId | None = None
    for session, size in sorted(samples):
        if filled + size > target and previous is not None and session > previous:
            points.append(session)
            filled = 0.0
        filled += size
        previous = session
    return points


def plan_sessions(
    lake: Lake,
    pin: Pin,
    groups: Iterable[Sequence[SessionId]],
    bytes_target: int,
    beside: Mapping[SessionId, SessionId] | None = None,
) -> Iterator[Bucket]:
    """Buckets of these sessions alone, of about so many bytes of segments. A group comes into one
    bucket, two tenants never; sorted groups make buckets that lie together. `beside` says of a
    session which other one is to be read with it. Raises LakeDamaged."""
    groups, beside = list(groups), beside or {}
    named = {session for group in groups for session in group}
    named |= {beside[session] for session in named if session in beside}
    sizes = _segment_sizes(lake, pin, sorted(named))

    def bucket_of(number: int, sessions: Iterable[SessionId]) -> Bucket:
        own = set(sessions)
        read_too = frozenset(beside[session] for session in own if session in beside) - own
        chosen = tuple(sorted(own | read_too))
        names = sorted({name for session in chosen for name in sizes.get(session, ())})
        consents = ((session, pin.consents.get(session)) for session in chosen)
        changes = tuple((session, consent) for session, consent in consents if consent)
        last = SessionId(chosen[-1].tenant, chosen[-1].session_id + "\0")
        return Bucket(number, pin.snap, chosen[0], last, tuple(names), changes, chosen, read_too)

    number, filled, chosen = 0, 0.0, list[SessionId]()
    for group in groups:
        read = {*group, *(beside[session] for session in group if session in beside)}
        size = sum(sum(sizes[session].values()) for session in read if session in sizes)
        another = bool(chosen) and chosen[0].tenant != group[0].tenant
        if chosen and (another or filled + size > bytes_target):
            yield bucket_of(number, chosen)
            number, filled, chosen = number + 1, 0.0, []
        chosen += group
        filled += size
    if chosen:
        yield bucket_of(number, chosen)


class SessionSearch:
    """In which segments of a pinned lake sessions are, by the filters of the segments: a segment
    may be searched in vain."""

    def __init__(self, lake: Lake, pin: Pin) -> None:
        self._pin = pin
        with lake.database.read() as connection:
            query = sa.select(segment.c.name, segment.c.session_filter)
            rows = connection.execute(query.where(visible_at(pin.snap))).all()
        self._filters = {row.name: read_filter(row.session_filter) for row in rows}

    def bucket_of(self, number: int, sessions: Sequence[SessionId]) -> Bucket:
        """Of these sessions alone, which are sorted."""
        # In order they are found several times as fast.
        prefixes = np.sort(session_prefixes(session_key(*session) for session in sessions))
        names = [
            name for name, held in sorted(self._filters.items()) if may_hold(held, prefixes).any()
        ]
        consents = ((session, self._pin.consents.get(session)) for session in sessions)
        changes = tuple((session, consent) for session, consent in consents if consent)
        last = SessionId(sessions[-1].tenant, sessions[-1].session_id + "\0")
        bounds = sessions[0], last
        return Bucket(number, self._pin.snap, *bounds, tuple(names), changes, tuple(sessions))


def _segment_sizes(
    lake: Lake, pin: Pin, sessions: Sequence[SessionId]
) -> dict[SessionId, dict[str, float]]:
    """In which segments these sorted sessions are, and about how many bytes of each."""
    sizes: dict[SessionId, dict[str, float]] = {}
    prefixes = np.sort(session_prefixes([session_key(*session) for session in sessions]))
    pinned = {stored.name: stored for stored in pin.segments}
    with lake.database.read() as connection:
        columns = (segment.c.name, segment.c.session_filter)
        holding = sorted(
            row.name
            for row in connection.execute(sa.select(*columns).where(visible_at(pin.snap)))
            if may_hold(read_filter(row.session_filter), prefixes).any()
        )
    ids = pa.array([session.session_id for session in sessions], pa.string())
    known = set(sessions)
    for name in holding:
        stored = pinned[name]
        rows = _read_sessions(lake, stored)
        rows = rows.filter(pc.is_in(rows["session_id"], ids))
        event_bytes = stored.bytes / max(stored.rows, 1)
        columns_read = (column.to_pylist() for column in rows.columns)
        for tenant, id_, events in zip(*columns_read, strict=True):
            if (session := SessionId(tenant, id_)) in known:
                sizes.setdefault(session, {})[name] = events * event_bytes
    return sizes


def digest_of(buckets: Iterable[Bucket]) -> str:
    """Names a plan."""
    digest = hashlib.sha256()
    for bucket in buckets:
        digest.update(f"{bucket.snap}\0{bucket.low}\0{bucket.high}\n".encode())
    return digest.hexdigest()


def _read_sessions(lake: Lake, stored: Segment) -> pa.Table:
    with open_events(lake, sessions_name(stored.name)) as file:
        return file.read(["tenant", "session_id", "events"])


def _session_at(rows: pa.Table, at: int) -> SessionId:
    at %= rows.num_rows
    return SessionId(rows["tenant"][at].as_py(), rows["session_id"][at].as_py())


# Reading


class RowGroupMemory:
    """Row groups that were read last: neighbouring buckets share those at their edges."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._groups: dict[Hashable, pa.Table] = {}

    def read(self, key: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        """What was read by this name, else what `read` gives."""
        group = self._groups.pop(key, None)
        if group is None:
            group = read()
        self._groups[key] = group
        while sum(each.nbytes for each in self._groups.values()) > self._bytes_max:
            del self._groups[next(iter(self._groups))]
        return group


def read_bucket(
    lake: Lake,
    bucket: Bucket,
    columns: Sequence[str] | None = None,
    memory: RowGroupMemory | None = None,
) -> pa.Table:
    """The bucket's events, sorted by tenant, session, time, seq and key: the same rows in the
    same order whatever was merged meanwhile. All of them are in memory. Raises LakeDamaged."""
    chosen = list(columns) if columns is not None else EVENT_ROWS.names
    needed = [name for name in EVENT_ROWS.names if name in {*chosen, *SORTED_BY, "key"}]
    schema = pa.schema([EVENT_ROWS.field(name) for name in needed])
    parts = []
    for name in bucket.segments:
        for group in read_groups(lake, bucket, name, needed, memory):
            own = _rows_of(bucket, group)
            if memory is None and own.num_rows < group.num_rows:
                # A slice would keep all of its row group.
                own = own.filter(pa.repeat(True, own.num_rows))
            parts.append(own.cast(schema))
    if not parts:
        return EVENT_ROWS.empty_table().select(chosen)
    rows = pa.concat_tables(parts)
    del parts
    if memory is None:
        # Row groups come and go, and what they leave is more than the rows.
        pa.default_memory_pool().release_unused()
    order = pc.sort_indices(rows, sort_keys=_ORDER)
    positions = order.to_numpy()
    # Of one segment they nearly always are in order, and payloads need not be copied.
    if not (positions[1:] > positions[:-1]).all():
        rows = rows.combine_chunks()  # `take` would, beside what it is given
        portions = range(0, rows.num_rows, _ROWS_TAKEN)
        rows = pa.concat_tables([rows.take(order.slice(at, _ROWS_TAKEN)) for at in portions])
    if "consent" in chosen and bucket.consents:
        rows = with_consents(rows, bucket.consents)
    return rows.select(chosen)


def read_groups(
    lake: Lake,
    bucket: Bucket,
    name: str,
    columns: list[str],
    memory: RowGroupMemory | None = None,
) -> Iterator[pa.Table]:
    """The row groups of a segment that may hold rows of the bucket. Raises LakeDamaged."""
    with open_events(lake, name) as file:
        for number, sessions in enumerate(group_ranges(file.metadata)):
            if bucket.may_hold(sessions):
                read = partial(file.read_row_group, number, columns=columns, use_threads=False)
                key = (lake.store.address(name), number, *columns)
                yield read() if memory is None else memory.read(key, read)


@contextmanager
def open_events(lake: Lake, name: str) -> Iterator[pq.ParquetFile]:
    """Like `open_segment`, but a missing file is damage too. Raises LakeDamaged."""
    try:
        with open_segment(lake.store, name) as file:
            yield file
    except FileNotFoundError as error:
        raise LakeDamaged(path=name, why="it is missing") from error


def group_ranges(metadata: pq.FileMetaData) -> list[SessionRange | None]:
    """Of each row group, from the statistics in the file's foot; None when they say nothing."""
    ranges: list[SessionRange | None] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        tenants, ids = group.column(0).statistics, group.column(1).statistics
        if not (tenants and ids and tenants.has_min_max and ids.has_min_max):
            ranges.append(None)
            continue
        first, last = SessionId(tenants.min, ids.min), SessionId(tenants.max, ids.max)
        ranges.append(SessionRange(first, last))
    return ranges


def _rows_of(bucket: Bucket, rows: pa.Table) -> pa.Table:
    """Those of these sorted rows that are the bucket's."""
    positions, session_at = range(rows.num_rows), partial(_session_at, rows)
    start = bisect_left(positions, bucket.low, key=session_at) if bucket.low else 0
    end = bisect_left(positions, bucket.high, key=session_at) if bucket.high else rows.num_rows
    rows = rows.slice(start, max(start, end) - start)
    if bucket.sessions is None or not rows.num_rows:
        return rows
    mask = of_sessions(rows, bucket.sessions)
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def with_consents(rows: pa.Table, changes: Iterable[tuple[SessionId, str]]) -> pa.Table:
    """Rows of a bucket with what is known of their sessions' consent now."""
    positions, session_at = range(rows.num_rows), partial(_session_at, rows)
    consents = rows["consent"].to_pylist()
    for session, consent in changes:
        start = bisect_left(positions, session, key=session_at)
        end = bisect_right(positions, session, key=session_at)
        consents[start:end] = [consent] * (end - start)
    column = pa.array(consents, pa.string())
    return rows.set_column(rows.column_names.index("consent"), EVENT_ROWS.field("consent"), column)


# Changes: from the summaries beside the segments, never from events. A merge brings nothing new, so
# a merged segment says of each session which commit brought its newest event.

#: A session that changed, with what the changed segments say of it: when it was heard of last, its
#: project, and with whose work it goes on.
CHANGES = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in SORTED_BY[:2]),
        pa.field("changed_snap", pa.int64(), nullable=False),
        pa.field("last_ts", pa.int64(), nullable=False),
        *(pa.field(name, pa.string()) for name in ("project", "parent_session", "link")),
    ]
)
_GROUPED = [(name, "max") for name in CHANGES.names[2:]]


def read_changes(store: ObjectStore, pin: Pin, after: int) -> pa.Table:
    """A row of CHANGES for each session that got an event with a commit after `after`, in the order
    of segments. Raises LakeDamaged, what the store raises."""
    tables = [_changes_of(store, s, after) for s in pin.segments if s.changed_snap > after]
    parts = pa.concat_tables([CHANGES.empty_table(), *tables])
    changes = parts.group_by(CHANGES.names[:2]).aggregate(_GROUPED)
    changes = changes.rename_columns([n.removesuffix("_max") for n in changes.column_names])
    return changes.select(CHANGES.names).cast(CHANGES).sort_by(SORT_KEYS[:2])


def read_changed(store: ObjectStore, merged: Iterable[Segment]) -> dict[tuple[str, str], int]:
    """For each session the newest commit that brought an event of it. Raises LakeDamaged."""
    newest: dict[tuple[str, str], int] = {}
    for stored in merged:
        rows = _changes_of(store, stored, -1)
        columns = (rows[name].to_pylist() for name in ("tenant", "session_id", "changed_snap"))
        for tenant, session, snap in zip(*columns, strict=True):
            newest[tenant, session] = max(newest.get((tenant, session), snap), snap)
    return newest


def _changes_of(store: ObjectStore, stored: Segment, after: int) -> pa.Table:
    with open_segment(store, sessions_name(stored.name)) as file:
        rows = file.read(CHANGES.names)
    snaps = pc.fill_null(rows["changed_snap"], stored.changed_snap)
    for name, values in (("changed_snap", snaps), ("last_ts", rows["last_ts"].cast(pa.int64()))):
        rows = rows.set_column(CHANGES.names.index(name), CHANGES.field(name), values)
    return rows.filter(pc.greater(rows["changed_snap"], after)).cast(CHANGES)
