"""The Kafka topic that gets a record for each change, keyed by channel. Needs penstock[kafka]."""

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from penstock.channels.notices import Notice
from penstock.channels.settings import ChannelSettings
from penstock.channels.webhooks import DeliveryFailure
from penstock.errors import ExtraMissing, SettingInvalid
from penstock.eventlog.kafka import TopicAddress, parse_address
from penstock.eventlog.settings import EventLogSettings
from penstock.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: For a topic that is not there yet: it keeps the newest change of each channel for ever, and all
#: of them for a week.
_CONFIGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * 86_400_000)}


def topic_address(settings: Settings) -> TopicAddress | None:
    """None where the settings name no topic. Raises SettingInvalid."""
    url = settings.room(ChannelSettings).notice_topic_url
    if not url:
        return None
    why = "it is not kafka://HOST:PORT/TOPIC"
    try:
        if url.startswith("kafka://"):
            return parse_address(url)
    except SettingInvalid as error:
        why = str(error.facts["why"])
    raise SettingInvalid(name="notice_topic_url", origin="the settings", why=why)


def open_topic(settings: Settings) -> "TopicTarget | None":
    """None where the settings name no topic. Raises ExtraMissing, SettingInvalid."""
    address = topic_address(settings)
    if address is None:
        return None
    try:
        import kafka  # noqa: F401
    except ModuleNotFoundError as error:
        raise ExtraMissing(extra="kafka", what="The topic for changes of channels") from error
    return TopicTarget(address, request_s=settings.room(EventLogSettings).log_request_seconds_max)


class TopicTarget:
    """Used by one thread at a time, but for `close`."""

    def __init__(self, address: TopicAddress, *, request_s: float) -> None:
        """Whether anybody answers is seen at the first notice."""
        self._address = address
        self._request_s = request_s
        self._producer: KafkaProducer | None = None

    def send(self, notice: Notice) -> DeliveryFailure | None:
        """None once all replicas in sync have the notice."""
        from kafka.errors import KafkaError

        try:
            self._open().send(
                self._address.topic,
                key=f"{notice.tenant}/{notice.channel}".encode(),
                value=notice.body.encode(),
                headers=[("penstock-version", str(notice.version).encode())],
            ).get(self._request_s)
        except KafkaError as error:
            self.close()  # one that lost track of a batch may go on failing
            return DeliveryFailure(f"{error or type(error).__name__} ({self._address})")
        return None

    def cut(self) -> None:
        """Kafka's own time-out ends a request."""

    def close(self) -> None:
        from kafka.errors import KafkaError

        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(0)
            except KafkaError:
                producer._sender.force_close()  # as in penstock.eventlog.kafka.clients

    def _open(self) -> "KafkaProducer":
        """Raises KafkaError."""
        from kafka import KafkaAdminClient, KafkaProducer
        from kafka.errors import TopicAlreadyExistsError

        if self._producer is None:
            client = self._address.client
            request_ms = round(self._request_s * 1000)
            times = {"request_timeout_ms": request_ms, "bootstrap_timeout_ms": request_ms}
            with closing(KafkaAdminClient(**client, **times)) as admin:
                topic = {self._address.topic: {"num_partitions": 1, "configs": _CONFIGS}}
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(topic, timeout_ms=request_ms, wait_for_metadata=True)
            self._producer = KafkaProducer(
                **client,
                acks="all",
                enable_idempotence=True,
                linger_ms=0,
                max_block_ms=request_ms,
                request_timeout_ms=request_ms // 2,
                delivery_timeout_ms=request_ms,
                bootstrap_timeout_ms=request_ms,
                reconnect_backoff_max_ms=1000,
            )
        return self._producer
