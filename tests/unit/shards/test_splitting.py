"""Splitting: nothing on both sides, by seed and name alone."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.shards.exclusion.texts import least_connected
from penstock_jobs.shards.selection import plan


def split_sides(keys: Sequence[Sequence[str | None]], share: float, seed: int) -> list[str]:
    columns = [pa.chunked_array([pa.array(column, pa.string())]) for column in keys]
    sides: list[str] = plan.split_sides(columns, share, seed).to_pylist()
    return sides


def test_the_share_is_drawn_by_the_seed() -> None:
    names = [f"s{place}" for place in range(20_000)]
    sides = split_sides([names, names], 0.1, seed=7)
    assert sides.count("eval") == pytest.approx(2_000, abs=200)
    larger = split_sides([names, names], 0.2, seed=7)  # keeps those that were there
    assert all(b == "eval" for a, b in zip(sides, larger, strict=True) if a == "eval")
    other = split_sides([names, names], 0.1, seed=8)
    both = sum(a == b == "eval" for a, b in zip(sides, other, strict=True))
    assert both == pytest.approx(200, abs=70)
    assert set(split_sides([names], 0.0, seed=7)) == {"train"}
    assert set(split_sides([names], 1.0, seed=7)) == {"eval"}
    assert split_sides([[], []], 0.5, seed=7) == []


def test_new_sessions_of_a_user_join_them() -> None:
    users = [f"u{place % 50}" for place in range(500)]
    chains = [f"s{place}" for place in range(500)]
    sides = split_sides([chains, chains, users], 0.3, seed=7)
    assert split_sides([chains[:300], chains[:300], users[:300]], 0.3, seed=7) == sides[:300]


_KEYS = st.tuples(
    st.sampled_from("abcdef"), st.integers(0, 30).map(str), st.sampled_from(["u", "v", "w", None])
)


@settings(max_examples=40)
@given(st.lists(_KEYS, max_size=30), st.integers(0, 5), st.randoms(use_true_random=False))
def test_nothing_leaks_in_any_order(rows: list[Any], seed: int, random: Any) -> None:
    keys = list(zip(*rows, strict=True)) or [(), (), ()]
    sides = split_sides(keys, 0.5, seed)
    for column in keys:
        found = defaultdict(set)
        for key, side in zip(column, sides, strict=True):
            if key is not None:
                found[key].add(side)
        assert all(len(one) == 1 for one in found.values())
    order = random.sample(range(len(rows)), len(rows))
    mixed = split_sides([[column[place] for place in order] for column in keys], 0.5, seed)
    assert mixed == [sides[place] for place in order]


@settings(max_examples=40)
@given(st.integers(1, 30), st.data())
def test_what_is_linked_is_what_can_be_reached(count: int, data: st.DataObject) -> None:
    ends = st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40)
    pairs = data.draw(ends)
    least = list(range(count))
    for _ in range(count):
        for one, other in pairs:
            least[one] = least[other] = min(least[one], least[other])
    ones, others = np.array(pairs, np.int64).reshape(-1, 2).T
    assert least_connected(count, ones, others).tolist() == least
