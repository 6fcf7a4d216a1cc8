"""Duplicates: events whose identity the lake knows already.

Identities of busy sessions are kept in memory up to a limit. For a session that comes back they are
read from the segments whose filters name it.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from math import gcd

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import portions
from penstock.events.event import (
    CONSENT_UNKNOWN,
    KEY_BYTES,
    consent_of,
    session_key,
    strictest_consent,
)
from penstock.lake import LakeDamaged
from penstock.lake.catalog import visible_at
from penstock.lake.lake_parts import LakeParts
from penstock.lake.rows import DecodedEvents
from penstock.lake.segments import may_hold, open_segment, session_prefixes
from penstock.lake.tables import lake_head, segment

#: Memory of an identity in a set.
_BYTES_PER_KEY = 96
_BYTES_PER_SESSION = 512
#: Identities in sets; the others are packed.
_READY_KEYS_MAX = 32_768
_COLUMNS = ["tenant", "session_id", "key", "consent"]


@dataclass
class SessionMemory:
    keys: set[bytes] = field(default_factory=set)
    consent: str = CONSENT_UNKNOWN
    _packed: bytes = b""

    def size(self) -> int:
        return _BYTES_PER_SESSION + _BYTES_PER_KEY * len(self.keys) + len(self._packed)

    def pack(self) -> None:
        """Join the identities, which saves five sixths of their memory. `unpack` before use."""
        self._packed, self.keys = b"".join(self.keys), set()

    def unpack(self) -> None:
        packed, self._packed = self._packed, b""
        self.keys.update(packed[at : at + KEY_BYTES] for at in range(0, len(packed), KEY_BYTES))


class NewEvents(msgspec.Struct, frozen=True):
    #: Positions among the decoded events.
    new: list[int]
    consents: dict[str, str]
    #: Consents that are stricter than in stored rows, by tenant and session.
    stricter: dict[tuple[str, str], str]


def find_new(decoded: DecodedEvents, memories: dict[str, SessionMemory]) -> NewEvents:
    """Find the first event of each identity that no memory holds, and remember it."""
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


class KnownEvents:
    """The identities of stored events: of all sessions, or of covered partitions. The log may have
    had other partitions when they were stored. Not shared between threads."""

    def __init__(self, lake: LakeParts, *, bytes_max: int) -> None:
        self._lake = lake
        self._bytes_max = bytes_max
        self._covered: set[int] | None = None
        self._partitions = 1
        #: The session that was used last stands last, here and below.
        self._sessions: OrderedDict[str, SessionMemory] = OrderedDict()
        #: Sessions whose identities are not packed.
        self._ready: OrderedDict[str, SessionMemory] = OrderedDict()
        self._bytes = 0

    def cover(self, partition: int, partitions: int) -> None:
        """Expect only sessions of covered partitions from now on."""
        if self._covered is None or partitions != self._partitions:
            self._covered, self._partitions = set(), partitions
        self._covered.add(partition)

    def uncover(self, partition: int) -> None:
        if self._covered is not None:
            self._covered.discard(partition)

    def recall(
        self, sessions: Collection[str], snap: int | None = None
    ) -> dict[str, SessionMemory]:
        """Find the memories of these `session_key`s, as of the newest commit or of `snap`. The
        caller may add to them, and calls `committed` or `forget` afterwards. Raises LakeDamaged."""
        if missing := [session for session in sessions if session not in self._sessions]:
            try:
                read = self._read(missing, snap)
            except FileNotFoundError:  # merged and collected meanwhile?
                try:
                    read = self._read(missing, snap)
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

    def committed(self, added: int) -> None:
        """Count added identities, which are committed, and forget old sessions above the limit."""
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
        """Forget everything: the added identities were not committed, or others may have
        committed."""
        self._sessions.clear()
        self._ready.clear()
        self._bytes = 0

    def _of_covered(self, connection: Connection) -> sa.ColumnElement[bool]:
        """Make a condition on segments that may hold sessions of the covered partitions.

        Shapes are numbers of partitions. A session can be in partition `a` of one and `b` of
        another only if `a` and `b` are equal modulo the greatest common divisor of the two
        numbers."""
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

    def _read(self, sessions: list[str], snap: int | None) -> dict[str, SessionMemory]:
        memories = {session: SessionMemory() for session in sessions}
        of_tenant: dict[str, list[str]] = {}
        for session in sessions:
            of_tenant.setdefault(session.partition("\0")[0], []).append(session)
        names: dict[str, list[str]] = {tenant: [] for tenant in of_tenant}
        with self._lake.database.read() as connection:
            head = connection.execute(sa.select(lake_head.c.snap)).scalar_one()
            visible = visible_at(head if snap is None else snap) & self._of_covered(connection)
            query = sa.select(segment.c.tenant, segment.c.name).where(visible)
            for tenants in portions(of_tenant):
                for tenant, name in connection.execute(query.where(segment.c.tenant.in_(tenants))):
                    names[tenant].append(name)
        filters = self._lake.session_filters.of(name for each in names.values() for name in each)
        for tenant, own in of_tenant.items():
            prefixes = session_prefixes(own)
            for name in names[tenant]:
                held = filters[name]
                hits = range(len(own)) if held is None else may_hold(held, prefixes).nonzero()[0]
                if len(hits):
                    self._read_segment(name, [own[at] for at in hits], memories)
        return memories

    def _read_segment(
        self, name: str, sessions: list[str], memories: dict[str, SessionMemory]
    ) -> None:
        import pyarrow.compute as pc

        ids = sorted({session.partition("\0")[2] for session in sessions})
        with open_segment(self._lake.store, name) as file:
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


def _may_hold_ids(statistics: pq.Statistics | None, ids: list[str]) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    at = bisect_left(ids, statistics.min)
    return at < len(ids) and bool(ids[at] <= statistics.max)
