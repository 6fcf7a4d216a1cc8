"""Tombstones: erased data do not come back by an import, a retry or a replay.

A tombstone holds a keyed digest, never a name. It drops events that name the erased, or are of an
erased session, and are older than the order. Later ones are stored, unless their session was erased
by itself. A name in one event affects no other.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.tables import OPEN, erasure, erasure_session, tombstone
from penstock.backends.database.engine import Database, insert_of, portions
from penstock.core.lake_keys import SecretSeal
from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock.lake.rows import DecodedEvents
from penstock.lake.tables import lake_head

SESSION: Final = "session"
USER: Final = "user"
PROJECT: Final = "project"
TENANT: Final = "tenant"
_PURPOSE = "tombstones"


class TombstoneKey(msgspec.Struct, frozen=True):
    secret: bytes

    @classmethod
    def of(cls, seal: SecretSeal) -> "TombstoneKey":
        return cls(seal.key_for(_PURPOSE))

    def digest(self, tenant: str, kind: str, value: str) -> str:
        content = "\0".join((tenant, kind, value)).encode()
        return hmac.digest(self.secret, content, hashlib.sha256).hex()


class ErasedEvents(msgspec.Struct, frozen=True):
    """Positions of erased events and rejected lines, as of the newest tombstone read."""

    positions: frozenset[int]
    #: Positions of rejected lines.
    lines: frozenset[int]
    newest: int

    def is_current(self, connection: Connection) -> bool:
        """Whether no tombstone was added since, checked in the transaction that stores the rest."""
        # From here on nobody else commits until this transaction ends.
        connection.execute(sa.select(lake_head.c.snap).with_for_update())
        return _newest(connection) == self.newest


class _Names(NamedTuple):
    """The subjects and the time of an event or a line; None where unknown."""

    tenant: str
    session: str | None
    user: str | None
    project: str | None
    at_us: int | None


def find_erased(
    database: Database,
    seal: SecretSeal,
    decoded: DecodedEvents,
    lines: Sequence[tuple[str, bytes]] = (),
) -> ErasedEvents:
    """Find what was erased among events and rejected lines, each with its tenant."""
    with database.read() as connection:
        newest = _newest(connection)
        tenants = sorted({*decoded.tenants, *(tenant for tenant, _ in lines)})
        here = sa.select(sa.exists().where(tombstone.c.tenant.in_(tenants)))
        if not newest or not connection.scalar(here):
            return ErasedEvents(frozenset(), frozenset(), newest)
        key = TombstoneKey.of(seal)
        events = [
            _Names(tenant, event.session_id, event.user, event.project, _time_us(event.ts))
            for tenant, event in zip(decoded.tenants, decoded.events, strict=True)
        ]
        found = _find(connection, key, [*events, *(_names_in(*line) for line in lines)])
    count = len(events)
    positions = frozenset(at for at in found if at < count)
    return ErasedEvents(positions, frozenset(at - count for at in found - positions), newest)


def find_withheld(lake: Lake, decoded: DecodedEvents) -> Collection[int]:
    """Positions of events in the log that the writer will drop. Raises SecretKeyUnfit."""
    return find_erased(lake.database, SecretSeal.of(lake.settings), decoded).positions


def _find(connection: Connection, key: TombstoneKey, named: Sequence[_Names]) -> set[int]:
    buried: set[int] = set()
    for kind in (SESSION, USER, PROJECT, TENANT):
        value_of = attrgetter(kind)
        values = {(each.tenant, value) for each in named if (value := value_of(each))}
        untils = _buried(connection, key, kind, values)
        for position, each in enumerate(named) if untils else ():
            until = untils.get((each.tenant, value_of(each) or ""))
            if until is not None and (each.at_us is None or each.at_us <= until):
                buried.add(position)
    return buried


def _time_us(ts: datetime | int) -> int:
    return ts if isinstance(ts, int) else round(ts.timestamp() * 1_000_000)


_FIELD = re.compile(rb'"(session_id|user|project|ts)"\s*:\s*("(?:[^"\\]|\\.)*"|[0-9]{1,18})')


def _names_in(tenant: str, line: bytes) -> _Names:
    """The names in a line that is no event: of its JSON, or of what looks like it."""
    fields: dict[str, Any] = {}
    for name, value in _FIELD.findall(line):
        with suppress(msgspec.MsgspecError):
            fields.setdefault(name.decode(), msgspec.json.decode(value))
    with suppress(msgspec.MsgspecError, RecursionError):
        fields |= msgspec.json.decode(line, type=dict[str, Any])
    at_us = None
    with suppress(msgspec.MsgspecError):
        at_us = _time_us(msgspec.convert(fields.get("ts"), datetime | int))
    return _Names(
        tenant,
        session=_text(fields.get("session_id")),
        user=_text(fields.get("user")),
        project=_text(fields.get("project")),
        at_us=at_us,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _buried(
    connection: Connection, key: TombstoneKey, kind: str, names: Collection[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """The time up to which each of these names is erased."""
    digests = {key.digest(tenant, kind, value): (tenant, value) for tenant, value in names}
    tenants = sorted({tenant for tenant, _ in names})
    untils: dict[tuple[str, str], float] = {}
    for batch in portions(digests):
        rows = connection.execute(
            sa.select(tombstone.c.digest, tombstone.c.until_us)
            .where(tombstone.c.tenant.in_(tenants))
            .where(tombstone.c.kind == kind, tombstone.c.digest.in_(batch))
        )
        for digest, until_us in rows:
            until = inf if until_us is None else until_us
            untils[digests[digest]] = max(untils.get(digests[digest], 0), until)
    return untils


def _newest(connection: Connection) -> int:
    return int(connection.execute(sa.select(sa.func.max(tombstone.c.id))).scalar() or 0)


def add_tombstones(
    connection: Connection,
    key: TombstoneKey,
    erasure_id: str,
    kind: str,
    names: Mapping[Any, int | None],
) -> None:
    """Set tombstones for (tenant, value) pairs up to their times, once per erasure; a later time
    replaces an earlier one."""
    rows = [
        {
            "tenant": tenant,
            "kind": kind,
            "digest": key.digest(tenant, kind, value),
            "until_us": until_us,
            "erasure": erasure_id,
        }
        for (tenant, value), until_us in names.items()
    ]
    if rows:
        statement: Any = insert_of(connection)(tombstone)
        keys = [tombstone.c[name] for name in ("tenant", "kind", "digest", "erasure")]
        later = {"until_us": statement.excluded.until_us}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=later), rows)


#: The erasure id of sessions removed by retention.
RETENTION = "retention"


def remove_aged_tombstones(connection: Connection, tenants: Collection[str]) -> None:
    """Remove tombstones of an age that no longer applies."""
    for batch in portions(sorted(tenants)):
        mine = (tombstone.c.erasure == RETENTION) & tombstone.c.tenant.in_(batch)
        connection.execute(sa.delete(tombstone).where(mine))


def add_sessions(
    connection: Connection, erasure_id: str, sessions: Mapping[SessionId, int | None]
) -> None:
    """Add these sessions to an open erasure, with `named_us`. What is known of one stays."""
    is_open = sa.exists().where(erasure.c.id == erasure_id, erasure.c.state == OPEN)
    rows = [
        {"erasure": erasure_id, "tenant": tenant, "session_id": session, "named_us": named_us}
        for (tenant, session), named_us in sessions.items()
    ]
    if rows and connection.scalar(sa.select(is_open)):
        statement: Any = insert_of(connection)(erasure_session)
        known = {"named_us": statement.excluded.named_us}
        unknown = erasure_session.c.named_us == 0
        keys = erasure_session.primary_key.columns
        put = statement.on_conflict_do_update(index_elements=keys, set_=known, where=unknown)
        connection.execute(put, rows)
