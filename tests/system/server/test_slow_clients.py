"""A thousand clients that are slow on purpose, each in one of the ways there are, and what they
cost the service and everybody else."""

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.lakes import body_of, make_event
from tests.support.service import ENGINE_BYTES, Service
from tests.support.slow_clients import openings, room_for_files

CLIENTS = 1_000
#: One client may cost the service so much.
CLIENT_BYTES_MAX = 64 * 1024
#: For the client's ends of the connections, in this process.
FILES = CLIENTS + 200
HONEST = "127.0.0.2"


def ask(service: Service, request: bytes) -> bytes:
    """The answer to a client of another address."""
    host, port = service.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30, source_address=(HONEST, 0)) as end:
        end.sendall(request)
        content = b""
        while piece := end.recv(1 << 16):
            content += piece
        return content


def request(service: Service, path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}"
    return f"{head}\r\nauthorization: Bearer {service.keys['bolt']}\r\n\r\n".encode() + body


def test_a_thousand_slow_clients_cost_little_and_keep_nobody_waiting(
    start: Callable[..., Any],
) -> None:
    with ExitStack() as opened:
        if not opened.enter_context(room_for_files(FILES)):
            pytest.skip("the system lets a process open too few files")
        service: Service = opened.enter_context(start())
        host, port = service.server.url.removeprefix("http://").split(":")
        kinds = openings(service.keys["ingest"])
        count = json.dumps({"sql": "select count(*) as n from events"}).encode()
        assert b'"n":0' in ask(service, request(service, "/v1/query", count))
        assert service.get("/openapi.json").status == 200
        before = service.peak_bytes()
        for number in range(CLIENTS):
            end = opened.enter_context(socket.create_connection((host, int(port))))
            end.sendall(kinds[number % len(kinds)])
            if number % 50 == 49:  # connections are accepted in turn: all before this one are there
                body = body_of([make_event("honest", number)])
                assert b'"accepted":1' in ask(service, request(service, "/v1/events", body))
        assert b'"n":20' in ask(service, request(service, "/v1/query", count))
        assert service.get("/readyz").status == 200
        assert service.peak_bytes() - before < CLIENTS * CLIENT_BYTES_MAX + ENGINE_BYTES
