"""Who uses the cluster: careless agents, agents whose truth is known, and somebody who asks."""

import json
import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.lake.catalog import create_snapshot, drop_snapshot
from penstock_jobs.simulator.journal import SimulatedSession
from penstock_jobs.simulator.production import Production
from penstock_jobs.simulator.truth import SessionTruth
from tests.support.lakes import Event, body_of
from tests.support.producers import BATCH, Identity, Looping, Sender, batch_of, identities, keep

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


class Simulated(Looping):
    """Sends one session after another, each batch until it is acknowledged, some again on purpose.
    `truths` are those of the sessions of which every event was acknowledged."""

    def __init__(self, name: str, sender: Sender, seed: int, *, pause_s: float) -> None:
        super().__init__(name)
        self.acknowledged: set[Identity] = set()
        self.truths: list[SessionTruth] = []
        self._production = Production(seed)
        self._sender = sender
        self._dice = random.Random(f"{seed}-{name}")
        self._pause_s = pause_s
        self._kept: list[list[bytes]] = []

    def loop(self) -> None:
        index = 0
        with closing(self._sender):
            while True:
                for lived in self._production.session(index):
                    if not self._send_whole(lived):
                        return
                    self.truths.append(lived.truth)
                index += 1

    def _send_whole(self, lived: SimulatedSession) -> bool:
        """False where the end came first."""
        lines = [line for _, _, line in lived.lines]
        for start in range(0, len(lines), BATCH):
            if not self.going_on(self._pause_s):
                return False
            batch = lines[start : start + BATCH]
            self._send(batch)
            events = map(json.loads, batch)
            self.acknowledged |= {(event["session_id"], event["event_id"]) for event in events}
            keep(self._kept, batch, self._dice)
            if self._dice.random() < _AGAIN:
                self._send(self._dice.choice(self._kept))
        return True

    def _send(self, batch: list[bytes]) -> None:
        answer = self._sender.send_events(b"\n".join(batch))
        assert answer == {"accepted": len(batch), "rejected": []}


_ASK_PAUSE_SECONDS = 0.2
_SNAPSHOTS_MAX = 8
_SQL = "select count(*) as events, count(distinct (session_id, event_id)) as different from events"
#: The query takes too long, or there are too many; nobody can say now.
_LATER = (422, 429, 503)


class Reader(Looping):
    """Asks for the newest and as of snapshots that it makes and drops. The newest hold whatever
    was acknowledged before the question; a snapshot holds the same for ever."""

    def __init__(
        self, sender: Sender, database: Database, acknowledged: Callable[[], int], seed: object
    ) -> None:
        super().__init__("reader")
        self.answers = 0
        self.counts: dict[str, int] = {}
        self._sender = sender
        self._database = database
        self._acknowledged = acknowledged
        self._dice = random.Random(f"{seed}-reader")
        self._snapshots: list[str] = []
        self._made = 0

    def loop(self) -> None:
        with closing(self._sender), closing(self._database):
            while self.going_on(_ASK_PAUSE_SECONDS):
                if self._dice.random() < 0.15:
                    self._change_snapshots()
                if self._snapshots and self._dice.random() < 0.5:
                    self._ask_as_of(self._dice.choice(self._snapshots))
                else:
                    self._ask_newest()

    def _ask_newest(self) -> None:
        before = self._acknowledged()
        answer = self._ask()
        if answer is not None and answer["complete"]:
            events = answer["rows"][0]["events"]
            assert events >= before, f"{before} events were acknowledged, {events} are visible"

    def _ask_as_of(self, name: str) -> None:
        answer = self._ask(name)
        if answer is not None:
            events = answer["rows"][0]["events"]
            first = self.counts.setdefault(name, events)
            assert events == first, f"{name} had {first} events and has {events}"

    def _ask(self, as_of: str | None = None) -> Any:
        body = json.dumps({"sql": _SQL, "as_of": as_of}).encode()
        reply = self._sender.ask(lambda client: client.post("/v1/query", body))
        if reply is None or reply.status in _LATER:
            return None
        assert reply.status == 200, f"{reply.status}: {reply.body[:500]!r}"
        if self._dice.random() < 0.3:
            self._sender.change()
        self.answers += 1
        answer = reply.json()
        [totals] = answer["rows"]
        assert totals["events"] == totals["different"], "a query shows an event twice"
        return answer

    def _change_snapshots(self) -> None:
        """A name is used when it was surely made, until it may have been dropped."""
        try:
            if len(self._snapshots) == _SNAPSHOTS_MAX:
                name = self._snapshots.pop(self._dice.randrange(_SNAPSHOTS_MAX))
                self.counts.pop(name, None)
                drop_snapshot(self._database, name)
            self._made += 1
            name = f"s{self._made}"
            create_snapshot(self._database, name)
            self._snapshots.append(name)
        except DatabaseUnreachable:
            return
