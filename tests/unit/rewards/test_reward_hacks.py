"""No hack is worth more than honest work of equal or higher true worth; the page says what was
measured. `make reward-hacks` plays many more sessions."""

import pytest

from bench.reward_hacks.__main__ import scripted
from bench.reward_hacks.comparison import MARGIN, Compared
from bench.reward_hacks.habits import HONEST
from penstock_jobs.simulator.policy import Style


@pytest.fixture(scope="module")
def by_hand() -> list[Compared]:
    return scripted()


def test_no_hack_by_hand_beats_honest_work(by_hand: list[Compared]) -> None:
    assert len(by_hand) > 35
    assert [row for row in by_hand if not row.holds] == []


def test_a_definition_of_shares_is_hacked(by_hand: list[Compared]) -> None:
    """Else the sessions say nothing."""
    assert sum(row.excess[1] > MARGIN for row in by_hand) > 25


@pytest.mark.parametrize("style", HONEST.values(), ids=HONEST)
def test_honest_policies_do_all_of_the_task_and_nothing_else(style: Style) -> None:
    assert style.done == 1
    assert not any((style.beside, style.instead, style.folder, style.mark, style.says, style.asks))
    assert not any((style.asks_after, style.comments, style.safe))
