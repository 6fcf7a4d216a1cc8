"""The whole story as a program, and eight cycles of learning from five seeds."""

import subprocess
import sys
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock_jobs.simulator.demo.story import ACTS, LEARN, Act
from tests.support.demo_cycles import play_story
from tests.support.suite_factory import need_isolation

CYCLES = 8
#: Sums that a checkpoint attempts at the suite.
_SUMS = 32 * 12


def test_the_whole_story(tmp_path: Path) -> None:
    need_isolation()
    command = [sys.executable, "-m", "penstock", "demo", "--json", "--data", str(tmp_path / "one")]
    told: dict[str, Any] = msgspec.json.decode(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    assert [one["outcome"] for one in told["chapters"]] == [act.meant for act in ACTS]
    before, after = told["chapters"][0], told["ending"]
    for by in ("measured", "known"):
        assert after[by]["kept"] > before[by]["kept"] + 0.2
        assert after[by]["dissatisfied"] < before[by]["dissatisfied"] - 0.15
    assert after["right"] > before["right"] + 0.3


@pytest.mark.parametrize("seed", range(1, 6))
def test_sums_that_nobody_asked_get_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    need_isolation()
    acts = [Act(LEARN, f"cycle {number}", "") for number in range(1, CYCLES + 1)]
    story = play_story(tmp_path / "demo", acts, monkeypatch, seed=seed)
    scores = [story.chapters[0].score_before, story.ending.score]
    first, last = (score for score in scores if score is not None)
    errors = [sqrt(share * (1 - share) / _SUMS) for share in (first, last)]
    assert last - first > 1.96 * sqrt(errors[0] ** 2 + errors[1] ** 2)
