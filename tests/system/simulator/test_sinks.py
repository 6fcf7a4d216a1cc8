"""Simulated events reach real servers, and the same sent again adds nothing."""

import http.server
import io
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock.http.errors import KeyNotValid, ServerUnreachable
from penstock_jobs.demo.server import running_server
from penstock_jobs.simulator.delivery import (
    EventLine,
    FileSink,
    HttpSink,
    KafkaSink,
    Sink,
    batches,
    deliver,
)
from penstock_jobs.simulator.production import Production
from tests.support.lakes import HandLake, hand_lake
from tests.support.servers.broker import Broker
from tests.support.servers.ports import free_port

LINES = list(deliver(Production(7), 40, late=0.1, repeated=0.1))
DIFFERENT = len(set(LINES))


def send(sink: Sink, lines: list[EventLine] = LINES) -> int:
    with closing(sink):
        return sum(sink.send(batch) for batch in batches(lines))


def events(lake: HandLake) -> int:
    return int(lake.rows("select count(*) as n from events")[0]["n"])


def test_a_file_holds_the_lines_as_they_come() -> None:
    file = io.BytesIO()
    assert send(FileSink(file)) == 0
    assert file.getvalue().splitlines() == [line for _, line in LINES]


def test_what_is_written_to_a_file_is_what_a_lake_takes(tmp_path: Path) -> None:
    file = io.BytesIO()
    send(FileSink(file))
    with hand_lake(tmp_path / "data") as lake:
        lake.store(file.getvalue())
        lake.store(file.getvalue())
        assert events(lake) == DIFFERENT


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
    with busy_gateway(refusals=2) as (url, bodies):
        assert send(HttpSink(url, None, tell=told.append), LINES[:3]) == 1
    [said] = told
    assert said.startswith(f"{url} takes no events: ")
    assert len(bodies) == 3
    assert len(set(bodies)) == 1


def test_a_gateway_that_is_not_there_is_given_up() -> None:
    sink = HttpSink(f"http://127.0.0.1:{free_port()}", None, patience_s=0)
    with pytest.raises(ServerUnreachable, match="refused"):
        send(sink)


@pytest.mark.parametrize("url", ["https://there", "there:8787", "http://"])
def test_an_address_that_cannot_be_posted_to_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="http://HOST:PORT"):
        HttpSink(url, None)


def test_a_login_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInput, match="a login in it") as refused:
        HttpSink("http://ada:geheim@there:8787", None)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("url", ["local:log", "kafka://there", "kafka://there/topic?acks=1"])
def test_an_address_that_is_no_topic_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="--kafka"):
        KafkaSink(url)


def test_a_topic_leads_each_event_into_the_lake_once(broker: Broker, tmp_path: Path) -> None:
    url = f"kafka://{broker.address}/{uuid.uuid4().hex}"
    with hand_lake(tmp_path, log_url=url, log_partitions=3) as lake:
        assert lake.lake.log.partitions == 3  # the topic is there
        assert send(KafkaSink(url)) == 0
        assert send(KafkaSink(url)) == 0
        lake.writer().drain()
        assert events(lake) == DIFFERENT


@contextmanager
def busy_gateway(refusals: int) -> Iterator[tuple[str, list[bytes]]]:
    """A gateway that is full for so many requests, and then rejects one line."""
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            full = len(bodies) <= refusals
            answer = b"full" if full else b'{"accepted": 2, "rejected": [{"line": 1}]}'
            self.send_response(503 if full else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies
        finally:
            server.shutdown()
            thread.join()
