"""Requests to a language model at `/v1/chat/completions`: sent within a budget, and again where
that may help."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from penstock.database.engine import Database, insert_of
from penstock.errors import InvalidInput
from penstock.http.address import HttpAddress
from penstock.http.client import HttpAnswer, HttpClient
from penstock.settings import Settings, without_secrets
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.tables import judge_spending

_TRANSIENT = {408, 429, 500, 502, 503, 504, 529}
#: No other message will fare better: the key, the address or the model is wrong.
_HOPELESS = {401, 402, 403, 404}
_ANSWER_BYTES_MAX = 1 << 20
_FIRST_PAUSE_SECONDS = 0.5
#: Bytes of UTF-8 in a token: rather too few, so that enough is set aside.
_BYTES_PER_TOKEN = 2
#: More cannot be the tokens of one answer.
_TOKENS_MAX = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the model is, and how it is asked."""

    #: Up to and without `/chat/completions`: http://127.0.0.1:8000/v1
    url: str
    model: str
    key: str = field(default="", repr=False)
    #: Tries of one request.
    attempts_max: int = 4
    #: Wait for an answer.
    timeout_seconds: float = 60.0
    #: Longest pause between two tries, also when the server asks for a longer one.
    pause_seconds_max: float = 30.0
    #: What the model may write.
    answer_tokens_max: int = 200
    #: Other parameters of the request, such as `seed`.
    parameters: tuple[tuple[str, Any], ...] = (("temperature", 0),)


def endpoint_of(settings: Settings) -> Endpoint:
    judge = settings.room(RewardSettings)
    return Endpoint(
        url=judge.judge_url,
        model=judge.judge_model,
        key=judge.judge_key,
        timeout_seconds=judge.judge_seconds_max,
    )


def address_of(endpoint: Endpoint) -> HttpAddress:
    """Raises InvalidInput where nothing can be sent there, or not with this key."""
    address = HttpAddress.of(
        endpoint.url, f"The address of the judge, {without_secrets(endpoint.url)!r},"
    )
    if not (endpoint.key.isascii() and endpoint.key.isprintable()):
        why = "it holds characters that no header may hold"
        raise InvalidInput(what="The key of the judge", why=why)
    return address


class Spent(NamedTuple):
    requests: int
    tokens: int


class RunBudget:
    """What a run may spend, whatever processes it has, and on whatever machines.

    Tokens are set aside before a request is sent, by a guess that is rather too high, and put
    right by what the answer says. What a killed process had set aside stays set aside: nobody
    knows whether it was spent. Safe between threads."""

    def __init__(self, database: Database, run: str, requests_max: int, tokens_max: int) -> None:
        self._database = database
        self._run = run
        self._requests_max = requests_max
        self._tokens_max = tokens_max

    def take(self, tokens: int) -> bool:
        """Whether one more request of so many tokens may be sent."""
        requests_then, tokens_then = judge_spending.c.requests + 1, judge_spending.c.tokens + tokens
        with self._database.write() as connection:
            none = insert_of(connection)(judge_spending).values(run=self._run, requests=0, tokens=0)
            connection.execute(none.on_conflict_do_nothing())
            taken = connection.execute(
                sa.update(judge_spending)
                .where(
                    judge_spending.c.run == self._run,
                    requests_then <= self._requests_max,
                    tokens_then <= self._tokens_max,
                )
                .values(requests=requests_then, tokens=tokens_then)
            )
            return taken.rowcount == 1

    def settle(self, taken: int, spent: int) -> None:
        """Of `taken` tokens that were set aside, `spent` were needed."""
        right = judge_spending.c.tokens + (spent - taken)
        own = judge_spending.c.run == self._run
        with self._database.write() as connection:
            connection.execute(sa.update(judge_spending).where(own).values(tokens=right))


def spent(database: Database, run: str) -> Spent:
    """So far, with what is set aside."""
    query = sa.select(judge_spending.c.requests, judge_spending.c.tokens)
    with database.read() as connection:
        row = connection.execute(query.where(judge_spending.c.run == run)).one_or_none()
    return Spent(row.requests, row.tokens) if row else Spent(0, 0)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The content of the answer, or why there is none; `hopeless` when no message will get one."""

    content: object = None
    failure: Literal["budget", "unreachable", "unreadable_answer"] | None = None
    why: str = ""
    hopeless: bool = False


class ChatClient:
    def __init__(
        self, endpoint: Endpoint, budget: RunBudget, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Raises InvalidInput."""
        self._address = address_of(endpoint).below("chat/completions")
        self._endpoint = endpoint
        self._budget = budget
        self._sleep = sleep

    def ask(self, system: str, user: str) -> ModelReply:
        body = self._body(system, user)
        question = f"{system}{user}".encode(errors="surrogatepass")
        tokens = len(question) // _BYTES_PER_TOKEN + self._endpoint.answer_tokens_max
        why = ""
        for attempt in range(self._endpoint.attempts_max):
            if not self._budget.take(tokens):
                return ModelReply(failure="budget", why=why)
            answer = self._send(body)
            if answer.status == 200:
                return self._read(answer.body, tokens)
            why = answer.problem or f"status {answer.status}"
            if answer.status or not answer.sent:  # else it may have been answered, and paid for
                self._budget.settle(tokens, 0)
            if answer.status and answer.status not in _TRANSIENT:
                hopeless = answer.status in _HOPELESS
                return ModelReply(failure="unreachable", why=why, hopeless=hopeless)
            if attempt + 1 < self._endpoint.attempts_max:
                # As long as the server asks for, else twice as long each time.
                pause = answer.retry_after_s or _FIRST_PAUSE_SECONDS * float(2**attempt)
                self._sleep(min(pause, self._endpoint.pause_seconds_max))
        return ModelReply(failure="unreachable", why=why)

    def _send(self, body: bytes) -> HttpAnswer:
        headers = {"Content-Type": "application/json"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        elif self._address.authorization:
            headers["Authorization"] = self._address.authorization
        client = HttpClient(
            self._address,
            seconds_max=self._endpoint.timeout_seconds,
            bytes_max=_ANSWER_BYTES_MAX,
        )
        return client.request("POST", headers, body).if_whole()

    def _read(self, answer: bytes, tokens: int) -> ModelReply:
        try:
            document = json.loads(answer)
            content = document["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return ModelReply(failure="unreadable_answer", why="no chat completion")
        usage = document.get("usage")
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        if isinstance(total, int) and 0 <= total <= _TOKENS_MAX:
            self._budget.settle(tokens, total)
        return ModelReply(content)

    def _body(self, system: str, user: str) -> bytes:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        request = {
            "model": self._endpoint.model,
            "messages": messages,
            "max_tokens": self._endpoint.answer_tokens_max,
            **dict(self._endpoint.parameters),
        }
        return json.dumps(request).encode()
