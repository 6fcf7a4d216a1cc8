"""A server on loopback that speaks `/v1/chat/completions`, and errs as it is told."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock_jobs.rewards.tables import judge_spending
from tests.support.servers.scripted_server import Answer, Asked, Hang, Server, answering
from tests.support.waiting import eventually

#: Status, headers, body; or "hang" for no answer until the server ends.
Fault = tuple[int, dict[str, str], bytes]


def completion(content: str, tokens: int = 50) -> bytes:
    answer = {"choices": [{"message": {"role": "assistant", "content": content}}]}
    return json.dumps(answer | {"usage": {"total_tokens": tokens}}).encode()


def by_first_word(request: dict[str, Any]) -> str:
    """Labels a message by its first word, whatever else it says."""
    message = json.loads(request["messages"][1]["content"])
    label = message["user_message"].split()[0]
    return json.dumps({"label": label, "confidence": 0.9, "dissatisfied": 0.2})


class Completions:
    def __init__(self) -> None:
        self.server, self.url = Server(script=self._answer), ""
        #: The next answers; then `reply` answers.
        self.faults: deque[Fault | str] = deque()
        self.reply: Callable[[dict[str, Any]], str] = by_first_word

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [one.document | {"path": one.path} for one in self.server.asked]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [one.headers for one in self.server.asked]

    def arrived(self, count: int) -> bool:
        """Waits for so many requests."""
        eventually(lambda: len(self.server.asked) >= count)
        return True

    def _answer(self, asked: Asked) -> Answer | Hang:
        try:
            fault = self.faults.popleft()
        except IndexError:
            fault = 200, {}, completion(self.reply(asked.document))
        if isinstance(fault, str):
            return Hang(drip=False)
        status, headers, body = fault
        return Answer(status, body, headers)


@contextmanager
def running_completions() -> Iterator[Completions]:
    completions = Completions()
    with answering(completions.server, "/v1"):
        completions.url = completions.server.url
        yield completions


class Spent(NamedTuple):
    requests: int
    tokens: int


def spent(database: Database, run: str) -> Spent:
    """What a run has spent so far, with what is set aside."""
    query = sa.select(judge_spending.c.requests, judge_spending.c.tokens)
    with database.read() as connection:
        row = connection.execute(query.where(judge_spending.c.run == run)).one_or_none()
    return Spent(*row) if row else Spent(0, 0)
