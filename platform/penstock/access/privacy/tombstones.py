"""Tombstones: what was erased does not come back by an import, a retry or a replay.

A tombstone holds a keyed digest, never a name. One of a session drops all of its events; others
drop those up to the erasure, or up to an age: whoever goes on is recorded again.
"""

import hashlib
import hmac
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.tables import OPEN, erasure, erasure_session, tombstone
from penstock.backends.database.engine import Database, insert_of, portions
from penstock.core.lake_keys import SecretSeal
from penstock.lake.lake import Lake
from penstock.lake.rows import DecodedEvents
from penstock.lake.tables import lake_head

SESSION: Final = "session"
USER: Final = "user"
PROJECT: Final = "project"
TENANT: Final = "tenant"
_PURPOSE = "tombstones"


@dataclass(frozen=True)
class TombstoneKey:
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
    #: Sessions in which an erased user or project appeared again, with the erasure.
    sessions: frozenset[tuple[str, str, str]]
    newest: int
    key: TombstoneKey | None = None

    def settle(self, connection: Connection) -> bool:
        """Bury in the transaction that stores the others. False where there are more tombstones
        now: look again."""
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
    """Positions of events in the log that the writer will drop. Raises SecretKeyUnfit."""
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
    buried: set[int] = set()
    for position, (tenant, event) in enumerate(pairs):
        names = (
            (SESSION, event.session_id), (TENANT, tenant),
            (USER, event.user), (PROJECT, event.project),
        )  # fmt: skip
        for kind, value in names:
            grave = named[kind].get((tenant, value)) if value else None
            if grave is not None and grave.reaches(event.ts):
                buried.add(position)
                if kind in (USER, PROJECT):
                    spread[tenant, event.session_id] = grave.erasure
    buried.update(at for at, (tenant, e) in enumerate(pairs) if (tenant, e.session_id) in spread)
    again = frozenset((id_, tenant, session) for (tenant, session), id_ in spread.items())
    return ErasedEvents(frozenset(buried), again, newest, key)


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
        for row in rows:  # the newest reaches furthest, but for one of all events
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
    """Set tombstones for (tenant, value)s, each once for an erasure; a later age replaces one."""
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
        keys = [tombstone.c[name] for name in ("tenant", "kind", "digest", "erasure")]
        later = {"until_us": statement.excluded.until_us}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=later), rows)


#: Stands for the erasure of sessions that retention let go.
RETENTION = "retention"


def lift_aged(connection: Connection, tenants: Collection[str]) -> None:
    """Let come back what was let go by an age that holds no more."""
    for batch in portions(sorted(tenants)):
        mine = (tombstone.c.erasure == RETENTION) & tombstone.c.tenant.in_(batch)
        connection.execute(sa.delete(tombstone).where(mine))


def bury_sessions(
    connection: Connection, key: TombstoneKey, erasure_id: str, sessions: Sequence[tuple[str, str]]
) -> None:
    """Erase these sessions too: by the erasure, while it is open, and for ever."""
    bury(connection, key, erasure_id, SESSION, sessions)
    keep_sessions(connection, erasure_id, sessions)


def keep_sessions(
    connection: Connection, erasure_id: str, sessions: Sequence[tuple[str, str]]
) -> None:
    """Have the erasure, while it is open, reach these sessions."""
    is_open = sa.exists().where(erasure.c.id == erasure_id, erasure.c.state == OPEN)
    rows = [{"erasure": erasure_id, "tenant": t, "session_id": s} for t, s in sessions]
    if rows and connection.scalar(sa.select(is_open)):
        statement: Any = insert_of(connection)(erasure_session)
        connection.execute(statement.on_conflict_do_nothing(), rows)
