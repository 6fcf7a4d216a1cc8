"""Merging segments: many small ones become a large one, in session order, at one moment."""

import uuid
from collections.abc import Iterator, Sequence
from importlib.resources import files
from math import gcd
from pathlib import Path

import duckdb
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.tables import segment
from penstock.errors import CompactionConflict, LakeDamaged
from penstock.lake.catalog import Segment
from penstock.lake.commit import COMPACT, announce, insert_segment, next_snap, withdraw_intent
from penstock.lake.lake import Lake
from penstock.lake.pinned_files import PinnedFiles
from penstock.lake.rows import EVENT_ROWS, RowGroupLimits
from penstock.lake.segments import SegmentFile, SegmentWriter, new_name
from penstock.lake.verification import check_segment

_MERGE = files("penstock.lake").joinpath("base", "merge.sql").read_text(encoding="utf-8")


def merge(lake: Lake, segments: Sequence[Segment]) -> SegmentFile:
    """Replace these live segments of one partition by one. Readers that began before keep the
    old ones. Raises CompactionConflict when another merge was faster, LakeDamaged."""
    settings = lake.settings
    _check_inputs(lake, segments)
    partition = segments[0].partition
    name = new_name(partition, "merged")
    announce(lake.database, name, partition, owner=uuid.uuid4().hex)
    groups = RowGroupLimits(settings.row_group_rows_max, settings.row_group_bytes_max)
    writer = SegmentWriter(lake.store, name, groups, lake.summariser, compacted=True)
    with writer:
        for rows in _sorted_rows(lake, segments):
            writer.write(rows)
    merged = writer.finished
    expected = sum(one.rows for one in segments)
    if merged.rows != expected:
        raise LakeDamaged(path=name, why=f"{expected} rows were to be merged, {merged.rows} were")
    _swap(lake, segments, merged, partition)
    return merged


def _check_inputs(lake: Lake, segments: Sequence[Segment]) -> None:
    """The query engine does not look at checksums, and a merged segment gets a new one: damage
    that went through here could never be found again."""
    for one in segments:
        with lake.database.read() as connection:
            live = (segment.c.id == one.id) & segment.c.removed_snap.is_(None)
            row = connection.execute(sa.select(segment).where(live)).one_or_none()
        if row is None:
            raise CompactionConflict
        for finding in check_segment(lake, row):
            raise LakeDamaged(path=finding.name, why=finding.problem)


def _sorted_rows(lake: Lake, segments: Sequence[Segment]) -> Iterator[pa.Table]:
    settings = lake.settings
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,  # upkeep stays out of the way of what people wait for
            "memory_limit": f"{settings.compaction_memory_bytes_max // 1024}KiB",
            "temp_directory": str(Path(settings.data) / "tmp"),
            "preserve_insertion_order": False,
        },
    )
    files = PinnedFiles(lake.store, lake.tails)
    with connection, files.telling():
        connection.execute("SET TimeZone = 'UTC'")
        paths = files.bind(connection, [one.name for one in segments])
        merged = connection.sql(_MERGE, params={"files": paths})
        for batch in merged.to_arrow_reader(settings.row_group_rows_max):
            yield pa.Table.from_batches([batch]).cast(EVENT_ROWS)


def _swap(lake: Lake, segments: Sequence[Segment], merged: SegmentFile, partition: int) -> None:
    with lake.database.write() as connection:
        snap = next_snap(connection, COMPACT)
        shape = _common_shape(connection, segments)
        replaced = connection.execute(
            sa.update(segment)
            .where(segment.c.id.in_([one.id for one in segments]), segment.c.removed_snap.is_(None))
            .values(removed_snap=snap)
        )
        if replaced.rowcount != len(segments) or not withdraw_intent(connection, merged.name):
            raise CompactionConflict
        insert_segment(
            connection, merged, snap, kind=COMPACT, partition=partition, log_partitions=shape
        )


def _common_shape(connection: Connection, segments: Sequence[Segment]) -> int | None:
    """A number of partitions by which all their sessions are in the partition of the segments."""
    query = sa.select(segment.c.log_partitions).where(segment.c.id.in_([s.id for s in segments]))
    shapes = connection.execute(query.distinct()).scalars().all()
    return None if None in shapes else gcd(*(shape for shape in shapes if shape is not None))
