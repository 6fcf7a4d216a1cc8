"""The commit protocol: segments and the offsets that they cover become visible together.

A commit moves a partition's offset on, from the epoch and offset that its owner expects, and stores
the events between. Otherwise it does nothing. The offsets that the log itself keeps do not count.

A partition's offset is the least that is covered for all tenants. A tenant that is stored further
has a row of its own, written in the same transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import Database, clock_us, insert_new, now_us, put_rows
from penstock.backends.eventlog.log import OffsetBounds
from penstock.lake import FencedOff, LogGrew
from penstock.lake.catalog import changes_content, withdraw_intents
from penstock.lake.segments import SegmentFile
from penstock.lake.tables import (
    consent_change,
    lake_commit,
    lake_head,
    ledger,
    log_gap,
    log_partition,
    log_shape,
    segment,
    tenant_offset,
    writer,
)

INGEST, COMPACT, SHARD, MOMENT = "ingest", "compact", "shard", "moment"


class LogShape(msgspec.Struct, frozen=True):
    log_id: str
    partitions: int


@dataclass(frozen=True)
class PartitionClaim:
    partition: int
    owner: str
    epoch: int
    next_offset: int
    log: LogShape
    #: The offsets of tenants whose events are stored further.
    ahead: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class LedgerKey:
    tenant: str
    source: str
    hour: int


@dataclass
class LedgerCounts:
    """Counts of events: accepted = stored + duplicate + erased, once all accepted are stored."""

    accepted: int = 0
    stored: int = 0
    duplicate: int = 0
    rejected: int = 0
    #: Bytes of accepted events, as they were sent.
    bytes: int = 0
    #: Removed from the lake, or dropped before they were stored.
    erased: int = 0
    #: Dropped by recorders before they were sent.
    dropped: int = 0


class CoveredSegment(msgspec.Struct, frozen=True):
    file: SegmentFile
    from_offset: int
    to_offset: int


class PartitionAdvance(msgspec.Struct, frozen=True):
    #: The first offset at which some tenant's events are not stored yet.
    to_offset: int
    segments: Sequence[CoveredSegment]
    #: The offsets of tenants that this flush stores further.
    ahead: Mapping[str, int]
    counts: Mapping[LedgerKey, LedgerCounts]
    #: Consents that are stricter than in stored rows, by tenant and session.
    consents: Mapping[tuple[str, str], str]
    #: When the oldest event came in.
    oldest_us: int | None = None
    #: Stores rows of rooms above in the same transaction; False if a file of theirs may be gone.
    also: Callable[[Connection], bool] = lambda _connection: True


# Writers, and the shape of the log that they agree on


def survey_writers(
    database: Database, owner: str, lease_s: float
) -> tuple[Sequence[str], dict[int, str]]:
    """Announce this writer. Returns all writers, and the owner of each partition."""
    with database.write() as connection:
        connection.execute(sa.delete(writer).where(writer.c.until < now_us()))
        until = clock_us(connection, lease_s)
        put_rows(connection, writer, [{"owner": owner, "until": until}])
        writers = connection.execute(sa.select(writer.c.owner).order_by(writer.c.owner))
        held = connection.execute(
            sa.select(log_partition.c.partition, log_partition.c.owner).where(
                log_partition.c.lease_until >= now_us(), log_partition.c.owner.is_not(None)
            )
        )
        return list(writers.scalars()), {row.partition: row.owner for row in held}


def remove_writer(database: Database, owner: str) -> None:
    with database.write() as connection:
        connection.execute(sa.delete(writer).where(writer.c.owner == owner))


def agree_on_shape(database: Database, log_id: str, partitions: int) -> LogShape:
    """Agree on the largest number of partitions that any writer has seen. Commits by an earlier
    shape are visible to a writer with the new one: see `_check_shape`."""
    with database.write() as connection:
        # From here to the end of the transaction nobody else commits.
        connection.execute(sa.select(lake_head.c.snap).with_for_update())
        query = sa.select(log_shape.c.partitions).where(log_shape.c.log_id == log_id)
        known = connection.execute(query).scalar_one_or_none()
        if known is None:
            row = {"log_id": log_id, "partitions": partitions}
            connection.execute(sa.insert(log_shape).values(**row))
        elif known < partitions:
            grown = sa.update(log_shape).where(log_shape.c.log_id == log_id)
            connection.execute(grown.values(partitions=partitions))
    return LogShape(log_id, max(known or 0, partitions))


def _check_shape(connection: Connection, log: LogShape) -> None:
    """Check the shape of the log. The head is locked, so the shape stays until the transaction
    ends, and no session is stored by two shapes at a time. Raises LogGrew."""
    query = sa.select(log_shape.c.partitions).where(log_shape.c.log_id == log.log_id)
    agreed = connection.execute(query).scalar_one()
    if agreed != log.partitions:
        raise LogGrew(found=agreed, believed=log.partitions)


# Claims of partitions


def claim_partition(
    database: Database,
    partition: int,
    owner: str,
    *,
    log: LogShape,
    bounds: OffsetBounds,
    expires: bool,
    lease_s: float,
    sure: bool,
) -> PartitionClaim | None:
    """Claim a free partition, or with `sure` one whose holder is known to be gone; None if another
    holds it. A new log, or one that lost uncovered events, begins at its first offset: the loss is
    recorded as a gap."""
    first_row = {"log_id": log.log_id, "next_offset": bounds.first, "epoch": 0, "lease_until": 0}
    with database.write() as connection:
        insert_new(connection, log_partition, {"partition": partition, **first_row})
        free = (log_partition.c.lease_until < now_us()) | (log_partition.c.owner == owner)
        row = connection.execute(
            sa.update(log_partition)
            .where(log_partition.c.partition == partition, sa.true() if sure else free)
            .values(epoch=log_partition.c.epoch + 1, owner=owner, lease_until=now_us(lease_s))
            .returning(log_partition)
        ).one_or_none()
        if row is None:
            return None
        next_offset = int(row.next_offset)
        ahead = _read_ahead(connection, partition)
        if row.log_id != log.log_id:
            lost_to = next_offset
            reason = "the event log was replaced; its events from this offset on are unknown"
        elif expires and bounds.first > next_offset:
            lost_to = bounds.first
            reason = "the event log removed these offsets before the lake had them"
        else:
            return PartitionClaim(partition, owner, row.epoch, next_offset, log, ahead)
        connection.execute(
            sa.insert(log_gap).values(
                partition=partition,
                log_id=row.log_id,
                from_offset=next_offset,
                to_offset=lost_to,
                reason=reason,
                found_at=now_us(),
            )
        )
        connection.execute(
            sa.update(log_partition)
            .where(log_partition.c.partition == partition)
            .values(log_id=log.log_id, next_offset=bounds.first)
        )
        _forget_ahead(connection, partition, None if row.log_id != log.log_id else bounds.first)
        if row.log_id != log.log_id:  # whoever still reads the old log stores nothing more
            ahead = {}
            old = sa.update(log_partition).where(log_partition.c.log_id == row.log_id)
            connection.execute(old.values(epoch=log_partition.c.epoch + 1, lease_until=0))
    ahead = {tenant: offset for tenant, offset in ahead.items() if offset > bounds.first}
    return PartitionClaim(partition, owner, row.epoch, bounds.first, log, ahead)


def renew_claim(database: Database, claim: PartitionClaim, lease_s: float) -> None:
    """Renew the lease of a claim. Raises FencedOff if another took the partition over."""
    with database.write() as connection:
        _move_offset(connection, claim, claim.next_offset, lease_s)


def release_claim(database: Database, claim: PartitionClaim, unused: Sequence[str] = ()) -> None:
    """Let others claim the partition. `unused` are announced names of files."""
    with database.write() as connection:
        withdraw_intents(connection, unused)
        mine = sa.update(log_partition).where(*_held_by(claim))
        connection.execute(mine.values(owner=None, lease_until=0))


def _move_offset(
    connection: Connection, claim: PartitionClaim, to_offset: int, lease_s: float
) -> None:
    moved = connection.execute(
        sa.update(log_partition)
        .where(*_held_by(claim), log_partition.c.next_offset == claim.next_offset)
        .values(next_offset=to_offset, lease_until=now_us(lease_s))
    )
    if moved.rowcount != 1:
        raise FencedOff(partition=claim.partition, epoch=claim.epoch, expected=claim.next_offset)


def _held_by(claim: PartitionClaim) -> tuple[sa.ColumnElement[bool], ...]:
    return (log_partition.c.partition == claim.partition, log_partition.c.epoch == claim.epoch)


# Commits


def advance(
    database: Database, claim: PartitionClaim, change: PartitionAdvance, *, lease_s: float
) -> PartitionClaim:
    """Move the offsets and store everything up to them, in one transaction. Raises FencedOff,
    LogGrew. After DatabaseUnreachable it may have happened: claim the partition again."""
    with database.write() as connection:
        _move_offset(connection, claim, change.to_offset, lease_s)
        add_to_ledger(connection, claim.partition, change.counts)
        _move_ahead(connection, claim.partition, change)
        names = [covered.file.name for covered in change.segments]
        if not change.also(connection) or not withdraw_intents(connection, names):
            raise FencedOff(
                partition=claim.partition, epoch=claim.epoch, expected=claim.next_offset
            )
        if change.segments:
            # From here on all others that commit wait: it comes last.
            snap = next_snap(connection, INGEST, change.oldest_us)
            _check_shape(connection, claim.log)
            for covered in change.segments:
                insert_segment(
                    connection,
                    covered.file,
                    snap,
                    kind=INGEST,
                    partition=claim.partition,
                    log_id=claim.log.log_id,
                    log_partitions=claim.log.partitions,
                    from_offset=covered.from_offset,
                    to_offset=covered.to_offset,
                )
            if change.consents:
                consents = [
                    {"tenant": tenant, "session_id": id_, "consent": consent, "added_snap": snap}
                    for (tenant, id_), consent in change.consents.items()
                ]
                connection.execute(sa.insert(consent_change), consents)
    ahead = {**claim.ahead, **change.ahead}
    left = {tenant: offset for tenant, offset in ahead.items() if offset > change.to_offset}
    return replace(claim, next_offset=change.to_offset, ahead=left)


def _move_ahead(connection: Connection, partition: int, change: PartitionAdvance) -> None:
    _forget_ahead(connection, partition, change.to_offset)
    rows = [
        {"partition": partition, "tenant": tenant, "next_offset": offset}
        for tenant, offset in sorted(change.ahead.items())
    ]
    put_rows(connection, tenant_offset, rows)


def _read_ahead(connection: Connection, partition: int) -> dict[str, int]:
    query = sa.select(tenant_offset.c.tenant, tenant_offset.c.next_offset)
    rows = connection.execute(query.where(tenant_offset.c.partition == partition))
    return {row.tenant: row.next_offset for row in rows}


def _forget_ahead(connection: Connection, partition: int, up_to: int | None) -> None:
    """Forget tenants that are not ahead any more; all of them without an offset."""
    passed = sa.true() if up_to is None else tenant_offset.c.next_offset <= up_to
    connection.execute(
        sa.delete(tenant_offset).where(tenant_offset.c.partition == partition, passed)
    )


def add_to_ledger(
    connection: Connection, partition: int, counts: Mapping[LedgerKey, LedgerCounts]
) -> None:
    rows = [
        {"partition": partition, **asdict(key), **asdict(counts[key])} for key in sorted(counts)
    ]
    put_rows(connection, ledger, rows, added=LedgerCounts.__dataclass_fields__)


def next_snap(connection: Connection, kind: str, oldest_us: int | None = None) -> int:
    """Take the next snap for this transaction. Until it ends no other commit can take one."""
    latest = sa.case(
        (lake_head.c.committed_at > now_us(), lake_head.c.committed_at), else_=now_us()
    )  # the clock may jump back, time in the history does not
    head = connection.execute(
        sa.update(lake_head)
        .values(snap=lake_head.c.snap + 1, committed_at=latest)
        .returning(lake_head.c.snap, lake_head.c.committed_at)
    ).one()
    waited_us = None if oldest_us is None else max(head.committed_at - oldest_us, 0)
    facts = {"snap": head.snap, "kind": kind, "committed_at": head.committed_at}
    connection.execute(sa.insert(lake_commit).values(**facts, waited_us=waited_us))
    return int(head.snap)


def snap_since(database: Database, moment_us: int) -> int:
    """Find a snap not older than a past moment: the newest that changed events or rewards, else the
    first, else a new one. Records beside the lake are read as of it."""
    moments = lake_commit.c.committed_at >= moment_us
    with database.write() as connection:
        content = sa.select(sa.func.max(lake_commit.c.snap)).where(changes_content())
        snap = connection.scalar(content.where(moments))
        snap = snap or connection.scalar(sa.select(sa.func.min(lake_commit.c.snap)).where(moments))
        return int(snap or next_snap(connection, MOMENT))


def insert_segment(
    connection: Connection, file: SegmentFile, snap: int, **origin: str | int | None
) -> None:
    connection.execute(sa.insert(segment).values(**asdict(file), added_snap=snap, **origin))


# Gaps


@dataclass(frozen=True)
class LogGap:
    id: int
    partition: int
    log_id: str
    from_offset: int
    to_offset: int
    reason: str
    found_at: int
    accepted_at: int | None
    accepted_why: str | None


def read_gaps(connection: Connection) -> list[LogGap]:
    rows = connection.execute(sa.select(log_gap).order_by(log_gap.c.id))
    return [LogGap(**row._mapping) for row in rows]


def accept_gap(database: Database, gap_id: int, why: str) -> bool:
    """Record that a person accepts a gap. False if there is no such gap."""
    accepted = sa.update(log_gap).where(log_gap.c.id == gap_id)
    with database.write() as connection:
        values = accepted.values(accepted_at=now_us(), accepted_why=why)
        return connection.execute(values).rowcount == 1
