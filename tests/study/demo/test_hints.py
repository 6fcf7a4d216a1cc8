"""What users wrote instead, beside how content they were: which teaches more in a cycle."""

import os
import re
import shutil
import sys
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import pytest
from scipy.stats import t as student

from penstock_jobs.simulator.demo.folders import DemoFolders
from penstock_jobs.simulator.demo.story import LEARN, Act
from tests.study.demo.hint_reader import teach
from tests.support.demo_cycles import play_story
from tests.support.suite_factory import need_isolation

CYCLES, SEEDS = 3, range(1, 6)
ARMS = {"reward": LEARN, "hints": "learn-hints.toml"}
#: Both may go as far from their parent in a cycle, in nats a token.
FURTHEST = 0.3
#: Of the sums that nobody asked.
WANTED = 0.8


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A first checkpoint that can read hints. HINT_READER names one made before."""
    if made := os.environ.get("HINT_READER"):
        return Path(made)
    weights = tmp_path_factory.mktemp("model") / "first.npz"
    teach(weights)
    return weights


def test_hints_and_the_reward_teach_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Path
) -> None:
    need_isolation()

    def prepare(folders: DemoFolders) -> None:
        shutil.copyfile(first, folders.loops / "first.npz")
        for loop in ARMS.values():
            text = (folders.loops / loop).read_text()
            far = re.sub(
                r'(command = ".*\{here\}/\w+\.py)"', rf'\1 --furthest {FURTHEST}"', text, count=1
            )
            (folders.loops / loop).write_text(far)

    curves: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    for seed in SEEDS:
        for arm, loop in ARMS.items():
            acts = [Act(loop, f"cycle {number}", "") for number in range(1, CYCLES + 1)]
            place = tmp_path / f"{arm}-{seed}"
            story = play_story(place, acts, monkeypatch, seed=seed, prepare=prepare)
            served = [one.score_before for one in story.chapters] + [story.ending.score]
            curves[arm].append([score for score in served if score is not None])
            tell(f"{arm} {seed}: " + " ".join(f"{score:.3f}" for score in curves[arm][-1]))
    for arm, own in curves.items():
        means = [interval([curve[at] for curve in own]) for at in range(CYCLES + 1)]
        tell(f"{arm}: " + ", ".join(f"{mean:.3f} ± {half:.3f}" for mean, half in means))
    cycles = {arm: [cycles_to(WANTED, curve) for curve in own] for arm, own in curves.items()}
    tell(f"cycles to {WANTED}: {cycles}")
    pairs = zip(curves["hints"], curves["reward"], strict=True)
    mean, half = interval([fmean(hints) - fmean(reward) for hints, reward in pairs])
    tell(f"mean over all cycles, hints less reward: {mean:.3f} ± {half:.3f}")
    # That both learn; which of them does so in fewer cycles stands in docs/training.md.
    assert all(fmean(curve[-1] - curve[0] for curve in own) > 0.2 for own in curves.values())


def tell(line: str) -> None:
    """With `-s`, for the table in docs/training.md."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def cycles_to(score: float, curve: list[float]) -> int:
    """The cycles until what serves has this score; one more than were played if it never has."""
    return next((at for at, one in enumerate(curve) if one >= score), CYCLES + 1)


def interval(values: list[float]) -> tuple[float, float]:
    """The mean over seeds, and half of its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values), float(half)
