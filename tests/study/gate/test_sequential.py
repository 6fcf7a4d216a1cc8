"""What may be looked at again and again errs no more often for that."""

from collections.abc import Iterator
from itertools import count
from math import expm1, log1p
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from bench.gate_study.sequential import (
    STREAMS,
    Stream,
    dissatisfied,
    every_look,
    exceeds,
    first_answers,
    mismatch,
    persistence,
    walk,
)
from penstock.registry.gate.sequential import (
    Arm,
    ArmRequest,
    PhaseUsers,
    UserResult,
    check_sample_ratio,
    compare_arms,
    mixture_bound,
    on_log_scale,
)

ALPHA = 0.05
QUESTION = ArmRequest(direction="max", margin=0.05)


def cells_of(user: Any, canary: Any, value: Any, phase: int = 0) -> list[UserResult]:
    found: dict[tuple[str, Arm], list[float]] = {}
    for who, which, one in zip(user, canary, value, strict=True):
        found.setdefault((f"u-{who}", "canary" if which else "current"), []).append(float(one))
    return [
        UserResult(phase, arm, name, len(values), sum(values))
        for (name, arm), values in found.items()
    ]


@pytest.mark.parametrize("stream", [STREAMS[0], STREAMS[7], STREAMS[9]], ids=lambda one: one.name)
def test_the_study_looks_with_the_same_numbers(stream: Stream) -> None:
    user, canary, value = walk(np.random.default_rng(1), stream, stream.margin)
    difference, variance, fewest = every_look(user, canary, value, stream.question)
    for at in (400, 1500, 4999):
        look = compare_arms(
            cells_of(*(one[: at + 1] for one in (user, canary, value))), stream.question
        )
        assert look.difference == pytest.approx(difference[at])
        assert look.standard_error == pytest.approx(variance[at] ** 0.5)
        assert min(look.clusters.values()) == pytest.approx(fewest[at])
        assert sum(look.sessions.values()) == at + 1


@pytest.mark.parametrize(
    "stream",
    [
        Stream("persistence", persistence, 0.05, sessions=2000),
        Stream("a small canary", dissatisfied(0.05), 0.05, "min", share=0.1, sessions=2000),
        Stream("rare", dissatisfied(0.02), 0.02, "min", users=20_000, sessions=2000),
    ],
    ids=lambda one: one.name,
)
def test_after_every_session_it_errs_as_rarely_as_it_says(stream: Stream) -> None:
    random = np.random.default_rng(7)
    answers = np.array([first_answers(random, stream, stream.margin) for _ in range(500)])
    for rate in (answers < stream.sessions).mean(axis=0):
        assert not exceeds(rate, ALPHA, len(answers))


def test_it_finds_what_is_there() -> None:
    random = np.random.default_rng(3)
    assert first_answers(random, STREAMS[0], 4 * STREAMS[0].margin)[1] < 1000
    assert first_answers(random, STREAMS[0], -STREAMS[0].margin)[0] < 2000


def test_sessions_of_one_user_are_not_many_users() -> None:
    cells = [UserResult(0, arm, f"{arm}-{at}", 100, 100.0) for arm in arms() for at in range(10)]
    look = compare_arms(cells, QUESTION)
    assert (look.outcome, look.lower) == ("undecided", None)
    assert look.sessions == {"current": 1000, "canary": 1000}
    assert "fewer than 30 users" in look.why


def arms() -> tuple[Arm, Arm]:
    return "current", "canary"


def drifting(random: Generator, *, steps: Any, worse: float) -> Iterator[list[UserResult]]:
    """The metric falls from phase to phase for all, while the canary's share grows; users stay, and
    some of them move to the canary."""
    cells: list[UserResult] = []
    own, place = random.normal(0, 0.1, 600), random.random(600)
    for phase, share, level in zip(count(), steps, (0.8, 0.6, 0.4), strict=False):
        user = random.integers(600, size=1500)
        canary = (place < share)[user]
        value = np.clip(level + own[user] + random.normal(0, 0.1, len(user)), 0, 1)
        cells = [*cells, *cells_of(user, canary, value - canary * worse, phase)]
        yield cells


def test_a_drift_while_the_share_grows_is_no_difference() -> None:
    random = np.random.default_rng(5)
    found = []
    for _ in range(40):
        *_, cells = drifting(random, steps=(0.1, 0.3, 0.6), worse=0.0)
        found.append(compare_arms(cells, QUESTION))
    assert {one.outcome for one in found} == {"pass"}
    assert abs(np.mean([one.difference or 0 for one in found])) < 0.01
    as_one = compare_arms([UserResult(0, *list(vars(one).values())[1:]) for one in cells], QUESTION)
    assert as_one.outcome == "breach"  # what it would say without phases


def test_steps_of_the_share_keep_the_error() -> None:
    random = np.random.default_rng(6)
    wrong = 0
    for _ in range(200):
        looks = [
            compare_arms(cells, QUESTION).outcome
            for cells in drifting(random, steps=(0.1, 0.3, 0.6), worse=0.05)
        ]
        wrong += "pass" in looks
    assert not exceeds(wrong / 200, ALPHA, 200)


def test_nothing_seen_is_undecided() -> None:
    assert compare_arms([], QUESTION).outcome == "undecided"
    only = [UserResult(0, "canary", f"u-{at}", 1, 1.0) for at in range(100)]
    assert compare_arms(only, QUESTION).outcome == "undecided"
    unlike = [UserResult(1, "current", f"v-{at}", 1, 1.0) for at in range(100)]
    assert compare_arms([*only, *unlike], QUESTION).outcome == "undecided"  # never at the same time


def test_a_rate_that_never_was_is_not_certain() -> None:
    cells = [UserResult(0, arm, f"{arm}-{at}", 1, 0.0) for arm in arms() for at in range(40)]
    look = compare_arms(cells, ArmRequest(direction="min", margin=0.05))
    assert look.outcome == "undecided"
    assert look.upper is not None
    assert look.upper > 0.05


def test_latency_is_compared_as_a_ratio() -> None:
    assert on_log_scale(0.0) == 0.0
    random = np.random.default_rng(4)
    question = ArmRequest(direction="min", margin=log1p(0.2), bounds=None)
    cells = [
        UserResult(0, arm, f"{arm}-{at}", 1, on_log_scale(float(value)))
        for arm, factor in (("current", 1.0), ("canary", 2.0))
        for at, value in enumerate(factor * 800 * random.lognormal(0, 0.5, 300))
        if arm in arms()
    ]
    look = compare_arms(cells, question)
    assert look.outcome == "breach"
    assert expm1(look.difference or 0) == pytest.approx(1.0, abs=0.25)


def test_the_bound_holds_for_a_walk() -> None:
    random = np.random.default_rng(8)
    steps = np.arange(1, 2001)
    walks = np.cumsum(random.normal(size=(1000, len(steps))), axis=1) / steps
    crossed = (walks > mixture_bound(1 / steps, at=300.0, alpha=ALPHA)).any(axis=1).mean()
    assert 0.01 < crossed < ALPHA


def test_the_sample_ratio_may_be_looked_at_often() -> None:
    random = np.random.default_rng(9)
    steps, users = (0.05, 0.25, 0.5), 300
    after = np.array([mismatch(random, steps, 0.0, users) for _ in range(150)])
    assert not exceeds(float((after <= 900).mean()), ALPHA, len(after))
    assert mismatch(random, steps, 0.5, users) <= 900


def test_the_sample_ratio_says_what_it_saw() -> None:
    fits = check_sample_ratio(
        [PhaseUsers(0.05, 50, 950), PhaseUsers(0.5, 500, 500), PhaseUsers(0.0, 0, 10)]
    )
    assert (fits.outcome, fits.users, fits.expected, fits.found) == ("fits", 2000, 550.0, 550)
    assert check_sample_ratio([]).outcome == "fits"
    assert check_sample_ratio([]).p == 1.0
    lost = check_sample_ratio([PhaseUsers(0.05, 20, 950)])
    assert lost.outcome == "mismatch"
    assert lost.p < 0.001
