"""A merge is the same wherever it is written, and it is committed once."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from penstock.execution import Executor, TaskResult, WorkerLost
from penstock.execution.processes import ProcessExecutor
from penstock.lake import merges as compaction
from penstock.lake.catalog import Segment, current
from penstock.lake.errors import LakeDamaged
from penstock.lake.merges import SEGMENTS, MergeTask, merge, merge_each, write_on_worker
from penstock.lake.segments import SegmentFile
from penstock.lake.tables import segment, segment_intent
from penstock.lake.upkeep import collect
from penstock.lake.verification import verify
from penstock.metrics import Metrics
from penstock_jobs.demo.server import running_server
from tests.support.execution import merging
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.servers.ports import free_port
from tests.support.servers.ray_cluster import RayCluster
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


@pytest.fixture(params=["processes", "ray"])
def far_executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """One whose workers can die."""
    if request.param == "processes":
        opened: Executor = ProcessExecutor(workers=2, attempts_max=3)
    else:
        from penstock.execution.ray import RayExecutor

        address = request.getfixturevalue("connected_ray")
        opened = RayExecutor(address, attempts_max=3, inflight_max=4, task_memory_bytes=0)
    with opened as executor:
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
    assert len(lake.files()) == 2 * len(current(lake.lake.database).segments)
    assert verify(lake.lake).findings == []


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
    lake: HandLake, far_executor: Executor
) -> None:
    dying = Instead(far_executor, merging.die_amid_the_first)
    merged = list(merge_each(lake.lake, SEGMENTS, groups(lake), dying))
    assert sorted(group[0].partition for group in merged) == [0, 1]
    assert live_in(lake) == {0: 1, 1: 1}
    assert len(merging.begun(lake.lake.settings.data, 0)) == 2
    [left] = intents(lake)  # what the killed one wrote
    assert left not in {one.name for one in current(lake.lake.database).segments}
    is_whole(lake)


def test_a_group_that_kills_each_of_its_workers_keeps_no_other_from_being_merged(
    lake: HandLake, far_executor: Executor
) -> None:
    dying = Instead(far_executor, merging.die_amid_each)
    with pytest.raises(WorkerLost, match="merging 6 files from events/t-default/p-0000"):
        list(merge_each(lake.lake, SEGMENTS, groups(lake), dying))
    assert live_in(lake) == {0: 6, 1: 1}
    assert len(merging.begun(lake.lake.settings.data, 0)) == 3
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


def test_segments_that_are_gone_before_a_worker_looks_are_left_out(
    lake: HandLake, executor: Executor
) -> None:
    planned = groups(lake)
    merge(lake.lake, planned[0][:2])
    merged = list(merge_each(lake.lake, SEGMENTS, planned, executor))
    assert [group[0].partition for group in merged] == [1]
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


def compact(data: Path, executor: str, segments_min: int) -> subprocess.CompletedProcess[str]:
    """As a person asks for it: a process of its own, with a connection of its own."""
    settings = {
        "PENSTOCK_EXECUTOR": executor,
        "PENSTOCK_COMPACTION_SEGMENTS_MIN": str(segments_min),
        "PENSTOCK_LOG_PARTITIONS": "2",
    }
    return subprocess.run(
        [sys.executable, "-m", "penstock", "lake", "compact", "--data", str(data)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_cluster_is_asked_for_when_there_is_something_to_merge(lake: HandLake) -> None:
    pytest.importorskip("ray")
    lake.lake.log.close()
    address = f"ray://127.0.0.1:{free_port()}"
    done = compact(lake.lake.settings.data, address, 7)
    assert (done.returncode, done.stderr) == (0, "nothing is worth a merge\n")
    done = compact(lake.lake.settings.data, address, 2)
    assert done.returncode == 3
    assert f"The executor {address} cannot be reached" in done.stderr
    assert live_in(lake) == {0: 6, 1: 6}


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_a_server_merges_on_its_executor(
    lake: HandLake, kind: str, request: pytest.FixtureRequest
) -> None:
    """And ends well: the executor is opened on a thread of its own."""
    environment = {
        "PENSTOCK_UPKEEP_SECONDS": "0.1",
        "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
        "PENSTOCK_LOG_PARTITIONS": "2",
        "PENSTOCK_EXECUTOR": kind,
        "PENSTOCK_EXECUTOR_TASK_MEMORY_BYTES": "0",
    }
    if kind == "ray":
        cluster: RayCluster = request.getfixturevalue("ray_cluster")
        environment |= {"PENSTOCK_EXECUTOR": f"ray://{cluster.address}", **cluster.environment()}
    lake.lake.log.close()
    with running_server(lake.lake.settings.data, settings=environment) as server:
        eventually(lambda: live_in(lake) == {0: 1, 1: 1}, 300)
    assert server.process.returncode == 0
    is_whole(lake)


def test_an_end_of_more_than_three_seconds_is_not_aborted_on_ray(
    lake: HandLake, ray_cluster: RayCluster
) -> None:
    """Ray's handler of SIGTERM sets an alarm that would abort the server."""
    environment = {
        "PENSTOCK_UPKEEP_SECONDS": "0.05",
        "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
        "PENSTOCK_LOG_PARTITIONS": "2",
        "PENSTOCK_SHUTDOWN_SECONDS_MAX": "4",
        "PENSTOCK_EXECUTOR": f"ray://{ray_cluster.address}",
        "PENSTOCK_EXECUTOR_TASK_MEMORY_BYTES": "0",
        **ray_cluster.environment(),
    }
    lake.lake.log.close()
    with running_server(lake.lake.settings.data, settings=environment) as server:
        eventually(lambda: live_in(lake) == {0: 1, 1: 1}, 300)
        address = urlsplit(server.url)
        with socket.create_connection((str(address.hostname), address.port or 0)) as slow:
            # A request whose body never comes is waited for as long as the settings say.
            head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n"
            slow.sendall(f"{head}Content-Length: 9\r\nExpect: 100-continue\r\n\r\n".encode())
            assert b"100 Continue" in slow.recv(1000)
            server.process.terminate()
            assert server.process.wait(300) == 0
    is_whole(lake)
