"""Drawing groups from a shard in the order of an epoch, from any sample on."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.shards.opened import OpenShard
from penstock.shards.order import Order
from penstock.shards.windows import Decoded, Window, count_groups, make_window


@dataclass(frozen=True)
class Position:
    """Where a source stands. `samples_consumed` counts those of the epoch, `drawn` those since
    the mixture began its round, and `finished` the epochs that ended in it."""

    epoch: int
    samples_consumed: int = 0
    drawn: int = 0
    finished: int = 0


class Group(NamedTuple):
    """Rows of a window that are drawn together."""

    window: Window
    first: int
    samples: int
    tokens: int


#: The order of an epoch.
OrderOf = Callable[[int], Order]


class Drawing:
    """Draws groups from one source. The window after the one in use is decoded meanwhile."""

    def __init__(
        self, shard: OpenShard, order_of: OrderOf, position: Position, pool: Executor
    ) -> None:
        self.drawn = position.drawn
        self.finished = position.finished
        self._shard = shard
        self._order_of = order_of
        self._pool = pool
        self._begin(position.epoch, position.samples_consumed)

    @property
    def position(self) -> Position:
        return Position(self._epoch, self._consumed, self.drawn, self.finished)

    @property
    def empty(self) -> bool:
        """Whether no epoch has any sample."""
        return not self._order.rows

    def peek(self) -> Group | None:
        """The next group, or None at the end of the epoch."""
        while self._next >= len(self._groups):
            if self._window_number + 1 >= self._order.windows:
                return None
            self._enter(self._window_number + 1, 0)
        return self._groups[self._next]

    def take(self) -> None:
        """The group of `peek` is drawn."""
        samples = self._groups[self._next].samples
        self._next += 1
        self._consumed += samples
        self.drawn += samples

    def begin_next_epoch(self) -> None:
        self.finished += 1
        self._begin(self._epoch + 1, 0)

    def _begin(self, epoch: int, consumed: int) -> None:
        self._epoch = epoch
        self._consumed = consumed
        self._order = self._order_of(epoch)
        self._decoding: dict[int, list[Future[Decoded]]] = {}
        self._groups: list[Group] = []
        self._next = 0
        self._window_number = self._order.windows
        if consumed < self._order.rows:
            self._enter(*self._order.find(consumed))

    def _enter(self, number: int, skipped: int) -> None:
        """Go on in this window, behind so many of its samples."""
        self._decode(number)
        chunks = [one.result() for one in self._decoding.pop(number)]
        self._decode(number + 1)
        window = make_window(chunks, self._order.units(number, count_groups(chunks)))
        columns = (window.group_first, window.group_samples, window.group_tokens)
        rows = zip(*(one.tolist() for one in columns), strict=True)
        self._groups = [Group(window, *row) for row in rows]
        self._window_number = number
        self._next = 0
        if skipped:
            self._skip(window, skipped)

    def _skip(self, window: Window, samples: int) -> None:
        ends = np.cumsum(window.group_samples)
        self._next = int(np.searchsorted(ends, samples, side="right"))
        group = self._groups[self._next]
        seen = samples - int(ends[self._next]) + group.samples
        if seen:  # in the middle of a group: its rest is drawn
            tokens = int(window.tokens[group.first : group.first + seen].sum())
            rest = (group.first + seen, group.samples - seen, group.tokens - tokens)
            self._groups[self._next] = Group(window, *rest)

    def _decode(self, number: int) -> None:
        if number < self._order.windows and number not in self._decoding:
            self._decoding[number] = [
                self._pool.submit(self._shard.decode, one) for one in self._order.window(number)
            ]
