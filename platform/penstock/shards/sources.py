"""The shards that a reader reads from: open ones, cursors over them, and their mixture.

A mixture draws samples in proportion to weights, to within a group: the next group comes from the
shard that is furthest behind its share. So the positions alone decide which is next.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, get_args

import numpy as np

from penstock.errors import InvalidInput
from penstock.shards.balance import BatchBudget
from penstock.shards.batches import (
    ROUTE_COLUMNS,
    DecodedChunk,
    DrawnGroups,
    ListValues,
    Window,
    count_groups,
    make_window,
    to_numpy,
)
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import LocalCopies, OpenFiles
from penstock.shards.manifest import Manifest, PartFile, folder_of
from penstock.shards.order import Chunk, Order, chunks_of
from penstock.shards.rows import group_starts
from penstock.storage import ObjectStore

#: What happens when a source ends: the mixture ends too (`stop`), goes on without it until all have
#: ended (`drop`), or begins its next epoch, until each source was read at least once (`repeat`).
Exhausted = Literal["stop", "drop", "repeat"]


def furthest_behind(drawn: Sequence[int], weights: Sequence[float], left: Sequence[bool]) -> int:
    """The number of the source that goes next, of those that are `left`; of equals the first."""
    shares = [
        (count / weight, number)
        for number, (count, weight, there) in enumerate(zip(drawn, weights, left, strict=True))
        if there
    ]
    return min(shares)[1]


@dataclass(frozen=True)
class Mixture:
    """How much of each shard a mixture has, and what happens at the end of one."""

    weights: tuple[float, ...]
    exhausted: Exhausted

    def __post_init__(self) -> None:
        if not self.weights:
            raise InvalidInput(what="The mixture", why="it has no source")
        for weight in self.weights:
            if not 0 < weight < float("inf"):
                raise InvalidInput(what=f"The weight {weight!r}", why="a weight is a number over 0")
        if self.exhausted not in get_args(Exhausted):
            why = f"it is one of {', '.join(get_args(Exhausted))}"
            raise InvalidInput(what=f"exhausted={self.exhausted!r}", why=why)


#: What batches are made by, asked for or not.
_NEEDED = ("group_id", "n_tokens")


class OpenShard:
    """Decodes chunks. Any number of threads may do so at once."""

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        columns: Sequence[str],
        copies: LocalCopies | None,
    ) -> None:
        self.id = manifest.id
        self.manifest = manifest
        self._files = OpenFiles(store, folder_of(self.id), copies)
        self._columns = [name for name in columns if name not in ROUTE_COLUMNS]
        self._route_columns = [name for name in columns if name in ROUTE_COLUMNS]
        if self._route_columns and any(not one.routes for one in manifest.files):
            what = f"The column {self._route_columns[0]}"
            raise InvalidInput(what=what, why=f"the shard {self.id} has no routed experts")

    @cached_property
    def chunks(self) -> list[Chunk]:
        return chunks_of(self.manifest)

    def decode(self, number: int) -> DecodedChunk:
        """Raises ShardDamaged, and what the store raises."""
        chunk = self.chunks[number]
        part = self.manifest.files[chunk.file]
        wanted = list(dict.fromkeys((*_NEEDED, *self._columns)))
        rows = self._files.read(part, chunk.row_groups, wanted)
        if rows.num_rows != chunk.rows:
            why = f"row groups {chunk.row_groups} have {rows.num_rows} rows, not {chunk.rows}"
            raise ShardDamaged(path=self._files.path(part), why=why)
        columns: dict[str, np.ndarray | ListValues] = {}
        for name in self._columns:
            columns |= to_numpy(name, rows[name])
        if self._route_columns:
            columns |= self._routes(part, chunk)
        tokens = rows["n_tokens"].to_numpy()
        return DecodedChunk(columns, tokens, np.flatnonzero(group_starts(rows["group_id"])))

    def _routes(self, part: PartFile, chunk: Chunk) -> dict[str, np.ndarray | ListValues]:
        """The side file has row groups of its own: those with rows of the chunk are read."""
        side = part.routes
        assert side is not None  # looked at when the shard was opened
        ends = list(accumulate(side.row_groups))
        last_row = chunk.first_row + chunk.rows
        begins = [end - rows for end, rows in zip(ends, side.row_groups, strict=True)]
        needed = [
            number
            for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
            if begin < last_row and end > chunk.first_row
        ]
        rows = self._files.read(side, needed, self._route_columns)
        rows = rows.slice(chunk.first_row - begins[needed[0]], chunk.rows)
        columns: dict[str, np.ndarray | ListValues] = {}
        for name in self._route_columns:
            columns |= to_numpy(name, rows[name])
        return columns

    def close(self) -> None:
        """Files are opened again when they are needed again."""
        self._files.close()


@dataclass(frozen=True)
class ShardPosition:
    """Where a source stands. `samples_consumed` counts those of the epoch, `drawn` those since
    the mixture began its round, and `finished` the epochs that ended in it."""

    epoch: int
    samples_consumed: int = 0
    drawn: int = 0
    finished: int = 0


#: How many windows are decoded while one is in use. With one alone, threads would wait for each
#: other at its end.
_WINDOWS_AHEAD = 2

#: The order of an epoch.
OrderOf = Callable[[int], Order]


class ShardCursor:
    """Draws groups from one source. The windows after the one in use are decoded meanwhile."""

    def __init__(
        self,
        shard: OpenShard,
        order_of: OrderOf,
        budget: BatchBudget,
        position: ShardPosition,
        pool: Executor,
    ) -> None:
        self.drawn = position.drawn
        self.finished = position.finished
        self._shard = shard
        self._order_of = order_of
        self._budget = budget
        self._pool = pool
        self._begin(position.epoch, position.samples_consumed)

    @property
    def position(self) -> ShardPosition:
        return ShardPosition(self._epoch, self._consumed, self.drawn, self.finished)

    @property
    def empty(self) -> bool:
        """Whether no epoch has any sample."""
        return not self._order.rows

    def ended(self) -> bool:
        """Whether all of the epoch is drawn. If not, there is a group in the window in use."""
        while self._next >= len(self._ends):
            if self._number + 1 >= self._order.windows:
                return True
            self._enter(self._number + 1, 0)
            self.look_ahead()
        return False

    def fitting(self, room: int) -> tuple[int, int]:
        """How many of the next groups of the window fit together, and how much they take."""
        before = self._ends[self._next - 1] if self._next else 0
        end = int(np.searchsorted(self._ends, before + room, side="right"))
        count = max(0, end - self._next)
        return count, int(self._ends[end - 1] - before) if count else 0

    @property
    def next_size(self) -> int:
        """How much the next group takes."""
        before = self._ends[self._next - 1] if self._next else 0
        return int(self._ends[self._next] - before)

    def take(self, count: int) -> DrawnGroups:
        """The next groups of the window are drawn."""
        own = slice(self._next, self._next + count)
        groups = DrawnGroups(self._window, self._firsts[own], self._samples[own])
        samples = int(groups.samples.sum())
        self._next += count
        self._consumed += samples
        self.drawn += samples
        return groups

    def look_ahead(self) -> None:
        """Have the windows that follow decoded. The first of a loop comes alone, since whoever
        resumes waits for a batch of it."""
        for ahead in range(self._number + 1, self._number + 1 + _WINDOWS_AHEAD):
            self._decode(ahead)

    def begin_next_epoch(self) -> None:
        self.finished += 1
        self._begin(self._epoch + 1, 0)

    def _begin(self, epoch: int, consumed: int) -> None:
        self._epoch = epoch
        self._consumed = consumed
        self._order = self._order_of(epoch)
        self._decoding: dict[int, list[Future[DecodedChunk]]] = {}
        self._ends = np.zeros(0, np.int64)
        self._next = 0
        self._number = self._order.windows
        if consumed < self._order.rows:
            self._enter(*self._order.find(consumed))

    def _enter(self, number: int, skipped: int) -> None:
        """Go on in this window, behind so many of its samples."""
        self._decode(number)
        chunks = [one.result() for one in self._decoding.pop(number)]
        window = make_window(chunks, self._order.units(number, count_groups(chunks)))
        firsts, samples, tokens = window.group_first, window.group_samples, window.group_tokens
        if skipped:
            firsts, samples, tokens = _behind(window, skipped)
        self._window, self._firsts, self._samples = window, firsts, samples
        #: What all groups up to each take of the budget.
        self._ends = np.cumsum(self._budget.size(samples, tokens))
        self._number = number
        self._next = 0

    def _decode(self, number: int) -> None:
        if number < self._order.windows and number not in self._decoding:
            self._decoding[number] = [
                self._pool.submit(self._shard.decode, one) for one in self._order.window(number)
            ]


def _behind(window: Window, skipped: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where groups begin, their samples and tokens, of all behind so many samples. In the middle
    of a group its rest is one."""
    ends = np.cumsum(window.group_samples)
    group = int(np.searchsorted(ends, skipped, side="right"))
    firsts, samples, tokens = (
        column[group:].copy()
        for column in (window.group_first, window.group_samples, window.group_tokens)
    )
    seen = skipped - (int(ends[group]) - int(samples[0]))
    tokens[0] -= window.tokens[firsts[0] : firsts[0] + seen].sum()
    firsts[0] += seen
    samples[0] -= seen
    return firsts, samples, tokens


def global_batches(
    cursors: Sequence[ShardCursor], mixture: Mixture, room_max: int
) -> Iterator[list[DrawnGroups]]:
    """Groups in order, as many at a time as fit."""
    taken: list[DrawnGroups] = []
    room = room_max
    while (cursor := _next_cursor(cursors, mixture)) is not None:
        count, size = cursor.fitting(room)
        if not count and taken:
            yield taken
            taken, room = [], room_max
            continue
        if not count or len(cursors) > 1:  # the next cursor may be another
            count, size = 1, cursor.next_size
        taken.append(cursor.take(count))
        room -= size
    if taken:
        yield taken


def _next_cursor(cursors: Sequence[ShardCursor], mixture: Mixture) -> ShardCursor | None:
    """One that has a group; None at the end of the loop."""
    left = [_is_left(cursor, mixture.exhausted) for cursor in cursors]
    if not any(left):
        return None
    drawn = [cursor.drawn for cursor in cursors]
    cursor = cursors[furthest_behind(drawn, mixture.weights, left)]
    if cursor.ended():
        if mixture.exhausted == "stop" or _all_finished(cursors):
            return None
        cursor.begin_next_epoch()
    return cursor


def _is_left(cursor: ShardCursor, exhausted: Exhausted) -> bool:
    """Whether it may be the next one, or the one that ends the loop."""
    if exhausted == "drop":
        return not cursor.ended()
    return exhausted == "stop" or not cursor.empty


def _all_finished(cursors: Sequence[ShardCursor]) -> bool:
    return all(cursor.finished or cursor.ended() for cursor in cursors)
