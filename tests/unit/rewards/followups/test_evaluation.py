"""Figures worked by hand."""

from collections.abc import Sequence

import pytest

from penstock_jobs.rewards.followups.judge import (
    Example,
    Judgement,
    Label,
    Message,
    Unjudged,
    evaluate,
    reliability,
)


class Scripted:
    """Says what it was told to say."""

    name = "scripted"
    version = "1"

    def __init__(self, judgements: Sequence[Judgement | Unjudged]) -> None:
        self._judgements = judgements

    def judge(self, messages: Sequence[Message]) -> Sequence[Judgement | Unjudged]:
        return self._judgements[: len(messages)]


def said(label: Label | None, confidence: float, dissatisfied: float) -> Judgement | Unjudged:
    return Judgement(label, confidence, dissatisfied) if label else "budget"


def example(label: Label) -> Example:
    return Example(Message(text=label), label, "en")


def test_precision_recall_and_what_was_not_judged() -> None:
    examples = [example(label) for label in ("reverts", "reverts", "asks", "asks", "corrects")]
    judge = Scripted(
        [
            said("reverts", 0.9, 0.9),
            said("asks", 0.6, 0.4),
            said("asks", 0.8, 0.1),
            said("reverts", 0.5, 0.7),
            said(None, 0.0, 0.0),
        ]
    )
    found = evaluate(judge, examples)
    assert found.judge == "scripted@1"
    assert found.examples == 5
    assert found.unjudged == {"budget": 1}
    assert found.accuracy == 0.5
    reverts = found.labels["reverts"]
    assert (reverts.precision, reverts.recall, reverts.f1, reverts.support) == (0.5, 0.5, 0.5, 2)
    assert found.labels["complains"].precision is None
    assert found.labels["complains"].recall is None
    assert (found.dissatisfied.precision, found.dissatisfied.recall) == (0.5, 0.5)
    assert found.confusion["asks"]["reverts"] == 1
    # |0.9 - 1|, |0.4 - 1|, |0.1 - 0| and |0.7 - 0|, each in a bin of its own.
    assert found.dissatisfied_calibration_error == pytest.approx(1.5 / 4)


def test_reliability_bins() -> None:
    low, high = reliability([(0.12, False), (0.18, True), (1.0, True)])
    assert (low.low, low.high, low.count, low.observed) == (0.1, 0.2, 2, 0.5)
    assert low.predicted == pytest.approx(0.15)
    assert (high.count, high.predicted, high.observed) == (1, 1.0, 1.0)


def test_nothing_to_evaluate() -> None:
    found = evaluate(Scripted([]), [])
    assert (found.accuracy, found.dissatisfied.f1, found.dissatisfied_reliability) == (0, None, ())
