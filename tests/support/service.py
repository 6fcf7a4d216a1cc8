"""A running service, as its clients see it."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.backends.http.client import HttpAnswer, ServiceClient
from penstock.core.settings import MIB
from penstock_jobs.simulator.demo.server import Server
from tests.support.servers.parts import pids_of

_WAIT_SECONDS_MAX = 180.0
#: What the query engine takes in the service, once its writer first makes a segment.
ENGINE_BYTES = 64 * MIB


@dataclass
class Service:
    """A running server, and what tests need around it."""

    server: Server
    data: Path
    #: The key of each role of the tenant `acme`, and the admin key of `bolt` as "bolt".
    keys: dict[str, str]

    def client(self, key: str = "admin") -> ServiceClient:
        return self.server.client(self.keys.get(key, key))

    def post(self, path: str, body: bytes, key: str = "admin", **headers: str) -> HttpAnswer:
        client = self.client(key)
        try:
            return client.post(path, body, **headers)
        finally:
            client.close()

    def get(self, path: str) -> HttpAnswer:
        client = ServiceClient(self.server.url)
        try:
            return client.get(path)
        finally:
            client.close()

    def query(self, sql: str, key: str = "admin") -> list[dict[str, Any]]:
        reply = self.post("/v1/query", json.dumps({"sql": sql}).encode(), key)
        assert reply.status == 200, reply.body
        rows: list[dict[str, Any]] = reply.json()["rows"]
        return rows

    def metric(self, name: str) -> float:
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(f"penstock_{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while not what():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    @contextmanager
    def dial(self, head: str, key: str = "admin") -> Iterator[socket.socket]:
        """A bare connection on which a request to send events has begun."""
        host, port = self.server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            lines = ["POST /v1/events HTTP/1.1", f"Host: {host}", *head.splitlines()]
            lines.append(f"Authorization: Bearer {self.keys[key]}")
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            yield connection

    def peak_bytes(self) -> int:
        """The most memory that the gateway ever had."""
        return self._memory("VmHWM")

    def resident_bytes(self) -> int:
        return self._memory("VmRSS")

    @property
    def gateway(self) -> int:
        return pids_of(self.server)["gateway"]

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.gateway}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith(name)]
        return int(line.split()[1]) * 1024


def answer(connection: socket.socket) -> HttpAnswer:
    """The next answer on a bare connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return HttpAnswer(response.status, headers=headers, body=response.read())


Starter = Callable[..., Any]
