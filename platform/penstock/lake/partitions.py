"""Claims of the log's partitions: which writer takes each into the lake, and how far it has come.

A partition's row names its owner's epoch and the next offset to store. An owner moves the
offset on only from the epoch and offset that it believes in; whoever lost the partition changes
nothing. Owners are told apart by epochs that are given here: what the log itself says about its
readers is never asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, insert_of, now_us
from penstock.eventlog import OffsetBounds
from penstock.lake.errors import FencedOff, LogGrew
from penstock.lake.tables import lake_head, log_gap, log_partition, log_shape, writer


@dataclass(frozen=True)
class LogShape:
    """A log as the writers have agreed to see it. Sessions are in the partition that the number
    of partitions says."""

    log_id: str
    partitions: int


@dataclass(frozen=True)
class PartitionClaim:
    """A writer's right to move a partition on, as of when it was given."""

    partition: int
    owner: str
    epoch: int
    next_offset: int
    log: LogShape


# The log's shape


def agree_on_shape(database: Database, log_id: str, partitions: int) -> LogShape:
    """The log with the most partitions that any writer has seen. What was committed by the
    shape before is visible to whoever works by the new one: see `check_shape`."""
    with database.write() as connection:
        lock_head(connection)
        query = sa.select(log_shape.c.partitions).where(log_shape.c.log_id == log_id)
        known = connection.execute(query).scalar_one_or_none()
        if known is None:
            row = {"log_id": log_id, "partitions": partitions}
            connection.execute(sa.insert(log_shape).values(**row))
        elif known < partitions:
            grown = sa.update(log_shape).where(log_shape.c.log_id == log_id)
            connection.execute(grown.values(partitions=partitions))
    return LogShape(log_id, max(known or 0, partitions))


def check_shape(connection: Connection, log: LogShape) -> None:
    """Raises LogGrew. After this, and until the transaction ends, nobody can change the shape,
    given that the head is locked already: no session is stored by two shapes at a time."""
    query = sa.select(log_shape.c.partitions).where(log_shape.c.log_id == log.log_id)
    agreed = connection.execute(query).scalar_one()
    if agreed != log.partitions:
        raise LogGrew(found=agreed, believed=log.partitions)


def lock_head(connection: Connection) -> None:
    """From here to the end of the transaction nobody else commits."""
    connection.execute(sa.select(lake_head.c.snap).with_for_update())


# Claims


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
    """Take a partition that nobody holds; with `sure`, one whose holder is known to be gone.
    None when another holds it. A new log under the same address starts from its beginning, and
    so does one that let go of what the lake had not covered yet: both are entered as gaps."""
    with database.write() as connection:
        _make_row(connection, partition, log, bounds)
        free = (log_partition.c.lease_until < now_us()) | (log_partition.c.owner == owner)
        taken = connection.execute(
            sa.update(log_partition)
            .where(log_partition.c.partition == partition, sa.true() if sure else free)
            .values(epoch=log_partition.c.epoch + 1, owner=owner, lease_until=_in(lease_s))
            .returning(log_partition)
        ).one_or_none()
        if taken is None:
            return None
        next_offset = _start(connection, taken, log, bounds, expires=expires)
    return PartitionClaim(partition, owner, taken.epoch, next_offset, log)


def renew_claim(database: Database, claim: PartitionClaim, lease_s: float) -> None:
    """Raises FencedOff when another took the partition over."""
    with database.write() as connection:
        move_offset(connection, claim, claim.next_offset, lease_s)


def release_claim(database: Database, claim: PartitionClaim) -> None:
    """Let the next writer begin at once."""
    with database.write() as connection:
        connection.execute(
            sa.update(log_partition).where(*_held_by(claim)).values(owner=None, lease_until=0)
        )


def move_offset(
    connection: Connection, claim: PartitionClaim, to_offset: int, lease_s: float
) -> None:
    """Raises FencedOff."""
    moved = connection.execute(
        sa.update(log_partition)
        .where(*_held_by(claim), log_partition.c.next_offset == claim.next_offset)
        .values(next_offset=to_offset, lease_until=_in(lease_s))
    )
    if moved.rowcount != 1:
        raise FencedOff(partition=claim.partition, epoch=claim.epoch, expected=claim.next_offset)


def _make_row(connection: Connection, partition: int, log: LogShape, bounds: OffsetBounds) -> None:
    insert: Any = insert_of(connection)(log_partition).values(
        partition=partition,
        log_id=log.log_id,
        next_offset=bounds.first,
        epoch=0,
        lease_until=0,
    )
    connection.execute(insert.on_conflict_do_nothing())


def _start(
    connection: Connection, row: sa.Row[Any], log: LogShape, bounds: OffsetBounds, *, expires: bool
) -> int:
    """Where the claim begins."""
    if row.log_id != log.log_id:
        lost_to = row.next_offset
        reason = "the event log was replaced; what it still held from this offset on is unknown"
    elif expires and bounds.first > row.next_offset:
        lost_to = bounds.first
        reason = "the event log let go of these offsets before the lake had them"
    else:
        return int(row.next_offset)
    _enter_gap(connection, row, lost_to, reason)
    connection.execute(
        sa.update(log_partition)
        .where(log_partition.c.partition == row.partition)
        .values(log_id=log.log_id, next_offset=bounds.first)
    )
    if row.log_id != log.log_id:  # whoever still reads the old log stores nothing more
        old = sa.update(log_partition).where(log_partition.c.log_id == row.log_id)
        connection.execute(old.values(epoch=log_partition.c.epoch + 1, lease_until=0))
    return bounds.first


def _held_by(claim: PartitionClaim) -> tuple[sa.ColumnElement[bool], ...]:
    return (log_partition.c.partition == claim.partition, log_partition.c.epoch == claim.epoch)


def _in(seconds: float) -> sa.ColumnElement[int]:
    return now_us() + round(seconds * 1_000_000)


# Gaps


@dataclass(frozen=True)
class LogGap:
    """Offsets that were lost to the log before the lake had them."""

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
    """A person has looked. False when there is no such gap."""
    with database.write() as connection:
        accepted = connection.execute(
            sa.update(log_gap)
            .where(log_gap.c.id == gap_id)
            .values(accepted_at=now_us(), accepted_why=why)
        )
    return accepted.rowcount == 1


def _enter_gap(connection: Connection, row: sa.Row[Any], to_offset: int, reason: str) -> None:
    connection.execute(
        sa.insert(log_gap).values(
            partition=row.partition,
            log_id=row.log_id,
            from_offset=row.next_offset,
            to_offset=to_offset,
            reason=reason,
            found_at=now_us(),
        )
    )


# Sharing


@dataclass(frozen=True)
class WriterSurvey:
    """Which writers there are, and who holds what."""

    writers: Sequence[str]
    owners: dict[int, str]


def survey_writers(database: Database, owner: str, lease_s: float) -> WriterSurvey:
    """Say that this writer is there, and look who else is."""
    with database.write() as connection:
        connection.execute(sa.delete(writer).where(writer.c.until < now_us()))
        insert: Any = insert_of(connection)(writer).values(owner=owner, until=_in(lease_s))
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=[writer.c.owner], set_={"until": _in(lease_s)}
            )
        )
        writers = connection.execute(sa.select(writer.c.owner).order_by(writer.c.owner))
        held = connection.execute(
            sa.select(log_partition.c.partition, log_partition.c.owner).where(
                log_partition.c.lease_until >= now_us(), log_partition.c.owner.is_not(None)
            )
        )
        return WriterSurvey(list(writers.scalars()), {row.partition: row.owner for row in held})


def remove_writer(database: Database, owner: str) -> None:
    """Let the others share what this writer had, at once."""
    with database.write() as connection:
        connection.execute(sa.delete(writer).where(writer.c.owner == owner))
