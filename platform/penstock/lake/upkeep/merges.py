"""Merges of small files of the lake into larger ones: the choice of files, and the work.

A worker writes the merged file. The process that asked replaces the others by it in one
transaction. A file that is not committed has an intent, by which collection deletes it.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from math import floor, gcd, inf, log
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import insert_new, now_us
from penstock.backends.execution.executor import Executor, TaskFailed, WorkerLost
from penstock.core.settings import Settings
from penstock.lake import CompactionConflict, LakeDamaged, LakeSettings
from penstock.lake.buckets import read_changed
from penstock.lake.catalog import Segment, announce_files, current, withdraw_intents
from penstock.lake.commits import COMPACT, insert_segment, next_snap
from penstock.lake.lake import Lake
from penstock.lake.query.spill import SPILL_FOLDER
from penstock.lake.rows import ROW_GROUPS
from penstock.lake.segments import (
    SegmentFile,
    SegmentWriter,
    discard,
    new_name,
    sessions_name,
    write_summaries,
)
from penstock.lake.tables import segment, segment_intent
from penstock.lake.upkeep.sorted_merge import in_row_groups, merge_sorted
from penstock.lake.upkeep.verification import check_files

if TYPE_CHECKING:
    from penstock.core.metrics import Metrics

#: Files whose sizes differ by less are merged together, so that a row is rewritten a few times at
#: most.
TIER_FACTOR = 8
SEGMENTS_MAX = 64
#: The memory of a merge by that of rows read ahead: sorting has them three times, beside row
#: groups, summaries, decoders and encoders.
_MEMORY_TO_AHEAD = 16


class StoredFile(Protocol):
    @property
    def name(self) -> str: ...


File = TypeVar("File", bound=StoredFile)
Result = TypeVar("Result", bound=StoredFile)
#: Failures of one group. Other errors would occur for every group, and are raised.
MergeFailure = LakeDamaged | CompactionConflict | OSError | WorkerLost | TaskFailed


class Merger(msgspec.Struct, Generic[File, Result], frozen=True):
    """The functions that merge files of one kind. They stand at the top of a module."""

    #: Writes the merged file. Raises CompactionConflict, LakeDamaged, OSError.
    write: Callable[[Lake, Sequence[File]], Result]
    #: Replaces the files by the merged one. Raises CompactionConflict.
    replace: Callable[[Connection, Sequence[File], Result], None]


@dataclass(frozen=True)
class MergeTask(Generic[File, Result]):
    settings: Settings = field(repr=False)  # addresses may hold passwords
    merger: Merger[File, Result] = field(repr=False)
    group: tuple[File, ...]

    def __repr__(self) -> str:
        return f"merging {len(self.group)} files from {self.group[0].name} on"


# The policy


def choose_groups(
    files: Iterable[File],
    size: Callable[[File], int],
    target: int,
    files_min: int,
    *,
    files_max: float = inf,
    apart: Callable[[File], Hashable] = lambda _: None,
) -> list[list[File]]:
    """Group files of similar size, each group up to the target. Larger files are left alone, and
    files that differ in `apart` are never merged."""
    tiers: defaultdict[Hashable, list[File]] = defaultdict(list)
    for file in files:
        if size(file) < target / TIER_FACTOR:
            tiers[apart(file), floor(log(max(size(file), 1), TIER_FACTOR))].append(file)
    groups = []
    for tier in tiers.values():
        group: list[File] = []
        filled = 0
        for file in tier:
            if group and (filled + size(file) > target or len(group) == files_max):
                groups.append(group)
                group, filled = [], 0
            group.append(file)
            filled += size(file)
        groups.append(group)
    return [group for group in groups if len(group) >= files_min]


def choose_merges(
    segments: Sequence[Segment], segments_min: int, bytes_target: int
) -> list[list[Segment]]:
    return choose_groups(
        segments,
        attrgetter("bytes"),
        bytes_target,
        segments_min,
        files_max=SEGMENTS_MAX,
        apart=attrgetter("partition", "tenant"),
    )


# The runner


def compact(lake: Lake, metrics: "Metrics") -> str | None:
    live = current(lake.database).segments
    metrics.set("segments_live", len(live))
    limits = lake.settings.room(LakeSettings)
    groups = choose_merges(live, limits.compaction_segments_min, limits.compaction_bytes_target)
    if not groups:
        return None
    sizes = []
    for group in merge_each(lake, SEGMENTS, groups, lake.executor):
        sizes.append(len(group))
        metrics.add("segments_merged_total", sizes[-1])
    return f"merged {sum(sizes)} segments into {len(sizes)}" if sizes else None


def merge_each(
    lake: Lake,
    merger: Merger[File, Result],
    groups: Iterable[Sequence[File]],
    executor: Executor | None = None,
) -> Iterator[Sequence[File]]:
    """Merge groups without common files; yields each group that was replaced. Other groups are
    merged when one fails; the first failure is raised at the end."""
    failures: list[MergeFailure] = []
    with closing(_write_each(lake, merger, groups, executor)) as outcomes:
        for group, outcome in outcomes:
            if isinstance(outcome, MergeFailure):
                failures.append(outcome)
                continue
            try:
                swap(lake, merger, group, outcome)
            except CompactionConflict:
                continue
            yield group
    for failure in failures:
        if not isinstance(failure, CompactionConflict):
            raise failure


def _write_each(
    lake: Lake,
    merger: Merger[File, Result],
    groups: Iterable[Sequence[File]],
    executor: Executor | None,
) -> Generator[tuple[Sequence[File], Result | MergeFailure]]:
    if executor is None:
        for group in groups:
            yield group, _try_to_write(lake, merger, group)
        return
    tasks = (MergeTask(lake.settings, merger, tuple(group)) for group in groups)
    while True:
        try:
            for done in executor.run(write_on_worker, tasks):
                yield done.task.group, done.result
        except (WorkerLost, TaskFailed) as error:  # it ends the run: the next takes what is left
            yield (), error
        else:
            return


def write_on_worker(task: MergeTask[File, Result]) -> Result | MergeFailure:
    with Lake(task.settings) as lake:
        return _try_to_write(lake, task.merger, task.group)


def _try_to_write(
    lake: Lake, merger: Merger[File, Result], group: Sequence[File]
) -> Result | MergeFailure:
    try:
        return merger.write(lake, group)
    except (LakeDamaged, CompactionConflict, OSError) as error:  # the other groups may be sound
        return error


def swap(lake: Lake, merger: Merger[File, Result], group: Sequence[File], merged: Result) -> None:
    try:
        with lake.database.write() as connection:
            merger.replace(connection, group, merged)
    except CompactionConflict:
        discard(lake.store, merged.name)
        raise


# Segments


def merge(lake: Lake, segments: Sequence[Segment]) -> SegmentFile:
    """Replace live segments of one partition and tenant by one. Raises CompactionConflict if
    another merge was faster, LakeDamaged."""
    merged = write_merged(lake, segments)
    swap(lake, SEGMENTS, segments, merged)
    return merged


def write_merged(lake: Lake, segments: Sequence[Segment]) -> SegmentFile:
    """Write the segment that may replace live ones, with the same bytes on any machine. Raises
    CompactionConflict, LakeDamaged."""
    # The merged one has a checksum of its own: later nobody would find damage that is copied here.
    for stored in segments:
        with lake.database.read() as connection:
            live = (segment.c.id == stored.id) & segment.c.removed_snap.is_(None)
            row = connection.execute(sa.select(segment).where(live)).one_or_none()
        if row is None:
            raise CompactionConflict
        for finding in check_files(lake, row):
            raise LakeDamaged(path=finding.name, why=finding.problem)
    room = lake.settings.room(LakeSettings)
    rows = merge_sorted(
        lake.store,
        [stored.name for stored in segments],
        bytes_ahead=room.compaction_memory_bytes_max // _MEMORY_TO_AHEAD,
        directory=lake.settings.data / SPILL_FOLDER,
    )
    changed = read_changed(lake.store, segments)
    tenant, partition = segments[0].tenant, segments[0].partition
    name = new_name(tenant, partition, "merged")
    announce_files(lake.database, [name], partition, uuid.uuid4().hex)
    with SegmentWriter(lake.store, name, tenant, ROW_GROUPS, merged=True) as writer:
        for group in in_row_groups(rows, ROW_GROUPS):
            writer.write(group)
    merged = replace(writer.finished, **write_summaries(lake.store, name, changed))
    expected = sum(stored.rows for stored in segments)
    if merged.rows != expected:
        raise LakeDamaged(path=name, why=f"{merged.rows} rows were merged instead of {expected}")
    return merged


def summarise_new(lake: Lake, _metrics: "Metrics") -> str | None:
    """Put files of sessions beside the segments that came without one and were not merged."""
    new = [stored for stored in current(lake.database).segments if not stored.summarised]
    for stored in new:
        beside = sessions_name(stored.name)
        with lake.database.write() as connection:  # one that was left by a kill serves, too
            row = {"name": beside, "partition": stored.partition, "owner": uuid.uuid4().hex}
            insert_new(connection, segment_intent, {**row, "created_at": now_us()})
        with suppress(FileNotFoundError):  # it was rewritten meanwhile
            facts = write_summaries(lake.store, stored.name)
            with lake.database.write() as connection:
                these = sa.update(segment).where(segment.c.name == stored.name)
                mine = withdraw_intents(connection, [beside])  # else collection's, or another's
                if mine and connection.execute(these.values(**facts)).rowcount == 0:
                    lake.store.delete(beside)
    return f"summarised {len(new)} segments" if new else None


def replace_segments(
    connection: Connection, segments: Sequence[Segment], merged: SegmentFile | None
) -> None:
    snap = next_snap(connection, COMPACT)
    # By name: what was rewritten meanwhile is another file, whatever number its row has.
    these = segment.c.name.in_([stored.name for stored in segments])
    shapes = connection.scalars(sa.select(segment.c.log_partitions).where(these).distinct()).all()
    live = segment.c.removed_snap.is_(None)
    replaced = connection.execute(sa.update(segment).where(these, live).values(removed_snap=snap))
    if replaced.rowcount != len(segments):
        raise CompactionConflict
    if merged is None:
        return
    if not withdraw_intents(connection, [merged.name]):
        raise CompactionConflict
    insert_segment(
        connection,
        merged,
        snap,
        kind=COMPACT,
        partition=segments[0].partition,
        # A number of partitions by which all sessions belong to the partition of the segments.
        log_partitions=gcd(*shapes),
        changed_snap=max(stored.changed_snap for stored in segments),
    )


SEGMENTS = Merger(write_merged, replace_segments)
