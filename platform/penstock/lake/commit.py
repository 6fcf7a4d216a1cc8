"""The commit protocol: how a segment and the offsets that it covers become true together.

A commit moves a partition's offset on and stores what lies between, or does nothing; see
`lake.partitions` for who may. Before each file an intent is written: a file that neither a
segment nor an intent names was not made here.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam

from penstock.database.engine import Database, insert_of, now_us
from penstock.database.leases import repeating
from penstock.lake.errors import FencedOff
from penstock.lake.partitions import PartitionClaim, check_shape, move_offset
from penstock.lake.segments import SegmentFile
from penstock.lake.tables import (
    consent_change,
    lake_commit,
    lake_head,
    ledger,
    rejected,
    segment,
    segment_intent,
)

INGEST, COMPACT, SHARD = "ingest", "compact", "shard"
#: In the intent of a file that belongs to no partition.
NO_PARTITION = -1


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
class PartitionAdvance:
    """All that one flush changes: the offset, and what lies between the old and the new one."""

    to_offset: int
    segment: SegmentFile | None
    counts: Mapping[LedgerKey, LedgerCounts]
    rejected: Sequence[RejectedRow]
    #: (tenant, session) → consent, where rows stored earlier say less.
    consents: Mapping[tuple[str, str], str]


def announce_file(
    database: Database, name: str, partition: int, owner: str, epoch: int | None = None
) -> None:
    """Say that a file of this name is about to be written."""
    with database.write() as connection:
        intent = {"name": name, "partition": partition, "epoch": epoch, "owner": owner}
        connection.execute(sa.insert(segment_intent).values(**intent, created_at=now_us()))


def intents_kept(database: Database, owner: str, grace_s: float) -> AbstractContextManager[None]:
    """Collection takes none of the owner's intents for those of one that is gone, however long
    the block takes. What is left of them afterwards, it does."""
    mine = sa.update(segment_intent).where(segment_intent.c.owner == owner)

    def renew() -> None:
        with database.write() as connection:
            connection.execute(mine.values(created_at=now_us()))

    return repeating(renew, max(grace_s / 3, 0.1), "intents")


def advance(
    database: Database, claim: PartitionClaim, change: PartitionAdvance, *, lease_s: float
) -> PartitionClaim:
    """One transaction: the offset moves and everything up to it is stored. Raises FencedOff,
    LogGrew.

    After DatabaseUnreachable it may or may not have happened: claim the partition again and go
    on from where the database says it is."""
    with database.write() as connection:
        move_offset(connection, claim, change.to_offset, lease_s)
        _add_to_ledger(connection, claim.partition, change.counts)
        if change.rejected:
            rows = [asdict(row) for row in change.rejected]
            connection.execute(sa.insert(rejected), rows)
        if change.segment is not None:
            if not withdraw_intent(connection, change.segment.name):
                raise FencedOff(
                    partition=claim.partition, epoch=claim.epoch, expected=claim.next_offset
                )
            # From here on all others that commit wait: it comes last.
            snap = next_snap(connection, INGEST)
            check_shape(connection, claim.log)
            insert_segment(
                connection,
                change.segment,
                snap,
                kind=INGEST,
                partition=claim.partition,
                log_id=claim.log.log_id,
                log_partitions=claim.log.partitions,
                from_offset=claim.next_offset,
                to_offset=change.to_offset,
            )
            _insert_consents(connection, change.consents, snap)
    return replace(claim, next_offset=change.to_offset)


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
    connection: Connection, file: SegmentFile, snap: int, **origin: str | int | None
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
    statement: Any = insert_of(connection)(ledger).values(
        {name: bindparam(name) for name in rows[0]} | {"partition": partition}
    )
    columns = ("accepted", "stored", "duplicate", "rejected")
    statement = statement.on_conflict_do_update(
        index_elements=ledger.primary_key.columns,
        set_={name: ledger.c[name] + statement.excluded[name] for name in columns},
    )
    connection.execute(statement, rows)
