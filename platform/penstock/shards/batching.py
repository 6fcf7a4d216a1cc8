"""Which samples make up a batch, and which rank gets which of them. Pure.

A global batch takes groups in order until the next does not fit. Where it begins is all it depends
on, so a reader goes on from any sample without having seen those before.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from penstock.errors import InvalidInput

#: From this length on attention costs as much as everything else, in a model of usual width.
QUADRATIC_TOKENS = 49_152


@dataclass(frozen=True)
class Budget:
    """The most that a global batch holds, over all ranks: samples or tokens. A group that alone
    has more is a batch of its own."""

    samples: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.samples, self.tokens) if one is not None]
        if len(given) != 1 or given[0] < 1:
            why = "give either batch_samples or batch_tokens, at least 1"
            raise InvalidInput(what="The size of a batch", why=why)

    @property
    def limit(self) -> int:
        return self.samples or self.tokens or 0

    def size(self, samples: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """What groups take of it."""
        return samples if self.samples else tokens


def cost(tokens: np.ndarray) -> np.ndarray:
    """What a sequence costs to train on, in tokens: linear and, for attention, quadratic."""
    linear = tokens.astype(np.float64)
    total: np.ndarray = linear + linear * linear / QUADRATIC_TOKENS
    return total


def divide(tokens: np.ndarray, groups: np.ndarray, budget: Budget, world: int) -> list[np.ndarray]:
    """Which samples of a batch each rank gets, in the order of the batch. `tokens` has the length
    of each sample, `groups` where each group begins among them.

    The costliest goes first, to whoever has least. A group stays on one rank unless it is larger
    than a rank's part of the budget; then its samples are dealt out one by one.
    """
    if world == 1:
        return [np.arange(len(tokens))]
    starts = _pieces(tokens, groups, budget, world)
    costs = np.add.reduceat(cost(tokens), starts)
    ends = np.append(starts[1:], len(tokens)).tolist()
    loads = [(0.0, rank) for rank in range(world)]
    dealt: list[list[int]] = [[] for _ in range(world)]
    for piece in np.argsort(-costs, kind="stable").tolist():
        load, rank = loads[0]
        dealt[rank].extend(range(starts[piece], ends[piece]))
        heapq.heapreplace(loads, (load + float(costs[piece]), rank))
    return [np.array(sorted(samples), np.int64) for samples in dealt]


def _pieces(tokens: np.ndarray, groups: np.ndarray, budget: Budget, world: int) -> np.ndarray:
    """Where each part of a batch begins that goes to one rank together."""
    sizes = np.diff(np.append(groups, len(tokens)))
    taken = budget.size(sizes, np.add.reduceat(tokens, groups))
    split = np.repeat(taken * world > budget.limit, sizes)
    starts = np.zeros(len(tokens), bool)
    starts[groups] = True
    return np.flatnonzero(starts | split)
