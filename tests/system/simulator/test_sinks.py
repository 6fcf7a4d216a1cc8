"""Simulated events reach real servers, and the same sent again adds nothing."""

import io
from contextlib import closing
from pathlib import Path

import pytest

from penstock.backends.http import KeyNotValid, ServerUnreachable
from penstock_jobs.simulator import delivery
from penstock_jobs.simulator.delivery import EventLine, FileSink, HttpSink, Sink, batches, deliver
from penstock_jobs.simulator.demo.server import running_server
from penstock_jobs.simulator.production import Production
from tests.support.lakes import HandLake, hand_lake
from tests.support.servers.ports import free_port
from tests.support.servers.scripted_server import Answer, Server, answering, one_after_the_other

LINES = list(deliver(Production(7), 40, late=0.1, repeated=0.1))
DIFFERENT = len(set(LINES))
ONE_REJECTED = '{"accepted": 2, "rejected": [{"line": 1}]}'


def send(sink: Sink, lines: list[EventLine] = LINES) -> int:
    with closing(sink):
        return sum(sink.send(batch) for batch in batches(lines))


def events(lake: HandLake) -> int:
    return int(lake.rows("select count(*) as n from events")[0]["n"])


def test_a_file_holds_the_lines_as_they_come() -> None:
    file = io.BytesIO()
    assert send(FileSink(file)) == 0
    assert file.getvalue().splitlines() == [line for _, line in LINES]


def test_a_gateway_stores_each_event_once(tmp_path: Path) -> None:
    """And says at once that a key may not ingest."""
    with running_server(tmp_path) as server:
        with pytest.raises(KeyNotValid):
            send(HttpSink(server.url, "no-such-key"))
        assert send(HttpSink(server.url, server.key)) == 0
        assert send(HttpSink(server.url, server.key)) == 0
    with hand_lake(tmp_path) as lake:
        assert events(lake) == DIFFERENT


def test_a_gateway_that_is_full_is_asked_again() -> None:
    told: list[str] = []
    gateway, full = Server(), Answer(503, "full")
    gateway.script = one_after_the_other(full, full, Answer(200, ONE_REJECTED))
    with answering(gateway, ""):
        assert send(HttpSink(gateway.url, None, tell=told.append), LINES[:3]) == 1
    [said] = told
    assert said.startswith(f"{gateway.url} takes no events: ")
    assert len(gateway.asked) == 3
    assert len({asked.body for asked in gateway.asked}) == 1


def test_a_gateway_that_is_not_there_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_PATIENCE_SECONDS", 0.0)
    sink = HttpSink(f"http://127.0.0.1:{free_port()}", None)
    with pytest.raises(ServerUnreachable, match="refused"):
        send(sink)
