"""An erasure as rooms see it: the order, and what each room removed.

A room that stores content brings a step. An interrupted step is repeated.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa

from penstock.access.privacy.tombstones import PROJECT, SESSION, TENANT, USER
from penstock.access.tables import erasure_session
from penstock.backends.database.engine import portions
from penstock.core.errors import PenstockError
from penstock.core.room import rooms
from penstock.events.event import session_key
from penstock.lake.buckets import SessionId, ids_by_tenant, open_events
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.segments import SessionPrefixes, session_prefixes, sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import session_link


class ErasureUnknown(PenstockError, exit_status=2):
    """The erasure {erasure} does not exist. `penstock erase --list` shows all erasures."""


class ErasureBusy(PenstockError, exit_status=1):
    """Another process has been erasing for over {seconds} s. The order was stored: run `penstock
    erase --resume` when the other one is done."""


class LogNotCovered(PenstockError, exit_status=1):
    """The event log still holds events after {seconds} s that the lake has not stored, and these
    may be among the erased. See /readyz for why the writer waits, then run `penstock erase
    --resume`."""


_PAGE = 10_000
#: The order of the steps: the log first, since writers fill the rest from it.
LOG, CONTENT, LINEAGE = range(3)


@dataclass(frozen=True)
class ErasureScope:
    """A user, session, project or tenant to erase, up to a time."""

    tenant: str
    kind: str
    value: str
    until_us: int

    def names(self, *, session_id: str, user: str | None, project: str | None) -> bool:
        """Whether the scope names an event with these fields, whatever its time."""
        return {
            SESSION: session_id == self.value,
            USER: user == self.value,
            PROJECT: project == self.value,
            TENANT: True,
        }[self.kind]


@dataclass(frozen=True)
class ErasureOrder:
    """An erasure in progress. Its sessions are in the database, since there may be millions."""

    lake: Lake
    id: str
    scope: ErasureScope
    #: Called with a description of the present work.
    follow: Callable[[str], None] = lambda _doing: None
    #: Set by retention, which knows only sessions, and whose sessions may go on meanwhile.
    is_aged: bool = False
    #: If false, snapshots and older times still see what they saw.
    breaks_snapshots: bool = True

    def sessions(self) -> Iterator[Sequence[SessionId]]:
        """All sessions in sorted batches of some thousand."""
        mine = erasure_session.c.erasure == self.id
        columns = (erasure_session.c.tenant, erasure_session.c.session_id)
        query = sa.select(*columns).where(mine).order_by(*columns).limit(_PAGE)
        last: SessionId | None = None
        while True:
            page = query if last is None else query.where(sa.tuple_(*columns) > sa.tuple_(*last))
            with self.lake.database.read() as connection:
                rows = [SessionId(*row) for row in connection.execute(page)]
            if not rows:
                return
            yield rows
            last = rows[-1]

    def chosen(self, sessions: Collection[SessionId]) -> set[SessionId]:
        """The sessions to erase among these."""
        chosen: set[SessionId] = set()
        columns = (erasure_session.c.tenant, erasure_session.c.session_id)
        mine = sa.select(*columns).where(erasure_session.c.erasure == self.id)
        with self.lake.database.read() as connection:
            for tenant, ids in ids_by_tenant(sessions).items():
                for batch in portions(ids):
                    column = erasure_session.c
                    here = mine.where(column.tenant == tenant, column.session_id.in_(batch))
                    chosen.update(SessionId(*row) for row in connection.execute(here))
        return chosen

    def prefixes(self) -> SessionPrefixes:
        """Sorted prefixes to compare with filters of files."""
        pages = [
            session_prefixes(session_key(*session) for session in page) for page in self.sessions()
        ]
        return np.unique(np.concatenate([np.empty(0, np.uint32), *pages]))

    def delete_rows(
        self, table: sa.Table, session: str = "session_id", *more: sa.ColumnElement[bool]
    ) -> int:
        """Delete these sessions' rows for which `more` holds, and count them."""
        deleted = 0
        for page in self.sessions():
            with self.lake.database.write() as connection:
                for tenant, ids in ids_by_tenant(page).items():
                    for batch in portions(ids):
                        here = (table.c.tenant == tenant, table.c[session].in_(batch), *more)
                        deleted += connection.execute(sa.delete(table).where(*here)).rowcount
        return deleted


@dataclass(frozen=True)
class ErasedPart:
    """The work of a room: how much was removed, and who had seen it."""

    removed: Mapping[str, int] = field(default_factory=dict)
    #: Names of remaining things that were made from it.
    seen_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Sentences on what is out of reach.
    notes: Sequence[str] = ()

    def plus(self, other: "ErasedPart") -> "ErasedPart":
        """Add up: an interrupted step has removed a part before."""
        removed = Counter(self.removed)
        removed.update(other.removed)
        seen = {
            name: sorted({*self.seen_by.get(name, ()), *other.seen_by.get(name, ())})
            for name in {*self.seen_by, *other.seen_by}
        }
        notes = list(dict.fromkeys([*self.notes, *other.notes]))
        return ErasedPart(dict(removed), seen, notes)


@dataclass(frozen=True)
class ErasureStep:
    """A room's step; `run` yields each piece of its work when done."""

    phase: int
    run: Callable[[ErasureOrder], Iterator[ErasedPart]]
    #: What it does for retention: with files of sessions, with replaced files, or with records of
    #: sessions that are in no file any more.
    aged: Literal["files", "replaced", "records"] | None = None


def erasure_steps() -> dict[str, ErasureStep]:
    """The steps of all rooms, in order."""
    steps = {name: step for room in rooms() for name, step in room.erasure().items()}
    return dict(sorted(steps.items(), key=lambda item: (item[1].phase, item[0])))


_COLUMN = {USER: "user", PROJECT: "project"}


def find_sessions(lake: Lake, scope: ErasureScope) -> Generator[list[SessionId]]:
    """Yield the selected sessions of each segment, as a whole: answers quote the user, and tool
    events often name nobody. Raises LakeDamaged."""
    if scope.kind == SESSION:
        yield [SessionId(scope.tenant, scope.value)]
        return
    # A killed erasure counts as a reader for which `--resume` waits, so keep the lease short.
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
    with open_events(lake, sessions_name(name)) as file:
        rows = file.read(["tenant", "session_id", "first_ts"])
    mine = pc.equal(rows["tenant"], scope.tenant)
    mine = pc.and_(mine, pc.less_equal(rows["first_ts"].cast(pa.int64()), scope.until_us))
    ids: list[str] = pc.unique(rows["session_id"].filter(mine)).to_pylist()
    return ids


def _naming(lake: Lake, name: str, scope: ErasureScope) -> list[str]:
    """Sessions whose events name a user or project, since summaries hold only the newest one."""
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
    """Sessions that continue or repeat these, to any depth."""
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
