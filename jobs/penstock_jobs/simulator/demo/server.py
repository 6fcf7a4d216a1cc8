"""A server process for the demo, tests and measurements."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient

_START_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.02


@dataclass
class Server:
    """A running `penstock serve`. `key` is the admin key that a lake's first start created."""

    url: str
    key: str | None
    process: subprocess.Popen[bytes]
    #: A link that signs one browser in to the console, once.
    sign_in: str | None = None

    def client(self, key: str | None = None) -> ServiceClient:
        return ServiceClient(self.url, key or self.key)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.read()  # until the processes below it have ended, too

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def start_server(
    data: Path,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    port: int = 0,
    log: IO[bytes] | None = None,
) -> Server:
    """Start a server and wait until it answers. `settings` are variables of its environment."""
    command = [sys.executable, "-m", "penstock", "serve", "--json", "--data", str(data)]
    process = subprocess.Popen(
        [*command, "--port", str(port), *arguments],
        stdout=subprocess.PIPE,
        stderr=log,
        env=os.environ | dict(settings or {}),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ServerUnreachable(url="the new server", why=f"it ended with {process.wait()}")
    greeting = json.loads(line)
    server = Server(greeting["url"], greeting["key"], process, greeting["sign_in"])
    client = ServiceClient(server.url)
    deadline = time.monotonic() + _START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if client.get("/healthz").status == 200:
                client.close()
                return server
        except ServerUnreachable:
            time.sleep(_POLL_SECONDS)
    server.kill()
    raise ServerUnreachable(url=server.url, why="it did not start")


@contextmanager
def running_server(data: Path, *arguments: str, **options: Any) -> Iterator[Server]:
    server = start_server(data, *arguments, **options)
    try:
        yield server
    finally:
        server.stop()
        assert server.process.stdout is not None
        server.process.stdout.close()
