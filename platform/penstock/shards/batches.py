"""Batches: columns as numpy arrays, divided among ranks, and packed.

Arrays are views of Arrow's memory wherever numpy allows it. A missing text is None, a missing
number NaN or -1, and a missing list is empty.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.core.errors import InvalidInput
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS

#: From this length on attention costs as much as the rest of a model of usual width.
QUADRATIC_TOKENS = 49_152


class BatchBudget(msgspec.Struct, frozen=True):
    """The largest size of a global batch over all ranks. A larger group is a batch of its own."""

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

    def sizes(self, samples: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The share of the budget that each group takes."""
        return samples if self.samples else tokens


def cost(tokens: np.ndarray) -> np.ndarray:
    linear = tokens.astype(np.float64)
    return np.asarray(linear + linear * linear / QUADRATIC_TOKENS)


def divide(
    tokens: np.ndarray, groups: np.ndarray, budget: BatchBudget, world: int
) -> list[np.ndarray]:
    """Divide a batch among ranks: the costliest samples first, each to the rank with the least.

    A group stays on one rank unless it is larger than a rank's part of the budget."""
    if world == 1:
        return [np.arange(len(tokens))]
    sizes = np.diff(np.append(groups, len(tokens)))
    taken = budget.sizes(sizes, np.add.reduceat(tokens, groups))
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


def pack(lengths: Sequence[int] | NDArray[np.int64], length: int) -> list[list[int]]:
    """Pack samples into rows of at most `length` tokens, first fit, the longest first. Equal
    lengths keep their order. Raises InvalidInput if a sample is too long."""
    counts = np.asarray(lengths, np.int64)
    if len(counts) and not 0 < counts.min() <= counts.max() <= length:
        worst = int(counts.max()) if counts.max() > length else int(counts.min())
        why = f"a row takes 1 to {length} tokens"
        raise InvalidInput(what=f"A sample of {worst} tokens", why=why)
    rows: list[list[int]] = []
    # A tree in an array: the free tokens of each row, and above them the largest of each half.
    # There are as many rows as samples, so one always has room.
    leaves = 1 << max(len(counts) - 1, 0).bit_length()
    free = [length] * (2 * leaves)
    order = np.argsort(-counts, kind="stable")
    sizes, starts = np.unique(-counts[order], return_index=True)
    # Place samples of one length together: as many as the first row with room takes.
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


# Columns


TRAINING_COLUMNS = (
    *("sample_id", "group_id", "input_ids", "loss_mask", "rollout_logprobs"),
    *("prompt_len", "n_tokens", "advantage", "reward", "loss_weight"),
)
ROUTE_COLUMNS = tuple(name for name in ROUTE_ROWS.names if name not in SHARD_ROWS.names)


@dataclass(eq=False, repr=False)
class Ragged:
    """A list per row: `lengths[i]` values from `starts[i]` on of the buffer `which[i]`.

    `[row]` is a view; `values` are copied unless the rows are adjacent."""

    buffers: Sequence[np.ndarray]
    which: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, offsets: np.ndarray) -> "Ragged":
        return cls([values], np.zeros(len(offsets) - 1, np.int64), offsets[:-1], np.diff(offsets))

    @classmethod
    def join(cls, parts: "Sequence[Ragged]") -> "Ragged":
        buffers: list[np.ndarray] = []
        which = []
        for part in parts:
            which.append(part.which + len(buffers))
            buffers.extend(part.buffers)
        starts = np.concatenate([part.starts for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(buffers, np.concatenate(which), starts, lengths)

    def take(self, rows: np.ndarray) -> "Ragged":
        return Ragged(self.buffers, self.which[rows], self.starts[rows], self.lengths[rows])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> np.ndarray:
        start = self.starts[row]
        return np.asarray(self.buffers[self.which[row]][start : start + self.lengths[row]])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def zeros(self) -> "Ragged":
        zeros = np.zeros_like(self.values)
        return Ragged([zeros], np.zeros_like(self.which), self.offsets[:-1], self.lengths)

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.append(0, np.cumsum(self.lengths))

    @cached_property
    def values(self) -> np.ndarray:
        which, starts = self.which, self.starts
        if not len(starts):
            return np.zeros(0, self.buffers[0].dtype)
        ends = starts + self.lengths
        breaks = np.flatnonzero((which[1:] != which[:-1]) | (starts[1:] != ends[:-1])) + 1
        first = np.append(0, breaks)
        last = np.append(breaks, len(starts)) - 1
        runs = zip(which[first].tolist(), starts[first].tolist(), ends[last].tolist(), strict=True)
        pieces: list[np.ndarray] = [self.buffers[at][start:end] for at, start, end in runs]
        if len(pieces) == 1:
            return pieces[0]
        # Arrow's pool reuses memory: fresh pages cost as much as the copy.
        count, kind = sum(map(len, pieces)), pieces[0].dtype
        values: np.ndarray = np.frombuffer(pa.allocate_buffer(count * kind.itemsize), kind)
        return np.concatenate(pieces, out=values)


Columns = Mapping[str, np.ndarray | Ragged]


def _joined(parts: Sequence[np.ndarray | Ragged]) -> np.ndarray | Ragged:
    if len(parts) == 1:
        return parts[0]
    lists = [part for part in parts if isinstance(part, Ragged)]
    return Ragged.join(lists) if lists else np.concatenate(parts)  # type: ignore[arg-type]


class Batch(msgspec.Struct, frozen=True):
    """One rank's part of a global batch. Records are columns like `turn_spans.start`.

    A rank without a part gets one row of padding with a loss weight of 0."""

    columns: Columns
    rows: int
    padding: bool
    state: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __len__(self) -> int:
        return self.rows

    def pack(self, length: int) -> list[list[int]]:
        """Pack its rows into rows of at most this many tokens. Raises InvalidInput."""
        return pack(np.diff(self["input_ids"].offsets), length)


def check_columns(names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return TRAINING_COLUMNS
    known = (*SHARD_ROWS.names, *ROUTE_COLUMNS)
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(what=f"The column {unknown[0]!r}", why=f"a shard has {', '.join(known)}")
    return tuple(names)


def to_numpy(name: str, column: pa.ChunkedArray) -> dict[str, np.ndarray | Ragged]:
    """Convert a column, or several for a column of records."""
    # Combining chunks copies even a single one.
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a column without rows
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    kind = array.type
    if pa.types.is_large_binary(kind):
        _, offsets, content = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        values = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
        return {name: Ragged.of(values[ends[0] : ends[-1]], ends - ends[0])}
    if not (pa.types.is_large_list(kind) or pa.types.is_list(kind)):
        return {name: _plain(array)}
    offsets = array.offsets.to_numpy().astype(np.int64, copy=False)
    values = array.values[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0] if offsets[0] else offsets
    if not pa.types.is_struct(values.type):
        return {name: Ragged.of(_plain(values), offsets)}
    fields = zip(values.type, values.flatten(), strict=True)
    return {f"{name}.{field.name}": Ragged.of(_plain(part), offsets) for field, part in fields}


def _plain(array: pa.Array) -> np.ndarray:
    if array.null_count and pa.types.is_integer(array.type):
        array = pc.fill_null(array, -1)
    return np.asarray(array.to_numpy(zero_copy_only=False))


class DecodedChunk(NamedTuple):
    """A chunk of rows. `starts` are the rows where groups begin."""

    columns: Columns
    tokens: np.ndarray
    starts: np.ndarray


class Window(msgspec.Struct, frozen=True):
    """Decoded chunks with rows numbered through all. Groups are in drawing order."""

    columns: Columns
    tokens: np.ndarray
    group_first: np.ndarray
    group_samples: np.ndarray
    group_tokens: np.ndarray

    @classmethod
    def of(cls, chunks: Sequence[DecodedChunk], order_of: Callable[[int], np.ndarray]) -> Self:
        """Build a window. `order_of` a count of groups is their drawing order."""
        firsts = np.cumsum([0, *(len(chunk.tokens) for chunk in chunks[:-1])])
        tokens = np.concatenate([chunk.tokens for chunk in chunks]).astype(np.int64)
        starts = np.concatenate(
            [chunk.starts + first for chunk, first in zip(chunks, firsts, strict=True)]
        )
        order = order_of(len(starts))
        names = chunks[0].columns
        return cls(
            columns={name: _joined([chunk.columns[name] for chunk in chunks]) for name in names},
            tokens=tokens,
            group_first=starts[order],
            group_samples=np.diff(np.append(starts, len(tokens)))[order],
            group_tokens=np.add.reduceat(tokens, starts)[order],
        )


class DrawnGroups(NamedTuple):
    """Groups drawn in a row: where each begins, and its number of samples."""

    window: Window
    firsts: np.ndarray
    samples: np.ndarray


def make_batch(
    groups: Sequence[DrawnGroups],
    budget: BatchBudget,
    rank: int,
    world: int,
    state: Mapping[str, Any],
) -> Batch:
    # One piece of rows per stretch of groups from one window.
    pieces: list[tuple[Window, np.ndarray]] = []
    for _, stretch in groupby(groups, lambda drawn: id(drawn.window)):
        drawn = list(stretch)
        firsts = np.concatenate([part.firsts for part in drawn])
        samples = np.concatenate([part.samples for part in drawn])
        begins = np.cumsum(samples) - samples
        rows = np.repeat(firsts - begins, samples) + np.arange(samples.sum())
        pieces.append((drawn[0].window, rows))
    padding = False
    if world > 1:
        tokens = np.concatenate([window.tokens[rows] for window, rows in pieces])
        samples = np.concatenate([drawn.samples for drawn in groups])
        begins = np.cumsum(samples) - samples
        own = divide(tokens, begins, budget, world)[rank]
        padding = not len(own)
        own = np.array([np.argmin(tokens)]) if padding else own
        ends = np.cumsum([len(rows) for _, rows in pieces])
        begins = np.append(0, ends[:-1])
        parts = np.split(own, np.searchsorted(own, ends[:-1]))
        pieces = [
            (window, rows[part - begin])
            for (window, rows), begin, part in zip(pieces, begins, parts, strict=True)
            if len(part)
        ]
    columns = {
        name: _joined([window.columns[name].take(rows) for window, rows in pieces])
        for name in pieces[0][0].columns
    }
    if padding:
        for name in ("loss_weight", "n_trainable"):
            if name in columns:
                columns[name] = np.zeros(1, columns[name].dtype)  # type: ignore[union-attr]
        mask = columns.get("loss_mask")
        if isinstance(mask, Ragged):
            columns["loss_mask"] = mask.zeros()
    return Batch(columns, sum(len(rows) for _, rows in pieces), padding, state)
