"""Agents that write to the topic past the gateways, as careless ones do."""

import random
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.support.lakes import Event, body_of
from tests.support.producers import Identity, Looping, batch_of, identities, keep

_PAUSE_SECONDS = 0.1
_RETRY_SECONDS = 0.1
_ANSWER_SECONDS_MAX = 10
_GIVEN_UP = 0.3
_AGAIN = 0.2
_ASTRAY = 0.1
_HEADERS = [("penstock-schema-version", b"1"), ("penstock-tenant", b"default")]


class DirectProducer(Looping):
    """Not idempotent, so that its retries may be there twice; some records go to a partition that
    is not their session's. What the broker confirmed counts as acknowledged. A batch that failed
    is sometimes given up, though it may have arrived."""

    def __init__(self, name: str, address: str, topic: str, seed: object) -> None:
        super().__init__(name)
        self.sent: set[Identity] = set()
        self.acknowledged: set[Identity] = set()
        self._address = address
        self._topic = topic
        self._dice = random.Random(f"{seed}-{name}")
        self._producer: Any = None

    def loop(self) -> None:
        number = 0
        kept: list[list[Event]] = []
        try:
            while self.going_on(_PAUSE_SECONDS):
                if kept and self._dice.random() < _AGAIN:
                    self._send(self._dice.choice(kept))
                    continue
                batch = batch_of(self.name, number, self._dice)
                number += len(batch)
                if self._send(batch):
                    keep(kept, batch, self._dice)
        finally:
            self._drop()

    def _send(self, batch: list[Event]) -> bool:
        """False when it was given up, or the end came first."""
        while not self._try(batch):
            if self._dice.random() < _GIVEN_UP or not self.going_on(_RETRY_SECONDS):
                return False
        return True

    def _try(self, batch: list[Event]) -> bool:
        """The events of a session are a record."""
        by_session: dict[str, list[Event]] = {}
        for event in batch:
            by_session.setdefault(event["session_id"], []).append(event)
        try:
            producer = self._open()
            sent = []
            for session, events in by_session.items():
                self.sent |= identities(events)
                sent.append((events, self._produce(producer, session, events)))
            for events, confirmed in sent:
                confirmed.get(_ANSWER_SECONDS_MAX)
                self.acknowledged |= identities(events)
        except (KafkaError, OSError):
            self._drop()
            return False
        return True

    def _produce(self, producer: Any, session: str, events: list[Event]) -> Any:
        partition = 0 if self._dice.random() < _ASTRAY else None
        value, key = body_of(events), session.encode()
        return producer.send(self._topic, value, key, _HEADERS, partition=partition)

    def _open(self) -> Any:
        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self._address,
                acks="all",
                enable_idempotence=False,
                retries=5,
                retry_backoff_ms=50,
                request_timeout_ms=1000,
                delivery_timeout_ms=5000,
                max_block_ms=2000,
                bootstrap_timeout_ms=2000,
                metadata_max_age_ms=1000,
            )
        return self._producer

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(0)
            except KafkaError:  # it waited for what it has not sent
                producer._sender.force_close()
