"""What a batch holds, and who gets which of it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.shards.batches import BatchBudget, cost, divide

GROUPS = st.lists(
    st.lists(st.integers(1, 400_000), min_size=1, max_size=6), min_size=1, max_size=30
)


def dealt(groups: list[list[int]], budget: BatchBudget, world: int) -> list[list[int]]:
    tokens = np.array([one for group in groups for one in group])
    begins = np.cumsum([0] + [len(group) for group in groups[:-1]])
    return [one.tolist() for one in divide(tokens, begins, budget, world)]


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
