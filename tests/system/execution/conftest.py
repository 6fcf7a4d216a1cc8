import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.execution import Executor
from penstock.execution.calls import InlineExecutor
from penstock.execution.processes import ProcessExecutor
from penstock.execution.ray import RayExecutor
from tests.support.servers.ray_cluster import RayCluster

OpenExecutor = Callable[[], Executor]

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


@pytest.fixture(scope="module", params=["inline", "processes", "ray"])
def open_one(request: pytest.FixtureRequest) -> OpenExecutor:
    limits = {"attempts_max": 3}
    if request.param == "inline":
        return InlineExecutor
    if request.param == "processes":
        return lambda: ProcessExecutor(workers=2, **limits)
    address = request.getfixturevalue("connected_ray")
    return lambda: RayExecutor(address, inflight_max=4, task_memory_bytes=0, **limits)


@pytest.fixture
def executor(open_one: OpenExecutor) -> Iterator[Executor]:
    with open_one() as executor:
        yield executor
