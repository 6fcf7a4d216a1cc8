"""The topic: made if it is missing, and what is known of it."""

from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from penstock.eventlog.errors import LogUnsuitable
from penstock.eventlog.kafka.address import Address

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
