"""Delivery of batches to the service, and what follows from its answer."""

import enum
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from urllib.parse import SplitResult

#: For connecting, and for each wait within an answer.
_ANSWER_SECONDS_MAX = 30.0
_ANSWER_BYTES_MAX = 1024 * 1024
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.5, 60.0
#: A service that asks for more is not listened to.
_RETRY_AFTER_SECONDS_MAX = 300.0


class Outcome(enum.Enum):
    TAKEN = "taken"
    TOO_LARGE = "too_large"
    #: It will never be taken.
    REFUSED = "refused"
    #: The service is away, or full.
    LATER = "later"
    #: The address or the key is wrong: somebody has to mend it.
    UNUSABLE = "unusable"


class Reply(NamedTuple):
    status: int
    retry_after_s: float = 0.0
    rejected: int = 0
    problem: str = ""


def outcome(reply: Reply) -> Outcome:
    match reply.status:
        case 200:
            return Outcome.TAKEN
        case 413:
            return Outcome.TOO_LARGE
        case 400 | 422:
            return Outcome.REFUSED
        case 0 | 408 | 425 | 429:
            return Outcome.LATER
        case status if status >= 500:
            return Outcome.LATER
        case _:
            return Outcome.UNUSABLE


def pause_seconds(attempts: int, reply: Reply, chance: float) -> float:
    """Before the next attempt after so many in vain. `chance`, from 0 to 1, spreads the recorders
    of a team, so that a service that is back is not overrun by all at once."""
    if reply.retry_after_s:
        asked = min(reply.retry_after_s, _RETRY_AFTER_SECONDS_MAX)
        return asked * (1 + chance / 4)
    longest = min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS_MIN * 2.0 ** min(attempts, 10))
    return longest * (0.5 + chance / 2)


class Delivery:
    """One connection to a service. For one thread."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.key = key
        self._connection: HTTPConnection | None = None

    def send(self, packed: bytes) -> Reply:
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        reused = self._connection is not None
        reply = self._attempt(packed, headers)
        if reply.status == 0 and reused:  # servers close connections that were idle
            reply = self._attempt(packed, headers)
        return reply

    def close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None

    def _attempt(self, packed: bytes, headers: dict[str, str]) -> Reply:
        # Half of what importing the recorder would take, in the thread that sends.
        from http.client import HTTPException
        from urllib.parse import urlsplit

        try:
            address = urlsplit(self.url)
            connection = self._connection = self._connection or _connection_to(address)
            path = f"{address.path.rstrip('/')}/v1/events"
            connection.request("POST", path, packed, headers)
            answer = connection.getresponse()
            body = answer.read(_ANSWER_BYTES_MAX)
            if answer.will_close or not answer.isclosed():
                self.close()
            return Reply(
                answer.status,
                _seconds(answer.getheader("Retry-After")),
                _rejected(answer.status, body),
                "" if answer.status == 200 else _title(body),
            )
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            return Reply(0, problem=f"{type(error).__name__}: {error}")


def any_chance() -> float:
    """From 0 to 1."""
    return os.urandom(1)[0] / 255


def _connection_to(address: "SplitResult") -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection

    if not address.hostname or address.scheme not in ("http", "https"):
        raise ValueError("the address of the service begins with http:// or https://")
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    return kind(address.hostname, address.port, timeout=_ANSWER_SECONDS_MAX)


def _seconds(retry_after: str | None) -> float:
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0


def _rejected(status: int, body: bytes) -> int:
    if status != 200:
        return 0
    with suppress(ValueError, TypeError, KeyError):
        return len(json.loads(body)["rejected"])
    return 0


def _title(body: bytes) -> str:
    with suppress(ValueError, TypeError, KeyError):
        problem = json.loads(body)
        return str(problem.get("detail") or problem.get("title") or problem.get("error"))[:500]
    return ""
