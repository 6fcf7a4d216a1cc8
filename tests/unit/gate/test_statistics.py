"""The comparison tells the truth: it errs as often as it says, both ways alike, in any order."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.gate_study.paired import Rates, rates
from bench.gate_study.scores import Case
from penstock.registry.gate.statistics import (
    Comparison,
    Ranges,
    chance,
    compare,
    compare_values,
    lower_bound,
)

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
SCORED = st.lists(SCORES, min_size=1, max_size=3)
SIDES = st.integers(2, 40).flatmap(
    lambda tasks: st.lists(
        st.tuples(SCORED, SCORED),
        min_size=tasks,
        max_size=tasks,
    )
)  # fmt: skip


def compared(pairs: list[tuple[list[float], list[float]]], *, swapped: bool = False) -> Comparison:
    candidate = {f"t{at}": ours for at, (ours, _) in enumerate(pairs)}
    incumbent = {f"t{at}": theirs for at, (_, theirs) in enumerate(pairs)}
    if swapped:
        candidate, incumbent = incumbent, candidate
    return compare(candidate, incumbent, margin=0.05, alpha=0.05)


@given(SIDES)
@settings(max_examples=15)
def test_swapping_candidate_and_incumbent_turns_every_sign(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    one, other = compared(pairs), compared(pairs, swapped=True)
    assert one.difference == -other.difference
    assert (one.lower, one.upper) == (-other.upper, -other.lower)
    assert one.standard_error == other.standard_error
    assert (one.candidate_mean, one.incumbent_mean) == (other.incumbent_mean, other.candidate_mean)
    assert one.lower <= one.difference <= one.upper


@given(SIDES, st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_rows_does_not_matter(
    pairs: list[tuple[list[float], list[float]]], random: Random
) -> None:
    items = list(enumerate(pairs))
    random.shuffle(items)
    candidate = {f"t{at}": random.sample(ours, len(ours)) for at, (ours, _) in items}
    incumbent = {f"t{at}": theirs[::-1] for at, (_, theirs) in reversed(items)}
    assert compare(candidate, incumbent, margin=0.05, alpha=0.05) == compared(pairs)


@pytest.mark.parametrize("tasks", [10, 30, 80, 200, 500])
def test_where_nothing_differs_the_bound_is_the_exact_one(tasks: int) -> None:
    assert lower_bound(np.zeros(tasks), -1.0, 0.05) == pytest.approx(0.05 ** (1 / tasks) - 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_chance_and_the_bound_say_the_same(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.choice([-1, -0.5, 0, 0, 0, 0, 0.5, 1], size=60)
    bound = lower_bound(values, -1.0, 0.05)
    assert chance(values, -1.0, bound) == pytest.approx(0.05, rel=1e-6)
    assert chance(values, -1.0, bound - 0.01) < 0.05 < chance(values, -1.0, bound + 0.01)


@pytest.mark.parametrize("factor", [1.0, 1_000.0])
def test_what_has_no_end_is_compared_on_any_scale(factor: float) -> None:
    random = np.random.default_rng(5)
    incumbent = random.lognormal(3, 0.5, 80)
    ours, theirs = Ranges.of(incumbent * 1.01 * factor), Ranges.of(incumbent * factor)
    middle = (ours.means[0] + theirs.means[0]) / 2
    found = compare_values(
        ours, theirs, margin=5.0 * factor, alpha=0.05, direction="min", scale=(middle, middle)
    )
    assert found.difference < 0
    assert found.lower / factor == pytest.approx(-0.915, abs=0.01)


# The short form of `make gate-study`: same code, fewer cases and samples

CASES = [
    Case(tasks=30, attempts=1, margin=0.02, suite="settled", change="sparse", graded=False),
    Case(tasks=30, attempts=1, margin=0.05, suite="settled", change="traded", graded=False),
    Case(tasks=30, attempts=4, margin=0.05, suite="realistic", change="sparse", graded=False),
    Case(tasks=30, attempts=8, margin=0.1, suite="solved", change="traded", graded=False),
    Case(tasks=30, attempts=1, margin=0.05, suite="solved", change="sparse", graded=False),
    Case(tasks=80, attempts=2, margin=0.05, suite="extremes", change="halved", graded=False),
    Case(tasks=80, attempts=4, margin=0.02, suite="realistic", change="everywhere", graded=False),
    Case(tasks=80, attempts=1, margin=0.02, suite="solved", change="sparse", graded=True),
    Case(tasks=200, attempts=4, margin=0.02, suite="extremes", change="traded", graded=True),
    Case(tasks=500, attempts=1, margin=0.02, suite="settled", change="sparse", graded=False),
]


def measured(case: Case, samples: int, *, equal: bool = False) -> Rates:
    found = rates(case, samples, seed=11, equal=equal)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_at_the_margin_it_errs_at_most_alpha_of_the_time(case: Case) -> None:
    found = measured(case, 2_000)
    assert not found.exceeded, found


@pytest.mark.parametrize(("margin", "least"), [(0.02, 0.10), (0.05, 0.40)])
def test_an_equal_candidate_passes_nearly_as_often_as_by_the_t(margin: float, least: float) -> None:
    case = Case(
        tasks=80, attempts=4, margin=margin, suite="realistic", change="sparse", graded=False
    )
    found = measured(case, 4_000, equal=True)
    assert least < found.passed < found.passed_by_t < least + 0.15
