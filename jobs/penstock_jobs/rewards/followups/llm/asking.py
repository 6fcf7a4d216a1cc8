"""One request to `/v1/chat/completions`, tried again where that may help."""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from penstock.errors import InvalidInput
from penstock_jobs.rewards.followups.llm.budget import Budget

_AGAIN = {408, 429, 500, 502, 503, 504, 529}
#: No other message will fare better: the key, the address or the model is wrong.
_HOPELESS = {401, 402, 403, 404}
_ANSWER_BYTES_MAX = 1 << 20
_FIRST_PAUSE_SECONDS = 0.5
#: Characters of a token: rather too few, so that what is set aside rather suffices.
_CHARS_PER_TOKEN = 2


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
        address = urlsplit(endpoint.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidInput(
                what="The address of the judge",
                why=f"{endpoint.url!r} is no http:// or https:// address",
            )
        self._endpoint = endpoint
        self._budget = budget
        self._sleep = sleep
        self._host, self._port = address.hostname, address.port
        self._secure = address.scheme == "https"
        self._path = f"{address.path.rstrip('/')}/chat/completions"

    def ask(self, system: str, user: str) -> Reply:
        body = self._body(system, user)
        tokens = len(system + user) // _CHARS_PER_TOKEN + self._endpoint.answer_tokens_max
        why = ""
        for attempt in range(self._endpoint.attempts_max):
            if not self._budget.take(tokens):
                return Reply(failure="budget", why=why)
            try:
                status, retry_after, answer = self._send(body)
            except (OSError, http.client.HTTPException) as error:
                status, retry_after, why = 0, "", f"{type(error).__name__}: {error}"
            else:
                if status == 200:
                    return self._read(answer, tokens)
                why = f"status {status}"
            self._budget.settle(tokens, 0)
            if status and status not in _AGAIN:
                return Reply(failure="unreachable", why=why, hopeless=status in _HOPELESS)
            if attempt + 1 < self._endpoint.attempts_max:
                self._sleep(self._pause(attempt, retry_after))
        return Reply(failure="unreachable", why=why)

    def _send(self, body: bytes) -> tuple[int, str, bytes]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._endpoint.timeout_seconds)
        headers = {"Content-Type": "application/json"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        try:
            connection.request("POST", self._path, body, headers)
            response = connection.getresponse()
            answer = response.read(_ANSWER_BYTES_MAX)
            return response.status, response.getheader("Retry-After", ""), answer
        finally:
            connection.close()

    def _read(self, answer: bytes, tokens: int) -> Reply:
        try:
            found = json.loads(answer)
            content = found["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return Reply(failure="unreadable_answer", why="no chat completion")
        usage = found.get("usage")
        spent = usage.get("total_tokens") if isinstance(usage, dict) else None
        if isinstance(spent, int) and spent >= 0:
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

    def _pause(self, attempt: int, retry_after: str) -> float:
        """As long as the server asks for, else twice as long each time."""
        pause = _FIRST_PAUSE_SECONDS * float(2**attempt)
        if retry_after.isascii() and retry_after.isdigit():
            pause = float(retry_after)
        return min(pause, self._endpoint.pause_seconds_max)
