"""The commit protocol: how a segment and the offsets that it covers become true together.

A partition's row names its owner's epoch and the next offset to store. A commit moves the
offset on only from the epoch and offset that its writer believes in; whoever lost the
partition changes nothing. Before each file an intent is written: a file that neither a segment
nor an intent names was not made here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam
from sqlalchemy.dialects import postgresql, sqlite

from penstock.database.engine import Database, now_us
from penstock.database.tables import (
    consent_change,
    lake_commit,
    lake_head,
    ledger,
    log_gap,
    log_partition,
    rejected,
    segment,
    segment_intent,
)
from penstock.errors import FencedOff
from penstock.eventlog import Bounds
from penstock.lake.segments import SegmentFile

INGEST, COMPACT = "ingest", "compact"


@dataclass(frozen=True)
class Claim:
    """A writer's right to move a partition on, as of when it was given."""

    partition: int
    owner: str
    epoch: int
    next_offset: int


@dataclass(frozen=True, order=True)
class LedgerKey:
    tenant: str
    source: str
    hour: int


@dataclass
class LedgerCounts:
    """accepted = stored + duplicate, once everything accepted was stored."""

    accepted: int = 0
    stored: int = 0
    duplicate: int = 0
    rejected: int = 0


@dataclass(frozen=True)
class RejectedRow:
    tenant: str
    source: str
    received_at: int
    line: int
    reason: str
    raw: bytes
    truncated: bool


@dataclass(frozen=True)
class Advance:
    """All that one flush changes: the offset, and what lies between the old and the new one."""

    to_offset: int
    segment: SegmentFile | None
    counts: Mapping[LedgerKey, LedgerCounts]
    rejected: Sequence[RejectedRow]
    #: (tenant, session) → consent, where rows stored earlier say less.
    consents: Mapping[tuple[str, str], str]


# Partitions


def claim_partition(
    database: Database,
    partition: int,
    owner: str,
    *,
    log_id: str,
    bounds: Bounds,
    lease_s: float,
    sure: bool,
) -> Claim | None:
    """Take a partition that nobody holds; with `sure`, one whose holder is known to be gone.
    None when another holds it. A new log under the same address starts from its beginning."""
    with database.write() as connection:
        found = _partition_row(connection, partition, log_id, bounds)
        free = (log_partition.c.lease_until < now_us()) | (log_partition.c.owner == owner)
        taken = connection.execute(
            sa.update(log_partition)
            .where(log_partition.c.partition == partition, sa.true() if sure else free)
            .values(epoch=log_partition.c.epoch + 1, owner=owner, lease_until=_in(lease_s))
            .returning(log_partition.c.epoch, log_partition.c.next_offset)
        ).one_or_none()
        if taken is None:
            return None
        next_offset = taken.next_offset
        if found is not None and found.log_id != log_id:
            next_offset = _start_over(connection, found, log_id, bounds)
    return Claim(partition, owner, taken.epoch, next_offset)


def renew_claim(database: Database, claim: Claim, lease_s: float) -> None:
    """Raises FencedOff when another took the partition over."""
    with database.write() as connection:
        _move(connection, claim, claim.next_offset, lease_s)


def release_claim(database: Database, claim: Claim) -> None:
    """Let the next writer begin at once."""
    with database.write() as connection:
        connection.execute(
            sa.update(log_partition).where(*_held_by(claim)).values(owner=None, lease_until=0)
        )


def _partition_row(
    connection: Connection, partition: int, log_id: str, bounds: Bounds
) -> sa.Row[Any] | None:
    query = sa.select(log_partition).where(log_partition.c.partition == partition)
    found = connection.execute(query).one_or_none()
    if found is None:
        fresh = {"partition": partition, "log_id": log_id, "next_offset": bounds.first}
        connection.execute(sa.insert(log_partition).values(**fresh, epoch=0, lease_until=0))
    return found


def _start_over(connection: Connection, found: sa.Row[Any], log_id: str, bounds: Bounds) -> int:
    connection.execute(
        sa.insert(log_gap).values(
            partition=found.partition,
            log_id=found.log_id,
            from_offset=found.next_offset,
            to_offset=found.next_offset,
            reason="the event log was replaced; what it still held from this offset on is unknown",
            found_at=now_us(),
        )
    )
    connection.execute(
        sa.update(log_partition)
        .where(log_partition.c.partition == found.partition)
        .values(log_id=log_id, next_offset=bounds.first)
    )
    return bounds.first


def _move(connection: Connection, claim: Claim, to_offset: int, lease_s: float) -> None:
    moved = connection.execute(
        sa.update(log_partition)
        .where(*_held_by(claim), log_partition.c.next_offset == claim.next_offset)
        .values(next_offset=to_offset, lease_until=_in(lease_s))
    )
    if moved.rowcount != 1:
        raise FencedOff(partition=claim.partition, epoch=claim.epoch, expected=claim.next_offset)


def _held_by(claim: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    return (log_partition.c.partition == claim.partition, log_partition.c.epoch == claim.epoch)


def _in(seconds: float) -> sa.ColumnElement[int]:
    return now_us() + round(seconds * 1_000_000)


# Files and commits


def announce(
    database: Database, name: str, partition: int, owner: str, epoch: int | None = None
) -> None:
    """Say that a file of this name is about to be written."""
    with database.write() as connection:
        intent = {"name": name, "partition": partition, "epoch": epoch, "owner": owner}
        connection.execute(sa.insert(segment_intent).values(**intent, created_at=now_us()))


def advance(
    database: Database, claim: Claim, change: Advance, *, log_id: str, lease_s: float
) -> Claim:
    """One transaction: the offset moves and everything up to it is stored. Raises FencedOff.

    After DatabaseUnreachable it may or may not have happened: claim the partition again and go
    on from where the database says it is."""
    with database.write() as connection:
        _move(connection, claim, change.to_offset, lease_s)
        if change.segment is not None:
            snap = next_snap(connection, INGEST)
            offsets = {"from_offset": claim.next_offset, "to_offset": change.to_offset}
            insert_segment(
                connection,
                change.segment,
                snap,
                kind=INGEST,
                partition=claim.partition,
                log_id=log_id,
                **offsets,
            )
            _insert_consents(connection, change.consents, snap)
            if not withdraw_intent(connection, change.segment.name):
                raise FencedOff(
                    partition=claim.partition, epoch=claim.epoch, expected=claim.next_offset
                )
        _add_to_ledger(connection, claim.partition, change.counts)
        if change.rejected:
            rows = [asdict(row) for row in change.rejected]
            connection.execute(sa.insert(rejected), rows)
    return Claim(claim.partition, claim.owner, claim.epoch, change.to_offset)


def next_snap(connection: Connection, kind: str) -> int:
    """Number this transaction; from here to its end no other commit can number itself."""
    latest = sa.case(
        (lake_head.c.committed_at > now_us(), lake_head.c.committed_at), else_=now_us()
    )  # the clock may jump back, time in the history does not
    head = connection.execute(
        sa.update(lake_head)
        .values(snap=lake_head.c.snap + 1, committed_at=latest)
        .returning(lake_head.c.snap, lake_head.c.committed_at)
    ).one()
    connection.execute(
        sa.insert(lake_commit).values(snap=head.snap, kind=kind, committed_at=head.committed_at)
    )
    return int(head.snap)


def insert_segment(
    connection: Connection, file: SegmentFile, snap: int, **origin: str | int
) -> None:
    connection.execute(sa.insert(segment).values(**asdict(file), added_snap=snap, **origin))


def withdraw_intent(connection: Connection, name: str) -> bool:
    """The file is a segment now. False when collection has claimed it: it may be gone."""
    mine = (segment_intent.c.name == name, segment_intent.c.claimed_at.is_(None))
    return connection.execute(sa.delete(segment_intent).where(*mine)).rowcount == 1


def _insert_consents(
    connection: Connection, consents: Mapping[tuple[str, str], str], snap: int
) -> None:
    if consents:
        rows = [
            {"tenant": tenant, "session_id": session, "consent": consent, "added_snap": snap}
            for (tenant, session), consent in consents.items()
        ]
        connection.execute(sa.insert(consent_change), rows)


def _add_to_ledger(
    connection: Connection, partition: int, counts: Mapping[LedgerKey, LedgerCounts]
) -> None:
    if not counts:
        return
    rows = [asdict(key) | asdict(counts[key]) for key in sorted(counts)]
    statement: Any = _insert_of(connection)(ledger).values(
        {name: bindparam(name) for name in rows[0]} | {"partition": partition}
    )
    columns = ("accepted", "stored", "duplicate", "rejected")
    statement = statement.on_conflict_do_update(
        index_elements=ledger.primary_key.columns,
        set_={name: ledger.c[name] + statement.excluded[name] for name in columns},
    )
    connection.execute(statement, rows)


def _insert_of(connection: Connection) -> Any:
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
