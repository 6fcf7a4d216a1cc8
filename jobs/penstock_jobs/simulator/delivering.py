"""When events arrive: as they happen, unless some are to come late, or twice."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.production import Lived, Production
from penstock_jobs.simulator.truth import SessionTruth

_LATE_S = (60, 6 * 3_600)
_AGAIN_S = (0, 3_600)

#: The session, which is the key of a record, and the event as JSON.
Line = tuple[str, bytes]


@dataclass(frozen=True)
class Delivery:
    """Shares of events: that come up to six hours late; that come a second time, within an hour,
    as the same bytes."""

    late: float = 0.0
    repeated: float = 0.0


def deliver(
    production: Production,
    count: int,
    *,
    first: int = 0,
    delivery: Delivery | None = None,
    learn: Callable[[SessionTruth], None] = lambda _truth: None,
) -> Iterator[Line]:
    """All events of so many sessions, in the order in which they arrive; `learn` is told the truth
    of each session before its first event comes. Holds no more than the sessions that are under
    way, those of one day."""
    delivery = delivery or Delivery()
    waiting: list[tuple[int, str, int, bytes]] = []
    for index in range(first, first + count):
        until_us = production.begins_us(index)
        while waiting and waiting[0][0] < until_us:
            yield _next(waiting)
        for lived in production.session(index):
            learn(lived.truth)
            for entry in _arrivals(production, lived, delivery):
                heapq.heappush(waiting, entry)
    while waiting:
        yield _next(waiting)


def _next(waiting: list[tuple[int, str, int, bytes]]) -> Line:
    _, session_id, _, line = heapq.heappop(waiting)
    return session_id, line


def _arrivals(
    production: Production, lived: Lived, delivery: Delivery
) -> Iterator[tuple[int, str, int, bytes]]:
    session_id = lived.truth.session_id
    dice = Dice(f"delivery:{production.seed}:{session_id}")
    second_us = 1_000_000 // production.compression
    for number, (at_us, _, line) in enumerate(lived.lines):
        late = dice.chance(delivery.late)
        came_us = at_us + (dice.between(*_LATE_S) * second_us if late else 0)
        yield came_us, session_id, number, line
        if dice.chance(delivery.repeated):
            again_us = came_us + dice.between(*_AGAIN_S) * second_us
            yield again_us, session_id, number, line
