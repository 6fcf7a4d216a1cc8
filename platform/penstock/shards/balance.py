"""How much sequences cost, and how they are divided: among ranks, and into packed rows. Pure.

A global batch takes groups in order until the next does not fit, so it depends only on where it
begins. Packing puts several sequences into one row of a fixed length: first fit, the longest first,
which needs at most 11/9 of the rows of the best packing, and 6/9 of one more. Sequences in a row
attend only to themselves, so a row costs as much as its sequences do.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import InvalidInput

#: From this length on attention costs as much as everything else, in a model of usual width.
QUADRATIC_TOKENS = 49_152


@dataclass(frozen=True)
class BatchBudget:
    """The most that a global batch holds over all ranks. A larger group is a batch of its own."""

    samples: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        sizes = [size for size in (self.samples, self.tokens) if size is not None]
        if len(sizes) != 1 or sizes[0] < 1:
            why = "give either batch_samples or batch_tokens, at least 1"
            raise InvalidInput(what="The size of a batch", why=why)

    @property
    def limit(self) -> int:
        return self.samples or self.tokens or 0

    def size(self, samples: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """How much of it groups take."""
        return samples if self.samples else tokens


def cost(tokens: np.ndarray) -> np.ndarray:
    """What a sequence costs to train on, in tokens: linear and, for attention, quadratic."""
    linear = tokens.astype(np.float64)
    return np.asarray(linear + linear * linear / QUADRATIC_TOKENS)


def divide(
    tokens: np.ndarray, groups: np.ndarray, budget: BatchBudget, world: int
) -> list[np.ndarray]:
    """Which samples of a batch each rank gets. The costliest goes first, to the rank with the
    least; a group stays on one rank unless it is larger than a rank's part of the budget."""
    if world == 1:
        return [np.arange(len(tokens))]
    sizes = np.diff(np.append(groups, len(tokens)))
    taken = budget.size(sizes, np.add.reduceat(tokens, groups))
    begins = np.repeat(taken * world > budget.limit, sizes)
    begins[groups] = True
    starts = np.flatnonzero(begins)
    costs = np.add.reduceat(cost(tokens), starts)
    ends = np.append(starts[1:], len(tokens)).tolist()
    loads = [(0.0, rank) for rank in range(world)]
    dealt: list[list[int]] = [[] for _ in range(world)]
    for piece in np.argsort(-costs, kind="stable").tolist():
        load, rank = loads[0]
        dealt[rank].extend(range(starts[piece], ends[piece]))
        heapq.heapreplace(loads, (load + float(costs[piece]), rank))
    return [np.array(sorted(samples), np.int64) for samples in dealt]


Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Row r holds the samples order[offsets[r]:offsets[r + 1]], in this order."""

    order: Counts
    offsets: Counts
    #: Of each row.
    tokens: Counts
    costs: NDArray[np.float64]

    def rows(self) -> list[list[int]]:
        ends = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        return [self.order[start:end].tolist() for start, end in ends]


def pack(lengths: Sequence[int] | Counts, length: int) -> PackedRows:
    """Rows of at most `length` tokens. Of equal lengths the earlier is packed first."""
    counts = np.asarray(lengths, np.int64)
    if len(counts) and not 0 < counts.min() <= counts.max() <= length:
        worst = int(counts.max()) if counts.max() > length else int(counts.min())
        why = f"a row has 1 to {length} tokens"
        raise InvalidInput(what=f"A sample of {worst} tokens", why=why)
    rows = _first_fit(counts, length)
    sizes = [len(row) for row in rows]
    order = np.fromiter((place for row in rows for place in row), np.int64, sum(sizes))
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    packed, starts = counts[order], offsets[:-1]
    tokens, costs = (np.add.reduceat(each, starts) for each in (packed, cost(packed)))
    return PackedRows(order, offsets, tokens, costs)


def _first_fit(counts: Counts, length: int) -> list[list[int]]:
    """Samples of one length are placed together: as many as the first row with room takes."""
    rows: list[list[int]] = []
    # A tree in an array: the free tokens of each row, and the most of each half above them. There
    # are as many rows as samples, so that one with room is always there.
    leaves = 1 << max(len(counts) - 1, 0).bit_length()
    free = [length] * (2 * leaves)
    order = np.argsort(-counts, kind="stable")
    sizes, starts = np.unique(-counts[order], return_index=True)
    for size, same in zip((-sizes).tolist(), np.split(order, starts)[1:], strict=True):
        places, taken = same.tolist(), 0
        while taken < len(places):
            node = 1
            while node < leaves:
                node *= 2
                node += free[node] < size
            row = node - leaves
            if row == len(rows):
                rows.append([])
            fitting = places[taken : taken + free[node] // size]
            rows[row] += fitting
            taken += len(fitting)
            free[node] -= size * len(fitting)
            while node > 1:
                node //= 2
                most = max(free[2 * node], free[2 * node + 1])
                if free[node] == most:
                    break
                free[node] = most
    return rows
