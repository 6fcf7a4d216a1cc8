"""Somebody who asks all the time, and never may be told anything that is not so."""

import json
import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

from penstock.database.engine import Database
from penstock.database.errors import DatabaseUnreachable
from penstock.lake.catalog import create_snapshot, drop_snapshot
from tests.support.producers import Looping, Sender

_PAUSE_SECONDS = 0.2
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
            while self.going_on(_PAUSE_SECONDS):
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
