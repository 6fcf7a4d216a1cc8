"""Rates of requests that labels correct: right for any judge, by hand and by simulation."""

from typing import cast

import numpy as np
import pytest

from bench.rates_study import World, covered
from penstock_jobs.rewards.followups.dissatisfaction import JudgedRequests, correct, interval
from penstock_jobs.rewards.followups.labels import (
    EndedRequests,
    GivenLabel,
    JudgedFollowUp,
    JudgedFollowUps,
    LabelledRequests,
    LabelRepeats,
    StoredLabel,
)
from tests.support.rewards.followups.judged_lakes import judged_message

NAN = float("nan")
NEVER = LabelRepeats(0, 0)


def requests(
    judged: list[float], truth: list[float], place: list[float], session: list[int] | None = None
) -> JudgedRequests:
    """Messages of which each ends a request."""
    sessions = session or list(range(len(judged)))
    values = np.array(truth)
    ended = EndedRequests(np.where(np.isnan(values), np.nan, 1.0), values)
    ones = np.ones(len(judged))
    labelled = LabelledRequests(ended, ones, np.where(np.isnan(values), 0, -1))
    alone, numbers = EndedRequests(ones, np.array(judged)), np.array(sessions)
    return JudgedRequests(numbers, max(sessions) + 1, alone, labelled, np.array(place), ones < 0)


def test_all_labelled_is_the_truth_of_requests_not_of_sessions() -> None:
    places = [0.1, 0.2, 0.3, 0.4]
    [rate] = correct([requests([0.9] * 4, [1.0, 1.0, 1.0, 0.0], places, [0, 0, 0, 1])], NEVER)
    assert rate.rate == 1.0
    assert rate.value == pytest.approx(3 / 4)


def test_without_labels_nothing_is_known() -> None:
    [rate] = correct([requests([0.9, 0.1], [NAN, NAN], [0.3, 0.7])], NEVER)
    assert (rate.value, interval(rate, 0.05), rate.judged) == (None, None, 0.5)


def test_the_sample_ends_at_the_first_place_that_is_undecided() -> None:
    group = requests([0.5] * 4, [1.0, 0.0, NAN, 1.0], [0.1, 0.2, 0.4, 0.8])
    drawn, rate = group.sampled()
    # The label at 0.8 came before its turn: it is not in the sample.
    assert (drawn.tolist(), rate) == ([True, True, False, False], 0.4)


@pytest.mark.parametrize(
    ("labels", "ended", "missing"),
    [
        # A request is as bad as the worst that is said of it, however late it is mended.
        ("corrects accepts moves_on accepts", [(0, 0), (0, 0), (1, 1), (1, 0)], [-1, -1, -1, -1]),
        # Only messages that end a request need others, and only back to a complaint.
        ("asks - moves_on -", [(0, 0), None, None, None], [-1, 1, 1, 3]),
        ("- complains moves_on -", [None, (0, 0), (1, 1), None], [0, -1, -1, 3]),
        # Where nobody judged the work there is no verdict; nobody can tell counts as half.
        ("accepts moves_on asks refines", [(0, 0), (1, 0), (0, 0), (0, 0)], [-1] * 4),
        ("accepts unclear moves_on moves_on", [(0, 0), (0, 0), (1, 0.5), (1, 0)], [-1] * 4),
    ],
)
def test_labels_decide_requests(
    labels: str, ended: list[tuple[float, float] | None], missing: list[int]
) -> None:
    talk = [judged_message("a", 0.4, turn=turn) for turn in range(4)]
    given = {
        each.place: StoredLabel(*each.place, "", cast(GivenLabel, label), True, 1, "ann", False)
        for each, label in zip(talk, labels.split(), strict=True)
        if label != "-"
    }
    # Another conversation, and a stop, which needs no label.
    stop = judged_message("b", 1.0)._replace(label=None)
    found = JudgedFollowUps.of("t", [*talk, stop]).labelled_requests(given)
    assert found.missing.tolist() == [*missing, -1]
    pairs = [
        None if np.isnan(one) else (one, other) for one, other in zip(*found.ended, strict=True)
    ]
    assert pairs == [*ended, (1, 1)]


def test_the_judge_alone_divides_requests_by_its_own_labels() -> None:
    said: list[JudgedFollowUp] = [
        judged_message("a", 0.8, turn=2)._replace(label="corrects"),
        judged_message("a", 0.1, turn=3)._replace(label="moves_on"),
        judged_message("a", 0.2, turn=4)._replace(answers=True),
        judged_message("b", 0.3),
    ]
    alone = JudgedFollowUps.of("t", said).judged_requests()
    assert alone.total.tolist() == [0, 1, 0, 1]
    assert alone.dissatisfied.tolist() == [0, 0.8, 0, 0.3]


@pytest.mark.parametrize(
    "world",
    [
        World(rate=0.2, sharpness=1.5),
        World(rate=0.2, sharpness=0.5, bias=0.8),
        World(rate=0.5, sharpness=0.0),
        World(rate=0.5, sharpness=1.5, drawn=300, errors=(0.0, 0.0, 0.1), repeats=30),
    ],
    ids=["a good judge", "a biased judge", "a judge that guesses", "labels that err"],
)
def test_intervals_hold_the_truth(world: World) -> None:
    """The long form is `make rates-study`."""
    samples = 100
    share, _ = covered(world, samples, seed=11)
    luck = 3.1 * (0.05 * 0.95 / samples) ** 0.5
    assert share >= 0.95 - luck
