"""The sessions that an erasure reaches, as a whole or in part.

A session is of the user, or of the project, that was the first to be named in it. The order is that
of arrival, which the gateway notes, so that an event that comes later never changes it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.access.privacy.orders import ErasureScope
from penstock.access.privacy.tombstones import SESSION
from penstock.events.event import session_key
from penstock.lake import LakeSettings
from penstock.lake.buckets import SessionId, group_ranges, ids_by_tenant, of_sessions, open_events
from penstock.lake.catalog import Pin, pinned
from penstock.lake.lake import Lake
from penstock.lake.segments import may_hold, read_summaries, session_prefixes


def find_sessions(lake: Lake, scope: ErasureScope) -> Generator[list[SessionId]]:
    """Yield the sessions of each segment that the scope names anywhere. Raises LakeDamaged."""
    if scope.kind == SESSION:
        yield [SessionId(scope.tenant, scope.value)]
        return
    with pinned(lake.database, None, _lease_s(lake), renewed=True) as pin:
        for stored in pin.segments:
            label = scope.label
            if label is None:
                ids = _all_of(lake, stored.name, scope)
            else:
                ids = _naming(lake, stored.name, scope, label)
            if ids:
                yield [SessionId(scope.tenant, id_) for id_ in ids]


def _all_of(lake: Lake, name: str, scope: ErasureScope) -> list[str]:
    rows = read_summaries(lake.store, name, ["tenant", "session_id", "first_ts"])
    mine = pc.equal(rows["tenant"], scope.tenant)
    mine = pc.and_(mine, pc.less_equal(rows["first_ts"].cast(pa.int64()), scope.until_us))
    ids: list[str] = pc.unique(rows["session_id"].filter(mine)).to_pylist()
    return ids


_SESSION = ["tenant", "session_id"]


def _naming(lake: Lake, name: str, scope: ErasureScope, label: str) -> list[str]:
    """Sessions whose events name a user or project, since summaries hold only the newest one."""
    ids: set[str] = set()
    with open_events(lake, name) as file:
        for number in range(file.metadata.num_row_groups):
            if not _may_name(file.metadata.row_group(number), label, scope.value):
                continue
            rows = file.read_row_group(number, _columns(label), use_threads=False)
            ids.update(pc.unique(rows["session_id"].filter(scope.names(rows))).to_pylist())
    return sorted(ids)


def _may_name(group: pq.RowGroupMetaData, label: str, value: str) -> bool:
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == label:
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return statistics is None or statistics.null_count != group.num_rows
            return bool(statistics.min <= value <= statistics.max)
    return True


def find_below(
    lake: Lake,
    sessions: Sequence[SessionId],
    take: Callable[[Sequence[SessionId]], Collection[SessionId]],
) -> None:
    """Find sessions that continue or repeat these, to any depth. `take` gets the sessions
    of one step, and returns the ones below which the search goes on."""
    known, above = set(sessions), set(sessions)
    while above:
        found = {
            child
            for tenant, ids in ids_by_tenant(above).items()
            for child in _children(lake, tenant, ids)
        }
        above = set(take(sorted(found - known)))
        known |= found


def _children(lake: Lake, tenant: str, parents: Sequence[str]) -> set[SessionId]:
    """Sessions that name one of these as the one they continue or repeat."""
    found: set[str] = set()
    asked = pa.array(parents, pa.string())
    with pinned(lake.database, None, _lease_s(lake), renewed=True, tenant=tenant) as pin:
        for stored in pin.segments:
            columns = ["tenant", "session_id", "parent_session"]
            rows = read_summaries(lake.store, stored.name, columns)
            mine = pc.and_(
                pc.equal(rows["tenant"], tenant), pc.is_in(rows["parent_session"], asked)
            )
            found.update(rows["session_id"].filter(mine).to_pylist())
    return {SessionId(tenant, id_) for id_ in found}


def _lease_s(lake: Lake) -> float:
    """A killed erasure counts as a reader for which `--resume` waits, so keep the lease short."""
    return lake.settings.room(LakeSettings).lease_seconds


class Opening(msgspec.Struct, frozen=True):
    """The owner of a session is the first user that it names. `named_us` is when the erased was
    named first."""

    owner: str | None = None
    named_us: int | None = None
    #: The newest time of its events, which may be ahead of any clock.
    last_us: int = 0


def openings(
    lake: Lake, label: str, value: str, sessions: Collection[SessionId]
) -> dict[SessionId, Opening]:
    """Read whose these sessions are, and when `value` was named in them. Raises LakeDamaged."""
    with pinned(lake.database, None, _lease_s(lake), renewed=True) as pin:
        parts = list(_parts(lake, pin, label, sorted(sessions)))
    if not parts:
        return {}
    rows = pa.concat_tables(parts)
    newest = rows.group_by(_SESSION).aggregate([("ts", "max")])
    order = [(name, "ascending") for name in ("received_at", "ts")]
    named = rows.filter(pc.is_valid(rows[label])).sort_by(order)
    first = named.group_by(_SESSION, use_threads=False).aggregate([(label, "first")])
    mine = named.filter(pc.equal(named[label], value)).group_by(_SESSION)
    owners = _by_session(first, f"{label}_first")
    named_us = _by_session(mine.aggregate([("received_at", "min")]), "received_at_min")
    return {
        session: Opening(owners.get(session), named_us.get(session), last_us)
        for session, last_us in _by_session(newest, "ts_max").items()
    }


def _parts(lake: Lake, pin: Pin, label: str, sessions: Sequence[SessionId]) -> Iterator[pa.Table]:
    """Read the labels and times of these sessions, which are sorted."""
    prefixes = session_prefixes(session_key(*session) for session in sessions)
    for stored in pin.segments:
        session_filter = lake.session_filters.of([stored.name])[stored.name]
        if session_filter is not None and not may_hold(session_filter, prefixes).any():
            continue
        with open_events(lake, stored.name) as file:
            for number, held in enumerate(group_ranges(file.metadata)):
                asked = sessions
                if held is not None:
                    ends = bisect_left(sessions, held.first), bisect_right(sessions, held.last)
                    asked = sessions[slice(*ends)]
                if asked:
                    rows = file.read_row_group(number, _columns(label), use_threads=False)
                    rows = rows.filter(of_sessions(rows, asked))
                    yield pa.table({name: _plain(rows[name]) for name in _columns(label)})


def _columns(label: str) -> list[str]:
    return [*_SESSION, label, "ts", "received_at"]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.string())


def _by_session(rows: pa.Table, name: str) -> dict[SessionId, Any]:
    sessions = map(SessionId, *(rows[key].to_pylist() for key in _SESSION))
    return dict(zip(sessions, rows[name].to_pylist(), strict=True))
