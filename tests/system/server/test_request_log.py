"""What an operator reads of a running server: an id and a line of each request, all in one form."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.http.client import ServiceClient
from tests.support.servers.ports import free_port
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def service(start: Callable[..., Any]) -> Iterator[Any]:
    with start(request_log="none") as running:
        yield running


def test_an_id_that_comes_is_echoed_in_answers_and_problems(service: Any) -> None:
    with service.client() as client:
        answer = client.get("/v1/checkpoints", X_Request_Id="editor-7/4f")
        assert answer.headers["x-request-id"] == "editor-7/4f"
        refused = client.get("/v1/checkpoints/none", X_Request_Id="editor-7/50")
    assert refused.headers["x-request-id"] == refused.json()["request_id"] == "editor-7/50"


@pytest.mark.parametrize("sent", [None, "", "x" * 129, "a b", "é"])
def test_without_a_usable_id_one_is_made(service: Any, sent: str | None) -> None:
    with service.client("nobody's") as client:
        answer = client.get("/v1/channels", **({} if sent is None else {"X_Request_Id": sent}))
    made = answer.headers["x-request-id"]
    assert made not in (None, "", sent)
    assert len(made) == 16
    assert answer.json()["request_id"] == made


def test_answers_are_counted_by_route_and_status(service: Any) -> None:
    with service.client() as client:
        assert client.get("/v1/checkpoints/none").status == 404
        assert client.get("/nothing/here").status == 404
        lines = client.get("/metrics").body.decode().splitlines()
    counted = [line for line in lines if line.startswith("penstock_http_answers_total")]
    labels = ('{route="/v1/checkpoints/{name}",status="404"}', '{route="none",status="404"}')
    assert [any(label in line for line in counted) for label in labels] == [True, True]


@dataclass
class _Logged:
    """A server whose output is its log, as JSON."""

    url: str
    process: subprocess.Popen[bytes]
    file: Path

    def lines(self) -> list[dict[str, Any]]:
        """Fails when a line is not an object."""
        *whole, _ = self.file.read_bytes().split(b"\n")
        parsed = [json.loads(line) for line in whole]
        assert all({"event", "level", "timestamp"} <= line.keys() for line in parsed)
        return parsed

    def wait_for_line(self, **facts: object) -> dict[str, Any]:
        def matching() -> list[dict[str, Any]]:
            return [line for line in self.lines() if facts.items() <= line.items()]

        eventually(matching)
        return matching()[-1]


@contextmanager
def _logging_json(data: Path, **settings: str) -> Iterator[_Logged]:
    port = free_port()
    named = {"log_format": "json", "host": "127.0.0.1", "port": str(port)} | settings
    environment = {f"PENSTOCK_{name.upper()}": value for name, value in named.items()}
    file = data / "output"
    with file.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--data", str(data)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )
    try:
        yield _Logged(f"http://127.0.0.1:{port}", process, file)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_every_line_of_a_server_is_json_and_failures_carry_the_id(tmp_path: Path) -> None:
    with _logging_json(tmp_path) as server:
        server.wait_for_line(level="info", event="Penstock listens on "
                             f"{server.url}, with its data in {tmp_path}")  # fmt: skip
        key = (tmp_path / "first-admin-key").read_text().strip()
        with ServiceClient(server.url, key) as client:
            eventually(lambda: client.get("/readyz").status == 200)
            client.get("/v1/sessions?project=secret", X_Request_Id="seen-1")
            statement = json.dumps({"sql": "select 1/0 from nothing"}).encode()
            assert client.post("/v1/query", statement, X_Request_Id="seen-2").status == 400
        first = server.wait_for_line(event="request", request_id="seen-1")
        facts = ("method", "path", "status", "tenant", "address")
        assert [first[name] for name in facts] == [
            *("GET", "/v1/sessions", 200, "default", "127.0.0.1")
        ]
        assert first["key"] is not None
        assert first["bytes"] > 0
        assert server.wait_for_line(request_id="seen-2")["status"] == 400
        assert not [line for line in server.lines() if line.get("path") == "/readyz"]
    assert "Admin key: in" in (server.file).read_text()
    assert server.lines()


HALF = "Content-Length: 1000\r\n\r\n{"
ENDLESS = '{"sql": "select sum(a.range * b.range) from range(10000000) a, range(100000) b"}'
WHOLE = f"Content-Length: {len(ENDLESS)}\r\n\r\n{ENDLESS}"


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("/v1/events", HALF), ("/v1/traces", HALF), ("/v1/query", HALF), ("/v1/keys", HALF),
        ("/sign-in", HALF), ("/v1/query", WHOLE),
    ],
)  # fmt: skip
def test_a_client_that_hangs_up_is_no_fault_of_the_service(
    service: Any, path: str, rest: str
) -> None:
    host, port = service.server.url.removeprefix("http://").split(":")
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {service.keys['admin']}\r\n"
    with socket.create_connection((host, int(port))) as end:
        end.sendall(f"{head}{rest}".encode())
        if rest is WHOLE:
            service.wait_for(lambda: service.metric("queries_running") == 1)

    def counted() -> list[str]:
        lines = service.get("/metrics").body.decode().splitlines()
        return [line for line in lines if f'route="{path}"' in line]

    eventually(counted)
    assert [line for line in counted() if 'status="499"' in line]
    assert not [line for line in counted() if 'status="5' in line]


def test_a_start_that_fails_says_so_in_the_log(tmp_path: Path) -> None:
    with _logging_json(tmp_path, port="70000") as server:
        server.process.wait()
    [line] = server.lines()
    assert (line["level"], line["event"]) == ("error", "penstock serve ends")
    assert "Cannot listen on 127.0.0.1:70000" in line["why"]
    assert server.process.returncode == 3


def test_failures_alone_are_logged_where_that_is_asked_for(tmp_path: Path) -> None:
    with _logging_json(tmp_path, request_log="failures") as server:
        with ServiceClient(server.url) as client:
            eventually(lambda: _status(client) == 200)
            client.get("/openapi.json", X_Request_Id="fine")
            client.get("/v1/channels", X_Request_Id="refused")
        assert server.wait_for_line(event="request", request_id="refused")["status"] == 401
        assert not [line for line in server.lines() if line.get("request_id") == "fine"]


def _status(client: ServiceClient) -> int:
    from penstock.backends.http import ServerUnreachable

    try:
        return client.get("/readyz").status
    except ServerUnreachable:
        return 0
