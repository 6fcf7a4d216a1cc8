"""Telling Kafka how far the lake is: a hint for tools that watch lags, and never read back."""

import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from penstock.eventlog.kafka.address import Address

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
