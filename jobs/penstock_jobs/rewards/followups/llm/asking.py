"""One request to `/v1/chat/completions`, tried again where that may help."""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock_jobs.rewards.followups.llm.budget import Budget
from penstock_jobs.rewards.followups.llm.endpoint import Endpoint, address_of

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


@dataclass(frozen=True, slots=True)
class _Heard:
    """What came of a request; the status is 0 where no answer did."""

    status: int = 0
    answer: bytes = b""
    retry_after: str = ""
    why: str = ""
    #: Whether it may have reached the model.
    sent: bool = True


class Asker:
    def __init__(
        self, endpoint: Endpoint, budget: Budget, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Raises InvalidInput."""
        address = address_of(endpoint)
        self._endpoint = endpoint
        self._budget = budget
        self._sleep = sleep
        self._host, self._port = address.hostname or "", address.port
        self._secure = address.scheme == "https"
        self._path = f"{address.path.rstrip('/')}/chat/completions"

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
                return self._read(heard.answer, tokens)
            why = heard.why
            if heard.status or not heard.sent:  # else it may have been answered, and paid for
                self._budget.settle(tokens, 0)
            if heard.status and heard.status not in _AGAIN:
                hopeless = heard.status in _HOPELESS
                return Reply(failure="unreachable", why=why, hopeless=hopeless)
            if attempt + 1 < self._endpoint.attempts_max:
                self._sleep(self._pause(attempt, heard.retry_after))
        return Reply(failure="unreachable", why=why)

    def _send(self, body: bytes) -> _Heard:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._endpoint.timeout_seconds)
        headers = {"Content-Type": "application/json"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        sent = False
        try:
            connection.connect()
            sent = True
            connection.request("POST", self._path, body, headers)
            response = connection.getresponse()
            answer = response.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            return _Heard(sent=sent, why=f"{type(error).__name__}: {error}")
        finally:
            connection.close()
        retry_after = response.getheader("Retry-After", "")
        return _Heard(response.status, answer, retry_after, why=f"status {response.status}")

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

    def _pause(self, attempt: int, retry_after: str) -> float:
        """As long as the server asks for, else twice as long each time."""
        pause = _FIRST_PAUSE_SECONDS * float(2**attempt)
        if retry_after.isascii() and retry_after.isdigit():
            pause = float(retry_after)
        return min(pause, self._endpoint.pause_seconds_max)
