"""A service that is killed and started again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_jobs.simulator.demo.server import start_server


class Servers:
    """One after another, at one address."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._server = start_server(data)
        self.url = self._server.url

    def kill_and_start(self) -> None:
        self._server.kill()
        self._close()
        self._server = start_server(self._data, port=int(self.url.rpartition(":")[2]))

    def stop(self) -> None:
        self._server.stop()
        self._close()

    def _close(self) -> None:
        assert self._server.process.stdout is not None
        self._server.process.stdout.close()


@contextmanager
def restarted(data: Path) -> Iterator[Servers]:
    servers = Servers(data)
    try:
        yield servers
    finally:
        servers.stop()
