"""The study beside `git blame`, on a small history."""

import os
import subprocess
from pathlib import Path

import pytest

from bench.blame_study import Comparison, History, compare

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": "a@b.c"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}
FUNCTION = "def total(prices, taxes):\n    added = sums(prices)\n    return added + sums(taxes)\n"
MORE = "def mean(prices):\n    return total(prices, ()) / len(prices)\n"


@pytest.fixture
def history(tmp_path: Path) -> History:
    def git(*arguments: str) -> None:
        command = ["git", "-C", str(tmp_path), *arguments]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | ENVIRONMENT)

    def commit(**texts: str | None) -> None:
        for name, text in texts.items():
            path = tmp_path / f"{name}.py"
            path.unlink() if text is None else path.write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", "change")

    git("init", "-q")
    commit(a="import sums\n")
    commit(a="import sums\n\n\n" + FUNCTION + "\n\n" + MORE)
    commit(a="import sums\n\n\n" + MORE + "\n\n" + FUNCTION)
    commit(a="import sums\n\n\n" + MORE + "\n\n" + FUNCTION.replace("added", "all_of_them"))
    commit(a=None, b="import sums\n\n\n" + MORE + "\n\n" + FUNCTION.replace("added", "all_of_them"))
    commit(c="x = 1\n")
    return History(tmp_path)


def test_both_agree_on_moves_renames_and_changed_lines(history: History) -> None:
    assert len(history.steps) == 6
    comparison = Comparison()
    compare(history, 1, 5, comparison)
    assert (comparison.generous, comparison.strict, comparison.copied) == (0, 0, 0)
    assert comparison.agreeing == 5
    # Two of five lines changed.
    assert comparison.shares == [(3 / 5, 3 / 5)]
    assert comparison.unscored == 0


def test_a_commit_without_texts_adds_nothing(history: History) -> None:
    comparison = Comparison()
    compare(history, 4, 5, comparison)
    assert comparison.shares == []


def test_lines_on_which_they_differ_are_counted_by_side() -> None:
    comparison = Comparison()
    comparison.add(["x", "y", "y", "z"], ["x", "w", "v"], ["x", "y", "w", "v"])
    assert (comparison.generous, comparison.strict, comparison.agreeing) == (1, 2, 1)
