"""Appending: every value is with all replicas in sync when it is done, or an error says so."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from penstock.eventlog.errors import LogUnwritable
from penstock.eventlog.kafka.address import Address
from penstock.eventlog.kafka.records import MARK
from penstock.eventlog.kafka.topic import RECORD_BYTES

#: Bodies of JSON shrink to a sixth; level 1 of zstd costs less than the bytes that it saves.
_COMPRESSION = "zstd"
#: Values that wait for the same partition go together.
_BATCH_BYTES = 1024 * 1024


class Producing:
    """One idempotent producer, made anew after a failure: one that failed may go on failing.
    Safe to share between threads."""

    def __init__(self, address: Address, *, request_s: float, value_bytes_max: int) -> None:
        self._address = address
        self._request_s = request_s
        self._value_bytes_max = value_bytes_max
        self._mutex = threading.Lock()
        self._producer: KafkaProducer | None = None
        self._closed = False

    def append(self, values: Mapping[int, Sequence[bytes]]) -> dict[int, int]:
        """The next offset of each partition that got something. Raises LogUnwritable."""
        producer = self._open_for(values)
        try:
            sent = [
                (partition, self._send(producer, partition, value))
                for partition, some in values.items()
                for value in some
            ]
            return {partition: done.get(self._request_s).offset + 1 for partition, done in sent}
        except KafkaError as error:
            self._drop(producer)
            why = f"{error or type(error).__name__} ({self._address})"
            raise LogUnwritable(why=why) from error

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            _end(producer, self._request_s)

    def _send(self, producer: KafkaProducer, partition: int, value: bytes) -> Any:
        return producer.send(self._address.topic, value, partition=partition, headers=[MARK])

    def _open_for(self, values: Mapping[int, Sequence[bytes]]) -> KafkaProducer:
        """One that knows these partitions: they may have been added just now."""
        producer = self._open()
        if max(values) >= self._seen_by(producer):
            self._drop(producer)
            producer = self._open()
        if max(values) >= self._seen_by(producer):
            why = f"there is no partition {max(values)} ({self._address})"
            raise LogUnwritable(why=why)
        return producer

    def _seen_by(self, producer: KafkaProducer) -> int:
        try:
            return len(producer.partitions_for(self._address.topic) or ())
        except KafkaError as error:
            self._drop(producer)
            raise LogUnwritable(why=f"{error} ({self._address})") from error

    def _open(self) -> KafkaProducer:
        with self._mutex:
            if self._closed:
                raise LogUnwritable(why="it is closed")
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    def _make(self) -> KafkaProducer:
        request_ms = round(self._request_s * 1000)
        try:
            return KafkaProducer(
                **self._address.client,
                acks="all",
                enable_idempotence=True,
                compression_type=_COMPRESSION,
                linger_ms=0,
                batch_size=_BATCH_BYTES,
                max_request_size=self._value_bytes_max + RECORD_BYTES,
                max_block_ms=request_ms,
                request_timeout_ms=request_ms
                // 2,  # so that a reply that was lost is asked for again
                delivery_timeout_ms=request_ms,
                bootstrap_timeout_ms=request_ms,
                reconnect_backoff_max_ms=1000,
            )
        except KafkaError as error:
            raise LogUnwritable(why=f"{error} ({self._address})") from error

    def _drop(self, producer: KafkaProducer) -> None:
        """Those who waited were told to retry. What is sent all the same is there twice at most,
        and the lake tells that."""
        with self._mutex:
            if self._producer is producer:
                self._producer = None
        _end(producer, 0)


def _end(producer: KafkaProducer, timeout_s: float) -> None:
    try:
        producer.close(timeout_s)
    except KafkaError:
        # An idempotent producer that lost track of a batch never ends by itself: its close
        # waits for that batch, fails, and leaves the thread.
        producer._sender.force_close()
