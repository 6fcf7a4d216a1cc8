"""Appending: every value is with all replicas in sync when it is done, or an error says so."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from penstock.eventlog import Entry
from penstock.eventlog.errors import LogUnwritable
from penstock.eventlog.kafka.log import RECORD_BYTES
from penstock.eventlog.kafka.topic import MARK, Address, value_of

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


#: What a fetch brings of a partition, if there is so much; a larger record comes all the same.
_FETCH_BYTES = 4 * 1024 * 1024
#: How long the broker waits for the first byte before it answers that there is none. Short,
#: since a reader that is sent elsewhere meanwhile has to wait for that answer first; and rarely
#: asked for, since who has nothing to read looks at the end of the partition.
_FETCH_WAIT_MS = 20
#: The bytes above are the limit: a fetch that is left half read may stall its partition.
_RECORDS_MAX = 10**9
#: Readers that are kept open beside one for each partition: for queries.
_SPARE_MAX = 4


def make_consumer(address: Address, request_s: float) -> KafkaConsumer:
    """A consumer of no group: who reads what is decided in the database."""
    request_ms = round(request_s * 1000)
    return KafkaConsumer(
        **address.client,
        enable_auto_commit=False,
        auto_offset_reset="none",  # to read on from anywhere else would lose or repeat events
        isolation_level="read_committed",
        request_timeout_ms=request_ms,
        bootstrap_timeout_ms=request_ms,
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=_RECORDS_MAX,
        reconnect_backoff_max_ms=1000,
    )


class Reader:
    """Reads one partition on from where it stands. One thread at a time."""

    def __init__(self, address: Address, partition: int, request_s: float) -> None:
        self.partition = partition
        self._place = TopicPartition(address.topic, partition)
        self._consumer = make_consumer(address, request_s)
        self._consumer.assign([self._place])
        self._fetched: deque[Entry] = deque()
        self._position = -1

    @property
    def next_offset(self) -> int:
        """Where it stands; -1 at first."""
        return self._fetched[0].offset if self._fetched else self._position

    @property
    def is_empty(self) -> bool:
        """Nothing that it fetched waits to be taken."""
        return not self._fetched

    def seek(self, offset: int) -> None:
        if offset != self.next_offset:
            self._fetched.clear()
            self._consumer.seek(self._place, offset)
            self._position = offset

    def take(self, bytes_max: int, wait_s: float) -> list[Entry]:
        """Up to about so many bytes. Raises OffsetOutOfRangeError, KafkaError."""
        if not self._fetched:
            self._fetch(wait_s)
        taken: list[Entry] = []
        while self._fetched and bytes_max > 0:
            taken.append(self._fetched.popleft())
            bytes_max -= len(taken[-1].values[0])
        if not self._fetched and taken:
            self._position = taken[-1].next_offset
        return taken

    def skipped_to(self) -> int:
        """Where the client stands: beyond what a transaction or compaction left out."""
        return int(self._consumer.position(self._place, timeout_ms=0) or self._position)

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def _fetch(self, wait_s: float) -> None:
        found = self._consumer.poll(timeout_ms=round(wait_s * 1000)).get(self._place, ())
        for record in found:
            value = value_of(record.value, record.headers, record.timestamp)
            self._fetched.append(Entry(record.offset, record.offset + 1, [value]))


class Readers:
    """Those that nobody uses now. Safe to share between threads."""

    def __init__(self, address: Address, request_s: float) -> None:
        self._address = address
        self._request_s = request_s
        self._mutex = threading.Lock()
        self._idle: list[Reader] = []
        self._closed = False

    @contextmanager
    def at(self, partition: int, offset: int, *, partitions: int) -> Iterator[Reader]:
        """A reader that stands at the offset. One that failed is not used again."""
        reader = self._pick(partition, offset)
        try:
            reader.seek(offset)
            yield reader
        except BaseException:
            reader.close()
            raise
        self._keep(reader, partitions + _SPARE_MAX)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def _pick(self, partition: int, offset: int) -> Reader:
        with self._mutex:
            there = [one for one in self._idle if one.partition == partition]
            exact = [one for one in there if one.next_offset == offset]
            # What another one has fetched is left for whoever comes back to it.
            free = exact or [one for one in there if one.is_empty] or there[1:]
            if free:
                chosen = free[0]
                self._idle.remove(chosen)
                return chosen
        return Reader(self._address, partition, self._request_s)

    def _keep(self, reader: Reader, idle_max: int) -> None:
        with self._mutex:
            dropped = [reader] if self._closed else []
            if not self._closed:
                self._idle.append(reader)
                while len(self._idle) > idle_max:
                    dropped.append(self._idle.pop(0))
        for one in dropped:
            one.close()
