"""pass@k and best of k say what counting all choices says."""

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.registry.checkpoints.attempts import Attempt
from penstock_jobs.benchmarks.summary import _summarise, best_of, pass_at, summary_rows

scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=8)


@given(scores, st.integers(1, 8))
def test_they_are_the_means_over_all_ways_to_choose(found: list[float], k: int) -> None:
    if k > len(found):
        assert pass_at(k, found) is None
        assert best_of(k, found) is None
        return
    chosen = list(combinations(found, k))
    assert pass_at(k, found) == pytest.approx(fmean(max(one) >= 1 for one in chosen))
    assert best_of(k, found) == pytest.approx(fmean(max(one) for one in chosen))


@given(scores)
def test_the_order_of_attempts_says_nothing(found: list[float]) -> None:
    for k in range(1, len(found) + 1):
        assert best_of(k, found) == best_of(k, found[::-1])
        assert pass_at(k, found) == pass_at(k, sorted(found))


def test_of_no_attempts_nothing_is_said() -> None:
    assert pass_at(1, []) is None
    assert best_of(0, [1.0]) is None


def test_a_mean_says_of_how_many_attempts_it_is() -> None:
    tokens = [100, 200, None, None]
    attempts = [
        Attempt(task=f"t-{at}", attempt=0, score=1.0, completion_tokens=count, latency_s=1.0)
        for at, count in enumerate(tokens)
    ]
    attempts.append(Attempt(task="t-4", attempt=0, error="parse_error: no end"))
    summary = _summarise((), attempts, {})
    rows = {row[0]: row[1] for row in summary_rows(summary)}
    assert rows["completion tokens"] == "150 (of 2 attempts; 2 did not report it)"
    assert (rows["latency, s"], rows["prompt tokens"]) == ("1.0", "—")
    assert [group.text for group in summary.error_groups] == ["1 × parse_error (t-4)"]
