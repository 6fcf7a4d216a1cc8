"""Attempts of a cycle meet the checkpoint that they are about, and nothing serves it afterwards."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.registry.checkpoints.tables import benchmark_attempt
from penstock_jobs.loop.cycles import cycles_of
from tests.support.loop_world import TENANT, World, is_alive, open_world
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from tests.system.loop.test_running import BUDGET, leaving

#: An engine with one checkpoint, and a child that outlives it where nobody ends both.
ENGINE = """
import os, pathlib, subprocess, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

here, (port, name, uri) = pathlib.Path(__file__).parent, sys.argv[1:]
child = subprocess.Popen(["sleep", "600"])
told = os.environ["PENSTOCK_CHECKPOINT"], os.environ["PENSTOCK_CYCLE"]
with (here / "served").open("a") as served:
    print(os.getpid(), child.pid, name, uri, *told, file=served)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/ready" or (here / "ready").exists()
        body = name.encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/v1/die":
            os._exit(7)

    def log_message(self, *_what):
        pass

print("loads", name, flush=True)
ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""
#: Solves the task if the model at its address is the checkpoint that it is told of.
AGENT = """
import os, socket, sys
_, _, place, version = os.environ["PENSTOCK_MODEL_URL"].split("/")
with socket.create_connection(place.split(":")) as model:
    model.sendall(f"GET /{version}/{sys.argv[1]} HTTP/1.0\\r\\n\\r\\n".encode())
    answer = model.makefile().read()
name = answer.split()[-1]
open("answer", "w").write("42" if name == os.environ["PENSTOCK_CHECKPOINT"] else name)
"""
SERVING = f"""
[serving]
command = "exec {sys.executable} {{here}}/engine.py {{port}} {{checkpoint}} {{uri}}"
ready = "/ready"
"""
AGENT_COMMAND = f"exec {sys.executable} -IS {{here}}/agent.py name"
ATTEMPTED = ("sh {here}/agent.sh", AGENT_COMMAND)


def loop(world: World, *replaced: tuple[str, str], more: str = "") -> None:
    world.write("engine.py", ENGINE)
    world.write("agent.py", AGENT)
    world.write("ready", "")
    world.loop(ATTEMPTED, *replaced, more=SERVING + more)


def served(world: World) -> list[list[str]]:
    """The process, its child, the checkpoint, its files and what the engine was told."""
    return [line.split() for line in (world.folder / "served").read_text().splitlines()]


def processes(world: World) -> list[int]:
    return [int(pid) for row in served(world) for pid in row[:2]]


def test_attempts_meet_the_parent_and_the_candidate_one_after_the_other(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = (world.folder / "suite" / "suite.toml").read_text().replace("mini", "other")
    shutil.copytree(world.folder / "suite", world.folder / "other")
    (world.folder / "other" / "suite.toml").write_text(other)
    for task in range(1, 10):
        shutil.rmtree(world.folder / "other" / "tasks" / f"task-{task}")
    # A sandbox hides all that is in the data directory.
    agent = tmp_path_factory.mktemp("agent") / "agent.py"
    agent.write_text(AGENT)
    isolated = AGENT_COMMAND.replace("{here}/agent.py", str(agent))
    second = f'[[bench]]\nsuite = "other"\nattempts = 1\nagent = "{isolated}"\n'
    loop(world, more=second)
    done = world.run_once()
    assert (done.outcome, done.why) == ("promoted", "")
    first, candidate = served(world)
    assert first[2:] == ["first", "https://models.test/first", "first", "1"]
    assert (candidate[2], candidate[4]) == ("mini-0001", "mini-0001")
    assert Path(candidate[3]).read_text()
    bench = done.stage("bench")
    assert (bench.result or {})["attempts"] == {
        "mini": {"first": 10, "mini-0001": 10}, "other": {"first": 1, "mini-0001": 1},
    }  # fmt: skip
    assert "engine.py" in (bench.inputs or {})["serving"]
    eventually(lambda: not any(map(is_alive, processes(world))))

    column = benchmark_attempt.c.score
    with world.database.read() as connection:
        assert set(connection.scalars(sa.select(column))) == {1.0}
    # The parent's results are known now: only the new one is served.
    world.talk("mini-0001", first=40, count=4)
    assert world.run_once().outcome == "promoted"
    assert [row[2] for row in served(world)] == ["first", "mini-0001", "mini-0002"]


@pytest.mark.parametrize(
    ("command", "why", "output"),
    [
        ("echo no memory {port}; exit 3", "it ended with status 3", "no memory"),
        ("kill -KILL $$ {port}", "it ended with status 137", "nothing"),
    ],
)
def test_a_server_that_ends_early_fails_the_stage(
    world: World, command: str, why: str, output: str
) -> None:
    loop(world)
    world.loop(ATTEMPTED, more=f'[serving]\ncommand = "{command}"\n')
    done = world.run_once()
    assert (done.outcome, done.stage("bench").failures) == ("failed", 2)
    wanted = f"bench: The command of [serving] does not serve first: {why}. The end of its output"
    assert done.why.startswith(wanted)
    assert output in done.why


def test_a_server_that_is_never_ready_is_stopped_in_time(world: World) -> None:
    loop(world, ("tries = 2", "tries = 1"), more='limit = "2s"\n')
    (world.folder / "ready").unlink()
    done = world.run_once()
    assert done.outcome == "failed"
    assert "it was not ready after 2 s, its `limit`: http://127.0.0.1:" in done.why
    assert "/ready answered 503" in done.why
    assert "loads first" in done.why
    eventually(lambda: not any(map(is_alive, processes(world))))


def test_a_server_that_dies_during_attempts_costs_no_result(world: World) -> None:
    loop(world, ("agent.py name", "agent.py die"))
    done = world.run_once()
    assert (done.outcome, done.stage("bench").failures) == ("failed", 2)
    assert "does not serve first: it ended with status 7" in done.why
    with world.database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(benchmark_attempt)) == 0
    eventually(lambda: not any(map(is_alive, processes(world))))


def test_a_server_ends_with_the_claim_of_its_stage(tmp_path: Path) -> None:
    with open_world(tmp_path, lease_seconds=1, flush_seconds_max=0.5) as world:
        loop(world, BUDGET)
        (world.folder / "ready").unlink()
        done = world.run_once(crash_point=leaving(world, 8, "register:kept"))
        assert (done.outcome, done.stage("bench").failures) == ("over_budget", 0)
        eventually(lambda: not any(map(is_alive, processes(world))))


def test_a_runner_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    with open_world(tmp_path) as world:
        loop(world)
        world.write("agent.py", "import time; time.sleep(600)")
        script = (
            "import sys; from pathlib import Path\n"
            "from tests.support.loop_world import open_world\n"
            "with open_world(Path(sys.argv[1]), make=False) as world: world.run_once()"
        )
        runner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT)
        try:
            eventually(lambda: (world.folder / "served").exists() and processes(world))
            eventually(lambda: _bench_attempts(world))
        finally:
            os.kill(runner.pid, signal.SIGKILL)
            runner.wait()
        eventually(lambda: not any(map(is_alive, processes(world))))


def _bench_attempts(world: World) -> bool:
    [cycle] = cycles_of(world.database, TENANT)
    return cycle.stage("bench").state == "running"
