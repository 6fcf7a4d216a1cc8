"""Which events the lake holds already: what makes a repeated event a duplicate.

Identities of sessions that are being written are kept in memory up to a limit; those of a
session that comes back after a while are read from the segments whose filters name it.
"""

import threading
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, portions
from penstock.events.event import (
    CONSENT_UNKNOWN,
    KEY_BYTES,
    consent_of,
    session_key,
    strictest_consent,
)
from penstock.lake.catalog import Segment, visible_at
from penstock.lake.errors import LakeDamaged
from penstock.lake.rows import DecodedEvents
from penstock.lake.segments import (
    SessionPrefixes,
    may_hold,
    open_segment,
    read_filter,
    session_prefixes,
)
from penstock.lake.tables import lake_head, segment
from penstock.settings import MIB
from penstock.storage import ObjectStore

#: What an identity costs that is ready to be asked for: a bytes object and its place in a set.
_BYTES_PER_KEY = 96
_BYTES_PER_SESSION = 512
#: Identities that are ready to be asked for; those of sessions that rest are packed.
_READY_KEYS_MAX = 32_768
_COLUMNS = ["tenant", "session_id", "key", "consent"]
#: Segments whose filters are kept, where the tenants of a flush have no more.
_FILTERS_MAX = 20_000


@dataclass
class SessionMemory:
    """What is known of one session: the identities of its events, and its consent."""

    keys: set[bytes] = field(default_factory=set)
    consent: str = CONSENT_UNKNOWN
    _packed: bytes = b""

    def size(self) -> int:
        return _BYTES_PER_SESSION + _BYTES_PER_KEY * len(self.keys) + len(self._packed)

    def pack(self) -> None:
        """Put the identities behind one another, where they take a sixth of the memory. `unpack`
        before asking for them."""
        self._packed, self.keys = b"".join(self.keys), set()

    def unpack(self) -> None:
        packed, self._packed = self._packed, b""
        self.keys.update(packed[at : at + KEY_BYTES] for at in range(0, len(packed), KEY_BYTES))


@dataclass(frozen=True)
class NewEvents:
    """Which of some decoded events are new, and what is known of their sessions now."""

    new: list[int]
    consents: dict[str, str]
    #: Sessions with stored rows that say less than is known now.
    stricter: dict[tuple[str, str], str]


def find_new(decoded: DecodedEvents, memories: dict[str, SessionMemory]) -> NewEvents:
    """The first event of each identity that no memory holds. Adds them to the memories."""
    stored_before = {session for session, memory in memories.items() if memory.keys}
    new = []
    for position, (session, key) in enumerate(zip(decoded.sessions, decoded.keys, strict=True)):
        keys = memories[session].keys
        if key not in keys:
            keys.add(key)
            new.append(position)
    stricter = {}
    for position in new:  # the others change nothing: a session's consent is what its rows say
        event, session = decoded.events[position], decoded.sessions[position]
        if event.type == "session_start":
            memory = memories[session]
            consent = strictest_consent((memory.consent, consent_of(bytes(event.payload))))
            if consent != memory.consent and session in stored_before:
                tenant, _, session_id = session.partition("\0")
                stricter[tenant, session_id] = consent
            memory.consent = consent
    consents = {session: memory.consent for session, memory in memories.items()}
    return NewEvents(new, consents, stricter)


class _SegmentFilters:
    """The session filters of segments, by tenant. Those of tenants that sent nothing for long are
    forgotten."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, dict[str, SessionPrefixes]] = OrderedDict()
        #: As of which commit they are known.
        self._snaps: dict[str, int] = {}

    def of(self, tenant: str) -> dict[str, SessionPrefixes]:
        return self._of[tenant]

    def stale(self, tenants: Collection[str], head: int) -> list[str]:
        """These tenants, without those that are known as of this commit."""
        for tenant in tenants:
            if tenant in self._of:
                self._of.move_to_end(tenant)
        # Before others come, so that none of those that are wanted is forgotten.
        count = sum(map(len, self._of.values()))
        while count > _FILTERS_MAX and len(self._of) > len(tenants):
            forgotten, filters = self._of.popitem(last=False)
            count -= len(filters)
            del self._snaps[forgotten]
        return [tenant for tenant in tenants if self._snaps.get(tenant) != head]

    def read(
        self,
        connection: Connection,
        tenants: Sequence[str],
        visible: sa.ColumnElement[bool],
        head: int,
    ) -> None:
        """Only of segments that appeared since last time; those that went are dropped."""
        owned = segment.c.tenant.in_(tenants)
        names = sa.select(segment.c.tenant, segment.c.name).where(visible, owned)
        rows = connection.execute(names).all()
        known = {tenant: self._of.get(tenant, {}) for tenant in tenants}
        new = [row.name for row in rows if row.name not in known[row.tenant]]
        added: dict[str, SessionPrefixes] = {}
        filters = sa.select(segment.c.name, segment.c.session_filter)
        for some in portions(new):
            for name, stored in connection.execute(filters.where(segment.c.name.in_(some))):
                added[name] = read_filter(stored)
        present: dict[str, dict[str, SessionPrefixes]] = {tenant: {} for tenant in tenants}
        for tenant, name in rows:
            present[tenant][name] = added[name] if name in added else known[tenant][name]
        self._of.update(present)
        self._snaps.update(dict.fromkeys(tenants, head))


class KnownEvents:
    """The sessions of the lake: of all of it, or of the partitions that are covered, wherever
    their sessions were while the log had another number of them. Not shared between threads."""

    def __init__(self, database: Database, store: ObjectStore, *, bytes_max: int) -> None:
        self._database = database
        self._store = store
        self._bytes_max = bytes_max
        self._covered: set[int] | None = None
        self._partitions = 1
        self._filters = _SegmentFilters()
        #: The one that was asked for last stands last, here and below.
        self._sessions: OrderedDict[str, SessionMemory] = OrderedDict()
        #: Those of them that are not packed.
        self._ready: OrderedDict[str, SessionMemory] = OrderedDict()
        self._bytes = 0

    def cover(self, partition: int, partitions: int) -> None:
        """From now on only sessions of this partition and of others covered are asked for."""
        if self._covered is None or partitions != self._partitions:
            self._covered, self._partitions = set(), partitions
        self._covered.add(partition)
        self._filters = _SegmentFilters()

    def uncover(self, partition: int) -> None:
        if self._covered is not None:
            self._covered.discard(partition)

    def recall(
        self, sessions: Collection[str], snap: int | None = None
    ) -> dict[str, SessionMemory]:
        """The memories of these `session_key`s, as of the newest commit or of `snap`. The caller
        may add to them, and calls `settle` or `forget` afterwards."""
        if missing := [session for session in sessions if session not in self._sessions]:
            tenants = {_tenant_of(session) for session in missing}
            self._refresh_filters(tenants, snap)
            try:
                read = self._read(missing)
            except FileNotFoundError:  # merged and collected since the filters were read?
                self._refresh_filters(tenants, snap)
                try:
                    read = self._read(missing)
                except FileNotFoundError as error:
                    raise LakeDamaged(path="The lake", why=str(error)) from error
            self._sessions.update(read)
            self._bytes += sum(memory.size() for memory in read.values())
        memories = {session: self._sessions[session] for session in sessions}
        for session, memory in memories.items():
            self._sessions.move_to_end(session)
            if session in self._ready:
                self._ready.move_to_end(session)
            else:
                self._bytes -= memory.size()
                memory.unpack()
                self._bytes += memory.size()
                self._ready[session] = memory
        return memories

    def settle(self, added: int) -> None:
        """So many identities were added and committed: forget old sessions above the limit."""
        self._bytes += _BYTES_PER_KEY * added
        ready = sum(len(memory.keys) for memory in self._ready.values())
        while ready > _READY_KEYS_MAX:
            _, memory = self._ready.popitem(last=False)
            ready -= len(memory.keys)
            self._bytes -= memory.size()
            memory.pack()
            self._bytes += memory.size()
        while self._bytes > self._bytes_max and self._sessions:
            session, memory = self._sessions.popitem(last=False)
            self._ready.pop(session, None)
            self._bytes -= memory.size()

    def forget(self) -> None:
        """What was added was not committed, or others may have committed: read it again."""
        self._sessions.clear()
        self._ready.clear()
        self._bytes = 0

    def _refresh_filters(self, tenants: Collection[str], snap: int | None) -> None:
        with self._database.read() as connection:
            head = snap
            if head is None:
                head = connection.execute(sa.select(lake_head.c.snap)).scalar_one()
            if stale := self._filters.stale(tenants, head):
                visible = visible_at(head) & self._of_covered(connection)
                for some in portions(stale):
                    self._filters.read(connection, some, visible, head)

    def _of_covered(self, connection: Connection) -> sa.ColumnElement[bool]:
        """Segments that may hold sessions of the covered partitions. A session that was in
        partition `a` of a shape can be in `b` of as many as there are now only where both leave
        the same rest by what divides the two numbers."""
        if self._covered is None or len(self._covered) == self._partitions:
            return sa.true()
        shapes = connection.execute(sa.select(segment.c.log_partitions).distinct()).scalars()
        conditions: list[sa.ColumnElement[bool]] = []
        for shape in shapes:
            common = gcd(shape, self._partitions)
            rests = sorted({partition % common for partition in self._covered})
            of_rests = (segment.c.partition % common).in_(rests)
            conditions.append((segment.c.log_partitions == shape) & of_rests)
        return sa.or_(sa.false(), *conditions)

    def _read(self, sessions: list[str]) -> dict[str, SessionMemory]:
        """Raises LakeDamaged, FileNotFoundError."""
        memories = {session: SessionMemory() for session in sessions}
        of_tenant: defaultdict[str, list[str]] = defaultdict(list)
        for session in sessions:
            of_tenant[_tenant_of(session)].append(session)
        for tenant, own in of_tenant.items():
            prefixes = session_prefixes(own)
            for name, session_filter in self._filters.of(tenant).items():
                hits = may_hold(session_filter, prefixes)
                if hits.any():
                    self._read_segment(name, [own[i] for i in hits.nonzero()[0]], memories)
        return memories

    def _read_segment(
        self, name: str, sessions: list[str], memories: dict[str, SessionMemory]
    ) -> None:
        ids = sorted({session.partition("\0")[2] for session in sessions})
        with open_segment(self._store, name) as file:
            # Rows are sorted, so most row groups hold none of the sessions.
            groups = [
                number
                for number in range(file.metadata.num_row_groups)
                if _may_hold_ids(file.metadata.row_group(number).column(1).statistics, ids)
            ]
            rows = file.read_row_groups(groups, columns=_COLUMNS)
        rows = rows.filter(pc.is_in(rows["session_id"], value_set=pa.array(ids, pa.string())))
        columns = (rows[column].to_pylist() for column in _COLUMNS)
        for tenant, session_id, key, consent in zip(*columns, strict=True):
            memory = memories.get(session_key(tenant, session_id))
            if memory is not None:
                memory.keys.add(key)
                memory.consent = strictest_consent((memory.consent, consent))


def _tenant_of(session: str) -> str:
    return session.partition("\0")[0]


def _may_hold_ids(statistics: pq.Statistics | None, ids: list[str]) -> bool:
    """Whether one of these sorted ids may be in a row group."""
    if statistics is None or not statistics.has_min_max:
        return True
    at = bisect_left(ids, statistics.min)
    return at < len(ids) and bool(ids[at] <= statistics.max)


# Session filters in memory, for queries: which files hold a few sessions

#: Of filters that are kept: four bytes for each session of each segment.
_BYTES_MAX = 32 * MIB


class SessionFilters:
    """Filters that were asked for lately; they never change. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[str, SessionPrefixes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def holding(self, segments: Sequence[Segment], sessions: Iterable[str]) -> list[Segment]:
        """Those that may hold any of these `session_key`s. One that is not known to the database
        any more may."""
        prefixes = session_prefixes(sessions)
        with self._lock:
            known = {stored.name: self._kept.get(stored.name) for stored in segments}
        missing = [name for name, held in known.items() if held is None]
        query = sa.select(segment.c.name, segment.c.session_filter)
        with self._database.read() as connection:
            for names in portions(missing):
                rows = connection.execute(query.where(segment.c.name.in_(names)))
                known |= {name: read_filter(stored) for name, stored in rows}
        holding = [
            stored
            for stored in segments
            if (held := known[stored.name]) is None or may_hold(held, prefixes).any()
        ]
        self._keep(known)
        return holding

    def count(self) -> int:
        """Of how many sessions all segments hold something; one in several counts in each."""
        query = sa.select(sa.func.sum(sa.func.length(segment.c.session_filter)))
        with self._database.read() as connection:
            held: int = connection.scalar(query) or 0
        return held // np.dtype(np.uint32).itemsize

    def _keep(self, filters: dict[str, SessionPrefixes | None]) -> None:
        with self._lock:
            for name, held in filters.items():
                if held is not None and name not in self._kept:
                    self._kept[name] = held
                    self._bytes += held.nbytes
                elif held is not None:
                    self._kept.move_to_end(name)
            while self._bytes > _BYTES_MAX:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
