"""Killed anywhere in a cycle, the loop finishes with the same result as without."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.loop.dying import POINTS
from tests.support.repository import ROOT


@pytest.mark.long
def test_killed_at_every_boundary_of_a_stage_and_at_random_moments(tmp_path: Path) -> None:
    assert_kills_change_nothing(tmp_path, 4)


def assert_kills_change_nothing(folder: Path, kills: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.loop.dying", str(folder), str(kills)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout)
    [cycle] = found["wanted"]["cycles"]
    assert cycle[1] == "promoted"
    assert len(POINTS) == 29
    assert found["random"]
    assert all(one == found["wanted"] for one in (found["points"], *found["random"]))
