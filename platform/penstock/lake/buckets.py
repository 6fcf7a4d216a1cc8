"""Buckets of sessions: the pieces in which heavy jobs go over the lake.

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

from penstock.events.identity import session_key
from penstock.lake import filters
from penstock.lake.catalog import ConsentChange, Pin, Segment, visible_at
from penstock.lake.errors import LakeDamaged
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, SORTED_BY
from penstock.lake.segments import open_segment, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import segment

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


class Sample(NamedTuple):
    """So many bytes lie at about this session."""

    session: SessionId
    bytes: float


@dataclass(frozen=True)
class Extent:
    """A segment, and its first and last session."""

    name: str
    first: SessionId
    last: SessionId


# The plan


def plan_buckets(lake: Lake, pin: Pin) -> list[Bucket]:
    """Buckets of about `bucket_bytes_target` that together are the pinned lake; a session larger
    than that is a bucket. The same for the same snap, whoever asks. Raises LakeDamaged."""
    target = lake.settings.room(LakeSettings).bucket_bytes_target
    extents: list[Extent] = []
    samples: list[Sample] = []
    for one in pin.segments:
        if (sessions := _read_sessions(lake, one)).num_rows:
            extents.append(Extent(one.name, _session_at(sessions, 0), _session_at(sessions, -1)))
            samples += sample(sessions, one.bytes, target / _SAMPLES_PER_BUCKET)
    return make_buckets(cut_points(samples, target), extents, pin)


def sample(sessions: pa.Table, size: int, unit: float) -> Iterator[Sample]:
    """A few sessions of a segment that stand for all, one for about `unit` bytes."""
    events = sessions["events"].to_numpy()
    ends = np.cumsum(events) * (size / max(events.sum(), 1))
    wanted = np.arange(unit / 2, size, unit) if size > unit else np.array([size / 2])
    for at in np.minimum(np.searchsorted(ends, wanted), len(ends) - 1).tolist():
        yield Sample(_session_at(sessions, at), size / len(wanted))


def cut_points(samples: Iterable[Sample], target: float) -> list[SessionId]:
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


def make_buckets(points: Sequence[SessionId], extents: Sequence[Extent], pin: Pin) -> list[Bucket]:
    """One more than there are points; none in an empty lake."""
    if not extents:
        return []
    segments: list[list[str]] = [[] for _ in range(len(points) + 1)]
    for one in extents:
        for number in range(bisect_right(points, one.first), bisect_right(points, one.last) + 1):
            segments[number].append(one.name)
    consents: list[list[ConsentChange]] = [[] for _ in segments]
    for change in pin.consents:
        session = SessionId(change.tenant, change.session_id)
        consents[bisect_right(points, session)].append(change)
    bounds = [None, *points, None]
    return [
        Bucket(n, pin.snap, bounds[n], bounds[n + 1], tuple(segments[n]), tuple(consents[n]))
        for n in range(len(segments))
    ]


def plan_sessions(
    lake: Lake, pin: Pin, groups: Iterable[Sequence[SessionId]], bytes_target: int
) -> Iterator[Bucket]:
    """Buckets of these sessions alone, of about so many bytes of segments. Those of a group come
    into one bucket; sorted groups make buckets that lie together. Raises LakeDamaged."""
    groups = list(groups)
    places = _find(lake, pin, sorted({one for group in groups for one in group}))
    consents = {SessionId(one.tenant, one.session_id): one for one in pin.consents}
    number, filled, chosen = 0, 0.0, list[SessionId]()
    for group in groups:
        size = sum(place.bytes for one in group for place in places.get(one, ()))
        if chosen and filled + size > bytes_target:
            yield _bucket_of(number, pin, chosen, places, consents)
            number, filled, chosen = number + 1, 0.0, []
        chosen += group
        filled += size
    if chosen:
        yield _bucket_of(number, pin, chosen, places, consents)


class Place(NamedTuple):
    """A segment that holds events of a session: about so many bytes of it."""

    segment: str
    bytes: float


def _find(lake: Lake, pin: Pin, sessions: Sequence[SessionId]) -> dict[SessionId, list[Place]]:
    """Where these sorted sessions are. Only segments whose filters name one are looked at."""
    found: dict[SessionId, list[Place]] = {}
    wanted = filters.prefixes([session_key(*one) for one in sessions])
    pinned = {one.name: one for one in pin.segments}
    with lake.database.read() as connection:
        columns = (segment.c.name, segment.c.session_filter)
        rows = connection.execute(sa.select(*columns).where(visible_at(pin.snap)))
        holding = sorted(row.name for row in rows if _holds(row.session_filter, wanted))
    ids = pa.array([one.session_id for one in sessions], pa.string())
    asked = set(sessions)
    for name in holding:
        one = pinned[name]
        parts = _read_sessions(lake, one)
        parts = parts.filter(pc.is_in(parts["session_id"], ids))
        size = one.bytes / max(one.rows, 1)
        for tenant, id_, events in zip(
            *(column.to_pylist() for column in parts.columns), strict=True
        ):
            if (session := SessionId(tenant, id_)) in asked:
                found.setdefault(session, []).append(Place(name, events * size))
    return found


def _bucket_of(
    number: int,
    pin: Pin,
    sessions: Iterable[SessionId],
    places: Mapping[SessionId, Sequence[Place]],
    consents: Mapping[SessionId, ConsentChange],
) -> Bucket:
    chosen = tuple(sorted(sessions))
    names = sorted({place.segment for one in chosen for place in places.get(one, ())})
    told = tuple(consents[one] for one in chosen if one in consents)
    last = SessionId(chosen[-1].tenant, chosen[-1].session_id + "\0")
    return Bucket(number, pin.snap, chosen[0], last, tuple(names), told, chosen)


def digest_of(buckets: Iterable[Bucket]) -> str:
    """Names a plan."""
    digest = hashlib.sha256()
    for one in buckets:
        digest.update(f"{one.snap}\0{one.low}\0{one.high}\n".encode())
    return digest.hexdigest()


def _holds(stored: bytes, wanted: filters.Prefixes) -> bool:
    return bool(filters.may_hold(filters.read_filter(stored), wanted).any())


def _read_sessions(lake: Lake, one: Segment) -> pa.Table:
    columns = ["tenant", "session_id", "events"]
    with open_events(lake, sessions_name(one.name)) as file:
        return file.read(columns)


def _session_at(rows: pa.Table, at: int) -> SessionId:
    at %= rows.num_rows
    return SessionId(rows["tenant"][at].as_py(), rows["session_id"][at].as_py())


# Reading


def read_bucket(lake: Lake, bucket: Bucket, columns: Sequence[str] | None = None) -> pa.Table:
    """The bucket's events, sorted by tenant, session, time, seq and key: the same rows in the
    same order whatever was merged meanwhile. All of them are in memory. Raises LakeDamaged."""
    wanted = list(columns) if columns is not None else EVENT_ROWS.names
    needed = [name for name in EVENT_ROWS.names if name in {*wanted, *SORTED_BY, "key"}]
    parts = [part for name in bucket.segments for part in _parts_of(lake, bucket, name, needed)]
    if not parts:
        return EVENT_ROWS.empty_table().select(wanted)
    rows = _in_order(pa.concat_tables(parts))
    if "consent" in wanted and bucket.consents:
        rows = with_consents(rows, bucket.consents)
    return rows.select(wanted)


def _in_order(rows: pa.Table) -> pa.Table:
    """Sorted. Of one segment they nearly always are, and payloads need not be copied."""
    order = pc.sort_indices(rows, sort_keys=_ORDER)
    places = order.to_numpy()
    return rows if (places[1:] > places[:-1]).all() else rows.take(order)


def _parts_of(lake: Lake, bucket: Bucket, name: str, columns: list[str]) -> Iterator[pa.Table]:
    schema = pa.schema([EVENT_ROWS.field(one) for one in columns])
    for group in read_groups(lake, bucket, name, columns):
        start, end = run_of(bucket, group)
        yield chosen_of(bucket, group.slice(start, end - start)).cast(schema)


def read_groups(lake: Lake, bucket: Bucket, name: str, columns: list[str]) -> Iterator[pa.Table]:
    """The row groups of a segment that may hold rows of the bucket. Raises LakeDamaged."""
    with open_events(lake, name) as file:
        for number, extent in enumerate(extents_of(name, file.metadata)):
            if may_hold(bucket, extent):
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


def extents_of(name: str, metadata: pq.FileMetaData) -> list[Extent | None]:
    """Of each row group, from the statistics in the file's foot; None when they say nothing."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [_extent_of(name, group) for group in groups]


def _extent_of(name: str, group: pq.RowGroupMetaData) -> Extent | None:
    tenants, ids = group.column(0).statistics, group.column(1).statistics
    if not (tenants and ids and tenants.has_min_max and ids.has_min_max):
        return None
    if tenants.min == tenants.max:
        return Extent(name, SessionId(tenants.min, ids.min), SessionId(tenants.max, ids.max))
    return Extent(name, SessionId(tenants.min, ""), SessionId(tenants.max + "\0", ""))


def may_hold(bucket: Bucket, extent: Extent | None) -> bool:
    if extent is None:
        return True
    if bucket.sessions is not None:
        at = bisect_left(bucket.sessions, extent.first)
        return at < len(bucket.sessions) and bucket.sessions[at] <= extent.last
    return not (bucket.begins_after(extent.last) or bucket.ends_before(extent.first))


def chosen_of(bucket: Bucket, rows: pa.Table) -> pa.Table:
    """Those of the bucket's run of rows that are of its sessions."""
    if bucket.sessions is None or not rows.num_rows:
        return rows
    mask = None
    for tenant, sessions in groupby(bucket.sessions, key=attrgetter("tenant")):
        ids = pa.array([one.session_id for one in sessions], pa.string())
        of_tenant = pc.and_(pc.equal(rows["tenant"], tenant), pc.is_in(rows["session_id"], ids))
        mask = of_tenant if mask is None else pc.or_(mask, of_tenant)
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def run_of(bucket: Bucket, rows: pa.Table) -> tuple[int, int]:
    """From where to where sorted rows are the bucket's."""
    sessions = _Sessions(rows)
    start = bisect_left(sessions, bucket.low) if bucket.low else 0
    end = bisect_left(sessions, bucket.high) if bucket.high else len(sessions)
    return start, max(start, end)


class _Sessions(Sequence[SessionId]):
    """Rows as a sequence to search: a few of them are looked at, and not all unpacked."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __getitem__(self, at: int) -> SessionId:  # type: ignore[override]  # never a slice
        return _session_at(self._rows, at)


def with_consents(rows: pa.Table, changes: Iterable[ConsentChange]) -> pa.Table:
    """Rows with what is known of their sessions' consent now."""
    sessions = _Sessions(rows)
    consents = rows["consent"].to_pylist()
    for change in changes:
        session = SessionId(change.tenant, change.session_id)
        start, end = bisect_left(sessions, session), bisect_right(sessions, session)
        consents[start:end] = [change.consent] * (end - start)
    column = pa.array(consents, pa.string())
    return rows.set_column(rows.column_names.index("consent"), EVENT_ROWS.field("consent"), column)
