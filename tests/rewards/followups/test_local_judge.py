"""The local judge: made from the examples, and as good as it is said to be."""

import numpy as np
import pytest

from bench.judge_training import train, train_examples
from penstock_jobs.rewards.followups.features import features
from penstock_jobs.rewards.followups.judge import (
    Message,
    evaluate,
    fresh_examples,
    held_out_examples,
)
from penstock_jobs.rewards.followups.local_judge import LocalJudge, committed_model


def test_the_committed_model_is_the_one_of_the_committed_examples() -> None:
    made, committed = train(train_examples()), committed_model()
    assert made.examples == committed.examples
    # Another order of additions may move a weight over the border between two steps.
    assert np.abs(made.weights.astype(int) - committed.weights.astype(int)).max() <= 1
    assert np.allclose(made.scale, committed.scale, rtol=1e-3)
    assert made.temperature == pytest.approx(committed.temperature, rel=0.05)


def test_quality_on_examples_that_were_held_out() -> None:
    held_out = [one for one in held_out_examples() if not one.fresh]
    found = evaluate(LocalJudge(), held_out)
    assert (found.dissatisfied.precision or 0) > 0.8
    assert (found.dissatisfied.recall or 0) > 0.8
    assert found.dissatisfied_calibration_error < 0.1


def test_quality_on_examples_written_later() -> None:
    """The honest figures are lower; this holds what there is."""
    found = evaluate(LocalJudge(), fresh_examples())
    assert (found.dissatisfied.precision or 0) > 0.6
    assert (found.dissatisfied.recall or 0) > 0.6


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Perfect, thanks! Commit it and go on with the next step.", "moves_on"),
        ("Please revert your last commit, I want the old version back.", "reverts"),
        ("Never mind, I'll do it myself.", "abandons"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3',
            "reports_failure",
        ),
        ("Why do we need a lock here?", "asks"),
    ],
)
def test_plain_cases(text: str, label: str) -> None:
    [found] = LocalJudge().judge([Message(text=text, agent="Done.", edited=True)])
    assert found.label == label


def test_a_message_is_judged_alike_alone_and_among_others() -> None:
    messages = [one.message for one in held_out_examples()]
    together = LocalJudge().judge(messages)
    for at in range(0, len(messages), 20):
        [alone] = LocalJudge().judge([messages[at]])
        assert alone.label == together[at].label
        assert alone.confidence == pytest.approx(together[at].confidence)


def test_probabilities_fit_together() -> None:
    for found in LocalJudge().judge([one.message for one in held_out_examples()]):
        assert 0 <= found.dissatisfied <= 1
        assert 1 / 8 <= found.confidence <= 1


@pytest.mark.parametrize(
    "text", ["", " \n", "?", "\ud800", "\x00", "```", "。", "🎉", "a" * 1_000_000]
)
def test_any_text_gets_a_label(text: str) -> None:
    [found] = LocalJudge().judge([Message(text=text)])
    assert found.label is not None


def test_no_messages_no_judgements() -> None:
    assert LocalJudge().judge([]) == []


def test_the_middle_of_a_long_message_costs_nothing() -> None:
    """However much is pasted, what is looked at is bounded."""
    short = Message(text="fails:\n" + "x = 1\n" * 2_000 + "why?")
    long = Message(text="fails:\n" + "x = 1\n" * 200_000 + "why?")
    assert len(features([long]).row) <= len(features([short]).row) + 50
