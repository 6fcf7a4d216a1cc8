"""How much the lake holds."""

from dataclasses import dataclass

import sqlalchemy as sa

from penstock.lake.lake import Lake
from penstock.lake.tables import lake_head, segment, segment_intent, snapshot


@dataclass(frozen=True)
class Statistics:
    snap: int
    segments: int
    events: int
    bytes: int
    bytes_per_event: float
    #: Replaced segments that are kept for snapshots, readers or grace.
    segments_kept: int
    intents: int
    snapshots: int


def read_statistics(lake: Lake) -> Statistics:
    live = segment.c.removed_snap.is_(None)
    size = sa.func.coalesce(sa.func.sum(segment.c.bytes + segment.c.sessions_bytes), 0)
    rows = sa.func.coalesce(sa.func.sum(segment.c.rows), 0)
    with lake.database.read() as connection:

        def count(table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
            query = sa.select(sa.func.count()).select_from(table).where(*where)
            return int(connection.execute(query).scalar_one())

        found = connection.execute(
            sa.select(rows.label("rows"), size.label("bytes")).where(live)
        ).one()
        return Statistics(
            snap=connection.execute(sa.select(lake_head.c.snap)).scalar_one(),
            segments=count(segment, live),
            events=found.rows,
            bytes=found.bytes,
            bytes_per_event=round(found.bytes / found.rows, 1) if found.rows else 0.0,
            segments_kept=count(segment, ~live),
            intents=count(segment_intent),
            snapshots=count(snapshot),
        )
