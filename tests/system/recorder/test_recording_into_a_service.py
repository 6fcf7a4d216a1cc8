"""Recording into a running service, which is killed, and from agents that are killed."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.access.keys import create_key
from penstock.backends.http.client import ServiceClient
from penstock.core.settings import load_settings
from penstock.ingest.ledger import read_ledger
from penstock.ingest.recorder.recorder import Recorder
from penstock.lake.lake import open_existing, open_or_make
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.planted_secrets import github_token
from tests.support.servers.restarts import restarted

_MINUTE = 60.0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    data = tmp_path_factory.mktemp("data")
    with open_or_make(load_settings(data, environment={})) as made:
        return data, create_key(made.database, "admin", "default")[1]


@pytest.fixture(scope="module")
def server(lake: tuple[Path, str]) -> Iterator[Server]:
    with running_server(lake[0]) as server:
        yield server


def _rows(url: str, key: str, sql: str) -> list[tuple[object, ...]]:
    with ServiceClient(url, key) as client:
        answer = client.ask("query", "rows", {"sql": sql})
    return [tuple(row.values()) for row in answer["rows"]]


def test_a_session_is_there_to_be_queried(
    server: Server, lake: tuple[Path, str], tmp_path: Path
) -> None:
    with Recorder(server.url, lake[1], spool=tmp_path) as recorder:
        with recorder.session("s-told", checkpoint="c-1", client="ours") as session:
            session.user_message("the streaming is broken")
            session.edit("src/app.py", before="a\n", after="b\n")
        assert recorder.flush(_MINUTE)
        assert recorder.counts().rejected == 0
    sql = "select type, checkpoint from events where session_id = 's-told' order by ts"
    kinds = ["session_start", "user_message", "edit", "session_end"]
    assert _rows(server.url, lake[1], sql) == [(kind, "c-1") for kind in kinds]


def test_secrets_do_not_reach_the_disk_of_the_agent(
    server: Server, lake: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    secret = github_token(random.Random(1))
    recorder = Recorder("http://127.0.0.1:9", spool=tmp_path / "spool")
    recorder.session("s").user_message(f"use {secret} please")
    recorder.close(_MINUTE)
    [path] = (tmp_path / "spool").rglob("*.gz")
    content = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
    assert b"[SECRET:" in content
    assert secret.encode() not in content


def test_the_ledger_counts_what_was_dropped_once(
    server: Server, lake: tuple[Path, str], tmp_path: Path
) -> None:
    with Recorder(
        server.url, lake[1], source="full", spool=tmp_path, memory_bytes_max=10_000
    ) as recorder:
        session = recorder.session("s-full")
        for _ in range(3):
            session.user_message("x" * 20_000)
        session.user_message("small")
        recorder.flush(_MINUTE)
        assert recorder.counts().dropped == 3
    with open_existing(lake[0]) as own:
        deadline = time.monotonic() + _MINUTE
        while not (of := [r for r in read_ledger(own).rows if r.source == "full" and r.stored]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert sum(row.dropped for row in of) == 3


_AGENT = """
import sys
from penstock.ingest.recorder.recorder import Recorder
recorder = Recorder(sys.argv[1], sys.argv[2], spool=sys.argv[3], mask=False)
session = recorder.session(sys.argv[4])
for number in range(1_000_000):
    session.user_message(str(number))
    if number % 100 == 99 and recorder.flush(60):
        print(number + 1, flush=True)
"""


def test_nothing_that_was_acknowledged_is_lost_when_agents_and_service_are_killed(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with open_or_make(load_settings(data, environment={})) as made:
        key = create_key(made.database, "admin", "default")[1]
    acknowledged: dict[str, int] = {}
    with restarted(data) as servers, ExitStack() as agents:
        for attempt in range(4):
            session_id = f"s-{attempt}"
            place = [servers.url, key, str(tmp_path / "spool"), session_id]
            agent = agents.enter_context(_agent(place))
            assert agent.stdout is not None
            for _ in range(5):
                acknowledged[session_id] = int(agent.stdout.readline())
            if attempt % 2:
                servers.kill_and_start()
                acknowledged[session_id] = int(agent.stdout.readline())
            agent.kill()
            for line in agent.stdout:
                acknowledged[session_id] = int(line)
        with Recorder(servers.url, key, spool=tmp_path / "spool", mask=False) as recorder:
            recorder.session("last").user_message("the end")
            assert recorder.flush(_MINUTE)
        sql = "select session_id, count(*), count(distinct payload) from events group by all"
        stored = {row[0]: row[1:] for row in _rows(servers.url, key, sql)}
    for session_id, events in acknowledged.items():
        count, different = stored[session_id]
        assert count == different  # nothing twice
        assert isinstance(count, int)
        assert count >= events
    assert not list((tmp_path / "spool").rglob("*.gz"))


@contextmanager
def _agent(place: list[str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _AGENT, *place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        try:
            yield agent
        finally:
            agent.kill()
