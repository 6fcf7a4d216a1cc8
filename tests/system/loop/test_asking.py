"""A cycle whose trainer is asked by HTTP: the server is the one of the examples."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.registry.channels.channel import channel_state
from penstock_jobs.loop.cycles import cycles_of
from tests.support.loop_world import CHANNEL, TENANT, World, open_world, outcomes
from tests.support.repository import ROOT
from tests.support.servers.child import end_child, start_child
from tests.support.servers.ports import free_port
from tests.support.waiting import eventually

PROGRAM = ROOT / "examples" / "trainers" / "http_trainer.py"
TOKEN = "hush-hush"
#: It goes on when the test says so.
WAITS = 'echo run >> "{folder}/trained"; until test -e "{folder}/go"; do sleep 0.02; done\n'


@dataclass
class Gpu:
    """A machine where jobs are folders, and a server that gives them out."""

    folder: Path
    command: str
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self.folder / "server.log"
        log.unlink(missing_ok=True)
        program = [sys.executable, str(PROGRAM), str(self.port), str(self.folder / "jobs")]
        told = ["env", f"TRAINER_TOKEN={TOKEN}", "RETRY_AFTER_S=0"]
        self.process = start_child([*told, *program, self.command], log=log)
        eventually(lambda: "listening" in log.read_text())

    def end(self) -> None:
        if self.process is not None:
            end_child(self.process, signal.SIGKILL, 10)
        for pid in self.folder.glob("jobs/*/pid"):
            if not (pid.parent / "status").exists():
                os.killpg(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("GPU_TOKEN", TOKEN)
    settings = "loop_poll_seconds = 0.05\nlease_seconds = 1\nflush_seconds_max = 0.5\n"
    (tmp_path / "penstock.toml").write_text(settings)
    with open_world(tmp_path) as world:
        yield world


@contextmanager
def gpu(world: World) -> Iterator[Gpu]:
    """It trains as the world's trainer does, once it may."""
    folder = world.folder.parent / "gpu"
    folder.mkdir()
    trainer = world.folder / "trainer.sh"
    trainer.write_text(WAITS.format(folder=folder) + trainer.read_text())
    gpu = Gpu(folder, f"sh {trainer}")
    url = f'url = "http://127.0.0.1:{gpu.port}/"\ntoken_env = "GPU_TOKEN"'
    world.loop(('command = "sh trainer.sh"', url))
    gpu.start()
    try:
        yield gpu
    finally:
        gpu.end()


def trained(gpu: Gpu) -> int:
    path = gpu.folder / "trained"
    return len(path.read_text().splitlines()) if path.exists() else 0


def runner(world: World) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "loop", "run", str(world.folder / "loop.toml")]
    data = str(world.folder.parent)
    return subprocess.Popen([*command, "--once", "--data", data], stderr=subprocess.DEVNULL)


def test_runners_and_the_server_are_killed_and_the_job_is_one(world: World) -> None:
    with gpu(world) as there:
        first = runner(world)
        eventually(lambda: trained(there) == 1)
        first.kill()
        first.wait()
        second = runner(world)
        assert there.process is not None
        end_child(there.process, signal.SIGKILL, 10)  # the job itself goes on
        there.start()
        (there.folder / "go").touch()
        assert second.wait(300) == 0
        assert trained(there) == 1
        [job] = (there.folder / "jobs").iterdir()
    [cycle] = cycles_of(world.database, TENANT)
    assert (cycle.outcome, set(outcomes(cycle).values())) == ("promoted", {"done"})
    train = cycle.stage("train")
    assert (train.epoch, train.failures) == (2, 0)
    assert re.fullmatch(r"mini-0001-[0-9a-f]{64}", job.name)
    assert (train.result or {})["uri"] == f"file://{job}/output/weights"
    assert channel_state(world.database, TENANT, CHANNEL).checkpoint == "mini-0001"
    assert TOKEN not in json.dumps(cycle.stages, default=str)
