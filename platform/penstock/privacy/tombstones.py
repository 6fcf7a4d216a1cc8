"""Tombstones: what was erased does not come back by an import, a retry or a replay.

A tombstone holds a keyed digest, never a name. One of a session drops all of its events; one by
retention, those up to the age. One of a user, a project or a tenant drops the events up to the
moment of the erasure: whoever goes on is recorded again.
"""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, insert_of, portions
from penstock.lake.lake import Lake
from penstock.lake.rows import DecodedEvents
from penstock.lake.tables import lake_head
from penstock.privacy.tables import OPEN, erasure, erasure_session, tombstone
from penstock.sealed_texts import SecretSeal

SESSION: Final = "session"
USER: Final = "user"
PROJECT: Final = "project"
TENANT: Final = "tenant"
_PURPOSE = "tombstones"


@dataclass(frozen=True)
class TombstoneKey:
    """Makes the digests of one lake."""

    secret: bytes

    @classmethod
    def of(cls, seal: SecretSeal) -> "TombstoneKey":
        return cls(seal.key_for(_PURPOSE))

    def digest(self, tenant: str, kind: str, value: str) -> str:
        content = "\0".join((tenant, kind, value)).encode()
        return hmac.digest(self.secret, content, hashlib.sha256).hex()


@dataclass(frozen=True)
class ErasedEvents:
    """Which of some decoded events were erased, as of the newest tombstone that was read."""

    positions: frozenset[int]
    #: Sessions in which an erased user or project appeared again, by the erasure.
    sessions: frozenset[tuple[str, str, str]]
    newest: int
    key: TombstoneKey | None = None

    def settle(self, connection: Connection) -> bool:
        """In the transaction that stores the others. False where there are more tombstones now:
        the caller has to look again."""
        # From here to the end of the transaction nobody else commits.
        connection.execute(sa.select(lake_head.c.snap).with_for_update())
        if _newest(connection) != self.newest:
            return False
        if self.key is not None:
            for id_, tenant, session in sorted(self.sessions):
                bury_sessions(connection, self.key, id_, [(tenant, session)])
        return True


def find_erased(database: Database, seal: SecretSeal, decoded: DecodedEvents) -> ErasedEvents:
    with database.read() as connection:
        newest = _newest(connection)
        if not newest:
            return ErasedEvents(frozenset(), frozenset(), 0)
        tenants = sorted(set(decoded.tenants))
        here = sa.select(sa.exists().where(tombstone.c.tenant.in_(tenants)))
        if not connection.scalar(here):
            return ErasedEvents(frozenset(), frozenset(), newest)
        key = TombstoneKey.of(seal)
        return _find(connection, key, decoded, newest)


def find_withheld(lake: Lake, decoded: DecodedEvents) -> Collection[int]:
    """Events in the log that the writer will drop. Raises SecretKeyUnfit."""
    return find_erased(lake.database, SecretSeal.of(lake.settings), decoded).positions


def _find(
    connection: Connection, key: TombstoneKey, decoded: DecodedEvents, newest: int
) -> ErasedEvents:
    pairs = list(zip(decoded.tenants, decoded.events, strict=True))
    named = {
        SESSION: _buried(connection, key, SESSION, {(t, event.session_id) for t, event in pairs}),
        USER: _buried(connection, key, USER, {(t, e.user) for t, e in pairs if e.user}),
        PROJECT: _buried(connection, key, PROJECT, {(t, e.project) for t, e in pairs if e.project}),
        TENANT: _buried(connection, key, TENANT, {(tenant, tenant) for tenant, _ in pairs}),
    }
    if not any(named.values()):
        return ErasedEvents(frozenset(), frozenset(), newest)
    spread: dict[tuple[str, str], str] = {}
    by_event = []
    for tenant, event in pairs:
        own = named[SESSION].get((tenant, event.session_id))
        buried = own is not None and own.reaches(event.ts)
        whole = named[TENANT].get((tenant, tenant))
        buried = buried or (whole is not None and whole.reaches(event.ts))
        for kind, value in ((USER, event.user), (PROJECT, event.project)):
            grave = named[kind].get((tenant, value)) if value else None
            if grave is not None and grave.reaches(event.ts):
                spread[tenant, event.session_id] = grave.erasure
                buried = True
        by_event.append(buried)
    positions = frozenset(
        position
        for position, buried in enumerate(by_event)
        if buried or (pairs[position][0], pairs[position][1].session_id) in spread
    )
    again = frozenset((id_, tenant, session) for (tenant, session), id_ in spread.items())
    return ErasedEvents(positions, again, newest, key)


@dataclass(frozen=True)
class _Grave:
    until_us: int | None
    erasure: str

    def reaches(self, ts: datetime | int) -> bool:
        at_us = ts if isinstance(ts, int) else round(ts.timestamp() * 1_000_000)
        return self.until_us is None or at_us <= self.until_us


def _buried(
    connection: Connection, key: TombstoneKey, kind: str, names: Collection[tuple[str, str]]
) -> dict[tuple[str, str], _Grave]:
    digests = {key.digest(tenant, kind, value): (tenant, value) for tenant, value in names}
    tenants = sorted({tenant for tenant, _ in names})
    graves: dict[tuple[str, str], _Grave] = {}
    columns = (tombstone.c.digest, tombstone.c.until_us, tombstone.c.erasure)
    for batch in portions(digests):
        rows: Sequence[Any] = connection.execute(
            sa.select(*columns)
            .where(tombstone.c.tenant.in_(tenants))
            .where(tombstone.c.kind == kind, tombstone.c.digest.in_(batch))
            .order_by(tombstone.c.id)
        ).all()
        for row in rows:  # the newest of several reaches furthest, but none beyond all events
            named = digests[row.digest]
            if named not in graves or graves[named].until_us is not None:
                graves[named] = _Grave(row.until_us, row.erasure)
    return graves


def _newest(connection: Connection) -> int:
    return int(connection.execute(sa.select(sa.func.max(tombstone.c.id))).scalar() or 0)


def bury(
    connection: Connection,
    key: TombstoneKey,
    erasure_id: str,
    kind: str,
    names: Iterable[tuple[str, str]],
    *,
    until_us: int | None = None,
) -> None:
    """Set tombstones for (tenant, value)s, each once."""
    rows = [
        {
            "tenant": tenant,
            "kind": kind,
            "digest": key.digest(tenant, kind, value),
            "until_us": until_us,
            "erasure": erasure_id,
        }
        for tenant, value in names
    ]
    if rows:
        statement: Any = insert_of(connection)(tombstone)
        connection.execute(statement.on_conflict_do_nothing(), rows)


#: In the place of the erasure, of sessions that retention let go.
RETENTION = "retention"


def bury_aged(
    connection: Connection, key: TombstoneKey, sessions: Sequence[tuple[str, str]], until_us: int
) -> None:
    """Sessions that were let go by their age: what comes of them again is dropped, and what is
    newer is not."""
    rows = [
        {
            "tenant": tenant,
            "kind": SESSION,
            "digest": key.digest(tenant, SESSION, session),
            "until_us": until_us,
            "erasure": RETENTION,
        }
        for tenant, session in sessions
    ]
    if rows:
        statement: Any = insert_of(connection)(tombstone)
        keys = [tombstone.c[name] for name in ("tenant", "kind", "digest", "erasure")]
        later = {"until_us": statement.excluded.until_us}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=later), rows)


def lift_aged(connection: Connection, tenants: Collection[str]) -> None:
    """Another age holds now: what was let go may come back, and goes again if it is too old."""
    for batch in portions(sorted(tenants)):
        mine = (tombstone.c.erasure == RETENTION) & tombstone.c.tenant.in_(batch)
        connection.execute(sa.delete(tombstone).where(mine))


def bury_sessions(
    connection: Connection,
    key: TombstoneKey,
    erasure_id: str,
    sessions: Sequence[tuple[str, str]],
) -> None:
    """These sessions are erased too: by the erasure, while it is open, and for ever."""
    bury(connection, key, erasure_id, SESSION, sessions)
    keep_sessions(connection, erasure_id, sessions)


def keep_sessions(
    connection: Connection, erasure_id: str, sessions: Sequence[tuple[str, str]]
) -> None:
    """An erasure that is open reaches these sessions."""
    is_open = sa.exists().where(erasure.c.id == erasure_id, erasure.c.state == OPEN)
    rows = [{"erasure": erasure_id, "tenant": t, "session_id": s} for t, s in sessions]
    if rows and connection.scalar(sa.select(is_open)):
        statement: Any = insert_of(connection)(erasure_session)
        connection.execute(statement.on_conflict_do_nothing(), rows)
