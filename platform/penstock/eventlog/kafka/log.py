"""The topic: made if it is missing, and what is known of it."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

from penstock.eventlog import Bounds, Entry, Held
from penstock.eventlog.errors import LogUnreachable, LogUnsuitable, LogUnwritable
from penstock.eventlog.kafka.clients import Producing, Readers, make_consumer
from penstock.eventlog.kafka.topic import Address, parse_address

_MAX_BYTES = "max.message.bytes"
#: What stands around a value in a record, with its headers.
RECORD_BYTES = 1024
#: A topic that takes less than this cannot hold what the gateway packs.
_BYTES_MIN = 256 * 1024


@dataclass(frozen=True)
class Described:
    """A topic that was deleted and made again has another id."""

    id: str
    partitions: int


class Topic:
    """Asks the cluster about the topic. Not shared between threads."""

    def __init__(self, address: Address, *, request_s: float) -> None:
        self._address = address
        self._request_ms = round(request_s * 1000)
        self._admin = KafkaAdminClient(
            **address.client,
            request_timeout_ms=self._request_ms,
            bootstrap_timeout_ms=self._request_ms,
        )

    def make(self, *, partitions: int, value_bytes_max: int) -> None:
        """Nothing is changed where the topic is there."""
        configs = {
            _MAX_BYTES: str(value_bytes_max + RECORD_BYTES),
            # A time of arrival that no producer can set.
            "message.timestamp.type": "LogAppendTime",
        }
        topic = {self._address.topic: {"num_partitions": partitions, "configs": configs}}
        try:
            self._admin.create_topics(topic, timeout_ms=self._request_ms, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            return
        except KafkaError as error:
            why = f"it is not there and cannot be made: {error}"
            raise LogUnsuitable(where=self._address, why=why) from error

    def describe(self) -> Described | None:
        """None when there is no such topic. Raises KafkaError."""
        [found] = self._admin.describe_topics([self._address.topic])
        code = found["error_code"]
        if code == UnknownTopicOrPartitionError.errno:
            return None
        if code:
            raise _error_of(code)
        return Described(str(found["topic_id"]), len(found["partitions"]))

    def value_bytes_max(self) -> int:
        """Raises LogUnsuitable, KafkaError."""
        asked = [ConfigResource(ConfigResourceType.TOPIC, self._address.topic)]
        configs = self._admin.describe_configs(asked)["topic"][self._address.topic]
        bytes_max = int(configs[_MAX_BYTES]["value"])
        if bytes_max < _BYTES_MIN:
            why = f"its {_MAX_BYTES} is {bytes_max}; it has to be {_BYTES_MIN} or more"
            raise LogUnsuitable(where=self._address, why=why)
        return bytes_max - RECORD_BYTES

    def close(self) -> None:
        self._admin.close()


def _error_of(code: int) -> Any:
    from kafka.errors import for_code

    return for_code(code)(f"describing the topic: error {code}")


_GROUP_PREFIX = "penstock-"

log_line = structlog.get_logger()


class Progress:
    """Commits offsets for a group that has no members."""

    def __init__(self, address: Address, request_s: float) -> None:
        self._address = address
        self._request_ms = round(request_s * 1000)
        self._consumer: KafkaConsumer | None = None

    def tell(self, partition: int, offset: int) -> None:
        """Never fails: whoever needs to know asks the database."""
        place = TopicPartition(self._address.topic, partition)
        try:
            self._open().commit_async({place: OffsetAndMetadata(offset, "", -1)})
        except KafkaError as error:
            log_line.debug("the lag hint was not taken", why=str(error))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close(autocommit=False)

    def _open(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **self._address.client,
                group_id=_GROUP_PREFIX + self._address.topic,
                enable_auto_commit=False,
                request_timeout_ms=self._request_ms,
                bootstrap_timeout_ms=self._request_ms,
            )
        return self._consumer


#: What a record is taken to hold before any was seen.
_RECORD_BYTES_GUESS = 64 * 1024


@dataclass(frozen=True)
class KafkaLimits:
    """`partitions` and `value_bytes_max` are for a topic that has to be made."""

    partitions: int
    value_bytes_max: int
    request_s: float
    refresh_s: float


class KafkaEventLog:
    """An EventLog in a topic. Safe to share between threads."""

    expires = True

    def __init__(self, url: str, limits: KafkaLimits) -> None:
        """Makes the topic if there is none. Raises LogUnreachable, LogUnsuitable."""
        self._address: Address = parse_address(url)
        self._limits = limits
        self._mutex = threading.Lock()
        self._closed = False
        with self._explained(), ExitStack() as opened:
            self._topic = Topic(self._address, request_s=limits.request_s)
            opened.callback(self._topic.close)
            self._described = self._find_or_make()
            self.value_bytes_max = self._topic.value_bytes_max()
            self._asking: KafkaConsumer = make_consumer(self._address, limits.request_s)
            opened.pop_all()
        self._described_s = time.monotonic()
        self._readers = Readers(self._address, limits.request_s)
        self._producing = Producing(
            self._address, request_s=limits.request_s, value_bytes_max=self.value_bytes_max
        )
        self._progress = Progress(self._address, limits.request_s)
        self._record_bytes = float(_RECORD_BYTES_GUESS)

    @property
    def id(self) -> str:
        return self._described.id

    @property
    def partitions(self) -> int:
        """As of a few seconds ago; `ends`, `bounds` and `append` look again."""
        return self._described.partitions

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        if self._closed:
            raise LogUnwritable(why="it is closed")
        with suppress(LogUnreachable):  # the producer will say so, in its way
            self._refresh_when_due()
        if sent := {number: some for number, some in values.items() if some}:
            self._producing.append(sent)

    def read(self, partition: int, offset: int, bytes_max: int, wait_s: float = 0) -> list[Entry]:
        with self._explained():
            try:
                return self._read(partition, offset, bytes_max, wait_s)
            except OffsetOutOfRangeError:
                first = self.bounds(partition).first
                return self._read(partition, first, bytes_max, 0) if offset < first else []

    def ends(self) -> list[int]:
        with self._explained():
            self._refresh_when_due()
            return self._ends(range(self.partitions))

    def bounds(self, partition: int) -> Bounds:
        place = self._place(partition)
        with self._explained(), self._mutex:
            first = _ask(self._asking.beginning_offsets, [place])[place]
            return Bounds(first, _ask(self._asking.end_offsets, [place])[place])

    def bytes_beyond(self, partition: int, offset: int) -> int:
        """Kafka knows no bytes: records beyond, by the size of those read last."""
        with self._explained():
            [end] = self._ends([partition])
        return round(max(0, end - offset) * self._record_bytes)

    def hold(self, partition: int) -> Held:
        return Held.UNKNOWN

    def trim(self, partition: int, before: int) -> None:
        """Retention alone removes."""
        self._progress.tell(partition, before)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._producing.close()
        self._progress.close()
        self._readers.close()
        with self._mutex:
            self._asking.close(autocommit=False)
            self._topic.close()

    def _read(self, partition: int, offset: int, bytes_max: int, wait_s: float) -> list[Entry]:
        deadline = time.monotonic() + wait_s
        patience = deadline + self._limits.request_s
        with self._readers.at(partition, offset, partitions=self.partitions) as reader:
            while not (entries := reader.take(bytes_max, max(0, deadline - time.monotonic()))):
                [end] = self._ends([partition])
                if max(offset, reader.skipped_to()) >= end:  # nothing, or nothing for readers
                    return []
                if time.monotonic() > patience:
                    why = f"partition {partition} goes to {end}, but {offset} does not come"
                    raise LogUnreachable(where=self._address, why=why)
                deadline = time.monotonic() + self._limits.request_s / 10
        self._learn_size(entries)
        return entries

    def _learn_size(self, entries: list[Entry]) -> None:
        mean = sum(len(entry.values[0]) for entry in entries) / len(entries)
        self._record_bytes += (mean - self._record_bytes) / 4

    def _ends(self, partitions: Sequence[int]) -> list[int]:
        places = [self._place(partition) for partition in partitions]
        with self._mutex:
            found = _ask(self._asking.end_offsets, places)
        return [found[place] for place in places]

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._address.topic, partition)

    def _find_or_make(self) -> Described:
        described = self._topic.describe()
        if described is None:
            self._topic.make(
                partitions=self._limits.partitions, value_bytes_max=self._limits.value_bytes_max
            )
            described = self._topic.describe()
        if described is None:
            raise LogUnsuitable(where=self._address, why="the topic was made and is not there")
        return described

    def _refresh_when_due(self) -> None:
        """Partitions may have been added, or the topic made anew."""
        with self._explained(), self._mutex:
            if time.monotonic() - self._described_s < self._limits.refresh_s:
                return
            described = self._topic.describe()
            self._described_s = time.monotonic()
        if described is None:
            raise LogUnsuitable(where=self._address, why="the topic was deleted")
        self._described = described

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OffsetOutOfRangeError:
            raise
        except KafkaError as error:
            why = "it is closed" if self._closed else f"{error or type(error).__name__}"
            raise LogUnreachable(where=self._address, why=why) from error


def _ask(
    offsets_of: Callable[[list[TopicPartition]], dict[TopicPartition, int]],
    places: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Raises KafkaError, also for a partition that was added just now: the client trips over the
    answer that does not hold it yet."""
    try:
        return offsets_of(places)
    except KeyError as error:
        raise LeaderNotAvailableError(f"{error} has no leader yet") from error
