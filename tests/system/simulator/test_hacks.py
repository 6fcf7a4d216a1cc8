"""Policies with a habit, and what users do about work that was left undone."""

from itertools import chain
from pathlib import Path

import pytest

from bench.reward_hacks.__main__ import compared_definitions
from bench.reward_hacks.comparison import compared_policies
from bench.reward_hacks.simulated import play
from penstock.core.errors import InvalidInput
from penstock_jobs.simulator.policy import HABITS, HACKS, HONEST, Style, find_policy, habit
from penstock_jobs.simulator.production import Checkpoint, Production
from penstock_jobs.simulator.truth import TurnTruth
from tests.support.policy_worth import style_worth

SESSIONS = 60
BY_NAME = {style.name: style for style in (*HONEST, *HACKS)}


def turns_of(style: Style, sessions: int = 150) -> list[TurnTruth]:
    production = Production(4, [Checkpoint(style.name, habit(style))])
    lived = chain.from_iterable(production.sessions(sessions))
    return [turn for session in lived for turn in session.truth.turns]


def test_no_policy_beats_honest_work(tmp_path: Path) -> None:
    """Over few sessions luck is larger than the margin of the study, which plays many."""
    rows = compared_policies(play(tmp_path / "lake", compared_definitions(), SESSIONS))
    assert {row.name: row.excess[0] for row in rows if row.excess[0] > 0.1} == {}
    # A definition of shares is hacked by most.
    assert sum(row.excess[1] > 0.1 for row in rows) > 10


@pytest.mark.parametrize("name", ["careful", "poor", "poor+notes", "split", "tiny", "only notes"])
def test_turns_are_worth_what_the_style_is(name: str) -> None:
    style = BY_NAME[name]
    worth = [turn.worth for turn in turns_of(style)]
    assert sum(worth) / len(worth) == pytest.approx(style_worth(style), abs=0.04)


def test_what_is_added_changes_nothing_else() -> None:
    """The same requests, edits and reactions, so that only the addition can make a difference."""
    alone, beside = (turns_of(BY_NAME[name], 40) for name in ("poor", "poor+generated"))
    assert [turn.worth for turn in alone] == [turn.worth for turn in beside]
    assert [turn.dissatisfied for turn in alone] == [turn.dissatisfied for turn in beside]


def test_users_finish_what_is_missing_or_ask_again() -> None:
    missing = [turn for turn in turns_of(BY_NAME["tiny"]) if not turn.broken]
    assert {turn.missing for turn in missing} == {0.75}
    by_hand = sum(turn.by_hand for turn in missing) / len(missing)
    assert by_hand == pytest.approx(0.6 * 0.75, abs=0.08)
    assert any(turn.asked_again for turn in missing)
    whole = [turn for turn in turns_of(BY_NAME["careful"]) if not turn.broken]
    assert not any(turn.by_hand or turn.asked_again for turn in whole)


def test_a_habit_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"did you mean poor\+notes"):
        find_policy("poor+note")


def test_a_habit_has_one_choice_and_is_found_by_its_name() -> None:
    policy = find_policy("poor+notes")
    assert policy is HABITS["poor+notes"]
    assert find_policy("good").habit is None
    production = Production(4, [Checkpoint("c", policy)])
    assert {turn.style for one in production.session(0) for turn in one.truth.turns} <= {
        "poor+notes"
    }
