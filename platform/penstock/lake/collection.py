"""Deleting files that nobody needs: those that merges replaced, and those never committed.

A replaced file is deleted when no snapshot and no reader needs it and its grace is over; an
uncommitted file when its writer can never commit it. A file that only looks old stays.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam

from penstock.database.engine import now_us
from penstock.lake.catalog import claim_files, file_tables
from penstock.lake.commits import NO_PARTITION
from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import (
    lake_commit,
    lake_head,
    log_partition,
    reader_lease,
    segment_intent,
    snapshot,
)
from penstock.metrics import Metrics

_COLLECTOR = "collection"


@dataclass(frozen=True)
class CollectionReport:
    """What a round of collection did."""

    #: Replaced files, by folder.
    replaced: dict[str, int]
    uncommitted: int
    leases: int

    @property
    def segments(self) -> int:
        return self.replaced["events"]


def collect(lake: Lake, grace_s: float | None = None) -> CollectionReport:
    """Delete what nobody needs. A killed round is finished by the next."""
    grace_s = (
        lake.settings.room(LakeSettings).collection_grace_seconds if grace_s is None else grace_s
    )
    tables = file_tables()
    with lake.database.write() as connection:
        claim_files(connection, to_collect=True)
        leases = connection.execute(
            sa.delete(reader_lease).where(reader_lease.c.until < now_us())
        ).rowcount
        replaced = {
            folder: _give_up_replaced(connection, table, grace_s)
            for folder, table in tables.items()
        }
        uncommitted = _give_up_intents(connection, grace_s)
    _delete_given_up(lake, grace_s)
    return CollectionReport(replaced, uncommitted, leases)


def clean_up(lake: Lake, metrics: Metrics) -> str | None:
    """A round of upkeep."""
    report = collect(lake)
    deleted = sum(report.replaced.values()) + report.uncommitted
    metrics.add("files_collected_total", 2 * deleted)
    return f"deleted {deleted} files that nobody needs" if deleted else None


def _give_up_replaced(connection: Connection, table: sa.Table, grace_s: float) -> int:
    """Turn replaced files that nobody holds into claimed intents: files to be deleted."""
    replaced_at = sa.select(lake_commit.c.committed_at).where(
        lake_commit.c.snap == table.c.removed_snap
    )
    unneeded = connection.execute(
        sa.select(table.c.id, table.c.name, table.c.removed_snap).where(
            table.c.removed_snap.is_not(None),
            replaced_at.scalar_subquery() <= now_us() - round(grace_s * 1_000_000),
            ~_seen_from(table, snapshot.c.snap),
            ~_seen_from(table, reader_lease.c.snap),
        )
    ).all()
    if not unneeded:
        return 0
    newest = max(row.removed_snap for row in unneeded)
    connection.execute(
        sa.update(lake_head).where(lake_head.c.readable_from < newest).values(readable_from=newest)
    )
    gone = sa.delete(table).where(table.c.id == bindparam("gone"))
    connection.execute(gone, [{"gone": row.id} for row in unneeded])
    intents = [
        {"name": row.name, "partition": NO_PARTITION, "owner": _COLLECTOR} for row in unneeded
    ]
    claimed = {"created_at": now_us(), "claimed_at": now_us()}
    connection.execute(sa.insert(segment_intent).values(**claimed), intents)
    return len(unneeded)


def _seen_from(table: sa.Table, snap: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(snap).where(table.c.added_snap <= snap, table.c.removed_snap > snap))


def _give_up_intents(connection: Connection, grace_s: float) -> int:
    """Claim intents whose owner cannot commit any more, or, for a merge, is surely gone."""
    epoch = (
        sa.select(log_partition.c.epoch)
        .where(log_partition.c.partition == segment_intent.c.partition)
        .scalar_subquery()
    )
    old = segment_intent.c.created_at <= now_us() - round(grace_s * 1_000_000)
    hopeless = (segment_intent.c.epoch < epoch) | (segment_intent.c.epoch.is_(None) & old)
    return connection.execute(
        sa.update(segment_intent)
        .where(segment_intent.c.claimed_at.is_(None), hopeless)
        .values(claimed_at=now_us())
    ).rowcount


def _delete_given_up(lake: Lake, grace_s: float) -> None:
    """Delete the files at once, and again when grace is over: their owner may have been at it."""
    over = segment_intent.c.claimed_at <= now_us() - round(grace_s * 1_000_000)
    with lake.database.read() as connection:
        claimed = connection.execute(
            sa.select(segment_intent.c.name, over.label("over")).where(
                segment_intent.c.claimed_at.is_not(None)
            )
        ).all()
    for row in claimed:
        lake.store.delete(row.name)
        lake.store.delete(sessions_name(row.name))
    if done := [{"done": row.name} for row in claimed if row.over]:
        with lake.database.write() as connection:
            gone = sa.delete(segment_intent).where(segment_intent.c.name == bindparam("done"))
            connection.execute(gone, done)
