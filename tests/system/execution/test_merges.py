"""A merge is the same wherever it is written, and it is committed once."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import sqlalchemy as sa

from penstock.backends.execution.calls import ProcessExecutor
from penstock.backends.execution.executor import Executor, TaskResult
from penstock.core.metrics import Metrics
from penstock.lake import LakeDamaged
from penstock.lake.catalog import Segment, current
from penstock.lake.lake import Lake
from penstock.lake.segments import SegmentFile
from penstock.lake.tables import segment, segment_intent
from penstock.lake.upkeep import merges as compaction
from penstock.lake.upkeep.merges import SEGMENTS, MergeTask, merge, merge_each, write_on_worker
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from penstock_jobs.simulator.demo.server import running_server
from tests.support.execution import merging
from tests.support.lakes import HandLake, files_of, hand_lake, make_event
from tests.support.waiting import eventually

EVENTS = 6 * 20


def fill(lake: HandLake) -> None:
    """Six segments in each of two partitions."""
    for number in range(6):
        lake.store([make_event(f"s{n}", number) for n in range(20)])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path / "data", log_partitions=2, compaction_segments_min=2) as lake:
        fill(lake)
        yield lake


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ProcessExecutor(workers=2) as executor:
        yield executor


class Instead:
    """An executor on which another function does what `write_on_worker` would."""

    def __init__(
        self, executor: Executor, function: Callable[[MergeTask[Segment, SegmentFile]], Any]
    ) -> None:
        self._executor = executor
        self._function = function

    def run(self, function: Any, tasks: Iterable[Any]) -> Iterator[TaskResult[Any, Any]]:
        assert function is write_on_worker
        return self._executor.run(self._function, tasks)

    def close(self) -> None:
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def groups(lake: HandLake) -> list[list[Segment]]:
    """One for each partition."""
    live = current(lake.lake.database).segments
    return [[one for one in live if one.partition == partition] for partition in range(2)]


def live_in(lake: HandLake) -> dict[int, int]:
    return {partition: len(group) for partition, group in enumerate(groups(lake))}


def intents(lake: HandLake) -> list[str]:
    with lake.lake.database.read() as connection:
        return list(connection.execute(sa.select(segment_intent.c.name)).scalars())


def is_whole(lake: HandLake) -> None:
    """With nothing left over once collection was there."""
    assert sum(lake.stored().values()) == len(lake.stored()) == EVENTS
    for _ in range(2):
        collect(lake.lake, grace_s=0)
    assert intents(lake) == []
    assert lake.files() == files_of(current(lake.lake.database).segments)
    with Lake(lake.lake.settings) as found:  # the log here may be a server's
        assert verify(found).findings == []


def digests(lake: HandLake) -> set[tuple[int, str, str]]:
    columns = (segment.c.partition, segment.c.sha256, segment.c.sessions_sha256)
    with lake.lake.database.read() as connection:
        rows = connection.execute(sa.select(*columns).where(segment.c.removed_snap.is_(None)))
        return {(row[0], row[1], row[2]) for row in rows}


def test_a_merge_writes_the_same_bytes_on_every_executor(
    lake: HandLake, tmp_path: Path, executor: Executor
) -> None:
    with hand_lake(tmp_path / "twin", log_partitions=2) as twin:
        fill(twin)
        for group in groups(twin):
            merge(twin.lake, group)
        merged = list(merge_each(lake.lake, SEGMENTS, groups(lake), executor))
        assert sorted(len(group) for group in merged) == [6, 6]
        assert digests(lake) == digests(twin)
        query = "select * from events order by all"
        assert lake.rows(query) == twin.rows(query)
    is_whole(lake)


def test_a_worker_that_is_killed_amid_a_merge_is_replaced_and_it_counts_once(
    lake: HandLake, executor: Executor
) -> None:
    dying = Instead(executor, merging.die_amid_the_first)
    merged = list(merge_each(lake.lake, SEGMENTS, groups(lake), dying))
    assert sorted(group[0].partition for group in merged) == [0, 1]
    assert live_in(lake) == {0: 1, 1: 1}
    assert len(merging.begun(lake.lake.settings.data, 0)) == 2
    [left] = intents(lake)  # what the killed one wrote
    assert left not in {one.name for one in current(lake.lake.database).segments}
    is_whole(lake)


def test_a_damaged_group_keeps_no_other_from_being_merged(
    lake: HandLake, executor: Executor
) -> None:
    first = groups(lake)[0][0]
    path = lake.lake.settings.data / "lake" / first.name
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(LakeDamaged, match=first.name):
        list(merge_each(lake.lake, SEGMENTS, groups(lake), executor))
    assert live_in(lake) == {0: 6, 1: 1}
    path.write_bytes(whole)
    is_whole(lake)


def test_a_merge_that_another_was_faster_than_changes_nothing(
    lake: HandLake, executor: Executor
) -> None:
    planned = groups(lake)

    class Late(Instead):
        """The other comes when the files are written."""

        def run(self, function: Any, tasks: Iterable[Any]) -> Iterator[TaskResult[Any, Any]]:
            done = list(super().run(function, tasks))
            merge(lake.lake, planned[0][:2])
            return iter(done)

    merged = list(merge_each(lake.lake, SEGMENTS, planned, Late(executor, write_on_worker)))
    assert [group[0].partition for group in merged] == [1]
    assert live_in(lake) == {0: 5, 1: 1}
    assert len(intents(lake)) == 1
    is_whole(lake)


# Upkeep


def test_upkeep_works_where_the_settings_say(lake: HandLake) -> None:
    assert lake.lake.executor is None  # inline: here, with what is open already
    limits = {"log_partitions": 2, "compaction_segments_min": 2, "executor": "processes"}
    with hand_lake(lake.lake.settings.data, **limits) as mine:
        assert compaction.compact(mine.lake, Metrics()) == "merged 12 segments into 2"
        assert isinstance(mine.lake.executor, ProcessExecutor)
        assert compaction.compact(mine.lake, Metrics()) is None
    is_whole(lake)


def test_a_server_merges_on_its_executor(lake: HandLake) -> None:
    """And ends well: the executor is opened on a thread of its own."""
    environment = {
        "PENSTOCK_UPKEEP_SECONDS": "0.1",
        "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
        "PENSTOCK_LOG_PARTITIONS": "2",
        "PENSTOCK_EXECUTOR": "processes",
    }
    lake.lake.log.close()
    with running_server(lake.lake.settings.data, settings=environment) as server:
        eventually(lambda: live_in(lake) == {0: 1, 1: 1}, 300)
    assert server.process.returncode == 0
    is_whole(lake)
