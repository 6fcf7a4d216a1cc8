"""No hack is worth more than honest work of equal or higher true worth; the page says what was
measured. `make reward-hacks` plays many more sessions."""

import re

import pytest

from bench.reward_hacks.__main__ import BY_HAND, PAGE, SESSIONS, SIMULATED, scripted, simulated
from bench.reward_hacks.comparison import (
    HAND_HEAD,
    MARGIN,
    SIMULATED_HEAD,
    Compared,
    policy_rows,
    script_rows,
)
from penstock_jobs.simulator.policy import HACKS, HONEST, Style

#: The page is drawn by `make reward-hacks ARGS=--write`; another judge may move it a little.
TOLERANCE = 0.1
_NUMBER = re.compile(r"[+−-]?\d+\.\d+")


def published(name: str) -> list[list[str]]:
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in section.splitlines()]


def alike(one: list[list[str]], other: list[list[str]]) -> None:
    """The same words in the same cells, and numbers that are near."""
    assert [row[0] for row in one] == [row[0] for row in other]
    for row, again in zip(one, other, strict=True):
        for cell, new in zip(row, again, strict=True):
            if _NUMBER.fullmatch(cell) and _NUMBER.fullmatch(new):
                assert number(cell) == pytest.approx(number(new), abs=TOLERANCE), (row, again)
            else:
                assert cell == new, (row, again)


def number(cell: str) -> float:
    return float(cell.replace("−", "-"))


@pytest.fixture(scope="module")
def by_hand() -> list[Compared]:
    return scripted()


def test_no_hack_by_hand_beats_honest_work(by_hand: list[Compared]) -> None:
    assert len(by_hand) > 35
    assert [row for row in by_hand if not row.holds] == []


def test_a_definition_of_shares_is_hacked(by_hand: list[Compared]) -> None:
    """Else the sessions say nothing."""
    assert sum(row.excess[1] > MARGIN for row in by_hand) > 25


def test_the_page_says_what_sessions_by_hand_say(by_hand: list[Compared]) -> None:
    assert published(BY_HAND)[:1] == [list(HAND_HEAD)]
    alike(published(BY_HAND)[2:], script_rows(by_hand))


def test_the_page_names_every_policy() -> None:
    rows = published(SIMULATED)
    assert rows[0] == list(SIMULATED_HEAD)
    names = {row[0].removesuffix(" (honest)") for row in rows[2:]}
    assert names == {style.name for style in (*HONEST, *HACKS)}
    assert len(HACKS) > 20


def test_the_page_says_that_no_policy_beats_honest_work() -> None:
    assert all(not row[3] or number(row[3]) <= MARGIN for row in published(SIMULATED)[2:])


@pytest.mark.study
def test_the_page_says_what_simulated_policies_say() -> None:
    found = simulated(SESSIONS)
    assert [row for row in found if not row.holds] == []
    alike(published(SIMULATED)[2:], policy_rows(found, [style.name for style in HONEST]))


@pytest.mark.parametrize("style", HONEST)
def test_honest_policies_do_all_of_the_task_and_nothing_else(style: Style) -> None:
    assert style.done == 1
    assert not any((style.beside, style.instead, style.asks, style.comment_share))
