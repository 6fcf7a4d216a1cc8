"""`penstock canary`, as a person types it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.doors.cli import app
from tests.support.canary_traffic import OLD, WORSE, fill_canary, state
from tests.support.lakes import HandLake, hand_lake


def canary(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["canary", *arguments, "--data", str(data)])


def asked(data: Path, *arguments: str) -> Any:
    done = canary(data, *arguments, "--json")
    assert done.exit_code in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """Its fleet hears of changes at once."""
    (tmp_path / "penstock.toml").write_text("canary_settle_seconds = 0\n")
    with hand_lake(tmp_path) as lake:
        yield lake


def test_status_before_and_after_a_look_and_a_watcher_that_rolls_back(
    lake: HandLake, tmp_path: Path
) -> None:
    fill_canary(lake, WORSE)
    before = canary(tmp_path, "status")
    assert before.exit_code == 0
    assert "ckpt-2 has 50 % of the traffic beside ckpt-1" in before.stderr
    assert "nobody has looked yet" in before.stderr
    early = canary(tmp_path, "step")
    assert early.exit_code == 1
    assert "old; the policy demands 30 min" in early.stderr
    found = asked(tmp_path, "status")
    assert (found["trial"]["kind"], found["look"]["outcome"]) == ("canary", "breach")
    done = canary(tmp_path, "watch", "--once")
    assert done.exit_code == 1
    assert "ROLLED BACK: explicit_feedback: breach" in done.stderr
    assert (state(lake).checkpoint, state(lake).canary, state(lake).pinned) == (OLD, None, True)
    after = canary(tmp_path, "status")
    assert (after.exit_code, "no canary runs" in after.stderr) == (0, True)


def test_a_look_as_a_table_and_as_json(lake: HandLake, tmp_path: Path) -> None:
    fill_canary(lake, {})
    done = canary(tmp_path, "watch", "--once")
    assert done.exit_code == 0, done.stderr
    [pleased] = [one for one in done.stdout.splitlines() if one.startswith("explicit_feedback")]
    assert pleased.split()[1] == "pass"
    assert "sample ratio: fits" in done.stderr
    found = asked(tmp_path, "watch", "--once")
    assert (found["action"], found["look"]["outcome"]) == ("looked", "pass")
    assert [one["scale"] for one in found["look"]["metrics"]] == ["difference", "ratio"]


def test_a_channel_that_nobody_knows_is_named(lake: HandLake, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "canary", "status", "--channel", "prodction"]
    command += ["--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "prodction" in done.stderr
