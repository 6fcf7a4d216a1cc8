"""A service that is killed while exporters send: what it answered with 200 is there, once."""

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient
from tests.support.spans import as_protobuf, traces
from tests.unit.otlp.test_genai import ASKED, BYE, chat

_ROUNDS = 3
_SENDERS = 3


class Sender(threading.Thread):
    def __init__(self, url: str, key: str, first: int) -> None:
        super().__init__()
        self._client = ServiceClient(url, key)
        self._first = first
        self.acknowledged: list[int] = []

    def run(self) -> None:
        for number in range(self._first, self._first + 1_000_000):
            body = as_protobuf(traces([chat(number, [ASKED], BYE, number)]))
            try:
                reply = self._client.post("/v1/traces", body, Content_Type="application/x-protobuf")
            except (ServerUnreachable, OSError):
                break
            if reply.status != 200:
                break
            self.acknowledged.append(number)
        self._client.close()


def test_nothing_acknowledged_is_lost_and_nothing_counted_twice(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    chance = random.Random(3)
    acknowledged: set[int] = set()
    for round_ in range(_ROUNDS):
        with start(data=tmp_path) as service:
            senders = [
                Sender(service.server.url, service.keys["ingest"], (3 * round_ + n + 1) * 1_000_000)
                for n in range(_SENDERS)
            ]
            for sender in senders:
                sender.start()
            wanted = chance.randint(20, 60)
            service.wait_for(lambda: sum(len(s.acknowledged) for s in senders) > wanted)  # noqa: B023
            service.server.kill()
            for sender in senders:
                sender.join()
                acknowledged.update(sender.acknowledged)
    with start(data=tmp_path) as service:
        rows = service.query("select event_id from events where type = 'model_call'")
        stored = [int(row["event_id"].rpartition(":")[2], 16) for row in rows]
        assert len(stored) == len(set(stored))
        assert acknowledged <= set(stored)
        again = as_protobuf(traces([chat(number, [ASKED], BYE, number) for number in stored]))
        reply = service.post("/v1/traces", again, Content_Type="application/x-protobuf")
        assert reply.status == 200
        [row] = service.query("select count(*) as n from events where type = 'model_call'")
        assert row["n"] == len(stored), json.dumps(row)
