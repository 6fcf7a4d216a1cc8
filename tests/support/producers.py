"""Producers that retry, and whether the lake holds what they were told is safe, once."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Any, TypeVar

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import HttpAnswer, ServiceClient
from penstock.ingest.ledger import read_ledger
from penstock.lake.catalog import current
from penstock.lake.lake import Lake
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from tests.support.lakes import Event, body_of, files_of, make_event

#: A session and an event of it.
Identity = tuple[str, str]

T = TypeVar("T")

BATCH = 20
#: Batches that may be sent again.
_KEPT = 300
_SESSION_EVENTS = 200
_PAUSE_SECONDS = 0.05
_PATIENCE_SECONDS = 300.0


class Looping:
    """A thread that goes round until it is stopped. What it raises, `stop` raises."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ends after the round that is under way."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def stop(self) -> None:
        self.end()
        if self.failure is not None:
            raise self.failure

    def loop(self) -> None:
        raise NotImplementedError

    def going_on(self, pause_s: float) -> bool:
        return not self._stopping.wait(pause_s)

    def _run(self) -> None:
        try:
            self.loop()
        except BaseException as failure:  # noqa: BLE001 the test raises it in its own thread
            self.failure = failure


class Sender:
    """Asks one of several processes, and another when it fails. Not shared between threads."""

    def __init__(
        self, urls: Sequence[str], key: str | None, dice: random.Random, timeout_s: float = 30
    ) -> None:
        self._clients = [ServiceClient(url, key, timeout_s) for url in urls]
        self._dice = dice
        self._client = dice.choice(self._clients)

    def send_events(self, body: bytes) -> dict[str, Any]:
        """Post events until they are acknowledged; the answer."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            reply = self.ask(lambda client: client.post("/v1/events", body))
            if reply is not None and reply.status == 200:
                answer: dict[str, Any] = reply.json()
                return answer
            assert reply is None or reply.status in (429, 503), reply
            time.sleep(_PAUSE_SECONDS)
        raise TimeoutError("nobody acknowledged the events")

    def ask(self, how: Callable[[ServiceClient], HttpAnswer]) -> HttpAnswer | None:
        """One try; None when there is no answer."""
        try:
            reply = how(self._client)
        except ServerUnreachable:
            self.change()
            return None
        if reply.status == 503:
            self.change()
        return reply

    def change(self) -> None:
        self._client = self._dice.choice(self._clients)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Producer(Looping):
    """Sends batches one after another, each until it is acknowledged; some again on purpose."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        key: str | None,
        seed: object,
        *,
        timeout_s: float = 30,
        pause_s: float = 0.01,
    ) -> None:
        super().__init__(name)
        self.acknowledged: set[Identity] = set()
        self._dice = random.Random(f"{seed}-{name}")
        self._sender = Sender(urls, key, self._dice, timeout_s)
        self._pause_s = pause_s  # faults are the test, not the load

    def loop(self) -> None:
        bodies: list[bytes] = []
        number = 0
        with ExitStack() as closing:
            closing.callback(self._sender.close)
            while self.going_on(self._pause_s):
                if bodies and self._dice.random() < 0.2:
                    answer = self._sender.send_events(self._dice.choice(bodies))
                    assert answer["accepted"] == BATCH
                    continue
                batch = batch_of(self.name, number, self._dice)
                number += BATCH
                body = body_of(batch)
                answer = self._sender.send_events(body)
                assert answer == {"accepted": BATCH, "rejected": []}
                self.acknowledged |= identities(batch)
                keep(bodies, body, self._dice)


def batch_of(name: str, number: int, dice: random.Random) -> list[Event]:
    """A few sessions go on for long; most are short, and some of those come back."""
    newest = number // _SESSION_EVENTS
    batch = []
    for n in range(number, number + BATCH):
        session = dice.choice(["long", newest, newest, dice.randrange(newest + 1)])
        batch.append(make_event(f"{name}-{session}", n, source=name))
    return batch


def identities(events: Sequence[Event]) -> set[Identity]:
    return {(event["session_id"], event["event_id"]) for event in events}


def keep(kept: list[T], one: T, dice: random.Random) -> None:
    """Among those that are kept some are old, and memory stays bounded."""
    if len(kept) < _KEPT:
        kept.append(one)
    else:
        kept[dice.randrange(_KEPT)] = one


def holds_exactly(
    lake: Lake, acknowledged: AbstractSet[Identity], sent: AbstractSet[Identity] = frozenset()
) -> None:
    """Each acknowledged event once, and of the others only what was sent at least."""
    [totals] = (
        lake.query(
            "select count(*) as events, count(distinct (session_id, event_id)) as different"
            " from events"
        )
        .arrow()
        .to_pylist()
    )
    assert totals["events"] == totals["different"], "an event is there twice"
    rows = lake.query("select session_id, event_id from events").arrow()
    found = set(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    assert len(found) == rows.num_rows
    assert acknowledged - found == set(), "an acknowledged event is lost"
    assert found - acknowledged - sent == set(), "an event was never sent"


def assert_sound(lake: Lake) -> None:
    findings = verify(lake).findings
    assert findings == [], "\n".join(map(str, findings))


def is_whole(lake: Lake) -> None:
    assert_sound(lake)
    assert read_ledger(lake).discrepancies == []
    for _ in range(2):
        collect(lake, grace_s=0)
    files = {found.name for found in lake.store.list("events")}
    assert files == files_of(current(lake.database).segments)
    assert_sound(lake)
