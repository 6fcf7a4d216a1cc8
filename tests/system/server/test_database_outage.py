"""A database server that dies while requests wait for it: each of them is answered."""

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.backends.http.client import HttpAnswer
from tests.support.servers.postgres import PostgresServer, running_postgres
from tests.support.service import Service

Starter = Callable[..., Any]
Ending = Callable[[PostgresServer], None]

#: The routes below need these tables, and what runs beside requests needs them seldom.
_LOCKED = "checkpoint, reader_lease"
#: At least so many requests wait for them at the same time: each tenant has so many turns.
_WAITING_MIN = 3
_CHECKPOINT = {"name": "c-1", "uri": "file:///c-1", "digest": "sha256:" + "a" * 64}
_ASKING = {
    "GET /v1/checkpoints": None,
    "GET /v1/sessions": None,
    "POST /v1/checkpoints": _CHECKPOINT,
    "POST /v1/query": {"sql": "select count(*) as n from events"},
    "POST /v1/channels/production/promote": {"checkpoint": "c-1", "reason": "it is better"},
}
_EVENT = {
    "session_id": "s-1",
    "event_id": "e-1",
    "ts": "2026-11-21T10:00:00Z",
    "type": "user_message",
    "payload": {"text": "hi"},
}
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One to be killed. Each test leaves it running."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def service(own_server: PostgresServer, start: Starter) -> Iterator[Service]:
    with own_server.database() as url:
        database = Database(url)
        upgrade(database)
        database.close()
        with start(database_url=url) as service:
            yield service


def ask(service: Service, route: str, body: object) -> HttpAnswer:
    method, path = route.split()
    client = service.client()
    try:
        if method == "GET":
            return client.get(path)
        return client.post(path, json.dumps(body).encode())
    finally:
        client.close()


@pytest.mark.parametrize(
    "end",
    [PostgresServer.kill, lambda server: server.end(signal.SIGQUIT), PostgresServer.stop],
    ids=["killed", "stopped at once", "stopped"],
)
def test_requests_that_wait_for_a_database_that_dies_are_answered(
    service: Service, own_server: PostgresServer, end: Ending
) -> None:
    """With 503, the name of the error and when to come again. Events are taken in all the same."""
    [(name,)] = own_server.execute(
        "SELECT datname FROM pg_stat_activity WHERE application_name = 'penstock' LIMIT 1"
    )
    with own_server.connect(str(name)) as locking, ThreadPoolExecutor(len(_ASKING)) as threads:
        locking.autocommit = False
        locking.execute(f"LOCK TABLE {_LOCKED} IN ACCESS EXCLUSIVE MODE")
        asked = {
            route: threads.submit(ask, service, route, body) for route, body in _ASKING.items()
        }
        service.wait_for(lambda: own_server.execute(_WAITING) >= [(_WAITING_MIN,)])
        end(own_server)
        answers = {route: future.result() for route, future in asked.items()}
        # They were asked before; this one finds no server at all.
        answers["GET /v1/channels"] = ask(service, "GET /v1/channels", None)
        locking.close()
    refused = {
        route: (answer.status, answer.headers.get("retry-after"), answer.json().get("error"))
        for route, answer in answers.items()
    }
    assert refused == dict.fromkeys(answers, (503, "5", "DatabaseUnreachable"))
    assert service.post("/v1/events", json.dumps(_EVENT).encode()).status == 200
    own_server.start()
    service.wait_for(lambda: ask(service, "GET /v1/checkpoints", None).status == 200)
    assert ask(service, "GET /v1/checkpoints", None).json()["checkpoints"] == []
    service.wait_for(lambda: service.query("select count(*) as n from events") == [{"n": 1}])
