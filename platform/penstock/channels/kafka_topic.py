"""A topic that is told of each change, keyed by channel."""

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError

from penstock.channels.notices import Notice
from penstock.eventlog.kafka.topic import TopicAddress

#: A topic that is not there yet: it keeps the newest change of each channel for ever, and all of
#: them for a week.
_CONFIGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * 86_400_000)}


class NoticeTopic:
    """Used by one thread at a time, but for `close`."""

    def __init__(self, address: TopicAddress, *, request_s: float) -> None:
        """Whether anybody answers is seen at the first notice."""
        self._address = address
        self._request_s = request_s
        self._producer: KafkaProducer | None = None

    def send(self, notice: Notice) -> str | None:
        """Why it may not be there; None once all replicas in sync have it."""
        try:
            self._open().send(
                self._address.topic,
                key=f"{notice.tenant}/{notice.channel}".encode(),
                value=notice.body.encode(),
                headers=[("penstock-version", str(notice.version).encode())],
            ).get(self._request_s)
        except KafkaError as error:
            self.close()  # one that lost track of a batch may go on failing
            return f"{error or type(error).__name__} ({self._address})"
        return None

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(0)
            except KafkaError:
                producer._sender.force_close()  # as in penstock.eventlog.kafka.clients

    def _open(self) -> KafkaProducer:
        """Raises KafkaError."""
        if self._producer is None:
            self._make_topic()
            self._producer = self._make_producer()
        return self._producer

    def _make_producer(self) -> KafkaProducer:
        request_ms = round(self._request_s * 1000)
        return KafkaProducer(
            **self._address.client,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_block_ms=request_ms,
            request_timeout_ms=request_ms // 2,
            delivery_timeout_ms=request_ms,
            bootstrap_timeout_ms=request_ms,
            reconnect_backoff_max_ms=1000,
        )

    def _make_topic(self) -> None:
        request_ms = round(self._request_s * 1000)
        admin = KafkaAdminClient(
            **self._address.client, request_timeout_ms=request_ms, bootstrap_timeout_ms=request_ms
        )
        try:
            topic = {self._address.topic: {"num_partitions": 1, "configs": _CONFIGS}}
            admin.create_topics(topic, timeout_ms=request_ms, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            return
        finally:
            admin.close()
