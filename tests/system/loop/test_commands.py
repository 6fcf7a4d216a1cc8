"""`penstock loop`, as a person types it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.doors.cli import app
from tests.support.loop_world import World, is_alive, open_world
from tests.support.waiting import eventually


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "penstock.toml").write_text("loop_poll_seconds = 0.05\n")
    with open_world(tmp_path) as world:
        yield world


def loop(world: World, *arguments: str) -> Result:
    data = str(world.folder.parent)
    return CliRunner().invoke(app, ["loop", *arguments, "--data", data])


def asked(world: World, *arguments: str) -> Any:
    return json.loads(loop(world, *arguments, "--json").stdout)


@pytest.mark.smoke
def test_a_cycle_its_status_and_its_history(world: World) -> None:
    assert "No loop has run yet" in loop(world, "status").stderr
    world.loop(("name =", 'budget = "1s"\nname ='))
    file = str(world.folder / "loop.toml")
    done = loop(world, "run", file, "--once")
    assert done.exit_code == 0, done.stderr
    assert "mini, cycle 1 for production: promoted" in done.stderr
    assert "OVER ITS BUDGET" in done.stderr
    waits = loop(world, "run", file, "--once")
    assert waits.exit_code == 0
    assert "cycle 2 for production has not begun" in waits.stderr

    [now] = asked(world, "status")
    assert (now["cycle"], now["outcome"], now["took_s"]) == (2, None, None)
    assert now["stages"][0]["why"] == "0 of 400 fresh scored tokens from mini-0001"
    first, second = asked(world, "history")
    assert (first["outcome"], first["over_budget"], second["cycle"]) == ("promoted", True, 2)
    assert sum(one["took_s"] for one in first["stages"]) <= first["took_s"]
    assert all(one["took_s"] >= 0 for one in first["stages"])
    assert sum(one["took_s"] for one in first["stages"]) > 0
    person = loop(world, "history", "--loop", "mini").stdout.splitlines()
    assert person[0].split()[-2:] == ["gate", "promote"]
    assert person[1].split()[:4] == ["mini", "1", "promoted", "mini-0001"]
    assert asked(world, "history", "--loop", "other") == []


def test_a_cycle_that_is_refused_is_exit_1_and_history_says_why(world: World) -> None:
    world.write("agent.sh", 'test "$PENSTOCK_CHECKPOINT" = first && echo 42 > answer; true\n')
    done = loop(world, "run", str(world.folder / "loop.toml"), "--once")
    assert done.exit_code == 1
    history = loop(world, "history")
    assert history.exit_code == 0
    assert "mini 1: the verdict on mini-0001 is FAIL: " in history.stderr


def test_a_loop_file_that_cannot_be_used_is_exit_2(world: World) -> None:
    file = world.loop(("tokens =", "token ="))
    command = [sys.executable, "-m", "penstock", "loop", "run", str(file)]
    command += ["--data", str(world.folder.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean tokens?" in done.stderr


def test_a_runner_that_is_asked_to_end_gives_its_stage_back(world: World) -> None:
    world.write("trainer.sh", f"echo $$ > '{world.folder}/pid'; sleep 300\n")
    command = [sys.executable, "-m", "penstock", "loop", "run", str(world.folder / "loop.toml")]
    runner = subprocess.Popen(
        [*command, "--data", str(world.folder.parent)], stderr=subprocess.DEVNULL
    )
    pid = world.folder / "pid"
    eventually(lambda: pid.exists() and pid.read_text().strip() != "", within_s=180)
    runner.terminate()
    assert runner.wait(180) != 0
    eventually(lambda: not is_alive(int(pid.read_text())))
    [now] = asked(world, "status")
    train = now["stages"][2]
    assert (train["state"], train["claims"], train["failures"]) == ("waiting", 1, 0)
