"""A real Ray cluster of two nodes on loopback."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from tests.support.servers.child import start_child
from tests.support.servers.jars import skip
from tests.support.servers.ports import free_port

_HOST = "127.0.0.1"
_START_SECONDS_MAX = 300.0
_END_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.05
# On loopback a node listens on loopback alone, but Ray takes the machine's address instead.
_START = """
import ray._private.services as services
services.resolve_ip_for_localhost = lambda host: host
from ray.scripts.scripts import main
main()
"""
_NODE = [
    *("env", "RAY_USAGE_STATS_ENABLED=0", "RAY_health_check_period_ms=500"),
    *(sys.executable, "-c", _START, "start", "--block"),
    *("--num-cpus=1", "--object-store-memory=80000000", f"--node-ip-address={_HOST}"),
]


class RayCluster:
    """The head is on the node that tests connect to; the second may be killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.address = f"{_HOST}:{self._port}"
        self._head = self._start(
            "head",
            *("--head", f"--port={self._port}"),
            *("--include-dashboard=false", f"--temp-dir={directory / 'ray'}"),
        )
        self._wait_for_head()
        self._second = self._start_second()

    def __getstate__(self) -> dict[str, object]:
        """For another process, which cannot stop it."""
        return vars(self) | {"_head": None, "_second": None}

    def environment(self) -> dict[str, str]:
        """What lets a driver in another process find it on loopback."""
        return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

    def kill_second(self) -> None:
        """As when its machine is gone: with all workers on it."""
        self._second.kill()
        self._second.wait()

    def restart_second(self) -> None:
        self.kill_second()
        self._second = self._start_second()

    def close(self) -> None:
        """Nodes that are asked to end take their helpers along."""
        for process in (self._second, self._head):
            process.terminate()
            try:
                process.wait(_END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        return start_child([*_NODE, *options], log=self._directory / f"{name}.log")

    def _start_second(self) -> subprocess.Popen[bytes]:
        return self._start("second", f"--address={self.address}")

    def _wait_for_head(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                socket.create_connection((_HOST, self._port), timeout=1).close()
            except OSError:
                if self._head.poll() is not None or time.monotonic() > deadline:
                    log = (self._directory / "head.log").read_text(errors="replace")
                    raise AssertionError(f"Ray did not start: {log[-2000:]}") from None
                time.sleep(_LOOK_SECONDS)
            else:
                return


@contextmanager
def running_ray() -> Iterator[RayCluster]:
    """A cluster that ends with the block; skips the test where there is no Ray. Its directory has
    a short name: sockets lie in it."""
    if find_spec("ray") is None:
        skip("Ray is not installed")
    directory = Path(mkdtemp(prefix="ray-"))
    cluster = RayCluster(directory)
    try:
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)
