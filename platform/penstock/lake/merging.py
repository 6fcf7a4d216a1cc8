"""Merging segments: many small ones become a large one, in session order, at one moment.

The large one is written wherever heavy work is done; the process that asks swaps it in, in one
transaction. A file that was written for nothing (its worker was lost, or another merge was
faster) has an intent, by which collection clears it away.
"""

import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.execution import Executor
from penstock.execution.errors import TaskFailed, WorkerLost
from penstock.lake.catalog import Segment
from penstock.lake.changes import read_changed
from penstock.lake.commit import COMPACT, announce, insert_segment, next_snap, withdraw_intent
from penstock.lake.errors import CompactionConflict, LakeDamaged
from penstock.lake.lake import Lake
from penstock.lake.rows import ROW_GROUP_BYTES_MAX, RowGroupLimits
from penstock.lake.segments import SegmentFile, SegmentWriter, discard, new_name
from penstock.lake.settings import LakeSettings
from penstock.lake.sorted_merge import Bounds, in_row_groups, merge_sorted
from penstock.lake.tables import segment
from penstock.lake.verification import check_segment
from penstock.settings import Settings

#: Of the memory of a merge this part is rows that are read ahead: they are there three times
#: when they are sorted, and there are row groups, summaries and what decodes and encodes them.
_MEMORY_TO_AHEAD = 16

Group = Sequence[Segment]
#: Why one group was not merged. What fails for all alike is not given back but raised.
Failure = LakeDamaged | CompactionConflict | OSError | WorkerLost | TaskFailed


@dataclass(frozen=True)
class MergeTask:
    """A group of segments as a worker gets it."""

    settings: Settings = field(repr=False)  # addresses may hold passwords
    group: tuple[Segment, ...]

    def __repr__(self) -> str:
        first, partition = self.group[0].name, self.group[0].partition
        return f"merging {len(self.group)} segments of partition {partition} from {first} on"


@dataclass(frozen=True)
class Merged:
    """A group that was replaced."""

    group: Group
    file: SegmentFile


def merge(lake: Lake, segments: Group) -> SegmentFile:
    """Replace these live segments of one partition by one. Readers that began before keep the
    old ones. Raises CompactionConflict when another merge was faster, LakeDamaged."""
    merged = write_merged(lake, segments)
    swap(lake, segments, merged)
    return merged


def merge_each(
    lake: Lake, groups: Iterable[Group], executor: Executor | None = None
) -> Iterator[Merged]:
    """Merge groups that have no segment in common: here one after another, on an executor as it
    has room. Groups of which another merge was faster are left out. One that fails keeps no
    other from being merged: the first failure is raised at the end."""
    failures: list[Failure] = []
    with closing(_write_each(lake, groups, executor)) as outcomes:
        for group, outcome in outcomes:
            if not isinstance(outcome, SegmentFile):
                failures.append(outcome)
                continue
            try:
                swap(lake, group, outcome)
            except CompactionConflict:
                continue
            yield Merged(group, outcome)
    for failure in failures:
        if not isinstance(failure, CompactionConflict):
            raise failure


def _write_each(
    lake: Lake, groups: Iterable[Group], executor: Executor | None
) -> Generator[tuple[Group, SegmentFile | Failure]]:
    if executor is None:
        for group in groups:
            yield group, _try_to_write(lake, group)
        return
    tasks = (MergeTask(lake.settings, tuple(group)) for group in groups)
    while True:
        try:
            for done in executor.run(write_on_worker, tasks):
                yield done.task.group, done.result
        except (WorkerLost, TaskFailed) as error:  # it ends the run: the next takes what is left
            yield (), error
        else:
            return


def write_on_worker(task: MergeTask) -> SegmentFile | Failure:
    """On a worker. Where it runs again, it writes another file."""
    with Lake(task.settings) as lake:
        return _try_to_write(lake, task.group)


def _try_to_write(lake: Lake, group: Group) -> SegmentFile | Failure:
    try:
        return write_merged(lake, group)
    except (LakeDamaged, CompactionConflict, OSError) as error:  # of this group, for all we know
        return error


def write_merged(lake: Lake, segments: Group) -> SegmentFile:
    """The file that may replace these live segments: the same bytes wherever it is written.
    Raises CompactionConflict, LakeDamaged."""
    settings = lake.settings
    _check_inputs(lake, segments)
    partition = segments[0].partition
    name = new_name(partition, "merged")
    announce(lake.database, name, partition, owner=uuid.uuid4().hex)
    limits = RowGroupLimits(settings.room(LakeSettings).row_group_rows_max, ROW_GROUP_BYTES_MAX)
    ahead = settings.room(LakeSettings).compaction_memory_bytes_max // _MEMORY_TO_AHEAD
    rows = merge_sorted(
        lake.store, [one.name for one in segments], Bounds(ahead, Path(settings.data) / "tmp")
    )
    changed = read_changed(lake.store, segments)
    with SegmentWriter(lake.store, name, limits, lake.summariser, changed=changed) as writer:
        for group in in_row_groups(rows, limits):
            writer.write(group)
    merged = writer.finished
    expected = sum(one.rows for one in segments)
    if merged.rows != expected:
        raise LakeDamaged(path=name, why=f"{expected} rows were to be merged, {merged.rows} were")
    return merged


def _check_inputs(lake: Lake, segments: Group) -> None:
    """A merged segment gets a checksum of its own: damage that went through here could never be
    found again."""
    for one in segments:
        with lake.database.read() as connection:
            live = (segment.c.id == one.id) & segment.c.removed_snap.is_(None)
            row = connection.execute(sa.select(segment).where(live)).one_or_none()
        if row is None:
            raise CompactionConflict
        for finding in check_segment(lake, row):
            raise LakeDamaged(path=finding.name, why=finding.problem)


def swap(lake: Lake, segments: Group, merged: SegmentFile) -> None:
    """Put the merged segment in the place of the others. Raises CompactionConflict."""
    try:
        _swap(lake, segments, merged)
    except CompactionConflict:
        discard(lake.store, merged.name)
        raise


def _swap(lake: Lake, segments: Group, merged: SegmentFile) -> None:
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
            connection,
            merged,
            snap,
            kind=COMPACT,
            partition=segments[0].partition,
            log_partitions=shape,
            changed_snap=max(one.changed_at for one in segments),
        )


def _common_shape(connection: Connection, segments: Group) -> int | None:
    """A number of partitions by which all their sessions are in the partition of the segments."""
    query = sa.select(segment.c.log_partitions).where(segment.c.id.in_([s.id for s in segments]))
    shapes = connection.execute(query.distinct()).scalars().all()
    return None if None in shapes else gcd(*(shape for shape in shapes if shape is not None))
