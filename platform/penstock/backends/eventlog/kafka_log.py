"""A topic as an event log.

Offsets are the topic's, and only retention removes events. The database says how far the lake
covers the log. A consumer group shows that to tools that watch Kafka."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import structlog
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from penstock.backends.eventlog.kafka_topic import (
    RECORD_BYTES,
    PartitionReaders,
    TopicProducer,
    make_consumer,
    parse_address,
)
from penstock.backends.eventlog.log import (
    Claim,
    DamagedPart,
    Entry,
    EventLogSettings,
    LogUnreachable,
    LogUnsuitable,
    LogUnwritable,
    OffsetBounds,
)
from penstock.events.frames import HEADER_BYTES_MAX

#: Assumed size of a record before any was read.
_RECORD_BYTES_GUESS = 64 * 1024
#: A topic that takes less cannot hold what the gateway packs.
_VALUE_BYTES_MIN = 256 * 1024
_MAX_BYTES = "max.message.bytes"

log_line = structlog.get_logger()


class KafkaEventLog:
    """An EventLog in a topic, safe to share between threads."""

    expires = True
    #: How soon new partitions of a topic are seen.
    refresh_s = 5.0

    def __init__(self, url: str, limits: EventLogSettings) -> None:
        """Open or make the topic. Raises LogUnreachable, LogUnsuitable."""
        self._address = address = parse_address(url)
        self._request_s = request_s = limits.log_request_seconds_max
        self._mutex = threading.Lock()
        self._closed = False
        request_ms = round(request_s * 1000)
        with self._explained(), ExitStack() as opened:
            self._admin = KafkaAdminClient(
                **address.client, request_timeout_ms=request_ms, bootstrap_timeout_ms=request_ms
            )
            opened.callback(self._admin.close)
            if not self._describe():
                self._make_topic(limits)
            self.value_bytes_max = self._read_value_bytes_max()
            self._offsets: KafkaConsumer = make_consumer(address, request_s)
            opened.pop_all()
        self._readers = PartitionReaders(address, request_s)
        self._producer = TopicProducer(address, request_s, self.value_bytes_max)
        #: Without members, for tools that watch lags.
        self._group: KafkaConsumer | None = None
        self._record_bytes = float(_RECORD_BYTES_GUESS)

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        if self._closed:
            raise LogUnwritable(why="it is closed")
        with suppress(LogUnreachable):  # the producer fails too, with its own error
            self._refresh_when_due()
        if filled := {partition: batch for partition, batch in values.items() if batch}:
            self._producer.append(filled)

    def read(self, partition: int, offset: int, bytes_max: int, wait_s: float = 0) -> list[Entry]:
        with self._explained():
            try:
                return self._read(partition, offset, bytes_max, wait_s)
            except OffsetOutOfRangeError:
                first = self.bounds(partition).first
                return self._read(partition, first, bytes_max, 0) if offset < first else []

    def refresh(self) -> None:
        with self._explained(), self._mutex:
            if not self._describe():
                raise LogUnsuitable(where=self._address, why="the topic was deleted")

    def ends(self) -> list[int]:
        with self._explained():
            self._refresh_when_due()
            return self._ends(range(self.partitions))

    def bounds(self, partition: int) -> OffsetBounds:
        topic_partitions = [TopicPartition(self._address.topic, partition)]
        with self._explained(), self._mutex:
            [first] = _look_up(self._offsets.beginning_offsets, topic_partitions)
            [end] = _look_up(self._offsets.end_offsets, topic_partitions)
            return OffsetBounds(first, end)

    def bytes_beyond(self, partition: int, offset: int) -> int:
        """Estimate by the size of the records that were read last."""
        with self._explained():
            [end] = self._ends([partition])
        return round(max(0, end - offset) * self._record_bytes)

    def secure(self, partition: int, offset: int) -> None:
        """A consumer gets what all replicas in sync have."""

    def mend(self) -> None:
        """The brokers do."""

    def hold(self, partition: int) -> Claim:
        return Claim.UNKNOWN

    def trim(self, partition: int, before: int) -> None:
        """Commit the offset to the consumer group. Removing is up to retention."""
        topic_partition = TopicPartition(self._address.topic, partition)
        try:
            if self._group is None:
                group = f"penstock-{self._address.topic}"
                self._group = make_consumer(self._address, self._request_s, group)
            self._group.commit_async({topic_partition: OffsetAndMetadata(before, "", -1)})
        except KafkaError as error:
            log_line.debug("the lake's offsets were not committed", why=str(error))

    def damage(self, *, look: bool = False) -> list[DamagedPart]:
        """Find nothing: brokers check their records, and repair them from replicas."""
        return []

    def set_apart(self, partition: int) -> int:
        return self.bounds(partition).end

    def forget(self, partition: int, before: int) -> bool:
        """Make the broker hide the records. It deletes them when it rolls their file (`segment.ms`
        of the topic), or by retention where clients may not delete."""
        place = TopicPartition(self._address.topic, partition)
        try:
            with self._mutex:
                patience_ms = round(self._request_s * 1000)
                self._admin.delete_records({place: before}, timeout_ms=patience_ms)
        except KafkaError as error:
            log_line.warning("the broker deletes no records", why=str(error))
        return False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._producer.close()
        if self._group is not None:
            self._group.close(autocommit=False)
        self._readers.close()
        with self._mutex:
            self._offsets.close(autocommit=False)
            self._admin.close()

    def _read(self, partition: int, offset: int, bytes_max: int, wait_s: float) -> list[Entry]:
        deadline = time.monotonic() + wait_s
        give_up = deadline + self._request_s
        with self._readers.at(partition, offset, partitions=self.partitions) as reader:
            while not (entries := reader.take(bytes_max, max(0, deadline - time.monotonic()))):
                [end] = self._ends([partition])
                if max(offset, reader.skipped_to()) >= end:  # nothing, or nothing to be read
                    return []
                if time.monotonic() > give_up:
                    why = f"partition {partition} goes to {end}, but {offset} does not come"
                    raise LogUnreachable(where=self._address, why=why)
                deadline = time.monotonic() + self._request_s / 10
        mean = sum(len(entry.values[0]) for entry in entries) / len(entries)
        self._record_bytes += (mean - self._record_bytes) / 4
        return entries

    def _ends(self, partitions: Sequence[int]) -> list[int]:
        topic_partitions = [TopicPartition(self._address.topic, number) for number in partitions]
        with self._mutex:
            return _look_up(self._offsets.end_offsets, topic_partitions)

    def _refresh_when_due(self) -> None:
        """Look for new partitions, or a topic that was made anew."""
        if time.monotonic() - self._described_s >= self.refresh_s:
            self.refresh()

    def _describe(self) -> bool:
        """Read the id and the partitions; False if there is no topic."""
        [topic] = self._admin.describe_topics([self._address.topic])
        code = topic["error_code"]
        if code and code != errors.UnknownTopicOrPartitionError.errno:
            raise errors.for_code(code)(f"describing the topic: error {code}")
        self._described_s = time.monotonic()
        if not code:
            self.id, self.partitions = str(topic["topic_id"]), len(topic["partitions"])
        return not code

    def _make_topic(self, limits: EventLogSettings) -> None:
        """Raises LogUnsuitable, KafkaError."""
        bytes_max = limits.event_bytes_max + HEADER_BYTES_MAX + RECORD_BYTES
        # With LogAppendTime no producer can set the time of arrival.
        configs = {_MAX_BYTES: str(bytes_max), "message.timestamp.type": "LogAppendTime"}
        topic = {"num_partitions": limits.log_partitions, "configs": configs}
        topics, timeout_ms = {self._address.topic: topic}, round(self._request_s * 1000)
        try:
            self._admin.create_topics(topics, timeout_ms=timeout_ms, wait_for_metadata=True)
        except errors.TopicAlreadyExistsError:
            pass  # another process made it meanwhile
        except KafkaError as error:
            why = f"it is not there and cannot be made: {error}"
            raise LogUnsuitable(where=self._address, why=why) from error
        if not self._describe():
            raise LogUnsuitable(where=self._address, why="the topic was made and is not there")

    def _read_value_bytes_max(self) -> int:
        """Raises LogUnsuitable, KafkaError."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._address.topic)
        configs = self._admin.describe_configs([resource])["topic"][self._address.topic]
        bytes_max = int(configs[_MAX_BYTES]["value"])
        if bytes_max >= _VALUE_BYTES_MIN:
            return bytes_max - RECORD_BYTES
        why = f"its {_MAX_BYTES} is {bytes_max}; it has to be {_VALUE_BYTES_MIN} or more"
        raise LogUnsuitable(where=self._address, why=why)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OffsetOutOfRangeError:
            raise
        except KafkaError as error:
            why = "it is closed" if self._closed else f"{error or type(error).__name__}"
            raise LogUnreachable(where=self._address, why=why) from error


def _look_up(
    offsets_of: Callable[[list[TopicPartition]], dict[TopicPartition, int]],
    topic_partitions: list[TopicPartition],
) -> list[int]:
    """Look up offsets. Raises KafkaError, also for a new partition that the client does not
    know."""
    try:
        offsets = offsets_of(topic_partitions)
    except KeyError as error:
        raise errors.LeaderNotAvailableError(f"{error} has no leader yet") from error
    return [offsets[topic_partition] for topic_partition in topic_partitions]
