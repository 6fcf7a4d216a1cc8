"""Packing: nothing lost, nothing too long, few rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.shards.batches import QUADRATIC_TOKENS, pack


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
    packed = pack([3, 5, 7, 2, 4, 6, 3], 10)
    assert packed.rows() == [[2, 0], [5, 4], [1, 6, 3]]
    assert packed.offsets.tolist() == [0, 2, 4, 7]
    assert packed.tokens.tolist() == [10, 10, 10]
    squares = [7**2 + 3**2, 6**2 + 4**2, 5**2 + 3**2 + 2**2]
    assert packed.costs.tolist() == pytest.approx(
        [10 + each / QUADRATIC_TOKENS for each in squares]
    )


@pytest.mark.parametrize("bad", [0, -1, 11])
def test_what_no_row_can_hold(bad: int) -> None:
    with pytest.raises(InvalidInput, match=f"A sample of {bad} tokens .* 1 to 10 tokens"):
        pack([5, bad], 10)


_LENGTHS = st.lists(st.integers(1, 40), max_size=60)


@given(_LENGTHS)
def test_it_is_first_fit_with_the_longest_first(lengths: list[int]) -> None:
    assert pack(lengths, 40).rows() == plain_first_fit(lengths, 40)


@given(_LENGTHS)
def test_each_is_in_one_row_and_no_row_is_too_long(lengths: list[int]) -> None:
    packed = pack(lengths, 40)
    assert sorted(packed.order.tolist()) == list(range(len(lengths)))
    rows = packed.rows()
    assert [sum(lengths[one] for one in row) for row in rows] == packed.tokens.tolist()
    assert all(0 < tokens <= 40 for tokens in packed.tokens)
    assert all(start < end for start, end in pairwise(packed.offsets.tolist()))


def test_it_needs_hardly_more_rows_than_tokens_do() -> None:
    """Looking at each row for each sample would take 10⁹ steps here."""
    rng = np.random.default_rng(3)
    lengths = np.clip(rng.lognormal(8, 1, 100_000).astype(np.int64), 1, 32_768)
    packed = pack(lengths, 32_768)
    assert len(packed.tokens) <= 1.001 * lengths.sum() / 32_768 + 1
