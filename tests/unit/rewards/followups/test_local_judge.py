"""The local judge: made from the examples, and as good as it is said to be."""

import pytest

from bench.judge_training import train_groups
from penstock_jobs.rewards.followups.features import features
from penstock_jobs.rewards.followups.judge import (
    DISSATISFIED,
    Message,
    evaluate,
    fresh_examples,
    held_out_examples,
)
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from tests.support.labelled_messages import EVERYDAY, HELD_OUT, labelled_messages


def test_the_held_out_messages_are_many_and_in_many_languages() -> None:
    everyday, messages = labelled_messages(EVERYDAY), labelled_messages(HELD_OUT)
    assert min(len(everyday), len(messages)) > 280
    assert len({each.language for each in messages}) >= 15
    learned = {each.message.text for group in train_groups() for each in group}
    held_out = (*everyday, *messages, *held_out_examples())
    assert learned.isdisjoint(each.message.text for each in held_out)


@pytest.mark.parametrize("name", [EVERYDAY, HELD_OUT])
def test_quality_on_messages_that_nothing_was_chosen_by(name: str) -> None:
    found = evaluate(LocalJudge(), labelled_messages(name))
    assert (found.dissatisfied.f1 or 0) > 0.8
    assert found.brier < 0.2
    assert found.dissatisfied_calibration_error < 0.1


def test_what_it_is_sure_of_is_mostly_so() -> None:
    messages = labelled_messages(HELD_OUT)
    sure = [
        (found.dissatisfied > 0.5) == (each.label in DISSATISFIED)
        for each, found in zip(
            messages, LocalJudge().judge([each.message for each in messages]), strict=True
        )
        if not 0.35 <= found.dissatisfied < 0.65
    ]
    assert len(sure) > 0.6 * len(messages)
    assert sum(sure) / len(sure) > 0.8


def test_quality_on_examples_that_came_before() -> None:
    held_out = [one for one in held_out_examples() if not one.fresh]
    found = evaluate(LocalJudge(), held_out)
    assert (found.dissatisfied.precision or 0) > 0.85
    assert (found.dissatisfied.recall or 0) > 0.85
    fresh = evaluate(LocalJudge(), fresh_examples())
    assert (fresh.dissatisfied.f1 or 0) > 0.6


def test_a_message_is_judged_alike_alone_and_among_others() -> None:
    messages = [one.message for one in held_out_examples()]
    assert LocalJudge().judge([]) == []
    together = LocalJudge().judge(messages)
    for at in range(0, len(messages), 20):
        [alone] = LocalJudge().judge([messages[at]])
        assert alone.label == together[at].label
        assert alone.confidence == pytest.approx(together[at].confidence)


@pytest.mark.parametrize(
    ("text", "agent", "dissatisfied"),
    [
        ("Perfect, thanks! Commit it and go on with the next step.", "Done.", False),
        ("Please revert your last commit, I want the old version back.", "Done.", True),
        ('Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3', "Done.", True),
        ("the failing test now passes, on to the next one", "Fixed the test.", False),
        ("fix the error handling in the other module too", "Wrapped it in a try.", False),
        ("no, that's all, thanks", "Anything else?", False),
        ("great, but the button belongs in the header", "Added the button.", True),
        ("looks good. it still crashes when I click save", "Fixed the crash.", True),
        ("```\nERROR expected in this test\nOK 12\n```\nall green, merge it", "Fixed it.", False),
        ("nein, das war's, danke", "Noch etwas?", False),
        ("gracias, pero el botón iba en la cabecera", "Botón añadido.", True),
    ],
)
def test_what_misleads_a_judge_of_words(text: str, agent: str, dissatisfied: bool) -> None:
    [found] = LocalJudge().judge([Message(text=text, agent=agent, edited=True)])
    assert (found.dissatisfied > 0.5) == dissatisfied


@pytest.mark.parametrize(
    "text", ["", " \n", "?", "\ud800", "\x00", "```", "。", "🎉", "a" * 1_000_000]
)
def test_any_text_gets_a_label(text: str) -> None:
    [found] = LocalJudge().judge([Message(text=text)])
    assert found.label is not None


def test_the_middle_of_a_long_message_costs_nothing() -> None:
    """However much is pasted, what is looked at is bounded."""
    short = Message(text="fails:\n" + "x = 1\n" * 2_000 + "why?")
    long = Message(text="fails:\n" + "x = 1\n" * 200_000 + "why?")
    assert len(features([long]).row) <= len(features([short]).row) + 50
