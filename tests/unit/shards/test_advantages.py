"""Advantages, by hand and by simulation."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.shards.recipe import Advantage
from penstock_jobs.shards.selection.plan import SHRINK, advantages

GROUP, STRATUM = Advantage("group"), Advantage("stratum")


def table(
    *rows: tuple[float | None, str, str | None], chains: Any = None, split: Any = None
) -> pa.Table:
    """Of (reward, group, stratum); each session is a chain, if nothing else is said."""
    rewards, groups, strata = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "reward": pa.array(rewards, pa.float64()),
            "chain": pa.array(chains or [f"s{place}" for place in range(len(rows))], pa.string()),
            "group_id": pa.array(groups, pa.string()),
            "stratum": pa.array(strata, pa.string()),
            "split": pa.array(split or ["train"] * len(rows), pa.string()),
        }
    )


def test_a_group_by_hand() -> None:
    # The mean of g is (1 + 0 + 0.5) / 3 = 0.5; the deviation divides nothing.
    rows = table((1.0, "g", None), (0.0, "g", None), (0.5, "g", None), (0.7, "h", None))
    assert advantages(rows, GROUP).to_pylist() == [0.5, -0.5, 0.0, 0.0]
    small = table((0.500001, "g", None), (0.5, "g", None))
    assert advantages(small, GROUP).to_pylist() == pytest.approx([5e-7, -5e-7])


def test_a_missing_reward_is_no_zero() -> None:
    # The mean of g is that of the two that are known.
    rows = table((1.0, "g", "x"), (None, "g", "x"), (0.5, "g", "x"), (None, "h", "x"))
    assert advantages(rows, GROUP).to_pylist() == [0.25, None, -0.25, None]
    found = advantages(rows, STRATUM).to_pylist()
    assert found == [pytest.approx(0.5), None, pytest.approx(-0.5), None]
    assert advantages(rows, Advantage()).to_pylist() == [None] * 4


def test_a_stratum_by_hand() -> None:
    rows = table((1.0, "a", "x"), (0.0, "b", "x"), (0.5, "c", "y"), (0.3, "d", None))
    k = SHRINK
    baselines = [
        (0.0 + k * (0.0 + 0.5 + 0.3) / 3) / (1 + k),
        (1.0 + k * (1.0 + 0.5 + 0.3) / 3) / (1 + k),
        (1.0 + 0.0 + 0.3) / 3,  # alone in its stratum: the mean of all others
        (1.0 + 0.0 + 0.5) / 3,  # no stratum is one too
    ]
    worth = [1.0, 0.0, 0.5, 0.3]
    expected = [reward - base for reward, base in zip(worth, baselines, strict=True)]
    assert advantages(rows, STRATUM).to_pylist() == pytest.approx(expected)


def test_against_nobody_there_is_no_advantage() -> None:
    assert advantages(table((1.0, "a", "x")), STRATUM).to_pylist() == [None]
    # Nor where the only others are of the same piece of work.
    rows = table((1.0, "a", "x"), (0.0, "a", "x"), chains=["c", "c"])
    assert advantages(rows, STRATUM).to_pylist() == [None, None]
    for kind in (GROUP, STRATUM):
        assert len(advantages(table(), kind)) == 0


def test_a_chain_counts_once() -> None:
    # Three sessions worth 1 are one attempt: the mean is 0.5, not 0.75.
    rows = table(*[(1.0, "g", "x")] * 3, (0.0, "g", "x"), chains=["c", "c", "c", "d"])
    assert advantages(rows, GROUP).to_pylist() == [0.5, 0.5, 0.5, -0.5]
    assert advantages(rows, STRATUM).to_pylist() == [1.0, 1.0, 1.0, -1.0]
    # A subagent that was negative by itself is measured against the same.
    rows = table((1.0, "g", "x"), (-1.0, "g", "x"), (0.5, "g", "x"), chains=["c", "c", "d"])
    assert advantages(rows, GROUP).to_pylist() == [0.75, -1.25, 0.25]


def test_what_is_held_out_is_in_no_baseline() -> None:
    rows = table((1.0, "a", "x"), (0.0, "b", "x"), (0.5, "c", "x"), (0.9, "d", "y"))
    alone = advantages(rows.slice(0, 2), STRATUM).to_pylist()
    split = rows.set_column(4, "split", pa.array(["train", "train", "eval", "eval"]))
    # What was held out is measured against all that is trained on.
    assert advantages(split, STRATUM).to_pylist() == [*alone, 0.0, pytest.approx(0.4)]
    spread = advantages(split, Advantage("stratum", spread=True)).to_pylist()
    assert spread == [1.0, -1.0, 0.0, pytest.approx(0.4)]
    nothing = table((1.0, "a", "x"), (0.0, "b", "x"), split=["eval"] * 2)
    for kind in (STRATUM, Advantage("stratum", spread=True)):
        assert advantages(nothing, kind).to_pylist() == [None, None]


def test_the_spread_is_that_of_the_group_and_never_of_rounding() -> None:
    asked = Advantage("group", spread=True)
    rows = table((1.0, "g", None), (0.0, "g", None), (0.1, "h", None), (0.3, "h", None))
    assert advantages(rows, asked).to_pylist() == pytest.approx([1.0, -1.0, -1.0, 1.0])
    equal = table(*[(0.1, "g", None)] * 3, (None, "g", None), (0.7, "h", None))
    assert advantages(equal, asked).to_pylist() == [*[pytest.approx(0, abs=1e-9)] * 3, None, 0.0]
    # Three sessions of a chain are one attempt here too.
    rows = table(*[(1.0, "g", "x")] * 3, (0.0, "g", "x"), chains=["c", "c", "c", "d"])
    assert advantages(rows, asked).to_pylist() == [1.0, 1.0, 1.0, -1.0]


_REWARD = st.one_of(st.none(), st.floats(-1, 1))
_ROW = st.tuples(_REWARD, st.sampled_from("abc"), st.sampled_from(["x", "y", None]))


@settings(max_examples=30)
@given(st.lists(_ROW, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows: list[Any], random: Any) -> None:
    places = pa.array(random.sample(range(len(rows)), len(rows)), pa.int64())
    whole = table(*rows)
    for kind in (GROUP, STRATUM):
        there = advantages(whole, kind)
        mixed = advantages(whole.take(places), kind)
        assert mixed.to_pylist() == pytest.approx(there.take(places).to_pylist())


def test_the_gradient_by_strata_is_unbiased() -> None:
    """A policy with one weight chooses 1 with the probability p, in strata of one to three
    sessions. Over many shards, the mean of score · advantage is the true gradient of the expected
    reward. With a session's own reward in its baseline it would be smaller: by a half in strata of
    two."""
    rng = np.random.default_rng(11)
    p, bonus = 0.3, 1.0
    strata = ["x", "y", "y", "z", "z", "z"]
    base = np.array([0.0, 4.0, 4.0, -3.0, -3.0, -3.0])  # how hard each stratum is
    rounds = 1_500
    estimates, own = np.empty(rounds), np.empty(rounds)
    for place in range(rounds):
        actions = rng.random(len(strata)) < p
        score = actions - p
        rewards = base + bonus * actions + rng.normal(0, 0.1, len(strata))
        rows = table(*((float(one), str(i), strata[i]) for i, one in enumerate(rewards)))
        estimates[place] = np.mean(score * np.array(advantages(rows, STRATUM).to_pylist()))
        in_own = rewards - np.array([rewards[[s == t for t in strata]].mean() for s in strata])
        own[place] = np.mean(score * in_own)
    truth = bonus * p * (1 - p)
    error = estimates.std() / np.sqrt(rounds)
    assert abs(estimates.mean() - truth) < 4 * error
    # (0 + 2 · 1/2 + 3 · 2/3) / 6 = 1/2 of it.
    assert own.mean() == pytest.approx(truth / 2, rel=0.1)
