"""Buckets of sessions: the pieces in which heavy jobs go over the lake; and which sessions changed.

A bucket is a range of sessions in the order of a segment, so a segment's part of it lies
together and a job reads the lake about once. Buckets of a hash would be spread over every row
group: n buckets would read much of the lake n times.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from penstock.events.event import session_key
from penstock.lake import segments
from penstock.lake.catalog import ConsentChange, Pin, Segment, visible_at
from penstock.lake.errors import LakeDamaged
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, SORTED_BY
from penstock.lake.segments import open_segment, session_prefixes, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import segment
from penstock.storage import ObjectStore

#: How finely a segment is looked at: sessions between two samples may fall to either bucket.
_SAMPLES_PER_BUCKET = 16
_ORDER = [(name, "ascending") for name in (*SORTED_BY, "key")]


class SessionId(NamedTuple):
    """A session, as segments are sorted."""

    tenant: str
    session_id: str


@dataclass(frozen=True)
class Bucket:
    """The sessions from `low` to before `high`, of a lake as of a snap; None is without end.
    It names all that a worker needs to read them."""

    number: int
    snap: int
    low: SessionId | None
    high: SessionId | None
    segments: tuple[str, ...]
    #: What became known of these sessions after their rows were written.
    consents: tuple[ConsentChange, ...]
    #: Only these, sorted; None is all between the two.
    sessions: tuple[SessionId, ...] | None = None

    def __repr__(self) -> str:
        return f"bucket {self.number} of snap {self.snap}"

    def begins_after(self, session: SessionId) -> bool:
        return self.low is not None and session < self.low

    def ends_before(self, session: SessionId) -> bool:
        return self.high is not None and session >= self.high


class SizeSample(NamedTuple):
    """So many bytes lie at about this session."""

    session: SessionId
    bytes: float


@dataclass(frozen=True)
class SessionRange:
    """A segment or a row group of it, and its first and last session."""

    name: str
    first: SessionId
    last: SessionId


# The plan


def plan_buckets(lake: Lake, pin: Pin) -> list[Bucket]:
    """Buckets of about `bucket_bytes_target` that together are the pinned lake; a session larger
    than that is a bucket. The same for the same snap, whoever asks. Raises LakeDamaged."""
    target = lake.settings.room(LakeSettings).bucket_bytes_target
    ranges: list[SessionRange] = []
    samples: list[SizeSample] = []
    for stored in pin.segments:
        if (sessions := _read_sessions(lake, stored)).num_rows:
            first, last = _session_at(sessions, 0), _session_at(sessions, -1)
            ranges.append(SessionRange(stored.name, first, last))
            samples += sample(sessions, stored.bytes, target / _SAMPLES_PER_BUCKET)
    return make_buckets(cut_points(samples, target), ranges, pin)


def sample(sessions: pa.Table, size: int, unit: float) -> Iterator[SizeSample]:
    """A few sessions of a segment that stand for all, one for about `unit` bytes."""
    events = sessions["events"].to_numpy()
    ends = np.cumsum(events) * (size / max(events.sum(), 1))
    wanted = np.arange(unit / 2, size, unit) if size > unit else np.array([size / 2])
    for at in np.minimum(np.searchsorted(ends, wanted), len(ends) - 1).tolist():
        yield SizeSample(_session_at(sessions, at), size / len(wanted))


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


def make_buckets(
    points: Sequence[SessionId], ranges: Sequence[SessionRange], pin: Pin
) -> list[Bucket]:
    """One more than there are points; none in an empty lake."""
    if not ranges:
        return []
    names: list[list[str]] = [[] for _ in range(len(points) + 1)]
    for stored in ranges:
        first, last = bisect_right(points, stored.first), bisect_right(points, stored.last)
        for number in range(first, last + 1):
            names[number].append(stored.name)
    consents: list[list[ConsentChange]] = [[] for _ in names]
    for change in pin.consents:
        session = SessionId(change.tenant, change.session_id)
        consents[bisect_right(points, session)].append(change)
    bounds = [None, *points, None]
    return [
        Bucket(n, pin.snap, bounds[n], bounds[n + 1], tuple(names[n]), tuple(consents[n]))
        for n in range(len(names))
    ]


def plan_sessions(
    lake: Lake, pin: Pin, groups: Iterable[Sequence[SessionId]], bytes_target: int
) -> Iterator[Bucket]:
    """Buckets of these sessions alone, of about so many bytes of segments. Those of a group come
    into one bucket; sorted groups make buckets that lie together. Raises LakeDamaged."""
    groups = list(groups)
    parts = _find_parts(lake, pin, sorted({session for group in groups for session in group}))
    consents = {SessionId(change.tenant, change.session_id): change for change in pin.consents}
    number, filled, chosen = 0, 0.0, list[SessionId]()
    for group in groups:
        size = sum(part.bytes for session in group for part in parts.get(session, ()))
        if chosen and filled + size > bytes_target:
            yield _bucket_of(number, pin, chosen, parts, consents)
            number, filled, chosen = number + 1, 0.0, []
        chosen += group
        filled += size
    if chosen:
        yield _bucket_of(number, pin, chosen, parts, consents)


class SessionPart(NamedTuple):
    """A segment that holds events of a session: about so many bytes of it."""

    segment: str
    bytes: float


def _find_parts(
    lake: Lake, pin: Pin, sessions: Sequence[SessionId]
) -> dict[SessionId, list[SessionPart]]:
    """Where these sorted sessions are. Only segments whose filters name one are looked at."""
    parts: dict[SessionId, list[SessionPart]] = {}
    wanted = session_prefixes([session_key(*session) for session in sessions])
    pinned = {stored.name: stored for stored in pin.segments}
    with lake.database.read() as connection:
        columns = (segment.c.name, segment.c.session_filter)
        holding = sorted(
            row.name
            for row in connection.execute(sa.select(*columns).where(visible_at(pin.snap)))
            if segments.may_hold(segments.read_filter(row.session_filter), wanted).any()
        )
    ids = pa.array([session.session_id for session in sessions], pa.string())
    wanted_sessions = set(sessions)
    for name in holding:
        stored = pinned[name]
        rows = _read_sessions(lake, stored)
        rows = rows.filter(pc.is_in(rows["session_id"], ids))
        event_bytes = stored.bytes / max(stored.rows, 1)
        for tenant, id_, events in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            if (session := SessionId(tenant, id_)) in wanted_sessions:
                parts.setdefault(session, []).append(SessionPart(name, events * event_bytes))
    return parts


def _bucket_of(
    number: int,
    pin: Pin,
    sessions: Iterable[SessionId],
    parts: Mapping[SessionId, Sequence[SessionPart]],
    consents: Mapping[SessionId, ConsentChange],
) -> Bucket:
    chosen = tuple(sorted(sessions))
    names = sorted({part.segment for session in chosen for part in parts.get(session, ())})
    changes = tuple(consents[session] for session in chosen if session in consents)
    last = SessionId(chosen[-1].tenant, chosen[-1].session_id + "\0")
    return Bucket(number, pin.snap, chosen[0], last, tuple(names), changes, chosen)


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


def read_bucket(lake: Lake, bucket: Bucket, columns: Sequence[str] | None = None) -> pa.Table:
    """The bucket's events, sorted by tenant, session, time, seq and key: the same rows in the
    same order whatever was merged meanwhile. All of them are in memory. Raises LakeDamaged."""
    wanted = list(columns) if columns is not None else EVENT_ROWS.names
    needed = [name for name in EVENT_ROWS.names if name in {*wanted, *SORTED_BY, "key"}]
    schema = pa.schema([EVENT_ROWS.field(name) for name in needed])
    parts = []
    for name in bucket.segments:
        for group in read_groups(lake, bucket, name, needed):
            start, end = run_of(bucket, group)
            parts.append(chosen_of(bucket, group.slice(start, end - start)).cast(schema))
    if not parts:
        return EVENT_ROWS.empty_table().select(wanted)
    rows = _in_order(pa.concat_tables(parts))
    if "consent" in wanted and bucket.consents:
        rows = with_consents(rows, bucket.consents)
    return rows.select(wanted)


def _in_order(rows: pa.Table) -> pa.Table:
    """Sorted. Of one segment they nearly always are, and payloads need not be copied."""
    order = pc.sort_indices(rows, sort_keys=_ORDER)
    positions = order.to_numpy()
    return rows if (positions[1:] > positions[:-1]).all() else rows.take(order)


def read_groups(lake: Lake, bucket: Bucket, name: str, columns: list[str]) -> Iterator[pa.Table]:
    """The row groups of a segment that may hold rows of the bucket. Raises LakeDamaged."""
    with open_events(lake, name) as file:
        for number, sessions in enumerate(group_ranges(name, file.metadata)):
            if overlaps(bucket, sessions):
                yield file.read_row_group(number, columns=columns)


@contextmanager
def open_events(lake: Lake, name: str) -> Iterator[pq.ParquetFile]:
    """Raises LakeDamaged, also for what reading finds until the block ends, and for a file that
    is not there."""
    try:
        with open_segment(lake.store, name) as file:
            yield file
    except FileNotFoundError as error:
        raise LakeDamaged(path=name, why="it is missing") from error


def group_ranges(name: str, metadata: pq.FileMetaData) -> list[SessionRange | None]:
    """Of each row group, from the statistics in the file's foot; None when they say nothing."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [_range_of(name, group) for group in groups]


def _range_of(name: str, group: pq.RowGroupMetaData) -> SessionRange | None:
    tenants, ids = group.column(0).statistics, group.column(1).statistics
    if not (tenants and ids and tenants.has_min_max and ids.has_min_max):
        return None
    if tenants.min == tenants.max:
        return SessionRange(name, SessionId(tenants.min, ids.min), SessionId(tenants.max, ids.max))
    return SessionRange(name, SessionId(tenants.min, ""), SessionId(tenants.max + "\0", ""))


def overlaps(bucket: Bucket, sessions: SessionRange | None) -> bool:
    """Whether sessions of the bucket may be in the range."""
    if sessions is None:
        return True
    if bucket.sessions is not None:
        at = bisect_left(bucket.sessions, sessions.first)
        return at < len(bucket.sessions) and bucket.sessions[at] <= sessions.last
    return not (bucket.begins_after(sessions.last) or bucket.ends_before(sessions.first))


def chosen_of(bucket: Bucket, rows: pa.Table) -> pa.Table:
    """Those of the bucket's run of rows that are of its sessions."""
    if bucket.sessions is None or not rows.num_rows:
        return rows
    mask = None
    for tenant, sessions in groupby(bucket.sessions, key=attrgetter("tenant")):
        ids = pa.array([session.session_id for session in sessions], pa.string())
        of_tenant = pc.and_(pc.equal(rows["tenant"], tenant), pc.is_in(rows["session_id"], ids))
        mask = of_tenant if mask is None else pc.or_(mask, of_tenant)
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def run_of(bucket: Bucket, rows: pa.Table) -> tuple[int, int]:
    """From where to where sorted rows are the bucket's."""
    sessions = _RowSessions(rows)
    start = bisect_left(sessions, bucket.low) if bucket.low else 0
    end = bisect_left(sessions, bucket.high) if bucket.high else len(sessions)
    return start, max(start, end)


class _RowSessions(Sequence[SessionId]):
    """The sessions of rows, to be searched: a few are looked at, and not all unpacked."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __getitem__(self, at: int) -> SessionId:  # type: ignore[override]  # never a slice
        return _session_at(self._rows, at)


def with_consents(rows: pa.Table, changes: Iterable[ConsentChange]) -> pa.Table:
    """Rows with what is known of their sessions' consent now."""
    sessions = _RowSessions(rows)
    consents = rows["consent"].to_pylist()
    for change in changes:
        session = SessionId(change.tenant, change.session_id)
        start, end = bisect_left(sessions, session), bisect_right(sessions, session)
        consents[start:end] = [change.consent] * (end - start)
    column = pa.array(consents, pa.string())
    return rows.set_column(rows.column_names.index("consent"), EVENT_ROWS.field("consent"), column)


# Changes: from the summaries beside the segments, never from events. A merge brings nothing new, so
# a merged segment says of each session which commit brought its newest event.

#: A session that changed, with what the changed segments say of it: when it was heard of last, its
#: project, and with whose work it goes on.
CHANGES = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("changed_snap", pa.int64(), nullable=False),
        pa.field("last_ts", pa.int64(), nullable=False),
        pa.field("project", pa.string()),
        pa.field("parent_session", pa.string()),
        pa.field("link", pa.string()),
    ]
)
_SESSION = CHANGES.names[:2]
_GROUPED = [(name, "max") for name in CHANGES.names[2:]]


def read_changes(store: ObjectStore, pin: Pin, after: int) -> pa.Table:
    """A row of CHANGES for each session of which an event came with a commit after `after`, in
    the order of segments. Reads only what changed, and the summaries of merges with it. Raises
    LakeDamaged, what the store raises."""
    tables = [_changes_of(store, s, after) for s in pin.segments if s.changed_at > after]
    parts = pa.concat_tables([CHANGES.empty_table(), *tables])
    changes = parts.group_by(_SESSION).aggregate(_GROUPED)
    changes = changes.rename_columns([n.removesuffix("_max") for n in changes.column_names])
    in_order = [(name, "ascending") for name in _SESSION]
    return changes.select(CHANGES.names).cast(CHANGES).sort_by(in_order)


def read_changed(store: ObjectStore, merged: Iterable[Segment]) -> dict[tuple[str, str], int]:
    """The newest commit that brought an event of each session of these segments. Raises
    LakeDamaged, what the store raises."""
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
    snaps = pc.fill_null(rows["changed_snap"], stored.added_snap)
    for name, values in (("changed_snap", snaps), ("last_ts", rows["last_ts"].cast(pa.int64()))):
        rows = rows.set_column(CHANGES.names.index(name), CHANGES.field(name), values)
    return rows.filter(pc.greater(rows["changed_snap"], after)).cast(CHANGES)
