"""Notices of changes: written with the change, and read in order by whoever is told of it.

A notice is the change as JSON, the same text for everybody: in the answer to a long poll, in the
body of a webhook, in a record of the topic.
"""

from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.change import Change
from penstock.channels.tables import notice
from penstock.checkpoints.tables import checkpoint
from penstock.database.engine import Database
from penstock.terminal.output import time_of

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


def put_notice(connection: Connection, change: Change) -> None:
    """Put a change into the outbox, in the transaction that makes it."""
    body = msgspec.json.encode(notice_document(connection, change)).decode()
    made = {"tenant": change.tenant, "channel": change.channel, "version": change.version}
    connection.execute(sa.insert(notice).values(**made, body=body, at=change.at))


def notice_document(connection: Connection, change: Change) -> dict[str, Any]:
    """A change as others are told of it: what it points at, and where that lies."""
    return change_document(change) | checkpoint_places(connection, change)


def checkpoint_places(connection: Connection, change: Change) -> dict[str, Any]:
    """Where the files of a channel's checkpoint and of its canary lie."""
    rows = connection.execute(
        sa.select(checkpoint.c.name, checkpoint.c.digest, checkpoint.c.uri).where(
            checkpoint.c.tenant == change.tenant,
            checkpoint.c.name.in_([change.checkpoint or "", change.canary or ""]),
        )
    )
    places = {row.name: row for row in rows}
    current, canary = places.get(change.checkpoint), places.get(change.canary)
    return {
        "uri": current.uri if current is not None else None,
        "canary_digest": canary.digest if canary is not None else None,
        "canary_uri": canary.uri if canary is not None else None,
    }


def time_text(us: int) -> str:
    """RFC 3339."""
    return time_of(us).isoformat()


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


_SHORT = len("sha256:") + 12


def change_document(change: Change) -> dict[str, Any]:
    """For JSON."""
    return asdict(change) | {"at": time_text(change.at)}


def describe_change(change: Change, before: Change | None = None) -> str:
    """In a few words. `before` is the change before it, where that is known."""
    match change.action:
        case "promote":
            return f"{change.previous} → {change.checkpoint}" if change.previous else _first(change)
        case "canary":
            return f"{change.canary} on {_percent(change)} of the traffic, beside " + str(
                change.checkpoint
            )
        case "rollback":
            return _rolled_back(change, before)
        case "release":
            return f"released, at {change.checkpoint or 'nothing yet'}"
        case "policy":
            return f"policy {short_digest(change.policy)}"


def change_marks(change: Change) -> str:
    """What nobody should overlook."""
    found = ["OVERRIDDEN"] if change.overridden else []
    found += ["pinned"] if change.pinned else []
    return ", ".join(found)


def short_digest(digest: str | None) -> str:
    return (digest or "")[:_SHORT]


def _first(change: Change) -> str:
    return f"{change.checkpoint} is the first"


def _rolled_back(change: Change, before: Change | None) -> str:
    if before is None:  # it left another one, or a canary
        return f"back to {change.checkpoint}"
    if before.checkpoint == change.checkpoint:
        return f"back to {change.checkpoint} alone, without {before.canary}"
    return f"{before.checkpoint} → back to {change.checkpoint}"


def _percent(change: Change) -> str:
    return f"{100 * (change.canary_share or 0):.12g} %"
