"""What holds on Ray too: the contract of executors, a node that dies, commands and servers."""

import inspect
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.backends.execution.ray import RayExecutor
from penstock.lake.buckets import run_over_buckets
from penstock.lake.catalog import current
from penstock_jobs.simulator.demo.server import running_server
from tests.room.execution import test_behaviour as contract
from tests.room.execution import test_jobs as jobs
from tests.room.execution import test_opening as opening
from tests.support.execution.bucket_functions import count_when_told
from tests.support.lakes import HandLake
from tests.support.servers.ray_cluster import RayCluster
from tests.support.waiting import eventually
from tests.system.execution import test_merges as merges

lake, sessions, data = merges.lake, jobs.lake, opening.data
_JOIN_SECONDS_MAX = 300.0


@pytest.fixture(scope="session")
def connected_ray(ray_cluster: RayCluster) -> Iterator[str]:
    """The cluster, with a connection that executors share: one of its own costs each seconds."""
    import ray
    from ray._private import services

    limits: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    with pytest.MonkeyPatch.context() as patch:
        as_it_is: Callable[[str], str] = lambda host: host  # noqa: E731
        patch.setattr(services, "resolve_ip_for_localhost", as_it_is)
        ray.init(ray_cluster.address, namespace="tests", **limits)
        wait_for_nodes(2)
        yield ray_cluster.address
        ray.shutdown()


def wait_for_nodes(number: int) -> None:
    deadline = time.monotonic() + _JOIN_SECONDS_MAX
    while len(living_nodes()) != number:
        assert time.monotonic() < deadline, "the cluster does not have the nodes that it should"
        time.sleep(0.05)


def living_nodes() -> set[str]:
    import ray

    nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
    return {one["NodeID"] for one in nodes() if one["Alive"]}


@pytest.fixture
def on_ray(connected_ray: str) -> Iterator[RayExecutor]:
    with RayExecutor(connected_ray, 0) as executor:
        yield executor


@pytest.mark.parametrize(
    "test",
    [
        contract.test_each_task_comes_back_once_with_its_result,
        contract.test_an_error_of_our_family_comes_as_it_was_raised,
        contract.test_tasks_of_lost_workers_are_done_again,
        contract.test_a_task_that_takes_its_workers_along_is_given_up,
        contract.test_runs_that_are_left_while_their_tasks_end,
    ],
)
def test_the_contract(test: Callable[..., None], on_ray: RayExecutor, tmp_path: Path) -> None:
    given = {"executor": on_ray, "losing": on_ray, "tmp_path": tmp_path}
    test(**{name: given[name] for name in inspect.signature(test).parameters})


def test_a_node_that_dies_costs_time_and_nothing_else(
    sessions: HandLake, tmp_path: Path, on_ray: RayExecutor, ray_cluster: RayCluster
) -> None:
    """It dies while both nodes are at work on a bucket, and no result of it comes through."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill_when_both_are_at_work() -> None:
        while len(at_work := [mark.name.split("-") for mark in marks.iterdir()]) < 2:
            time.sleep(0.01)
        ray_cluster.kill_second()
        wait_for_nodes(1)
        lost = [int(process) for node, _, process in at_work if node not in living_nodes()]
        while any(is_alive(process) for process in lost):
            time.sleep(0.01)
        (tmp_path / "go").touch()

    wait_for_nodes(2)
    killer = threading.Thread(target=kill_when_both_are_at_work, daemon=True)
    killer.start()
    pin = current(sessions.lake.database)
    try:
        results = run_over_buckets(sessions.lake, on_ray, pin, count_when_told)
    finally:
        ray_cluster.restart_second()
    killer.join(300)
    assert jobs.joined(results) == jobs.EXPECTED
    assert len(list(marks.iterdir())) == len(results) + 1  # a bucket was begun again
    wait_for_nodes(2)


def is_alive(process: int) -> bool:
    """Also false for one that nobody has asked for its end yet."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except OSError:
        return False


def test_a_command_does_its_heavy_work_on_a_cluster(data: Path, ray_cluster: RayCluster) -> None:
    told = {"PENSTOCK_EXECUTOR": f"ray://{ray_cluster.address}", **ray_cluster.environment()}
    command = [sys.executable, "-m", "penstock", "lake", "verify", "--deep", "--data", str(data)]
    done = subprocess.run(
        command, env=os.environ | told, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("1 segments, 5 events, 0 reward files: 0 problems\n")


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
        eventually(lambda: merges.live_in(lake) == {0: 1, 1: 1}, 300)
        address = urlsplit(server.url)
        with socket.create_connection((str(address.hostname), address.port or 0)) as slow:
            # A request whose body never comes is waited for as long as the settings say.
            head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n"
            slow.sendall(f"{head}Content-Length: 9\r\nExpect: 100-continue\r\n\r\n".encode())
            assert b"100 Continue" in slow.recv(1000)
            server.process.terminate()
            assert server.process.wait(300) == 0
    merges.is_whole(lake)
