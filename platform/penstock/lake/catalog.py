"""Which files make up the lake at a snap, and claims on them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, now_us
from penstock.database.tables import (
    consent_change,
    lake_commit,
    lake_head,
    log_partition,
    reader_lease,
    segment,
    snapshot,
)
from penstock.errors import (
    DatabaseUnreachable,
    HistoryRemoved,
    InvalidInput,
    SnapshotExists,
    SnapshotUnknown,
)


@dataclass(frozen=True)
class Segment:
    """A segment as a reader needs it."""

    id: int
    name: str
    partition: int
    rows: int
    bytes: int
    added_snap: int


@dataclass(frozen=True)
class ConsentChange:
    tenant: str
    session_id: str
    consent: str


@dataclass(frozen=True)
class Covered:
    """How far the lake covers a partition of a log; another log may be there by now."""

    log_id: str
    next_offset: int


@dataclass(frozen=True)
class Pin:
    """The lake as of a snap. `next_offsets` says where, for each partition, the log goes on."""

    snap: int
    segments: tuple[Segment, ...]
    consents: tuple[ConsentChange, ...]
    next_offsets: dict[int, Covered]


@dataclass(frozen=True)
class Snapshot:
    name: str
    snap: int
    note: str
    created_at: int


_AS_READER = [segment.c[name] for name in Segment.__dataclass_fields__]


def visible_at(snap: int) -> sa.ColumnElement[bool]:
    """Segments that a reader at `snap` sees."""
    return (segment.c.added_snap <= snap) & (
        segment.c.removed_snap.is_(None) | (segment.c.removed_snap > snap)
    )


@contextmanager
def pinned(database: Database, as_of: str | None, lease_s: float) -> Iterator[Pin]:
    """The lake at a moment, its files kept until the block ends. `as_of` is the name of a
    snapshot or a time; None is now. Raises SnapshotUnknown, HistoryRemoved."""
    lease = uuid.uuid4().hex
    with database.write() as connection:
        pin = _pin(connection, _resolve(connection, as_of))
        until = now_us() + round(lease_s * 1_000_000)
        connection.execute(sa.insert(reader_lease).values(id=lease, snap=pin.snap, until=until))
    try:
        yield pin
    finally:
        with suppress(DatabaseUnreachable), database.write() as connection:  # or it runs out
            connection.execute(sa.delete(reader_lease).where(reader_lease.c.id == lease))


def current(database: Database) -> Pin:
    """The newest state, without a claim on its files."""
    with database.read() as connection:
        return _pin(connection, _head(connection))


def _pin(connection: Connection, snap: int) -> Pin:
    segments = connection.execute(
        sa.select(*_AS_READER).where(visible_at(snap)).order_by(segment.c.id)
    ).all()
    changes = connection.execute(
        sa.select(consent_change.c.tenant, consent_change.c.session_id, consent_change.c.consent)
        .where(consent_change.c.added_snap <= snap)
        .order_by(consent_change.c.added_snap)
    ).all()
    latest = {(c.tenant, c.session_id): ConsentChange(*c) for c in changes}
    return Pin(
        snap,
        tuple(Segment(*row) for row in segments),
        tuple(latest.values()),
        read_next_offsets(connection),
    )


def read_next_offsets(connection: Connection) -> dict[int, Covered]:
    rows = connection.execute(sa.select(log_partition))
    return {row.partition: Covered(row.log_id, row.next_offset) for row in rows}


# Snapshots


def create_snapshot(database: Database, name: str, note: str = "") -> Snapshot:
    """Name the lake as it is now, and keep its files."""
    if not name.strip() or len(name) > snapshot.c.name.type.length:  # type: ignore[attr-defined]
        raise InvalidInput(what=f"The name {name!r}", why="it is empty or over 128 characters")
    if _as_time(name) is not None:
        raise InvalidInput(what=f"The name {name!r}", why="it reads as a time")
    with database.write() as connection:
        query = sa.select(snapshot.c.name).where(snapshot.c.name == name)
        if connection.execute(query).one_or_none():
            raise SnapshotExists(name=name)
        made = connection.execute(
            sa.insert(snapshot)
            .values(name=name, snap=_head(connection), note=note, created_at=now_us())
            .returning(snapshot)
        ).one()
    return Snapshot(**made._mapping)


def list_snapshots(database: Database) -> list[Snapshot]:
    with database.read() as connection:
        rows = connection.execute(sa.select(snapshot).order_by(snapshot.c.created_at))
        return [Snapshot(**row._mapping) for row in rows]


def drop_snapshot(database: Database, name: str) -> None:
    """Its files may be collected from now on."""
    with database.write() as connection:
        dropped = connection.execute(sa.delete(snapshot).where(snapshot.c.name == name))
        if dropped.rowcount == 0:
            raise SnapshotUnknown(name=name)


def _resolve(connection: Connection, as_of: str | None) -> int:
    if as_of is None or as_of == "latest":
        return _head(connection)
    named = sa.select(snapshot.c.snap).where(snapshot.c.name == as_of)
    if (snap := connection.execute(named).scalar_one_or_none()) is not None:
        return int(snap)
    if (moment := _as_time(as_of)) is None:
        raise SnapshotUnknown(name=as_of)
    until = lake_commit.c.committed_at <= round(moment.timestamp() * 1_000_000)
    found = connection.execute(sa.select(sa.func.max(lake_commit.c.snap)).where(until)).scalar()
    readable_from = connection.execute(sa.select(lake_head.c.readable_from)).scalar_one()
    if (found or 0) < readable_from:
        raise HistoryRemoved(when=as_of)
    return int(found or 0)


def _as_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _head(connection: Connection) -> int:
    return int(connection.execute(sa.select(lake_head.c.snap)).scalar_one())
