"""Packing: nothing lost, nothing too long, few rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.shards.batches import pack


def plain_first_fit(lengths: list[int], length: int) -> list[list[int]]:
    """As it is defined, in quadratic time."""
    rows: list[list[int]] = []
    free: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        fitting = [row for row, room in enumerate(free) if lengths[place] <= room]
        row = fitting[0] if fitting else len(rows)
        if not fitting:
            rows.append([])
            free.append(length)
        rows[row].append(place)
        free[row] -= lengths[place]
    return rows


def test_by_hand() -> None:
    # 7, 6, 5, 4, 3, 3, 2 into 10: 7 3; 6 4; 5 3 2.
    assert pack([3, 5, 7, 2, 4, 6, 3], 10) == [[2, 0], [5, 4], [1, 6, 3]]


@pytest.mark.parametrize("bad", [0, -1, 11])
def test_what_no_row_can_hold(bad: int) -> None:
    with pytest.raises(InvalidInput, match=f"A sample of {bad} tokens .* 1 to 10 tokens"):
        pack([5, bad], 10)


@given(st.lists(st.integers(1, 40), max_size=60))
def test_it_is_first_fit_with_the_longest_first(lengths: list[int]) -> None:
    assert pack(lengths, 40) == plain_first_fit(lengths, 40)


def test_it_needs_hardly_more_rows_than_tokens_do() -> None:
    """Looking at each row for each sample would take 10⁹ steps here."""
    rng = np.random.default_rng(3)
    lengths = np.clip(rng.lognormal(8, 1, 100_000).astype(np.int64), 1, 32_768)
    assert len(pack(lengths, 32_768)) <= 1.001 * lengths.sum() / 32_768 + 1
