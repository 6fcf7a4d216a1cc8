"""The recorder for TypeScript: its own tests, its types, and recording into a running service that
is killed, from agents that are killed."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.typescript_types import PAGE, vocabulary
from penstock.access.keys import create_key
from penstock.backends.http.client import ServiceClient
from penstock.core.settings import load_settings
from penstock.ingest.ledger import read_ledger
from penstock.lake.lake import open_existing, open_or_make
from penstock_jobs.simulator.demo.server import running_server
from tests.support.node import PACKAGE, compiler_ready, installed_in, node_environment, npm
from tests.support.servers.restarts import restarted
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def agent_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_in(tmp_path_factory.mktemp("npm"))


@pytest.fixture
def lake(tmp_path: Path) -> tuple[Path, str]:
    data = tmp_path / "data"
    with open_or_make(load_settings(data, environment={})) as made:
        return data, create_key(made.database, "admin", "default")[1]


def _rows(url: str, key: str, sql: str) -> list[tuple[object, ...]]:
    with ServiceClient(url, key) as client:
        answer = client.ask("query", "rows", {"sql": sql})
    return [tuple(row.values()) for row in answer["rows"]]


def test_the_types_are_those_of_the_schemas() -> None:
    assert PAGE.read_text(encoding="utf-8") == vocabulary()


def test_the_package_needs_nothing_and_its_lock_names_no_host() -> None:
    package = json.loads((PACKAGE / "package.json").read_text())
    assert "dependencies" not in package
    assert "://" not in (PACKAGE / "package-lock.json").read_text()
    assert (PACKAGE / "LICENSE").read_text() == (PACKAGE.parents[1] / "LICENSE").read_text()


def test_its_own_tests_pass() -> None:
    compiler_ready()
    assert "pass" in npm("test")


_SESSION = """
import { Recorder } from "penstock-recorder";
const [url, key, spool] = process.argv.slice(2);
const recorder = new Recorder(url, { key, spool, source: "node", memoryBytesMax: 100_000 });
const session = recorder.session("s-told", { checkpoint: "c-1", client: "ours", consent: "train" });
await session.run((s) => {
  s.userMessage("the streaming is broken");
  s.edit("src/app.ts", { before: "a\\n", after: "b\\n" });
  s.userMessage("x".repeat(200_000));
});
"""


def test_a_session_is_there_to_be_queried_and_what_was_dropped_is_in_the_ledger(
    agent_folder: Path, lake: tuple[Path, str], tmp_path: Path
) -> None:
    data, key = lake
    with running_server(data) as server:
        place = [server.url, key, str(tmp_path / "spool")]
        with _agent(agent_folder, _SESSION, place) as agent:
            assert agent.wait() == 0
        sql = "select type, checkpoint from events where session_id = 's-told' order by ts"
        kinds = ["session_start", "user_message", "edit", "session_end"]
        told = [row for row in _rows(server.url, key, sql) if row[0] != "x_recorder_dropped"]
        assert told == [(kind, "c-1") for kind in kinds]
    with open_existing(data) as own:
        assert sum(row.dropped for row in read_ledger(own).rows if row.source == "node") == 1


_AGENT = """
import { Recorder } from "penstock-recorder";
const [url, key, spool, id] = process.argv.slice(2);
const recorder = new Recorder(url, { key, spool });
for (let number = 0; number < 1_000_000; number += 1) {
  recorder.session(id).userMessage(String(number));
  if (number % 100 === 99 && (await recorder.flush(60))) console.log(number + 1);
}
"""
_LAST = """
import { Recorder } from "penstock-recorder";
const [url, key, spool] = process.argv.slice(2);
const recorder = new Recorder(url, { key, spool });
recorder.session("last").userMessage("the end");
while (!(await recorder.flush(60)) || recorder.counts().waiting > 0);
"""


def test_nothing_that_was_acknowledged_is_lost_when_agents_and_service_are_killed(
    agent_folder: Path, lake: tuple[Path, str], tmp_path: Path
) -> None:
    data, key = lake
    spool = tmp_path / "spool"
    acknowledged: dict[str, int] = {}
    with restarted(data) as servers, ExitStack() as agents:
        for attempt in range(4):
            session_id = f"s-{attempt}"
            place = [servers.url, key, str(spool), session_id]
            agent = agents.enter_context(_agent(agent_folder, _AGENT, place))
            assert agent.stdout is not None
            for _ in range(5):
                acknowledged[session_id] = int(agent.stdout.readline())
            if attempt % 2:
                servers.kill_and_start()
                acknowledged[session_id] = int(agent.stdout.readline())
            agent.kill()
            for line in agent.stdout:
                acknowledged[session_id] = int(line)
        with _agent(agent_folder, _LAST, [servers.url, key, str(spool)]) as last:
            assert last.wait() == 0
        sql = "select session_id, count(*), count(distinct payload) from events group by all"
        stored = {row[0]: row[1:] for row in _rows(servers.url, key, sql)}
    for session_id, events in acknowledged.items():
        count, different = stored[session_id]
        assert count == different  # nothing twice
        assert isinstance(count, int)
        assert count >= events
    eventually(lambda: not list(spool.iterdir()))


@contextmanager
def _agent(folder: Path, program: str, place: list[str]) -> Iterator[subprocess.Popen[str]]:
    file = folder / "agent.js"
    file.write_text(program)
    with subprocess.Popen(
        ["node", file, *place], stdout=subprocess.PIPE, text=True, env=node_environment()
    ) as agent:
        try:
            yield agent
        finally:
            agent.kill()
