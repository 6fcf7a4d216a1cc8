"""The command that loads: how it ends, what it says, and that nothing of it is left."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.registry.fleet.checkpoint_cache import locked
from penstock.registry.fleet.engine import CommandEnd, run_command
from tests.support.waiting import eventually

Run = Callable[..., CommandEnd]


@pytest.fixture
def execute(tmp_path: Path) -> Iterator[Run]:
    with locked(tmp_path) as lock:

        def started(
            command: str, seconds_max: float = 30, given_up: Callable[[], bool] = lambda: False
        ) -> CommandEnd:
            facts = {"PENSTOCK_FOLDER": str(tmp_path)}
            return run_command(
                command, facts, seconds_max=seconds_max, lock=lock, given_up=given_up
            )

        yield started


def is_gone(path: Path) -> bool:
    try:
        os.kill(int(path.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def test_it_does_not_see_the_key(execute: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KEY", "secret")
    assert execute('echo "<$PENSTOCK_KEY>"').output == "<>"


def test_its_status_and_the_end_of_what_it_said(
    execute: Run, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    found = execute("seq 1 5000; exit 3")
    assert found.how == "ended with status 3"
    assert found.output.endswith("4999\n5000")
    assert len(found.output) < 2_001
    assert len(capfdbinary.readouterr().err) == len("".join(f"{n}\n" for n in range(1, 5_001)))
    assert execute("kill -9 $$").how == "ended with status 137"
    assert execute("exit 1").output == "nothing"


def test_a_command_that_is_too_slow_is_ended_with_all_that_it_started(
    execute: Run, tmp_path: Path
) -> None:
    found = execute("echo begun; sleep 60 & echo $! > $PENSTOCK_FOLDER/child; wait", seconds_max=2)
    assert found == CommandEnd("was ended: it had not finished after 2 s", "begun")
    eventually(lambda: is_gone(tmp_path / "child"))


def test_it_is_asked_before_it_is_killed(execute: Run, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    asked = f"trap 'echo bye; exit 0' TERM; touch {ready}; while :; do sleep 0.02; done"
    found = execute(asked, given_up=ready.exists)
    assert (found.how, found.given_up) == ("was ended with its sidecar", True)
    assert found.output.endswith("bye")


def test_what_it_leaves_behind_holds_nobody_up(execute: Run, tmp_path: Path) -> None:
    began_s = time.monotonic()
    assert execute("sleep 60 & echo $! > $PENSTOCK_FOLDER/child; echo ok") == CommandEnd("", "ok")
    assert time.monotonic() - began_s < 30
    assert not is_gone(tmp_path / "child")
    os.kill(int((tmp_path / "child").read_text()), 9)
