"""Which sessions an erasure reaches: those that name whom it is about, and those below them."""

from collections.abc import Generator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from penstock.database.engine import portions
from penstock.lake.buckets import SessionId, ids_by_tenant, open_events
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import session_link
from penstock.privacy.orders import ErasureScope
from penstock.privacy.tombstones import PROJECT, SESSION, TENANT, USER

_COLUMN = {USER: "user", PROJECT: "project"}


def find_sessions(lake: Lake, scope: ErasureScope) -> Generator[list[SessionId]]:
    """A list from each segment that names any. A session is reached as a whole: what a user wrote
    is in the answers too, and tools' events often name nobody. Raises LakeDamaged."""
    if scope.kind == SESSION:
        yield [SessionId(scope.tenant, scope.value)]
        return
    # One that was killed here is a reader for whom its `--resume` waits: not for long.
    lease_s = lake.settings.room(LakeSettings).lease_seconds
    with pinned(lake.database, None, lease_s, renewed=True) as pin:
        for stored in pin.segments:
            if scope.kind == TENANT:
                ids = _all_of(lake, stored.name, scope)
            else:
                ids = _naming(lake, stored.name, scope)
            if ids:
                yield [SessionId(scope.tenant, id_) for id_ in ids]


def _all_of(lake: Lake, name: str, scope: ErasureScope) -> list[str]:
    """Of a tenant, by the summaries."""
    with open_events(lake, sessions_name(name)) as file:
        rows = file.read(["tenant", "session_id", "first_ts"])
    mine = pc.equal(rows["tenant"], scope.tenant)
    mine = pc.and_(mine, pc.less_equal(rows["first_ts"].cast(pa.int64()), scope.until_us))
    ids: list[str] = pc.unique(rows["session_id"].filter(mine)).to_pylist()
    return ids


def _naming(lake: Lake, name: str, scope: ErasureScope) -> list[str]:
    """Of a user or a project: by the events, since the summary of a session names the newest
    alone. Only the labels are read, and only of row groups that may hold the value."""
    label = _COLUMN[scope.kind]
    ids: set[str] = set()
    with open_events(lake, name) as file:
        for number in range(file.metadata.num_row_groups):
            if not _may_hold(file.metadata.row_group(number), label, scope.value):
                continue
            rows = file.read_row_group(number, ["tenant", "session_id", label], use_threads=False)
            mine = pc.and_(
                pc.equal(rows["tenant"], scope.tenant), pc.equal(rows[label], scope.value)
            )
            ids.update(pc.unique(rows["session_id"].filter(mine)).to_pylist())
    return sorted(ids)


def _may_hold(group: pq.RowGroupMetaData, label: str, value: str) -> bool:
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == label:
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return statistics is None or statistics.null_count != group.num_rows
            return bool(statistics.min <= value <= statistics.max)
    return True


def find_below(lake: Lake, sessions: Sequence[SessionId]) -> list[SessionId]:
    """Sessions that go on with these or repeat them, to any depth: subagents, compactions, forks
    and resumes hold what was said above them."""
    below: set[SessionId] = set()
    above = set(sessions)
    while above:
        found: set[SessionId] = set()
        with lake.database.read() as connection:
            for tenant, ids in ids_by_tenant(above).items():
                for batch in portions(ids):
                    query = sa.select(session_link.c.session_id).where(
                        session_link.c.tenant == tenant, session_link.c.parent_session.in_(batch)
                    )
                    found.update(SessionId(tenant, id_) for id_ in connection.scalars(query))
        above = found - below
        below |= above
    return sorted(below)
