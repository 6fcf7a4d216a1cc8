"""The sources of a reader: the order of epochs, open shards, cursors, and mixtures.

A chunk is a row group, or several if a group continues from one into the next. The chunks of an
epoch are permuted. Each `WINDOW_CHUNKS` of them are a window, whose groups are permuted among
themselves. So each row group is decoded once, and few are in memory.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Literal, get_args

import msgspec
import numpy as np

from penstock.core.errors import InvalidInput
from penstock.shards.batches import (
    ROUTE_COLUMNS,
    BatchBudget,
    DecodedChunk,
    DrawnGroups,
    Ragged,
    Window,
    to_numpy,
)
from penstock.shards.local_copies import ColumnCopies, LocalCopies, OpenFiles
from penstock.shards.manifest import Manifest, StoredShard
from penstock.shards.schema import group_starts
from penstock.shards.shard import ShardDamaged

#: Chunks per window. It is part of the order: another number is another order.
WINDOW_CHUNKS = 4


def permute(count: int, key: bytes) -> np.ndarray:
    """Permute range(count) by the raw numbers of PCG64, which no version of numpy changes."""
    drawn = np.random.PCG64(int.from_bytes(hashlib.sha256(key).digest())).random_raw(count)
    return np.asarray(np.argsort(drawn, kind="stable"))


class Chunk(msgspec.Struct, frozen=True):
    """Row groups of a file that are decoded together. `first_row` counts within the file."""

    file: int
    row_groups: tuple[int, ...]
    first_row: int
    rows: int


def chunks_of(manifest: Manifest) -> list[Chunk]:
    chunks = []
    for number, part in enumerate(manifest.files):
        continued = set(part.continued)
        begun, first, rows = 0, 0, 0
        for row_group, count in enumerate(part.row_groups):
            if row_group and row_group not in continued:
                chunks.append(Chunk(number, tuple(range(begun, row_group)), first, rows))
                begun, first, rows = row_group, first + rows, 0
            rows += count
        if rows:
            chunks.append(Chunk(number, tuple(range(begun, len(part.row_groups))), first, rows))
    return chunks


@dataclass(frozen=True)
class Order:
    """The order of one epoch; unless `shuffled`, the order of the files."""

    shard_id: str
    chunks: Sequence[Chunk]
    seed: int
    epoch: int
    shuffled: bool = True

    @cached_property
    def rows(self) -> int:
        return int(self._rows_before[-1])

    @property
    def windows(self) -> int:
        return -(-len(self.chunks) // WINDOW_CHUNKS)

    def window(self, number: int) -> list[int]:
        """The positions in `chunks` of a window's chunks."""
        first = number * WINDOW_CHUNKS
        return [int(chunk) for chunk in self._permuted[first : first + WINDOW_CHUNKS]]

    def units(self, window: int, count: int) -> np.ndarray:
        """The order of a window's `count` groups."""
        return self._permutation(f"window {window}", count)

    def find(self, sample: int) -> tuple[int, int]:
        """Find the window of a sample, and the number of its samples before it."""
        window = int(np.searchsorted(self._rows_before, sample, side="right")) - 1
        return window, sample - int(self._rows_before[window])

    @cached_property
    def _permuted(self) -> np.ndarray:
        return self._permutation("chunks", len(self.chunks))

    @cached_property
    def _rows_before(self) -> np.ndarray:
        rows = np.array([chunk.rows for chunk in self.chunks], np.int64)[self._permuted]
        before = np.append(0, np.cumsum(rows))
        begins = np.append(np.arange(0, len(rows), WINDOW_CHUNKS), len(rows))
        return np.asarray(before[begins])

    def _permutation(self, subject: str, count: int) -> np.ndarray:
        if not self.shuffled:
            return np.arange(count)
        return permute(count, f"{self.shard_id} {self.seed} {self.epoch} {subject}".encode())


#: At the end of a source the mixture ends (`stop`), goes on without it (`drop`), or repeats it
#: until all sources were read once (`repeat`).
Exhausted = Literal["stop", "drop", "repeat"]


class Mixture(msgspec.Struct, frozen=True):
    """Draws samples in proportion to weights, to within a group."""

    weights: tuple[float, ...]
    exhausted: Exhausted

    def __post_init__(self) -> None:
        if not self.weights:
            raise InvalidInput(what="The mixture", why="it has no source")
        for weight in self.weights:
            if not 0 < weight < float("inf"):
                raise InvalidInput(
                    what=f"The weight {weight!r}", why="a weight must be a number above 0"
                )
        if self.exhausted not in get_args(Exhausted):
            why = f"it must be one of {', '.join(get_args(Exhausted))}"
            raise InvalidInput(what=f"exhausted={self.exhausted!r}", why=why)


class OpenShard:
    """Decodes chunks; thread-safe."""

    def __init__(
        self,
        shard: StoredShard,
        columns: Sequence[str],
        copies: LocalCopies | None,
        column_copies: ColumnCopies | None = None,
    ) -> None:
        manifest = self.manifest = shard.manifest
        self.id = shard.id
        self.chunks = chunks_of(manifest)
        self.files = OpenFiles(shard, copies, column_copies)
        self._columns = [name for name in columns if name not in ROUTE_COLUMNS]
        self._route_columns = [name for name in columns if name in ROUTE_COLUMNS]
        if self._route_columns and any(not part.routes for part in manifest.files):
            what = f"The column {self._route_columns[0]}"
            raise InvalidInput(what=what, why=f"the shard {self.id} has no routed experts")

    def decode(self, number: int) -> DecodedChunk:
        """Decode a chunk. Raises ShardDamaged, and errors of the store."""
        chunk = self.chunks[number]
        part = self.manifest.files[chunk.file]
        # Batching needs two columns, whether they are returned or not.
        names = dict.fromkeys(("group_id", "n_tokens", *self._columns))
        rows = self.files.read(part, chunk.row_groups, [*names])
        if rows.num_rows != chunk.rows:
            why = f"row groups {chunk.row_groups} have {rows.num_rows} rows, not {chunk.rows}"
            raise ShardDamaged(path=self.files.path(part), why=why)
        columns: dict[str, np.ndarray | Ragged] = {}
        for name in self._columns:
            columns |= to_numpy(name, rows[name])
        if self._route_columns and part.routes:
            # The side file has its own row groups: read those with rows of the chunk.
            counts, last_row = part.routes.row_groups, chunk.first_row + chunk.rows
            places = list(zip(accumulate(counts, initial=0), accumulate(counts), strict=False))
            overlaps = [begin < last_row and end > chunk.first_row for begin, end in places]
            needed = [group for group, overlap in enumerate(overlaps) if overlap]
            routes = self.files.read(part.routes, needed, self._route_columns)
            routes = routes.slice(chunk.first_row - places[needed[0]][0], chunk.rows)
            for name in self._route_columns:
                columns |= to_numpy(name, routes[name])
        tokens = rows["n_tokens"].to_numpy()
        return DecodedChunk(columns, tokens, np.flatnonzero(group_starts(rows["group_id"])))


@dataclass
class ShardPosition:
    """The position in a source. `drawn` counts samples since the mixture began, `finished` the
    epochs that ended since."""

    epoch: int
    samples_consumed: int
    drawn: int
    finished: int


#: Windows decoded ahead; with only one, threads would wait for each other at its end.
_WINDOWS_AHEAD = 2


@dataclass
class ShardCursor:
    """Draws groups from one source, and decodes the next windows meanwhile."""

    shard: OpenShard
    order_of: Callable[[int], Order]
    budget: BatchBudget
    position: ShardPosition
    pool: Executor

    def __post_init__(self) -> None:
        self.position = replace(self.position)
        self._begin_epoch()

    def ended(self) -> bool:
        """Whether the epoch is fully drawn. Otherwise the present window has a group."""
        while self._next + 1 >= len(self._ends):
            if self._number + 1 >= self._order.windows:
                return True
            self._enter(self._number + 1, 0)
            self.look_ahead()
        return False

    def fitting(self, room: int) -> int:
        end = int(np.searchsorted(self._ends, self._ends[self._next] + room, side="right")) - 1
        return max(0, end - self._next)

    def take(self, count: int) -> tuple[DrawnGroups, int]:
        """Draw the next groups of the window; returns them and their share of the budget."""
        own = slice(self._next, self._next + count)
        groups = DrawnGroups(self._window, self._firsts[own], self._samples[own])
        samples = int(groups.samples.sum())
        self._next += count
        self.position.samples_consumed += samples
        self.position.drawn += samples
        return groups, int(self._ends[own.stop] - self._ends[own.start])

    def look_ahead(self) -> None:
        """Decode the next windows. At the start of a loop only one, since whoever resumes waits for
        it."""
        for ahead in range(self._number + 1, self._number + 1 + _WINDOWS_AHEAD):
            self._decode(ahead)

    def begin_next_epoch(self) -> None:
        before = self.position
        self.position = ShardPosition(before.epoch + 1, 0, before.drawn, before.finished + 1)
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._order = self.order_of(self.position.epoch)
        self.empty = not self._order.rows
        self._decoding: dict[int, list[Future[DecodedChunk]]] = {}
        self._ends = np.zeros(1, np.int64)
        self._next = 0
        self._number = self._order.windows
        if self.position.samples_consumed < self._order.rows:
            self._enter(*self._order.find(self.position.samples_consumed))

    def _enter(self, number: int, skipped: int) -> None:
        """Continue in this window, after this many of its samples."""
        self._decode(number)
        chunks = [future.result() for future in self._decoding.pop(number)]
        window = Window.of(chunks, partial(self._order.units, number))
        firsts, samples, tokens = window.group_first, window.group_samples, window.group_tokens
        if skipped:  # a group continued in the middle counts its rest
            ends = np.cumsum(samples)
            group = int(np.searchsorted(ends, skipped, side="right"))
            firsts, samples, tokens = (each[group:].copy() for each in (firsts, samples, tokens))
            gone = skipped - (int(ends[group]) - int(samples[0]))
            tokens[0] -= window.tokens[firsts[0] : firsts[0] + gone].sum()
            firsts[0] += gone
            samples[0] -= gone
        self._window, self._firsts, self._samples = window, firsts, samples
        #: The budget used by the groups before each, and by all.
        self._ends = np.append(0, np.cumsum(self.budget.sizes(samples, tokens)))
        self._number = number
        self._next = 0

    def _decode(self, number: int) -> None:
        if number < self._order.windows and number not in self._decoding:
            self._decoding[number] = [
                self.pool.submit(self.shard.decode, chunk) for chunk in self._order.window(number)
            ]


def global_batches(
    cursors: Sequence[ShardCursor], mixture: Mixture, room_max: int
) -> Iterator[list[DrawnGroups]]:
    taken: list[DrawnGroups] = []
    room = room_max
    while (cursor := _next_cursor(cursors, mixture)) is not None:
        count = cursor.fitting(room)
        if not count and taken:
            yield taken
            taken, room = [], room_max
            continue
        # One by one, if the next cursor may be another.
        groups, size = cursor.take(count if count and len(cursors) == 1 else 1)
        taken.append(groups)
        room -= size
    if taken:
        yield taken


def _next_cursor(cursors: Sequence[ShardCursor], mixture: Mixture) -> ShardCursor | None:
    """Choose the source furthest behind its share; None at the end of the loop."""
    exhausted = mixture.exhausted
    # Sources that may be next, or end the loop.
    behind = [
        (cursor.position.drawn / weight, number)
        for number, (cursor, weight) in enumerate(zip(cursors, mixture.weights, strict=True))
        if (not cursor.ended() if exhausted == "drop" else exhausted == "stop" or not cursor.empty)
    ]
    if not behind:
        return None
    cursor = cursors[min(behind)[1]]
    if cursor.ended():
        if exhausted == "stop" or all(each.position.finished or each.ended() for each in cursors):
            return None
        cursor.begin_next_epoch()
    return cursor
