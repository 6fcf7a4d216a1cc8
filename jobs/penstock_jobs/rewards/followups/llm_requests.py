"""What a run may spend on a judge that costs money."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.database.inserting import insert_of
from penstock.errors import InvalidInput
from penstock.http.address import HttpAddress
from penstock.http.client import Bounds, Exchange, Heard
from penstock.settings import Settings, without_secrets
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.rewards.tables import judge_spending


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the model is, and the limits of asking it."""

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
    return Endpoint(
        url=settings.room(RewardSettings).judge_url,
        model=settings.room(RewardSettings).judge_model,
        key=settings.room(RewardSettings).judge_key,
        timeout_seconds=settings.room(RewardSettings).judge_seconds_max,
    )


def address_of(endpoint: Endpoint) -> HttpAddress:
    """Raises InvalidInput where nothing can be sent there, or not with this key."""
    address = HttpAddress.of(
        endpoint.url, f"The address of the judge, {without_secrets(endpoint.url)!r},"
    )
    if not (endpoint.key.isascii() and endpoint.key.isprintable()):
        raise InvalidInput(what="The key of the judge", why="it holds what no header may")
    return address


class Spent(NamedTuple):
    requests: int
    tokens: int


class Budget(Protocol):
    """Tokens are set aside before a request is sent, by a guess that is rather too high, and put
    right by what the answer says. Safe between threads."""

    def take(self, tokens: int) -> bool:
        """Whether one more request of so many tokens may be sent."""
        ...

    def settle(self, taken: int, spent: int) -> None: ...


class DatabaseBudget:
    """Of one run, whatever processes it has, and on whatever machines. What a killed process had
    set aside stays set aside: nobody knows whether it was spent."""

    def __init__(self, database: Database, run: str, requests_max: int, tokens_max: int) -> None:
        self._database = database
        self._run = run
        self._requests_max = requests_max
        self._tokens_max = tokens_max

    def take(self, tokens: int) -> bool:
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
        right = judge_spending.c.tokens + (spent - taken)
        with self._database.write() as connection:
            connection.execute(
                sa.update(judge_spending)
                .where(judge_spending.c.run == self._run)
                .values(tokens=right)
            )


def spent(database: Database, run: str) -> Spent:
    """So far, with what is set aside."""
    query = sa.select(judge_spending.c.requests, judge_spending.c.tokens)
    with database.read() as connection:
        row = connection.execute(query.where(judge_spending.c.run == run)).one_or_none()
    return Spent(row.requests, row.tokens) if row else Spent(0, 0)


_AGAIN = {408, 429, 500, 502, 503, 504, 529}
#: No other message will fare better: the key, the address or the model is wrong.
_HOPELESS = {401, 402, 403, 404}
_ANSWER_BYTES_MAX = 1 << 20
_FIRST_PAUSE_SECONDS = 0.5
#: Bytes of UTF-8 in a token: rather too few, so that what is set aside rather suffices.
_BYTES_PER_TOKEN = 2
#: More is no count of one answer's tokens.
_TOKENS_MAX = 100_000_000


@dataclass(frozen=True, slots=True)
class Reply:
    """The content of the answer, or why there is none; `hopeless` when nobody need ask again."""

    content: object = None
    failure: Literal["budget", "unreachable", "unreadable_answer"] | None = None
    why: str = ""
    hopeless: bool = False


class Asker:
    def __init__(
        self, endpoint: Endpoint, budget: Budget, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Raises InvalidInput."""
        self._address = address_of(endpoint).below("chat/completions")
        self._endpoint = endpoint
        self._budget = budget
        self._sleep = sleep

    def ask(self, system: str, user: str) -> Reply:
        body = self._body(system, user)
        asked = f"{system}{user}".encode(errors="surrogatepass")
        tokens = len(asked) // _BYTES_PER_TOKEN + self._endpoint.answer_tokens_max
        why = ""
        for attempt in range(self._endpoint.attempts_max):
            if not self._budget.take(tokens):
                return Reply(failure="budget", why=why)
            heard = self._send(body)
            if heard.status == 200:
                return self._read(heard.content, tokens)
            why = heard.why or f"status {heard.status}"
            if heard.status or not heard.sent:  # else it may have been answered, and paid for
                self._budget.settle(tokens, 0)
            if heard.status and heard.status not in _AGAIN:
                hopeless = heard.status in _HOPELESS
                return Reply(failure="unreachable", why=why, hopeless=hopeless)
            if attempt + 1 < self._endpoint.attempts_max:
                self._sleep(self._pause(attempt, heard.retry_after_s))
        return Reply(failure="unreachable", why=why)

    def _send(self, body: bytes) -> Heard:
        headers = {"Content-Type": "application/json"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        elif self._address.authorization:
            headers["Authorization"] = self._address.authorization
        bounds = Bounds(self._endpoint.timeout_seconds, _ANSWER_BYTES_MAX)
        return Exchange(bounds).ask("POST", self._address, headers, body).if_whole()

    def _read(self, answer: bytes, tokens: int) -> Reply:
        try:
            found = json.loads(answer)
            content = found["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return Reply(failure="unreadable_answer", why="no chat completion")
        usage = found.get("usage")
        spent = usage.get("total_tokens") if isinstance(usage, dict) else None
        if isinstance(spent, int) and 0 <= spent <= _TOKENS_MAX:
            self._budget.settle(tokens, spent)
        return Reply(content)

    def _body(self, system: str, user: str) -> bytes:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        request = {
            "model": self._endpoint.model,
            "messages": messages,
            "max_tokens": self._endpoint.answer_tokens_max,
            **dict(self._endpoint.parameters),
        }
        return json.dumps(request).encode()

    def _pause(self, attempt: int, asked_s: float) -> float:
        """As long as the server asks for, else twice as long each time."""
        pause = asked_s or _FIRST_PAUSE_SECONDS * float(2**attempt)
        return min(pause, self._endpoint.pause_seconds_max)
