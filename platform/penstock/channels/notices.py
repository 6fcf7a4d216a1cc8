"""Notices of changes of channels: written with the change, read in order by whoever is told of it.

A notice is the change as JSON, the same text for everybody: in the answer to a long poll, in a
webhook's body, in a record of the topic.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.history import Change
from penstock.channels.tables import notice
from penstock.checkpoints.tables import checkpoint
from penstock.database.engine import Database

#: What one look reads of a channel that somebody watches, or is told of.
NOTICES_AT_ONCE = 100


@dataclass(frozen=True)
class Notice:
    tenant: str
    channel: str
    version: int
    #: JSON, as `note` made it.
    body: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


def note(connection: Connection, change: Change) -> None:
    """Put a change into the outbox, in the transaction that makes it."""
    body = msgspec.json.encode(document_of(connection, change)).decode()
    made = {"tenant": change.tenant, "channel": change.channel, "version": change.version}
    connection.execute(sa.insert(notice).values(**made, body=body, at=change.at))


def document_of(connection: Connection, change: Change) -> dict[str, Any]:
    """A change as others are told of it: what it points at, and where that lies."""
    found = asdict(change)
    found["at"] = time_text(change.at)
    found["uri"] = None
    found["canary_digest"] = found["canary_uri"] = None
    rows = connection.execute(
        sa.select(checkpoint.c.name, checkpoint.c.digest, checkpoint.c.uri).where(
            checkpoint.c.tenant == change.tenant,
            checkpoint.c.name.in_([change.checkpoint or "", change.canary or ""]),
        )
    )
    for row in rows:
        if row.name == change.checkpoint:
            found["uri"] = row.uri
        if row.name == change.canary:
            found["canary_digest"], found["canary_uri"] = row.digest, row.uri
    return found


def time_text(us: int) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(us / 1_000_000, tz=UTC).isoformat()


def notices_after(
    database: Database, tenant: str, channel: str, version: int, *, up_to: int | None = None
) -> list[Notice]:
    """The next ones, in order; at most NOTICES_AT_ONCE."""
    with database.read() as connection:
        return notices_in(connection, tenant, channel, version, up_to=up_to)


def notices_in(
    connection: Connection,
    tenant: str,
    channel: str,
    version: int,
    *,
    up_to: int | None = None,
    at_most: int = NOTICES_AT_ONCE,
) -> list[Notice]:
    """The same within a transaction."""
    of = notice.c
    query = (
        sa.select(of.tenant, of.channel, of.version, of.body)
        .where(of.tenant == tenant, of.channel == channel, of.version > version)
        .order_by(of.version)
        .limit(at_most)
    )
    if up_to is not None:
        query = query.where(of.version <= up_to)
    return [Notice(*row) for row in connection.execute(query)]
