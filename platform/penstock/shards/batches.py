"""Batches: columns of a shard as numpy, gathered from decoded windows, for one rank.

Arrays are views of what Arrow decoded wherever numpy can have one. Missing texts are None, missing
numbers NaN or -1, and a missing list is an empty one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.shards.balance import BatchBudget, PackedRows, divide, pack
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS

#: What a trainer needs of a row when it does not say.
TRAINING_COLUMNS = (
    *("sample_id", "group_id", "input_ids", "loss_mask", "rollout_logprobs"),
    *("prompt_len", "n_tokens", "advantage", "reward", "loss_weight"),
)
ROUTE_COLUMNS = tuple(name for name in ROUTE_ROWS.names if name not in SHARD_ROWS.names)


class Ragged:
    """A list for each row. `[row]` is a view of what was decoded, always; so are `values` where the
    rows lie beside each other in one row group, else they are copied when first asked for. Those of
    row i are `values[offsets[i]:offsets[i + 1]]`."""

    def __init__(
        self,
        buffers: Sequence[np.ndarray],
        which: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
    ) -> None:
        """Row i is `lengths[i]` values from `starts[i]` on of the buffer `which[i]`."""
        self._buffers = buffers
        self._which = which
        self._starts = starts
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> np.ndarray:
        start = self._starts[row]
        own: np.ndarray = self._buffers[self._which[row]][start : start + self._lengths[row]]
        return own

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def zeros(self) -> "Ragged":
        """As long, and all zeros."""
        zeros = np.zeros_like(self.values)
        return Ragged([zeros], np.zeros_like(self._which), self.offsets[:-1], self._lengths)

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.append(0, np.cumsum(self._lengths))

    @cached_property
    def values(self) -> np.ndarray:
        which, starts = self._which, self._starts
        if not len(starts):
            return np.zeros(0, self._buffers[0].dtype)
        ends = starts + self._lengths
        breaks = np.flatnonzero((which[1:] != which[:-1]) | (starts[1:] != ends[:-1])) + 1
        first = np.append(0, breaks)
        last = np.append(breaks, len(starts)) - 1
        runs = zip(which[first].tolist(), starts[first].tolist(), ends[last].tolist(), strict=True)
        pieces = [self._buffers[one][start:end] for one, start, end in runs]
        return pieces[0] if len(pieces) == 1 else _in_one(pieces)


def _in_one(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """In memory of Arrow's pool, which keeps what was given back: fresh pages of the system cost
    as much as the copy."""
    count, kind = sum(map(len, pieces)), pieces[0].dtype
    values = np.frombuffer(pa.allocate_buffer(count * kind.itemsize), kind)
    return np.concatenate(pieces, out=values)


class ListValues(NamedTuple):
    """A column of lists in one buffer, as Arrow has it."""

    values: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True)
class Batch:
    """What one rank gets of a global batch. A rank that gets nothing of it has one row that is
    padding: nothing of it is trained, its loss weight is 0.

    Columns of records are flattened: `turn_spans.start` and the like. `state` is where a reader
    stands once it gave out this batch.
    """

    columns: Mapping[str, np.ndarray | Ragged]
    rows: int
    padding: bool
    state: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __len__(self) -> int:
        return self.rows

    def pack(self, length: int) -> PackedRows:
        """Its rows put together in rows of at most so many tokens. Raises InvalidInput where one
        alone is longer."""
        return pack(np.diff(self["input_ids"].offsets), length)


def check_columns(names: Sequence[str] | None) -> tuple[str, ...]:
    """Those that are to be read. Raises InvalidInput."""
    if names is None:
        return TRAINING_COLUMNS
    known = (*SHARD_ROWS.names, *ROUTE_COLUMNS)
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(what=f"The column {unknown[0]!r}", why=f"a shard has {', '.join(known)}")
    return tuple(names)


def to_numpy(name: str, column: pa.ChunkedArray) -> dict[str, np.ndarray | ListValues]:
    """One column, or several where it holds records."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # none: a column without rows
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    kind = array.type
    if pa.types.is_large_binary(kind):
        return {name: _bytes(array)}
    if not (pa.types.is_large_list(kind) or pa.types.is_list(kind)):
        return {name: _plain(array)}
    offsets = array.offsets.to_numpy().astype(np.int64, copy=False)
    values = array.values[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0] if offsets[0] else offsets
    if not pa.types.is_struct(values.type):
        return {name: ListValues(_plain(values), offsets)}
    fields = zip(values.type, values.flatten(), strict=True)
    return {f"{name}.{field.name}": ListValues(_plain(one), offsets) for field, one in fields}


def _plain(array: pa.Array) -> np.ndarray:
    if array.null_count and pa.types.is_integer(array.type):
        array = pc.fill_null(array, -1)
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values


def _bytes(array: pa.Array) -> ListValues:
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    values = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
    return ListValues(values[ends[0] : ends[-1]], ends - ends[0])


class DecodedChunk(NamedTuple):
    """A chunk. `starts` says where groups begin among its rows."""

    columns: Mapping[str, np.ndarray | ListValues]
    tokens: np.ndarray
    starts: np.ndarray


class ValuePlaces(NamedTuple):
    """Where the values of each row of a window are, in the buffers of its chunks."""

    buffers: list[np.ndarray]
    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Window:
    """Rows are numbered through all chunks; groups stand in the order they are given out."""

    numbers: dict[str, np.ndarray]
    lists: dict[str, ValuePlaces]
    chunk: np.ndarray
    tokens: np.ndarray
    group_first: np.ndarray
    group_samples: np.ndarray
    group_tokens: np.ndarray


class WindowRows(NamedTuple):
    """Rows of a window, in the order they are given out."""

    window: Window
    rows: np.ndarray


def count_groups(chunks: Sequence[DecodedChunk]) -> int:
    return sum(len(one.starts) for one in chunks)


def make_window(chunks: Sequence[DecodedChunk], order: np.ndarray) -> Window:
    """`order` is the order of the groups, by their place in that of the chunks."""
    rows = [len(one.tokens) for one in chunks]
    before = np.cumsum([0, *rows[:-1]])
    tokens = np.concatenate([one.tokens for one in chunks]).astype(np.int64)
    starts = np.concatenate([one.starts + first for one, first in zip(chunks, before, strict=True)])
    samples = np.diff(np.append(starts, len(tokens)))
    numbers, lists = {}, {}
    for name in chunks[0].columns:
        parts = [one.columns[name] for one in chunks]
        if isinstance(parts[0], ListValues):
            lists[name] = _places([one for one in parts if isinstance(one, ListValues)])
        else:
            numbers[name] = np.concatenate(parts)
    return Window(
        numbers=numbers,
        lists=lists,
        chunk=np.repeat(np.arange(len(chunks)), rows),
        tokens=tokens,
        group_first=starts[order],
        group_samples=samples[order],
        group_tokens=np.add.reduceat(tokens, starts)[order],
    )


def _places(parts: Sequence[ListValues]) -> ValuePlaces:
    return ValuePlaces(
        buffers=[one.values for one in parts],
        starts=np.concatenate([one.offsets[:-1] for one in parts]),
        lengths=np.concatenate([np.diff(one.offsets) for one in parts]),
    )


def gather(taken: Sequence[WindowRows]) -> dict[str, np.ndarray | Ragged]:
    """The rows as one. Lists stay where they are until someone asks for them in one piece."""
    found: dict[str, np.ndarray | Ragged] = {}
    first = taken[0].window
    for name in first.numbers:
        found[name] = _joined([one.window.numbers[name][one.rows] for one in taken])
    for name in first.lists:
        found[name] = _ragged([(one.window.lists[name], one) for one in taken])
    return found


def _ragged(parts: Sequence[tuple[ValuePlaces, WindowRows]]) -> Ragged:
    buffers: list[np.ndarray] = []
    which = []
    for places, one in parts:
        which.append(one.window.chunk[one.rows] + len(buffers))
        buffers.extend(places.buffers)
    return Ragged(
        buffers,
        _joined(which),
        _joined([places.starts[one.rows] for places, one in parts]),
        _joined([places.lengths[one.rows] for places, one in parts]),
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


# Batches of groups


@dataclass(frozen=True)
class RankShare:
    """Which part of each global batch a reader gets."""

    rank: int
    world: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            why = f"of {self.world} ranks the first is 0 and the last {self.world - 1}"
            raise InvalidInput(what=f"The rank {self.rank}", why=why)


class DrawnGroups(NamedTuple):
    """Groups of a window that are drawn after each other: where each begins among its rows, and
    how many samples it has."""

    window: Window
    firsts: np.ndarray
    samples: np.ndarray


def make_batch(
    groups: Sequence[DrawnGroups],
    budget: BatchBudget,
    share: RankShare,
    state: Mapping[str, Any],
) -> Batch:
    """What this rank gets of a global batch."""
    taken = _rows_of(groups)
    padding = False
    if share.world > 1:
        tokens = np.concatenate([window.tokens[rows] for window, rows in taken])
        samples = np.concatenate([one.samples for one in groups])
        begins = np.cumsum(samples) - samples
        own = divide(tokens, begins, budget, share.world)[share.rank]
        padding = not len(own)
        taken = _select(taken, np.array([np.argmin(tokens)]) if padding else own)
    columns = gather(taken)
    rows = sum(len(one.rows) for one in taken)
    return Batch(_as_padding(columns) if padding else columns, rows, padding, state)


def _rows_of(groups: Sequence[DrawnGroups]) -> list[WindowRows]:
    """The rows of a batch, one piece for each stretch that comes from the same window."""
    taken = []
    for _, stretch in groupby(groups, lambda one: id(one.window)):
        found = list(stretch)
        firsts = np.concatenate([one.firsts for one in found])
        samples = np.concatenate([one.samples for one in found])
        begins = np.cumsum(samples) - samples
        rows = np.repeat(firsts - begins, samples) + np.arange(samples.sum())
        taken.append(WindowRows(found[0].window, rows))
    return taken


def _select(taken: Sequence[WindowRows], own: np.ndarray) -> list[WindowRows]:
    """Only these rows, numbered through all pieces, in order."""
    ends = np.cumsum([len(one.rows) for one in taken])
    cuts = np.searchsorted(own, ends)
    selected, begun = [], 0
    for one, end, cut in zip(taken, ends, cuts, strict=True):
        if cut > begun:
            selected.append(
                WindowRows(one.window, one.rows[own[begun:cut] - (end - len(one.rows))])
            )
        begun = cut
    return selected


def _as_padding(columns: dict[str, np.ndarray | Ragged]) -> dict[str, np.ndarray | Ragged]:
    """A row of which nothing is trained."""
    padding = dict(columns)
    for name in ("loss_weight", "n_trainable"):
        if name in columns:
            padding[name] = np.zeros(1, columns[name].dtype)  # type: ignore[union-attr]
    mask = columns.get("loss_mask")
    if isinstance(mask, Ragged):
        padding["loss_mask"] = mask.zeros()
    return padding
