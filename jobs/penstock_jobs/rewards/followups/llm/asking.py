"""One request to `/v1/chat/completions`, tried again where that may help."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.http.client import Bounds, Exchange, Heard
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
