"""Delivery of simulated events: their arrival times, and sinks for files, gateways and topics."""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO

from penstock.backends.http.client import ServiceClient
from penstock.backends.http.errors import ServerUnreachable
from penstock.core.errors import ExtraMissing, InvalidInput, SettingInvalid
from penstock.core.settings import without_secrets
from penstock.events.event import SCHEMA_VERSION, TENANT_DEFAULT
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.production import Production
from penstock_jobs.simulator.truth import SessionTruth

_LATE_S = (60, 6 * 3_600)
_AGAIN_S = (0, 3_600)
_BATCH_MAX = 200
#: A batch holds the events of this time, so that a low rate is even.
_BATCH_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0
_KAFKA_SECONDS = 30
#: If a broker does not answer in this time, the address is wrong.
_KAFKA_BOOTSTRAP_SECONDS = 8

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


class FileSink:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def send(self, lines: Sequence[EventLine]) -> int:
        self._file.write(b"".join(line + b"\n" for _, line in lines))
        return 0

    def close(self) -> None:
        self._file.flush()


class HttpSink:
    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        patience_s: float = _PATIENCE_SECONDS,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        if url.startswith("https:"):
            what = f"The address {without_secrets(url)}"
            raise InvalidInput(what=what, why="it is not http://HOST:PORT")
        self._client = ServiceClient(url, key)
        self._patience_s = patience_s
        self._tell = tell

    def send(self, lines: Sequence[EventLine]) -> int:
        body = b"\n".join(line for _, line in lines)
        answer = self._client.send_events(body, patience_s=self._patience_s, tell=self._tell)
        return len(answer["rejected"])

    def close(self) -> None:
        self._client.close()


class KafkaSink:
    """Produces to a lake's topic, past the gateway. Refused events show up later."""

    def __init__(self, url: str) -> None:
        what = "The address of --kafka"
        try:
            from kafka import KafkaProducer
            from kafka.errors import KafkaError

            from penstock.backends.eventlog.kafka_topic import (
                SCHEMA_HEADER,
                TENANT_HEADER,
                parse_address,
            )
        except ModuleNotFoundError as error:
            raise ExtraMissing(extra="kafka", what=f"The sink {url}") from error
        if not url.startswith("kafka://"):
            raise InvalidInput(what=what, why="it is not kafka://HOST:PORT/TOPIC")
        try:
            self._address = parse_address(url)
        except SettingInvalid as error:
            raise InvalidInput(what=what, why=str(error.facts["why"])) from error
        schema = (SCHEMA_HEADER, b"%d" % SCHEMA_VERSION)
        self._headers = [schema, (TENANT_HEADER, TENANT_DEFAULT.encode())]
        self._failure = KafkaError
        milliseconds = _KAFKA_SECONDS * 1000
        try:
            self._producer = KafkaProducer(
                **self._address.client,
                acks="all",
                enable_idempotence=True,
                compression_type="zstd",
                linger_ms=5,
                max_block_ms=milliseconds,
                delivery_timeout_ms=milliseconds,
                request_timeout_ms=milliseconds // 2,
                bootstrap_timeout_ms=_KAFKA_BOOTSTRAP_SECONDS * 1000,
            )
        except KafkaError as error:
            raise self._unreachable(error) from error

    def send(self, lines: Sequence[EventLine]) -> int:
        topic, headers = self._address.topic, self._headers
        try:
            futures = [
                self._producer.send(topic, line, key=session.encode(), headers=headers)
                for session, line in lines
            ]
            for future in futures:
                future.get(_KAFKA_SECONDS)
        except self._failure as error:
            raise self._unreachable(error) from error
        return 0

    def close(self) -> None:
        try:
            self._producer.close(_KAFKA_SECONDS)
        except self._failure:
            self._producer._sender.force_close()  # as in penstock.backends.eventlog.kafka_topic

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(url=str(self._address), why=str(error) or type(error).__name__)


#: `send` returns when all lines are stored or refused, with the number of refused ones.
Sink = FileSink | HttpSink | KafkaSink


def batches(
    lines: Iterable[EventLine],
    rate: float | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[list[EventLine]]:
    per_batch = _BATCH_MAX if rate is None else round(rate * _BATCH_SECONDS)
    size = max(1, min(_BATCH_MAX, per_batch))
    started, sent, waiting = time.monotonic(), 0, iter(lines)
    while batch := list(islice(waiting, size)):
        if rate is not None:
            sleep(max(0.0, started + sent / rate - time.monotonic()))
        yield batch
        sent += len(batch)
