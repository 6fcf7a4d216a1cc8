"""Rates that labels correct: right for any judge, by hand and by simulation."""

import numpy as np
import pytest

from bench.rates_study import World, covered
from penstock_jobs.rewards.followups.dissatisfaction import (
    LABELS_MIN,
    JudgedMessages,
    correct,
    difference,
    interval,
)

NAN = float("nan")


def messages(
    judged: list[float],
    truth: list[float],
    place: list[float],
    session: list[int] | None = None,
    chosen: list[bool] | None = None,
) -> JudgedMessages:
    sessions = session or list(range(len(judged)))
    return JudgedMessages(
        np.array(sessions),
        max(sessions) + 1,
        np.array(judged),
        np.array(truth),
        np.array(place),
        np.array(chosen or [False] * len(judged)),
    )


def test_all_labelled_is_the_truth() -> None:
    [rate] = correct([messages([0.9, 0.8, 0.2], [0.0, 1.0, 0.0], [0.1, 0.5, 0.9])])
    assert rate.rate == 1.0
    assert rate.value == pytest.approx(1 / 3)


def test_without_labels_nothing_is_known() -> None:
    [rate] = correct([messages([0.9, 0.1], [NAN, NAN], [0.3, 0.7])])
    assert (rate.value, rate.labels, interval(rate, 0.05)) == (None, 0, None)
    assert rate.judged == pytest.approx(0.5)


def test_the_sample_ends_at_the_first_place_without_a_label() -> None:
    group = messages([0.5] * 4, [1.0, 0.0, NAN, 1.0], [0.1, 0.2, 0.4, 0.8])
    drawn, rate = group.sampled()
    # The label at 0.8 came before its turn: it is not in the sample.
    assert (drawn.tolist(), rate) == ([True, True, False, False], 0.4)


def test_what_was_chosen_counts_for_itself_alone() -> None:
    # The judge is believed in full of what nobody labelled; the chosen one is known.
    truth = [1.0, 0.0, 1.0, NAN, 0.0]
    group = messages(
        [1.0, 0.0, 0.0, 0.0, 0.0],
        truth,
        [0.1, 0.2, 0.9, 0.5, 0.3],
        chosen=[False] * 2 + [True] + [False] * 2,
    )
    [rate] = correct([group])
    assert (rate.labels, rate.chosen, rate.belief) == (3, 1, 1.0)
    assert rate.value == pytest.approx(2 / 5)


def test_a_session_counts_once() -> None:
    [rate] = correct(
        [messages([0.0] * 4, [1.0, 1.0, 1.0, 0.0], [0.1, 0.2, 0.3, 0.4], session=[0, 0, 0, 1])]
    )
    assert rate.values.tolist() == pytest.approx([1.0, 0.0])


def test_too_few_labels_have_no_interval() -> None:
    count = LABELS_MIN - 1
    places = [(at + 1) / 100 for at in range(60)]
    truth = [float(at % 5 == 0) for at in range(count)] + [NAN] * (60 - count)
    [rate] = correct([messages([0.2] * 60, truth, places)])
    assert interval(rate, 0.05) is None
    assert difference(rate, rate, 0.05) is None


@pytest.mark.parametrize(
    "world",
    [
        World(rate=0.1, sharpness=1.5),
        World(rate=0.1, sharpness=0.5, bias=0.8, chosen=40),
        World(rate=0.3, sharpness=0.0),
        World(rate=0.3, sharpness=1.5, labels=300, errors=(0.1, 0.1), repeats=30),
    ],
    ids=[
        "a good judge",
        "a biased judge, chosen labels too",
        "a judge that guesses",
        "labels that err",
    ],
)
def test_intervals_hold_the_truth(world: World) -> None:
    """The long form is `make rates-study`."""
    samples = 150
    share, _ = covered(world, samples, seed=11)
    luck = 3.1 * (0.05 * 0.95 / samples) ** 0.5
    assert share >= 0.95 - luck


def test_the_judge_narrows_what_labels_alone_leave() -> None:
    good, guessing = World(rate=0.3, sharpness=1.5), World(rate=0.3, sharpness=0.0)
    widths = [covered(world, 40, seed=5)[1] for world in (good, guessing)]
    assert widths[0] < 0.7 * widths[1]
