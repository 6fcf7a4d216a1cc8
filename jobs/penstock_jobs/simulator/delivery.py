"""Delivery of simulated events: their arrival times, and sinks for files and gateways."""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import msgspec

from penstock.backends.http.client import ServiceClient
from penstock.core.errors import InvalidInput
from penstock.core.settings import without_secrets
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.production import Production
from penstock_jobs.simulator.truth import SessionTruth

_LATE_S = (60, 6 * 3_600)
_AGAIN_S = (0, 3_600)
_BATCH_MAX = 200
#: A batch holds the events of this time, so that a low rate is even.
_BATCH_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0

#: The session id, which is the record's key, and the event as JSON.
EventLine = tuple[str, bytes]


def deliver(
    production: Production,
    count: int,
    *,
    first: int = 0,
    late: float = 0.0,
    repeated: float = 0.0,
    learn: Callable[[SessionTruth], None] = lambda _truth: None,
) -> Iterator[EventLine]:
    """Yield the events of `count` sessions as they arrive.

    Shares of them are `late` by up to six hours or `repeated`. `learn` gets the truth of each
    session before its first event."""
    waiting: list[tuple[int, str, int, bytes]] = []
    second_us = 1_000_000 // production.compression
    for index in range(first, first + count):
        until_us = production.begins_us(index)
        while waiting and waiting[0][0] < until_us:
            _, session_id, _, line = heapq.heappop(waiting)
            yield session_id, line
        for session in production.session(index):
            learn(session.truth)
            session_id = session.truth.session_id
            dice = Dice(f"delivery:{production.seed}:{session_id}")
            for number, (at_us, _, line) in enumerate(session.lines):
                is_late = dice.chance(late)
                arrival_us = at_us + (dice.between(*_LATE_S) * second_us if is_late else 0)
                heapq.heappush(waiting, (arrival_us, session_id, number, line))
                if dice.chance(repeated):
                    again_us = arrival_us + dice.between(*_AGAIN_S) * second_us
                    heapq.heappush(waiting, (again_us, session_id, number, line))
    for _, session_id, _, line in sorted(waiting):
        yield session_id, line


class FileSink(msgspec.Struct, frozen=True):
    file: BinaryIO

    def send(self, lines: Sequence[EventLine]) -> int:
        self.file.write(b"".join(line + b"\n" for _, line in lines))
        return 0

    def close(self) -> None:
        self.file.flush()


@dataclass
class HttpSink:
    url: str
    key: str | None
    tell: Callable[[str], None] = lambda _text: None

    def __post_init__(self) -> None:
        if self.url.startswith("https:"):
            what = f"The address {without_secrets(self.url)}"
            raise InvalidInput(what=what, why="it is not http://HOST:PORT")
        self._client = ServiceClient(self.url, self.key)

    def send(self, lines: Sequence[EventLine]) -> int:
        body = b"\n".join(line for _, line in lines)
        answer = self._client.send_events(body, patience_s=_PATIENCE_SECONDS, tell=self.tell)
        return len(answer["rejected"])

    def close(self) -> None:
        self._client.close()


#: `send` returns when all lines are stored or refused, with the number of refused ones.
Sink = FileSink | HttpSink


def batches(lines: Iterable[EventLine], rate: float | None = None) -> Iterator[list[EventLine]]:
    per_batch = _BATCH_MAX if rate is None else round(rate * _BATCH_SECONDS)
    size = max(1, min(_BATCH_MAX, per_batch))
    started, sent, waiting = time.monotonic(), 0, iter(lines)
    while batch := list(islice(waiting, size)):
        if rate is not None:
            time.sleep(max(0.0, started + sent / rate - time.monotonic()))
        yield batch
        sent += len(batch)
