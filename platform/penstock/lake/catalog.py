"""The catalog: the files of the lake at a snap, snapshots, and claims on files."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database, insert_new, insert_of, lock_table, now_us
from penstock.backends.database.leases import repeating
from penstock.backends.database.tables import all_tables
from penstock.core.errors import InvalidInput
from penstock.lake import HistoryRemoved, SnapshotExists, SnapshotUnknown
from penstock.lake.tables import (
    FOLDER,
    consent_change,
    lake_commit,
    lake_head,
    log_partition,
    reader_lease,
    segment,
    segment_intent,
    snapshot,
    tenant_offset,
)

#: How long the files of a killed reader are kept.
READER_LEASE_SECONDS = 900.0


@dataclass(frozen=True)
class Segment:
    id: int
    name: str
    partition: int
    rows: int
    bytes: int
    #: The newest commit that brought events of it; a merge brings none.
    changed_snap: int
    tenant: str
    #: Whether upkeep has put a file of sessions beside it.
    summarised: bool = True


class CoveredOffset(msgspec.Struct, frozen=True):
    log_id: str
    next_offset: int
    #: The offsets of tenants that are covered further.
    ahead: Mapping[str, int] = msgspec.field(default_factory=dict)

    def of(self, tenant: str) -> int:
        return max(self.next_offset, self.ahead.get(tenant, 0))


class Pin(msgspec.Struct, frozen=True):
    """The lake as of a snap: all of it, or one tenant's part."""

    snap: int
    segments: tuple[Segment, ...]
    #: Consents that became known after rows were written, by tenant and session.
    consents: dict[tuple[str, str], str]
    #: How far the lake covers each partition of the log.
    next_offsets: dict[int, CoveredOffset]
    #: The time as of which checkpoints and the like are seen; None is now.
    moment: int | None


@dataclass(frozen=True)
class Snapshot:
    name: str
    snap: int
    note: str
    created_at: int


def visible_at(snap: int, files: sa.Table = segment) -> sa.ColumnElement[bool]:
    """Make a condition on files that a reader at `snap` sees: segments, or another room's."""
    return (files.c.added_snap <= snap) & (
        files.c.removed_snap.is_(None) | (files.c.removed_snap > snap)
    )


def file_tables() -> dict[str, sa.Table]:
    """Find the tables of files that are pinned, verified and collected, by folder."""
    tables = all_tables().sorted_tables
    return {table.info[FOLDER]: table for table in tables if FOLDER in table.info}


@contextmanager
def pinned(
    database: Database,
    as_of: str | int | None,
    lease_s: float = READER_LEASE_SECONDS,
    *,
    renewed: bool = False,
    tenant: str | None = None,
) -> Iterator[Pin]:
    """Keep the files of the lake until the block ends, or the lease unless it is `renewed`. `as_of`
    is the name of a snapshot, a time or a snap. Raises SnapshotUnknown, HistoryRemoved."""
    lease = uuid.uuid4().hex
    mine = reader_lease.c.id == lease
    with database.write(one_state=True) as connection:
        claim_files(connection)
        pin = _pin(connection, *_resolve(connection, as_of), tenant)
        row = {"id": lease, "snap": pin.snap, "until": now_us(lease_s)}
        connection.execute(sa.insert(reader_lease).values(**row))

    def renew() -> None:
        with database.write() as connection:
            until = now_us(lease_s)
            connection.execute(sa.update(reader_lease).where(mine).values(until=until))

    try:
        with repeating(renew, lease_s / 3, "lease") if renewed else nullcontext():
            yield pin
    finally:
        with suppress(DatabaseUnreachable), database.write() as connection:  # or it runs out
            connection.execute(sa.delete(reader_lease).where(mine))


def claim_files(connection: Connection, *, to_collect: bool = False) -> None:
    """Lock the claims. Call it first in a transaction that claims files or collects unclaimed ones:
    a claim that is not committed yet would be missed."""
    lock_table(connection, reader_lease, alone=to_collect)


def current(database: Database) -> Pin:
    """Read the newest state, without a claim on its files."""
    with database.read() as connection:
        return _pin(connection, _head(connection).snap, None, None)


def _pin(connection: Connection, snap: int, moment: int | None, tenant: str | None) -> Pin:
    names = ("id", "name", "partition", "rows", "bytes")
    changed_snap = sa.func.coalesce(segment.c.changed_snap, segment.c.added_snap)
    summarised = (segment.c.sessions_bytes > 0).label("summarised")
    facts = (changed_snap, segment.c.tenant, summarised)
    query = sa.select(*(segment.c[name] for name in names), *facts)
    mine = visible_at(snap)
    if tenant is not None:
        mine &= segment.c.tenant == tenant
    segments: Any = connection.execute(query.where(mine).order_by(segment.c.id)).all()
    changes = connection.execute(
        sa.select(consent_change.c.tenant, consent_change.c.session_id, consent_change.c.consent)
        .where(
            consent_change.c.added_snap <= snap,
            sa.true() if tenant is None else consent_change.c.tenant == tenant,
        )
        .order_by(consent_change.c.added_snap)
    ).all()
    return Pin(
        snap,
        tuple(Segment(*row) for row in segments),
        {(change.tenant, change.session_id): change.consent for change in changes},
        read_next_offsets(connection, tenant),
        moment,
    )


def read_next_offsets(
    connection: Connection, tenant: str | None = None
) -> dict[int, CoveredOffset]:
    ahead: defaultdict[int, dict[str, int]] = defaultdict(dict)
    query = sa.select(tenant_offset)
    if tenant is not None:
        query = query.where(tenant_offset.c.tenant == tenant)
    for row in connection.execute(query):
        ahead[row.partition][row.tenant] = row.next_offset
    return {
        row.partition: CoveredOffset(row.log_id, row.next_offset, ahead[row.partition])
        for row in connection.execute(sa.select(log_partition))
    }


# Snapshots


def create_snapshot(database: Database, name: str, note: str = "") -> Snapshot:
    """Name the lake as it is now, and keep its files."""
    why = ""
    if not name.strip() or len(name) > snapshot.c.name.type.length:  # type: ignore[attr-defined]
        why = "it is empty or over 128 characters"
    elif not name.isprintable():
        why = "it holds unprintable characters"
    elif _as_time(name) is not None:
        why = "it reads as a time"
    if why:
        raise InvalidInput(what=f"The name {name!r}", why=why)
    with database.write() as connection:
        claim_files(connection)
        made = connection.execute(
            insert_of(connection)(snapshot)
            .values(name=name, snap=_head(connection).snap, note=note, created_at=now_us())
            .on_conflict_do_nothing()
            .returning(snapshot)
        ).one_or_none()
    if made is None:
        raise SnapshotExists(name=name)
    return Snapshot(**made._mapping)


def name_snap(database: Database, as_of: str, name: str, snap: int, note: str = "") -> str:
    """Keep a snap that is held by a snapshot: the one that `as_of` names, else a new one. Returns
    its name."""
    with database.write() as connection:
        claim_files(connection)
        named = sa.select(snapshot.c.name).where(snapshot.c.name == as_of, snapshot.c.snap == snap)
        if connection.execute(named).first() is not None:
            return as_of
        created_at = _committed_at(connection, snap)
        row = {"name": name, "snap": snap, "note": note, "created_at": created_at}
        insert_new(connection, snapshot, row)
    return name


def list_snapshots(database: Database) -> list[Snapshot]:
    with database.read() as connection:
        rows = connection.execute(sa.select(snapshot).order_by(snapshot.c.created_at))
        return [Snapshot(**row._mapping) for row in rows]


def drop_snapshot(database: Database, name: str) -> None:
    with database.write() as connection:
        dropped = connection.execute(sa.delete(snapshot).where(snapshot.c.name == name))
        if dropped.rowcount == 0:
            raise SnapshotUnknown(name=name)


def content_snap(database: Database) -> int:
    query = sa.select(sa.func.max(lake_commit.c.snap)).where(changes_content())
    return int(database.scalar(query) or 0)


def changes_content() -> sa.ColumnElement[bool]:
    """Make a condition on commits that do more than register a shard or name a moment."""
    return lake_commit.c.kind.not_in(("shard", "moment"))


def _resolve(connection: Connection, as_of: str | int | None) -> tuple[int, int | None]:
    """Find the snap and the moment that it stands for; None is the newest."""
    head = _head(connection)
    if as_of is None or as_of == "latest":
        return head.snap, None
    if isinstance(as_of, int):
        named = sa.exists().where(snapshot.c.snap == as_of)
        held = sa.exists().where(reader_lease.c.snap == as_of, reader_lease.c.until >= now_us())
        readable = as_of >= head.readable_from or connection.scalar(sa.select(named | held))
        if as_of > head.snap or not readable:
            raise HistoryRemoved(when=f"snap {as_of}")
        return as_of, _committed_at(connection, as_of)
    if not as_of.isprintable():  # no name, and not every database could be asked for it
        raise SnapshotUnknown(name=repr(as_of))
    by_name = sa.select(snapshot.c.snap, snapshot.c.created_at).where(snapshot.c.name == as_of)
    if (row := connection.execute(by_name).one_or_none()) is not None:
        return row.snap, row.created_at
    if (time := _as_time(as_of)) is None:
        raise SnapshotUnknown(name=as_of)
    moment = round(time.timestamp() * 1_000_000)
    until = lake_commit.c.committed_at <= moment
    snap = connection.execute(sa.select(sa.func.max(lake_commit.c.snap)).where(until)).scalar() or 0
    if snap < head.readable_from:
        raise HistoryRemoved(when=as_of)
    return snap, moment


def _committed_at(connection: Connection, snap: int) -> int:
    query = sa.select(lake_commit.c.committed_at).where(lake_commit.c.snap == snap)
    return connection.execute(query).scalar() or 0


def _as_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _head(connection: Connection) -> Any:
    return connection.execute(sa.select(lake_head.c.snap, lake_head.c.readable_from)).one()


# Intents: names of files that are about to be written, or are to be deleted

#: In the intent of a file that belongs to no partition.
NO_PARTITION = -1
_COLLECTOR = "collection"


def announce_files(
    database: Database, names: Sequence[str], partition: int, owner: str, epoch: int | None = None
) -> None:
    with database.write() as connection:
        announce(connection, names, partition, owner, epoch)


def announce(
    connection: Connection, names: Sequence[str], partition: int, owner: str, epoch: int | None
) -> None:
    """Record that files of these names are about to be written."""
    if names:
        intent = {"partition": partition, "epoch": epoch, "owner": owner}
        insert = sa.insert(segment_intent).values(created_at=now_us())
        connection.execute(insert, [{"name": name, **intent} for name in names])


def writer_is_gone() -> sa.ColumnElement[bool]:
    """Whether another writer has taken the partition of an intent over: nobody commits the file."""
    mine = log_partition.c.partition == segment_intent.c.partition
    epoch = sa.select(log_partition.c.epoch).where(mine).scalar_subquery()
    return segment_intent.c.epoch < epoch


def withdraw_intents(connection: Connection, names: Sequence[str]) -> bool:
    """Make the files the lake's. False if collection has claimed one: it may be gone."""
    mine = (segment_intent.c.name.in_(names), segment_intent.c.claimed_at.is_(None))
    return connection.execute(sa.delete(segment_intent).where(*mine)).rowcount == len(names)


def intents_kept(database: Database, owner: str, grace_s: float) -> AbstractContextManager[None]:
    """Keep the owner's intents from collection until the block ends."""
    mine = sa.update(segment_intent).where(segment_intent.c.owner == owner)

    def renew() -> None:
        with database.write() as connection:
            connection.execute(mine.values(created_at=now_us()))

    return repeating(renew, max(grace_s / 3, 0.1), "intents")


def schedule_deletion(connection: Connection, names: Collection[str]) -> None:
    """Make collection delete these files."""
    if names:
        rows = [{"name": name, "partition": NO_PARTITION, "owner": _COLLECTOR} for name in names]
        claimed = sa.insert(segment_intent).values(created_at=now_us(), claimed_at=now_us())
        connection.execute(claimed, rows)
