"""A topic of Apache Kafka: its address, the values in its records, and the clients that write and
read it: one producer, and consumers for several threads.

Records without the gateway's mark come from other producers: events as JSON, with the tenant in a
header."""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from penstock.backends.eventlog.log import Entry, LogUnwritable
from penstock.core.errors import SettingInvalid
from penstock.events.event import SCHEMA_VERSION, TENANT_DEFAULT
from penstock.events.frames import encode_unjudged

# A lost connection raises an error of ours.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

#: Room around a value in a record, headers included.
RECORD_BYTES = 1024
#: The header of records of the gateway.
MARK: tuple[str, bytes] = ("penstock-value", b"1")
#: Headers of records of other producers. Without them: version 1 and the default tenant.
SCHEMA_HEADER = "penstock-schema-version"
TENANT_HEADER = "penstock-tenant"

#: The options of an address, by the names of Kafka's own clients, with allowed values.
_OPTIONS = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"),
    "ssl_cafile": (),
    "ssl_certfile": (),
    "ssl_keyfile": (),
}


@dataclass(frozen=True)
class TopicAddress:
    """An address such as `kafka://host:9092,other:9092/topic`. `client` is passed to all
    clients."""

    servers: list[str]
    topic: str
    client: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}/{self.topic}"


def parse_address(url: str) -> TopicAddress:
    """Parse the setting `log_url`. Raises SettingInvalid."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    servers = [host for host in hosts.split(",") if host]
    topic = unquote(parts.path.removeprefix("/"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    faults = [] if servers and topic and "/" not in topic else ["it is not kafka://HOST:PORT/TOPIC"]
    for name, value in options.items():
        if name not in _OPTIONS:
            faults.append(f"{name} is none of {', '.join(_OPTIONS)}")
        elif _OPTIONS[name] and value not in _OPTIONS[name]:
            faults.append(f"{name} is one of {', '.join(_OPTIONS[name])}")
    if faults:
        raise SettingInvalid(name="log_url", origin="the settings", why=faults[0])
    if login:
        user, _, password = login.partition(":")
        options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"} | options
        options["sasl_plain_username"] = unquote(user)
        options["sasl_plain_password"] = unquote(password)
    return TopicAddress(servers, topic, {"bootstrap_servers": servers, **options})


def value_of(value: bytes | None, headers: Sequence[tuple[str, bytes]], timestamp_ms: int) -> bytes:
    """Read the value of the log from a record. It arrived at the time of the record."""
    if MARK in headers:
        return value or b""
    by_name = dict(headers)  # only ours are decoded: any other may be null
    tenant = by_name.get(TENANT_HEADER, TENANT_DEFAULT.encode()).decode(errors="replace")
    version = by_name.get(SCHEMA_HEADER, b"%d" % SCHEMA_VERSION).decode(errors="replace").strip()
    is_number = version.isdecimal() and len(version) < 10
    schema_version = int(version) if is_number else 2**31 - 1  # no Penstock knows that
    return encode_unjudged(value or b"", tenant, max(0, timestamp_ms) * 1000, schema_version)


# Clients

#: Bodies of JSON shrink to a sixth; level 1 of zstd costs less than the bytes that it saves.
_COMPRESSION = "zstd"
#: Brought by one fetch; a larger record comes all the same.
_FETCH_BYTES = 4 * 1024 * 1024
#: How long the broker waits for the first byte. Short: a consumer that seeks has to wait for the
#: answer. A reader with nothing to read looks at the end of the partition first.
_FETCH_WAIT_MS = 20
#: Consumers kept open beside one for each partition, for queries.
_SPARE_MAX = 4


class TopicProducer:
    """An idempotent producer, made anew after a failure. An append is done when all replicas in
    sync have it. Safe to share between threads."""

    def __init__(self, address: TopicAddress, request_s: float, value_bytes_max: int) -> None:
        self._address = address
        self._request_s = request_s
        self._value_bytes_max = value_bytes_max
        self._mutex = threading.Lock()
        self._producer: KafkaProducer | None = None
        self._closed = False

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        """Raises LogUnwritable."""
        try:
            with self._producer_for(max(values)) as producer:
                pending = [
                    producer.send(self._address.topic, value, partition=partition, headers=[MARK])
                    for partition, partition_values in values.items()
                    for value in partition_values
                ]
                for sent in pending:
                    sent.get(self._request_s)
        except KafkaError as error:
            why = f"{error or type(error).__name__} ({self._address})"
            raise LogUnwritable(why=why) from error

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            _close(producer, self._request_s)

    @contextmanager
    def _producer_for(self, partition: int) -> Iterator[KafkaProducer]:
        """Yield a producer that knows this partition, which may be new. It is dropped where it
        fails. A value that is sent again is stored once."""
        for _ in range(2):
            with self._mutex:
                if self._closed:
                    raise LogUnwritable(why="it is closed")
                if self._producer is None:
                    self._producer = self._make()
                producer = self._producer
            try:
                if partition < len(producer.partitions_for(self._address.topic) or ()):
                    yield producer
                    return
            except KafkaError:
                self._drop(producer)
                raise
            self._drop(producer)
        raise LogUnwritable(why=f"there is no partition {partition} ({self._address})")

    def _make(self) -> KafkaProducer:
        request_ms = round(self._request_s * 1000)
        return KafkaProducer(
            **self._address.client,
            acks="all",
            enable_idempotence=True,
            compression_type=_COMPRESSION,
            linger_ms=0,
            batch_size=1024 * 1024,  # values that wait for the same partition go together
            max_request_size=self._value_bytes_max + RECORD_BYTES,
            max_block_ms=request_ms,
            request_timeout_ms=request_ms // 2,  # so that a lost reply is asked for again
            delivery_timeout_ms=request_ms,
            bootstrap_timeout_ms=request_ms,
            reconnect_backoff_max_ms=1000,
        )

    def _drop(self, producer: KafkaProducer) -> None:
        with self._mutex:
            if self._producer is producer:
                self._producer = None
        _close(producer, 0)


def _close(producer: KafkaProducer, timeout_s: float) -> None:
    try:
        producer.close(timeout_s)
    except KafkaError:
        # An idempotent producer that lost track of a batch waits for it, fails, and leaves its
        # thread.
        producer._sender.force_close()


def make_consumer(
    address: TopicAddress, request_s: float, group: str | None = None
) -> KafkaConsumer:
    """Make a consumer. Readers have no group: the database says who reads what."""
    request_ms = round(request_s * 1000)
    return KafkaConsumer(
        **address.client,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",  # to read on from anywhere else would lose or repeat events
        isolation_level="read_committed",
        request_timeout_ms=request_ms,
        bootstrap_timeout_ms=request_ms,
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=10**9,  # no limit: a fetch that is left half read may stall its partition
        reconnect_backoff_max_ms=1000,
    )


class PartitionReader:
    """Reads one partition onward, for one thread at a time."""

    def __init__(self, address: TopicAddress, partition: int, request_s: float) -> None:
        self.partition = partition
        self._topic_partition = TopicPartition(address.topic, partition)
        self._consumer = make_consumer(address, request_s)
        self._consumer.assign([self._topic_partition])
        #: Fetched and not taken.
        self.fetched: deque[Entry] = deque()
        self._position = -1

    @property
    def next_offset(self) -> int:
        """The offset that `take` reads next; -1 at first."""
        return self.fetched[0].offset if self.fetched else self._position

    def seek(self, offset: int) -> None:
        if offset != self.next_offset:
            self.fetched.clear()
            self._consumer.seek(self._topic_partition, offset)
            self._position = offset

    def take(self, bytes_max: int, wait_s: float) -> list[Entry]:
        """Read entries of about `bytes_max`. Raises OffsetOutOfRangeError, KafkaError."""
        if not self.fetched:
            polled = self._consumer.poll(timeout_ms=round(wait_s * 1000))
            for record in polled.get(self._topic_partition, ()):
                value = value_of(record.value, record.headers, record.timestamp)
                self.fetched.append(Entry(record.offset, record.offset + 1, [value]))
        taken: list[Entry] = []
        while self.fetched and bytes_max > 0:
            taken.append(self.fetched.popleft())
            bytes_max -= len(taken[-1].values[0])
        if not self.fetched and taken:
            self._position = taken[-1].next_offset
        return taken

    def skipped_to(self) -> int:
        """The client's position, beyond offsets that a transaction or compaction left empty."""
        return int(self._consumer.position(self._topic_partition, timeout_ms=0) or self._position)

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class PartitionReaders:
    """A pool of idle readers. Safe to share between threads."""

    def __init__(self, address: TopicAddress, request_s: float) -> None:
        self._address = address
        self._request_s = request_s
        self._mutex = threading.Lock()
        self._idle: list[PartitionReader] = []
        self._closed = False

    @contextmanager
    def at(self, partition: int, offset: int, *, partitions: int) -> Iterator[PartitionReader]:
        """Yield a reader at the offset. One that failed is not used again."""
        with self._mutex:
            idle = [reader for reader in self._idle if reader.partition == partition]
            exact = [reader for reader in idle if reader.next_offset == offset]
            # The last reader with fetched entries is left for the thread that comes back to it.
            usable = exact or [reader for reader in idle if not reader.fetched] or idle[1:]
            if usable:
                self._idle.remove(usable[0])
        [reader] = usable[:1] or [PartitionReader(self._address, partition, self._request_s)]
        try:
            reader.seek(offset)
            yield reader
        except BaseException:
            reader.close()
            raise
        with self._mutex:
            self._idle.append(reader)
            idle_max = 0 if self._closed else partitions + _SPARE_MAX
            surplus = [self._idle.pop(0) for _ in range(len(self._idle) - idle_max)]
        for reader in surplus:
            reader.close()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()
