"""Endpoints of the lake itself: how far it covers the log, its size, and who does its upkeep."""

import msgspec
import sqlalchemy as sa

from penstock.backends.database.engine import clock_us
from penstock.backends.database.tables import lease
from penstock.backends.terminal.output import time_of
from penstock.core.clock import SECOND_US
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.lake.tables import lake_commit, lake_head, log_partition, segment


class PartitionAnswer(msgspec.Struct):
    """The part of a partition of the log that the lake covers, and its writer."""

    partition: int
    waiting_bytes: int
    next_offset: int
    writer: str | None
    lease_until: str | None


class SegmentTotals(msgspec.Struct):
    """The segments of the caller's tenant. `small` ones wait to be merged."""

    segments: int
    rows: int
    bytes: int
    small: int


class LeaseAnswer(msgspec.Struct):
    """A lease on work that one process does at a time."""

    name: str
    owner: str | None
    until: str


class LakeHealthAnswer(msgspec.Struct):
    snap: int
    committed_at: str
    partitions: list[PartitionAnswer]
    segments: SegmentTotals
    leases: list[LeaseAnswer]


class LakeHealthRequest(Request):
    pass


#: Segments below this size are small.
_SMALL_BYTES = 8 * 1024 * 1024
_LEASES_MAX = 100
#: Commits whose wait is measured.
_COMMITS_MAX = 2_000


def _health(lake: Lake, caller: Caller, _question: LakeHealthRequest) -> LakeHealthAnswer:
    own = sa.and_(segment.c.tenant == caller.tenant, segment.c.removed_snap.is_(None))
    totals = sa.select(
        sa.func.count(),
        sa.func.coalesce(sa.func.sum(segment.c.rows), 0),
        sa.func.coalesce(sa.func.sum(segment.c.bytes), 0),
        sa.func.coalesce(sa.func.sum(sa.case((segment.c.bytes < _SMALL_BYTES, 1), else_=0)), 0),
    ).where(own)
    with lake.database.read() as connection:
        now = clock_us(connection)
        head = connection.execute(sa.select(lake_head)).one()
        counts = connection.execute(totals).one()
        partitions = connection.execute(
            sa.select(log_partition)
            .where(log_partition.c.log_id == lake.log.id)
            .order_by(log_partition.c.partition)
        ).all()
        held = sa.select(lease).where(lease.c.until > now).order_by(lease.c.name)
        leases = connection.execute(held.limit(_LEASES_MAX)).all()
    return LakeHealthAnswer(
        snap=head.snap,
        committed_at=time_of(head.committed_at).isoformat(),
        partitions=[
            PartitionAnswer(
                partition=row.partition,
                waiting_bytes=lake.log.bytes_beyond(row.partition, row.next_offset),
                next_offset=row.next_offset,
                writer=row.owner if row.lease_until > now else None,
                lease_until=time_of(row.lease_until).isoformat() if row.lease_until > now else None,
            )
            for row in partitions
        ],
        segments=SegmentTotals(*map(int, counts)),
        leases=[LeaseAnswer(row.name, row.owner, time_of(row.until).isoformat()) for row in leases],
    )


SHOW_LAKE_HEALTH = Endpoint(
    "GET /v1/lake/health",
    _health,
    (),
    "Show how far the lake covers the log, and who does its upkeep",
)

ENDPOINTS: Endpoints = [SHOW_LAKE_HEALTH]


def seconds_until_stored(lake: Lake, since_us: int) -> list[float]:
    """Read how long the oldest event waited in each of the newest commits since then, of any
    process. The shortest wait is first."""
    newest = (
        sa.select(lake_commit.c.waited_us)
        .where(lake_commit.c.committed_at >= since_us, lake_commit.c.waited_us.is_not(None))
        .order_by(lake_commit.c.committed_at.desc())
        .limit(_COMMITS_MAX)
    )
    with lake.database.read() as connection:
        return sorted(waited / SECOND_US for waited in connection.execute(newest).scalars())
