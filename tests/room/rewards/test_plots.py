"""The plots of the pages on rewards: of every reward, and drawn by the functions as they are."""

import re
from itertools import zip_longest
from pathlib import Path

import pytest

from bench.plots.__main__ import FOLDER, PLOTS
from penstock_jobs.rewards.definition import all_rewards
from tests.support.repository import ROOT

PAGES = [ROOT / "docs" / "rewards.md", ROOT / "bench" / "pages" / "rewards.md"]
PAGE = "".join(page.read_text(encoding="utf-8") for page in PAGES)
EMBEDDED = dict(
    re.findall(r"^!\[([^\]]{40,})\]\((?:\.\./\.\./docs/)?plots/(\w+)\.svg\)$", PAGE, re.MULTILINE)
)
KIB = 1024
#: Numbers in tags may differ by this, in points.
TOLERANCE = 0.5
#: In which plot those are that have none of their own.
BESIDE = {
    "dissatisfied_by_llm": "dissatisfied_follow_up",
    "explicit_feedback": "turns",
    "four_gram_presence": "four_grams",
    "four_gram_range": "four_grams",
    "invalid_tool_calls": "turns",
    "judged_follow_up": "dissatisfied_follow_up",
    "latency": "turns",
    "only_terminal": "turns",
    "open_todos": "turns",
    "taken_back": "work_left",
    "tests_failing": "turns",
    "tests_passing": "turns",
}
#: Yes or no, or what others say: there is nothing to draw.
WITHOUT = {"asked_again", "asked_instead", "reported_reward", "request_verdict"}


def test_every_reward_has_a_plot_that_the_page_shows() -> None:
    shown = set(EMBEDDED.values())
    for name in all_rewards():
        assert name in WITHOUT or BESIDE.get(name, name) in shown


def test_the_page_shows_all_plots_and_describes_each() -> None:
    assert sorted(EMBEDDED.values()) == sorted(PLOTS)
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PLOTS)


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_what_its_functions_draw(name: str, tmp_path: Path) -> None:
    """Else `make plots` was not run."""
    committed = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert len(committed.encode()) < 40 * KIB
    PLOTS[name](tmp_path / "again.svg")
    again = (tmp_path / "again.svg").read_text(encoding="utf-8")
    for one, other in zip_longest(_parts(committed), _parts(again)):
        assert _alike(one, other), (one, other)


def _parts(svg: str) -> list[str]:
    """Numbers, and what stands between them; without names that are made from numbers."""
    named = re.sub(r"(?<=[#\"])[mpc][0-9a-f]{10}(?=[)\"])", "name", svg)
    return re.split(r"(-?\d+(?:\.\d+)?)", named)


def _alike(one: str | None, other: str | None) -> bool:
    if one == other:
        return True
    try:
        return abs(float(one or "") - float(other or "")) <= TOLERANCE
    except ValueError:
        return False
