"""An erasure as rooms see it: the order, and what each room removed.

A room that stores content brings a step. An interrupted step is repeated.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.access.privacy.tombstones import PROJECT, USER
from penstock.access.tables import erasure_session
from penstock.backends.database.engine import portions
from penstock.core.errors import PenstockError
from penstock.core.room import rooms
from penstock.events.event import session_key
from penstock.lake.buckets import SessionId, ids_by_tenant, of_sessions
from penstock.lake.lake import Lake
from penstock.lake.segments import SessionPrefixes, session_prefixes
from penstock.lake.upkeep.rewrites import RowMask


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


class ErasureScope(msgspec.Struct, frozen=True):
    """A user, session, project or tenant to erase, up to a time."""

    tenant: str
    kind: str
    value: str
    until_us: int

    @property
    def label(self) -> str | None:
        """The column of events that names the erased, if it is a user or a project."""
        return self.kind if self.kind in (USER, PROJECT) else None

    def names(self, rows: pa.Table) -> pa.ChunkedArray:
        """Make a mask of the events that say they are of this user or project, up to the time."""
        label = pc.fill_null(pc.equal(rows[self.label], self.value), fill_value=False)
        return pc.and_(pc.and_(pc.equal(rows["tenant"], self.tenant), label), self.is_older(rows))

    def is_older(self, rows: pa.Table) -> pa.ChunkedArray:
        """Make a mask of what was said or stored up to the time: a client's clock may be ahead."""
        said, stored = (rows[name].cast(pa.int64()) for name in ("ts", "received_at"))
        return pc.or_(pc.less_equal(said, self.until_us), pc.less_equal(stored, self.until_us))


#: Sessions that go as a whole. Others lose events that name the erased.
WHOLE = erasure_session.c.named_us.is_(None)
#: The value of `named_us` before it is known whose a session is.
UNKNOWN_US = 0


class ErasureOrder(msgspec.Struct, frozen=True):
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

    def sessions(self, *which: sa.ColumnElement[bool]) -> Iterator[Sequence[SessionId]]:
        """All sessions, or such as WHOLE, in sorted batches of some thousand."""
        mine = erasure_session.c.erasure == self.id
        columns = (erasure_session.c.tenant, erasure_session.c.session_id)
        query = sa.select(*columns).where(mine, *which).order_by(*columns).limit(_PAGE)
        last: SessionId | None = None
        while True:
            page = query if last is None else query.where(sa.tuple_(*columns) > sa.tuple_(*last))
            rows = [SessionId(*row) for row in self.lake.database.rows(page)]
            if not rows:
                return
            yield rows
            last = rows[-1]

    def chosen(self, sessions: Collection[SessionId]) -> dict[SessionId, int | None]:
        """The sessions to erase among these: as a whole, or what was made of them since a time."""
        chosen: dict[SessionId, int | None] = {}
        columns = erasure_session.c.tenant, erasure_session.c.session_id, erasure_session.c.named_us
        mine = sa.select(*columns).where(erasure_session.c.erasure == self.id)
        with self.lake.database.read() as connection:
            for tenant, ids in ids_by_tenant(sessions).items():
                for batch in portions(ids):
                    column = erasure_session.c
                    here = mine.where(column.tenant == tenant, column.session_id.in_(batch))
                    for *session, named_us in connection.execute(here):
                        chosen[SessionId(*session)] = named_us
        return chosen

    def chosen_rows(self, sessions: Collection[SessionId]) -> RowMask | None:
        """Choose events of a segment with these sessions; None if there are none."""
        chosen, label = self.chosen(sessions), self.scope.label
        whole = [session for session, named_us in chosen.items() if named_us is None]
        if label is None:
            return partial(of_sessions, sessions=whole) if whole else None

        def mask(rows: pa.Table) -> pa.ChunkedArray:
            mine = pc.and_(of_sessions(rows, whole), self.scope.is_older(rows))
            return pc.or_(mine, self.scope.names(rows))

        return mask if chosen else None

    def prefixes(self) -> SessionPrefixes:
        """Sorted prefixes to compare with filters of files."""
        pages = [
            session_prefixes(session_key(*session) for session in page) for page in self.sessions()
        ]
        return np.unique(np.concatenate([np.empty(0, np.uint32), *pages]))

    def delete_rows(
        self, table: sa.Table, session: str = "session_id", *more: sa.ColumnElement[bool]
    ) -> int:
        """Delete the rows of whole sessions for which `more` holds, and count them."""
        deleted = 0
        for page in self.sessions(WHOLE):
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


class ErasureStep(msgspec.Struct, frozen=True):
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
