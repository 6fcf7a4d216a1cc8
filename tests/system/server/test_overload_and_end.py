"""Too much at once, keys that come and go, and how a server begins and ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key, list_keys, revoke_key
from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient
from penstock.lake.lake import open_lake
from penstock_jobs.simulator.demo.server import running_server
from tests.support.servers.ports import free_port

KIB = 1024
Starter = Callable[..., Any]


def event(name: str, text: str = "hi") -> bytes:
    made = {
        "session_id": name.partition(":")[0],
        "event_id": name,
        "ts": "2026-11-21T10:00:00Z",
        "type": "user_message",
        "payload": {"text": text},
    }
    return json.dumps(made).encode()


def in_segments(data: Path) -> list[str]:
    """The ids of the events that are in the lake itself, and not only in the log."""
    with open_lake(data) as lake:
        now = datetime.now(UTC).isoformat()
        table = lake.query("select event_id from events order by 1", as_of=now, tenant="acme")
        ids: list[str] = table.arrow()["event_id"].to_pylist()
        return ids


def test_overload_is_refused_with_a_time_to_come_back(start: Starter) -> None:
    """429 for one tenant's excess, 503 for that of all; and then there is room again. A client
    that never finishes does not keep the server from ending either."""
    with start(
        body_bytes_max=32 * KIB,
        event_bytes_max=16 * KIB,
        body_decoded_bytes_max=32 * KIB,
        tenant_inflight_bytes_max=32 * KIB,
        inflight_bytes_max=48 * KIB,
        shutdown_seconds_max=1,
    ) as service:
        body = b"\n".join([event(f"s:{i}", "x" * 10 * KIB) for i in range(2)])
        with service.dial("Content-Length: 30000") as slow:
            slow.sendall(b"x" * 29_000)
            service.wait_for(lambda: service.metric("inflight_bytes") == 29_000)
            reply = service.post("/v1/events", body)
            assert (reply.status, reply.headers["retry-after"]) == (429, "1")
            assert "29000 of its bytes are not on disk yet" in reply.json()["detail"]
            reply = service.post("/v1/events", body, "bolt")
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert "Nothing was accepted" in reply.json()["detail"]
            assert service.post("/v1/events", event("small"), "bolt").status == 200
        service.wait_for(lambda: service.metric("inflight_bytes") == 0)
        assert service.post("/v1/events", body).status == 200
        assert service.query("select count(*) as n from events") == [{"n": 2}]
        last = event("s:last")
        with service.dial(f"Content-Length: {len(last) + 1}") as slow:
            slow.sendall(last)
            service.wait_for(lambda: service.metric("inflight_bytes") == len(last))
            assert service.server.stop() == 0
        assert in_segments(service.data) == ["s:0", "s:1"]


def test_full_log_is_503_and_loses_nothing_of_what_it_took(start: Starter) -> None:
    limits = {"log_bytes_max": 64 * KIB}
    accepted = []
    with start("--role", "gateway", **limits) as service:
        for number in range(100):
            name = f"s:{number:02}"
            reply = service.post("/v1/events", event(name, "x" * 4 * KIB))
            if reply.status != 200:
                break
            accepted.append(name)
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        assert "wait in the event log, whose limit is 65536" in reply.json()["detail"]
        ready = service.get("/readyz")
        assert (ready.status, ready.json()["problems"]) == (503, [reply.json()["detail"]])
        data = service.data
    assert len(accepted) > 10
    with start(data=data, **limits) as service:  # a writer makes room
        service.wait_for(lambda: service.post("/v1/events", event("s:late")).status == 200)
    assert in_segments(data) == [*accepted, "s:late"]


def test_query_that_the_end_cuts_off_is_503(start: Starter) -> None:
    endless = "select count(*) as n from range(1000000) a, range(1000000) b where a.range < b.range"
    replies = []
    with start(shutdown_seconds_max=1) as service:

        def ask() -> None:
            replies.append(service.post("/v1/query", json.dumps({"sql": endless}).encode()))

        asking = threading.Thread(target=ask)
        asking.start()
        service.wait_for(lambda: service.metric("queries_running") == 1)
        assert service.server.stop() == 0
        asking.join()
    [reply] = replies
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "The service ended before it answered" in reply.json()["detail"]


def test_key_works_once_made_and_stops_once_revoked(start: Starter) -> None:
    """With no restart, and whatever the order in which they come."""
    with start(keys_refresh_seconds=0.1) as service, open_lake(service.data) as lake:
        made, secret = create_key(lake.database, "ingest", "acme")
        service.wait_for(lambda: service.post("/v1/events", b"", secret).status == 200)
        revoke_key(lake.database, made.id)
        service.wait_for(lambda: service.post("/v1/events", b"", secret).status == 401)
        assert service.post("/v1/events", b"", "ingest").status == 200
        service.server.process.send_signal(signal.SIGINT)  # a Ctrl-C ends it as well
        assert service.server.process.wait(300) == 0


def test_first_key_on_loopback_is_shown_once(tmp_path: Path) -> None:
    """And a process without the gateway's role takes no events, whoever sends them."""
    with running_server(tmp_path) as server:
        assert server.key is not None
        client = server.client()
        assert client.post("/v1/events", event("s:1")).status == 200
        client.close()
    with running_server(tmp_path, "--role", "writer") as again:
        assert again.key is None
        client = again.client(server.key)
        reply = client.post("/v1/events", event("s:2"))
        assert reply.status == 400
        assert "started without the gateway role" in reply.json()["detail"]
        client.close()


def test_what_cannot_start_makes_no_key_and_says_why(tmp_path: Path) -> None:
    settings = {
        "PENSTOCK_LOG_URL": f"kafka://127.0.0.1:{free_port()}/events",
        "PENSTOCK_LOG_REQUEST_SECONDS_MAX": "0.5",
    }
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path), "--port", "0"]
    ended = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "cannot be reached" in ended.stderr.splitlines()[0]
    with running_server(tmp_path) as server:
        assert server.key is not None


def test_no_key_is_made_on_a_public_address(tmp_path: Path) -> None:
    with running_server(tmp_path, "--host", "0.0.0.0") as server:
        assert server.key is None
        client = ServiceClient(server.url)
        assert client.post("/v1/events", event("s:1")).status == 401
        client.close()
    with open_lake(tmp_path) as lake:
        assert list_keys(lake.database) == []


@pytest.mark.smoke
def test_signal_to_stop_keeps_every_promise_and_stores_the_rest(start: Starter) -> None:
    """What a client saw accepted is in the lake, none of it twice, and the status is 0."""
    acknowledged: list[str] = []
    enough = threading.Event()

    def send(service: Any, sender: int) -> None:
        client = service.client()
        for number in range(100_000):
            name = f"s{sender}:{number:06}"
            try:
                reply = client.post("/v1/events", event(name))
            except ServerUnreachable:
                return
            if reply.status != 200:
                return
            acknowledged.append(name)
            if len(acknowledged) >= 200:
                enough.set()

    with start() as service:
        senders = [threading.Thread(target=send, args=(service, i)) for i in range(6)]
        for sender in senders:
            sender.start()
        assert enough.wait(300)
        assert service.server.stop() == 0
        for sender in senders:
            sender.join(300)
            assert not sender.is_alive()
        stored = in_segments(service.data)
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))


def test_a_quota_answers_429_with_which_and_until_when(start: Callable[..., Any]) -> None:
    with start(tenant_events_per_hour_max=2, tenant_queries_per_hour_max=1) as service:
        events = b"\n".join(
            b'{"session_id":"s","ts":1795219200000000,"type":"user_message","payload":{"text":"%d"}}'
            % number
            for number in range(3)
        )
        assert service.post("/v1/events", events, "ingest").status == 200
        assert service.query("select 1 as a") == [{"a": 1}]
        body = json.dumps({"sql": "select 1"}).encode()
        for path, sent, quota, maximum in (
            ("/v1/events", events, "events_per_hour", 2),
            ("/v1/query", body, "queries_per_hour", 1),
        ):
            reply = service.post(path, sent)
            answer = reply.json()
            assert "quota" in answer, answer
            assert (reply.status, answer["quota"], answer["maximum"]) == (429, quota, maximum)
            assert answer["until"] in answer["detail"]
            assert int(reply.headers["retry-after"]) <= 3601
        assert service.post("/v1/query", body, "bolt").status == 200
