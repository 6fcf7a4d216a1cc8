"""A server with a registry behind it, for the tests of its routes."""

import json
from dataclasses import dataclass
from typing import Any

from penstock.backends.database.engine import Database
from penstock.backends.http.client import HttpAnswer
from tests.support.checkpoint_factory import add, promote


@dataclass
class Registry:
    """A server, its keys by role, and the database behind it. Each test takes a channel and
    checkpoints of its own."""

    service: Any
    database: Database
    keys: dict[str, str]

    def get(self, path: str, key: str = "read", **headers: str) -> HttpAnswer:
        with self.service.client(self.keys.get(key, key)) as client:
            found: HttpAnswer = client.get(path, **headers)
            return found

    def post(self, path: str, document: object, key: str = "promote") -> HttpAnswer:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        found: HttpAnswer = self.service.post(path, body, self.keys.get(key, key))
        return found

    def add(self, *names: str) -> None:
        add(self.database, *names, tenant="acme")

    def promote(self, channel: str, name: str, **facts: Any) -> None:
        promote(self.database, name, tenant="acme", channel=channel, **facts)

    def waiting(self) -> float:
        found: float = self.service.metric("channel_waiters")
        return found


def problem(reply: HttpAnswer, status: int) -> dict[str, Any]:
    assert reply.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = reply.json()
    assert (reply.status, body["status"]) == (status, status), body
    return body
