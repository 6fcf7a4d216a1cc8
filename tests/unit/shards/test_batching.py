"""What a batch holds, and who gets which of it."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.shards.batches import BatchBudget, cost, divide

GROUPS = st.lists(
    st.lists(st.integers(1, 400_000), min_size=1, max_size=6), min_size=1, max_size=30
)


@pytest.mark.parametrize(("samples", "tokens"), [(None, None), (1, 1), (0, None), (None, -5)])
def test_a_budget_is_of_one_kind(samples: int | None, tokens: int | None) -> None:
    with pytest.raises(InvalidInput, match="batch_samples or batch_tokens"):
        BatchBudget(samples, tokens)


def dealt(groups: list[list[int]], budget: BatchBudget, world: int) -> list[list[int]]:
    tokens = np.array([one for group in groups for one in group])
    begins = np.cumsum([0] + [len(group) for group in groups[:-1]])
    return [one.tolist() for one in divide(tokens, begins, budget, world)]


@settings(max_examples=40)
@given(groups=GROUPS, world=st.sampled_from([1, 2, 3, 8]), by_tokens=st.booleans())
def test_each_sample_goes_to_one_rank(groups: list[list[int]], world: int, by_tokens: bool) -> None:
    total = sum(map(sum, groups)) if by_tokens else sum(map(len, groups))
    budget = BatchBudget(tokens=total) if by_tokens else BatchBudget(samples=total)
    ranks = dealt(groups, budget, world)
    assert len(ranks) == world
    assert all(one == sorted(one) for one in ranks)
    assert sorted(chain(*ranks)) == list(range(sum(map(len, groups))))


@settings(max_examples=40)
@given(groups=GROUPS, world=st.sampled_from([2, 3, 8]))
def test_a_group_stays_together_unless_it_is_more_than_a_rank_s_part(
    groups: list[list[int]], world: int
) -> None:
    budget = BatchBudget(samples=sum(map(len, groups)))
    ranks = dealt(groups, budget, world)
    first = 0
    for group in groups:
        own = set(range(first, first + len(group)))
        first += len(group)
        if len(group) * world <= (budget.samples or 0):
            assert sum(bool(own & set(rank)) for rank in ranks) == 1


@settings(max_examples=40)
@given(groups=GROUPS, world=st.sampled_from([2, 3, 8]))
def test_ranks_are_balanced_to_within_the_costliest_piece(
    groups: list[list[int]], world: int
) -> None:
    tokens = np.array([one for group in groups for one in group])
    ranks = dealt([[one] for one in tokens.tolist()], BatchBudget(tokens=int(tokens.sum())), world)
    loads = [float(cost(tokens[rank]).sum()) for rank in ranks]
    assert max(loads) - min(loads) <= float(cost(tokens).max()) + 1e-6
