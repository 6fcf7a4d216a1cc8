"""Killed at any step of a promotion or a rollback: all of it happened, or none."""

import json
import subprocess
import sys

from tests.support.channels.dying import ACTIONS
from tests.support.repository import ROOT


def test_a_change_that_is_killed_anywhere_happened_as_a_whole_or_not_at_all(
    database_url: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.channels.dying", database_url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed = json.loads(done.stdout)
    assert killed.keys() == ACTIONS.keys()
    assert min(killed.values()) >= 4, killed
    assert min(killed[name] for name in ("promote", "canary", "rollback")) >= 8, killed
