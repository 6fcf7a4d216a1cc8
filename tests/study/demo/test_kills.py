"""Killed at any point of a cycle, and amid its work, the demo's loop makes the same weights."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.loop.runner import STAGES, Runner
from penstock_jobs.simulator.demo.folders import DemoFolders
from tests.support.demo_cycles import play_story
from tests.support.loop_world import expire_leases
from tests.support.repository import ROOT
from tests.support.suite_factory import need_isolation

#: Where a runner is killed, and how many seconds later.
_NAMES = [stage.name for stage in STAGES if stage.name not in ("canary", "watch")]  # none here
_AMID = {"shard": 0.3, "train": 2.0, "bench": 2.0}
KILLS = [
    *((f"{name}:claimed", seconds) for name, seconds in _AMID.items()),
    *((f"{name}:{at}", 0.0) for name in _NAMES for at in ("claimed", "worked", "kept")),
]
KILLS.sort(key=lambda kill: _NAMES.index(kill[0].partition(":")[0]))


def test_killed_anywhere_it_makes_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_isolation()
    home, backup = tmp_path / "home", tmp_path / "backup"
    folders = play_story(home / "demo", [], monkeypatch).folders
    loop = folders.loops / "learn.toml"
    loop.write_text(loop.read_text().replace('budget = "2m"', 'budget = "1h"'))
    shutil.copytree(home, backup, symlinks=True)
    wanted = finish(folders)

    shutil.rmtree(home)
    shutil.copytree(backup, home, symlinks=True)
    for point, seconds in KILLS:
        killed = run(folders, point, seconds)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
    assert finish(folders) == wanted


def finish(folders: DemoFolders) -> dict[str, str | None]:
    done = run(folders, "", 0.0)
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    assert found["outcome"] == "promoted", done.stderr
    return found


def run(folders: DemoFolders, point: str, seconds: float) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tests.study.demo.test_kills",
        str(folders.data),
        point,
        str(seconds),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def run_loop(data: Path, point: str, seconds: float) -> None:
    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def look(at: str) -> None:
        if at == point:
            Timer(seconds, kill).start() if seconds else kill()

    def wait(seconds: float) -> bool:
        time.sleep(min(seconds, 0.1))
        return False

    with open_existing(data) as lake:
        expire_leases(lake.database)
        runner = Runner(
            lake=lake,
            loop=load_loop(DemoFolders(data).loops / "learn.toml"),
            tenant=TENANT_DEFAULT,
            wait=wait,
            crash_point=look,
        )
        cycle = runner.run_once()
    shard, trained = cycle.stage("shard").result, cycle.stage("train").result
    made = {"outcome": cycle.outcome, "shard": (shard or {}).get("shard")}
    sys.stdout.write(json.dumps(made | {"digest": (trained or {}).get("digest")}))


if __name__ == "__main__":
    run_loop(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
