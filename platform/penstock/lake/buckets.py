"""Buckets of sessions, the parts in which heavy jobs read the lake, and which sessions changed.

A bucket is a range of sessions in the order of a segment, so that a job reads the lake about once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.backends.execution.executor import Executor
from penstock.backends.storage.object_store import ObjectStore
from penstock.core.settings import Settings
from penstock.events.event import session_key
from penstock.lake import LakeSettings
from penstock.lake.catalog import Pin, Segment
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, SORT_KEYS, SORTED_BY
from penstock.lake.segments import (
    TableMemory,
    find_summaries,
    open_segment,
    present,
    read_summaries,
)
from penstock.lake.session_filters import SessionFilters

R = TypeVar("R")
#: How finely a segment is sampled. Sessions between two samples may go to either bucket.
_SAMPLES_PER_BUCKET = 16
_ORDER = [*SORT_KEYS, ("key", "ascending")]
#: Rows that are sorted at a time: Arrow needs memory for twice the text that it takes.
_ROWS_TAKEN = 4_096


class SessionId(NamedTuple):
    tenant: str
    session_id: str


def ids_by_tenant(sessions: Iterable[SessionId]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for tenant, session_id in sessions:
        ids.setdefault(tenant, []).append(session_id)
    return ids


def of_sessions(rows: pa.Table, sessions: Iterable[SessionId]) -> pa.ChunkedArray:
    """Make a mask of the rows of these sessions."""
    mask = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    for tenant, ids in ids_by_tenant(sessions).items():
        mine = pc.equal(rows["tenant"], tenant)
        if pc.any(mine).as_py():
            mine = pc.and_(mine, pc.is_in(rows["session_id"], pa.array(ids, pa.string())))
            mask = pc.or_(mask, mine)
    return mask


@dataclass(frozen=True)
class Bucket:
    """Sessions from `low` up to, but without, `high`; None is no bound."""

    number: int
    snap: int
    low: SessionId | None
    high: SessionId | None
    segments: tuple[str, ...]
    #: Consents that became known after rows were written.
    consents: tuple[tuple[SessionId, str], ...]
    #: If given, the bucket holds these sessions alone; sorted.
    sessions: tuple[SessionId, ...] | None = None
    #: Sessions that are only read with the others.
    beside: frozenset[SessionId] = frozenset()

    def __repr__(self) -> str:
        return f"bucket {self.number} of snap {self.snap}"

    def may_hold(self, sessions: "SessionRange | None") -> bool:
        if sessions is None:
            return True
        if self.sessions is not None:
            at = bisect_left(self.sessions, sessions.first)
            return at < len(self.sessions) and self.sessions[at] <= sessions.last
        begins_after = self.low is not None and sessions.last < self.low
        ends_before = self.high is not None and sessions.first >= self.high
        return not (begins_after or ends_before)


class SizeSample(NamedTuple):
    """A session that stands for this many bytes around it."""

    session: SessionId
    bytes: float


class SessionRange(NamedTuple):
    first: SessionId
    last: SessionId


@dataclass(frozen=True)
class BucketTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    bucket: Bucket


def run_over_buckets(
    lake: Lake, executor: Executor, pin: Pin, function: Callable[[BucketTask], R]
) -> list[R]:
    """Call a function, from the top of a module, for each bucket of the lake. Returns the results
    in the order of the buckets. Raises what the executor raises."""
    tasks = (BucketTask(lake.settings, bucket) for bucket in plan_buckets(lake, pin))
    done = sorted(executor.run(function, tasks), key=lambda done: done.task.bucket.number)
    return [each.result for each in done]


# The plan


def plan_buckets(lake: Lake, pin: Pin) -> list[Bucket]:
    """Divide the pinned lake into buckets of about `bucket_bytes_target`, always in the same way. A
    larger session is a bucket of its own. Raises LakeDamaged."""
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
    """Pick sessions of a segment that stand for all, one for about `unit` bytes."""
    events = sessions["events"].to_numpy()
    ends = np.cumsum(events) * (size / max(events.sum(), 1))
    places = np.arange(unit / 2, size, unit) if size > unit else np.array([size / 2])
    for at in np.minimum(np.searchsorted(ends, places), len(ends) - 1).tolist():
        yield SizeSample(_session_at(sessions, at), size / len(places))


def cut_points(samples: Iterable[SizeSample], target: float) -> list[SessionId]:
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
    """Divide sessions into buckets of about `bytes_target`. A group is never split, and tenants
    never share a bucket. `beside` maps a session to another that is read with it. Raises
    LakeDamaged."""
    groups, beside = list(groups), beside or {}
    named = {session for group in groups for session in group}
    named |= {beside[session] for session in named if session in beside}
    sizes = _segment_sizes(lake, pin, named)

    def bucket_of(number: int, sessions: Iterable[SessionId]) -> Bucket:
        own = set(sessions)
        read_too = frozenset(beside[session] for session in own if session in beside) - own
        chosen = sorted(own | read_too)
        names = {name for session in chosen for name in sizes.get(session, ())}
        return _bucket_of(pin, number, chosen, names, read_too)

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


def bucket_of_sessions(
    pin: Pin, number: int, sessions: Sequence[SessionId], filters: SessionFilters
) -> Bucket:
    """Make a bucket of sorted sessions. Some of its segments may hold none of them."""
    holding = filters.holding(pin.segments, (session_key(*session) for session in sessions))
    return _bucket_of(pin, number, sessions, (stored.name for stored in holding))


def _bucket_of(
    pin: Pin,
    number: int,
    sessions: Sequence[SessionId],
    names: Iterable[str],
    beside: frozenset[SessionId] = frozenset(),
) -> Bucket:
    consents = ((session, pin.consents.get(session)) for session in sessions)
    changes = tuple((session, consent) for session, consent in consents if consent)
    first, end = sessions[0], SessionId(sessions[-1].tenant, sessions[-1].session_id + "\0")
    segments, chosen = tuple(sorted(names)), tuple(sessions)
    return Bucket(number, pin.snap, first, end, segments, changes, chosen, beside)


def _segment_sizes(
    lake: Lake, pin: Pin, sessions: set[SessionId]
) -> dict[SessionId, dict[str, float]]:
    sizes: dict[SessionId, dict[str, float]] = {}
    keys = (session_key(*session) for session in sessions)
    ids = pa.array([session.session_id for session in sessions], pa.string())
    for stored in lake.session_filters.holding(pin.segments, keys):
        rows = _read_sessions(lake, stored)
        rows = rows.filter(pc.is_in(rows["session_id"], ids))
        event_bytes = stored.bytes / max(stored.rows, 1)
        columns = (column.to_pylist() for column in rows.columns)
        for tenant, id_, events in zip(*columns, strict=True):
            if (session := SessionId(tenant, id_)) in sessions:
                sizes.setdefault(session, {})[stored.name] = events * event_bytes
    return sizes


def _read_sessions(lake: Lake, stored: Segment) -> pa.Table:
    return read_summaries(lake.store, stored.name, ["tenant", "session_id", "events"])


def _session_at(rows: pa.Table, at: int) -> SessionId:
    at %= rows.num_rows
    return SessionId(rows["tenant"][at].as_py(), rows["session_id"][at].as_py())


# Reading


def read_bucket(
    lake: Lake,
    bucket: Bucket,
    columns: Sequence[str] | None = None,
    memory: TableMemory | None = None,
) -> pa.Table:
    """Read the bucket's events into memory, sorted by tenant, session, time, seq and key. Merges
    meanwhile do not change the rows. Raises LakeDamaged."""
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
    # Rows of one segment are nearly always in order, and payloads need not be copied.
    if not (positions[1:] > positions[:-1]).all():
        rows = rows.combine_chunks()  # `take` would, beside what it is given
        portions = range(0, rows.num_rows, _ROWS_TAKEN)
        rows = pa.concat_tables([rows.take(order.slice(at, _ROWS_TAKEN)) for at in portions])
    if "consent" in chosen and bucket.consents:
        rows = with_consents(rows, bucket.consents)
    return rows.select(chosen)


def read_groups(
    lake: Lake, bucket: Bucket, name: str, columns: list[str], memory: TableMemory | None = None
) -> Iterator[pa.Table]:
    """Read the row groups of a segment that may hold rows of the bucket. Raises LakeDamaged."""
    with open_events(lake, name) as file:
        for number, sessions in enumerate(group_ranges(file.metadata)):
            if bucket.may_hold(sessions):
                read = partial(file.read_row_group, number, columns=columns, use_threads=False)
                key = (lake.store.address(name), number, *columns)
                yield read() if memory is None else memory.read(key, read)


@contextmanager
def open_events(lake: Lake, name: str) -> Iterator[pq.ParquetFile]:
    """Open a segment that has to be there. Raises LakeDamaged."""
    with present(name), open_segment(lake.store, name) as file:
        yield file


def group_ranges(metadata: pq.FileMetaData) -> list[SessionRange | None]:
    """Read the sessions of each row group from its statistics; None where they say nothing."""
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
    positions, session_at = range(rows.num_rows), partial(_session_at, rows)
    start = bisect_left(positions, bucket.low, key=session_at) if bucket.low else 0
    end = bisect_left(positions, bucket.high, key=session_at) if bucket.high else rows.num_rows
    rows = rows.slice(start, max(start, end) - start)
    if bucket.sessions is None or not rows.num_rows:
        return rows
    mask = of_sessions(rows, bucket.sessions)
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def with_consents(rows: pa.Table, changes: Iterable[tuple[SessionId, str]]) -> pa.Table:
    """Replace consents by those that are known now. Rows are sorted."""
    positions, session_at = range(rows.num_rows), partial(_session_at, rows)
    consents = rows["consent"].to_pylist()
    for session, consent in changes:
        start = bisect_left(positions, session, key=session_at)
        end = bisect_right(positions, session, key=session_at)
        consents[start:end] = [consent] * (end - start)
    column = pa.array(consents, pa.string())
    return rows.set_column(rows.column_names.index("consent"), EVENT_ROWS.field("consent"), column)


# Changes, from the summaries beside segments. A merge brings no events, so a merged segment keeps,
# for each session, the commit of its newest event.

#: A changed session, with facts from the changed segments.
CHANGES = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in SORTED_BY[:2]),
        pa.field("changed_snap", pa.int64(), nullable=False),
        pa.field("last_ts", pa.int64(), nullable=False),
        pa.field("end_ts", pa.int64()),
        *(pa.field(name, pa.string()) for name in ("project", "parent_session", "link")),
    ]
)
_GROUPED = [(name, "max") for name in CHANGES.names[2:]]


def read_changes(store: ObjectStore, pin: Pin, after: int) -> pa.Table:
    """Read a row of CHANGES, sorted, for each session with an event from a later commit than
    `after`. Raises LakeDamaged, what the store raises."""
    tables = [_changes_of(store, s, after) for s in pin.segments if s.changed_snap > after]
    parts = pa.concat_tables([CHANGES.empty_table(), *tables])
    changes = parts.group_by(CHANGES.names[:2]).aggregate(_GROUPED)
    changes = changes.rename_columns([n.removesuffix("_max") for n in changes.column_names])
    return changes.select(CHANGES.names).cast(CHANGES).sort_by(SORT_KEYS[:2])


def read_changed(store: ObjectStore, merged: Iterable[Segment]) -> dict[tuple[str, str], int]:
    """Read the commit of each session's newest event. Raises LakeDamaged."""
    newest: dict[tuple[str, str], int] = {}
    for stored in merged:
        rows = _changes_of(store, stored, -1)
        columns = (rows[name].to_pylist() for name in ("tenant", "session_id", "changed_snap"))
        for tenant, session, snap in zip(*columns, strict=True):
            newest[tenant, session] = max(newest.get((tenant, session), snap), snap)
    return newest


def _changes_of(store: ObjectStore, stored: Segment, after: int) -> pa.Table:
    rows = find_summaries(store, stored.name, CHANGES.names)
    snaps = pc.fill_null(rows["changed_snap"], stored.changed_snap)
    moments = {name: rows[name].cast(pa.int64()) for name in ("last_ts", "end_ts")}
    for name, values in ({"changed_snap": snaps} | moments).items():
        rows = rows.set_column(CHANGES.names.index(name), CHANGES.field(name), values)
    return rows.filter(pc.greater(rows["changed_snap"], after)).cast(CHANGES)
