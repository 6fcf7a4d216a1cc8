"""Batches: columns of a shard as numpy, gathered from decoded windows, for one rank.

Arrays are views of what Arrow decoded wherever numpy allows it. A missing text is None, a missing
number NaN or -1, and a missing list is an empty one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.shards.balance import BatchBudget, PackedRows, divide, pack
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS

#: The columns that a trainer gets when it names none.
TRAINING_COLUMNS = (
    *("sample_id", "group_id", "input_ids", "loss_mask", "rollout_logprobs"),
    *("prompt_len", "n_tokens", "advantage", "reward", "loss_weight"),
)
ROUTE_COLUMNS = tuple(name for name in ROUTE_ROWS.names if name not in SHARD_ROWS.names)


@dataclass(eq=False, repr=False)
class Ragged:
    """A list for each row: `lengths[i]` values from `starts[i]` on of the buffer `which[i]`.
    `[row]` is a view; `values` are copied where rows do not lie side by side."""

    buffers: Sequence[np.ndarray]
    which: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, offsets: np.ndarray) -> "Ragged":
        """A column of lists in one buffer, as Arrow has it."""
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
        """As long, and all zeros."""
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
        # In memory of Arrow's pool, which keeps what was given back: fresh pages of the system
        # cost as much as the copy.
        count, kind = sum(map(len, pieces)), pieces[0].dtype
        values: np.ndarray = np.frombuffer(pa.allocate_buffer(count * kind.itemsize), kind)
        return np.concatenate(pieces, out=values)


Columns = Mapping[str, np.ndarray | Ragged]


def _joined(parts: Sequence[np.ndarray | Ragged]) -> np.ndarray | Ragged:
    if len(parts) == 1:
        return parts[0]
    lists = [part for part in parts if isinstance(part, Ragged)]
    return Ragged.join(lists) if lists else np.concatenate(parts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Batch:
    """The part of a global batch for one rank, with records as `turn_spans.start` and the like. A
    rank without a part gets one row of padding, whose loss weight is 0."""

    columns: Columns
    rows: int
    padding: bool
    state: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __len__(self) -> int:
        return self.rows

    def pack(self, length: int) -> PackedRows:
        """Its rows put together in rows of at most so many tokens. Raises InvalidInput."""
        return pack(np.diff(self["input_ids"].offsets), length)


def check_columns(names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return TRAINING_COLUMNS
    known = (*SHARD_ROWS.names, *ROUTE_COLUMNS)
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(what=f"The column {unknown[0]!r}", why=f"a shard has {', '.join(known)}")
    return tuple(names)


def to_numpy(name: str, column: pa.ChunkedArray) -> dict[str, np.ndarray | Ragged]:
    """One column, or several where it holds records."""
    # Putting chunks together copies a single one, too.
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # none: a column without rows
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
    """`starts` says where groups begin among the rows of the chunk."""

    columns: Columns
    tokens: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Window:
    """Rows are numbered through all chunks; groups stand in the order they are given out."""

    columns: Columns
    tokens: np.ndarray
    group_first: np.ndarray
    group_samples: np.ndarray
    group_tokens: np.ndarray

    @classmethod
    def of(cls, chunks: Sequence[DecodedChunk], order_of: Callable[[int], np.ndarray]) -> Self:
        """`order_of` so many groups is how they are given out, by their places in the chunks."""
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
    """Groups of a window drawn in a row: where each begins, and how many samples it has."""

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
    # One piece of rows for each stretch of groups from the same window.
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
