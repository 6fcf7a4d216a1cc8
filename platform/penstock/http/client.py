"""Requests over HTTP: one exchange that ends in time whatever the other side does, and a running
Penstock service that is asked again and again.
"""

import http.client
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.errors import InvalidInput
from penstock.http.address import HttpAddress
from penstock.http.errors import AnswerUnusable, ServerUnreachable
from penstock.settings import without_secrets


@dataclass(frozen=True)
class Bounds:
    #: For everything together.
    seconds_max: float
    #: One byte more is read, so that who reads the answer sees that it is too long.
    bytes_max: int


@dataclass(frozen=True)
class Heard:
    """`status` is 0 where there was no answer."""

    status: int
    #: What went wrong; empty where the whole answer came.
    why: str = ""
    content: bytes = b""
    location: str | None = None
    #: Seconds that it asks to be left alone; 0 where it does not.
    retry_after_s: float = 0.0
    #: Whether the request may have reached the other side.
    sent: bool = True

    def if_whole(self) -> "Heard":
        """An answer of which a part is missing is none."""
        return replace(self, status=0) if self.why else self


class Exchange:
    """One request at a time. Another thread may cut it off."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._call: _Call | None = None

    def ask(
        self, method: str, address: HttpAddress, headers: Mapping[str, str], body: bytes | None
    ) -> Heard:
        call = _Call(address.connection(self._bounds.seconds_max))
        sent = False
        try:
            with self._current(call):
                call.connection.connect()
                sent = True
                call.connection.request(method, address.target, body, dict(headers))
                return self._hear(call)
        except TimeoutError:
            return Heard(0, self._too_late, sent=sent)
        except (OSError, http.client.HTTPException) as error:
            return Heard(0, call.ended or f"{type(error).__name__}: {error}", sent=sent)

    def cut(self) -> None:
        """Break off what is under way, if anything."""
        if (call := self._call) is not None:
            call.end("it was broken off")

    @property
    def _too_late(self) -> str:
        return f"it did not answer within {self._bounds.seconds_max:g} s"

    def _hear(self, call: "_Call") -> Heard:
        response = call.connection.getresponse()
        if call.ended:  # what was cut off reads as an answer with fewer headers
            return Heard(0, call.ended)
        heard = Heard(
            response.status,
            location=response.getheader("Location"),
            retry_after_s=_seconds(response.getheader("Retry-After", "")),
        )
        try:
            content = response.read(self._bounds.bytes_max + 1)
        except TimeoutError:
            return replace(heard, why=self._too_late)
        except (OSError, http.client.HTTPException) as error:
            return replace(heard, why=call.ended or f"{type(error).__name__}: {error}")
        if call.ended:  # and here as one with fewer bytes
            return replace(heard, why=call.ended)
        if response.length and len(content) <= self._bounds.bytes_max:
            return replace(heard, why="its answer was cut off")
        return replace(heard, content=content)

    @contextmanager
    def _current(self, call: "_Call") -> Iterator[None]:
        """Time-outs of sockets count from byte to byte: who sends one now and then has no end."""
        timer = threading.Timer(self._bounds.seconds_max, call.end, [self._too_late])
        timer.daemon = True
        timer.start()
        self._call = call
        try:
            yield
        finally:
            self._call = None
            timer.cancel()
            call.connection.close()


class _Call:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        #: Why it was ended from outside, once it was.
        self.ended = ""

    def end(self, why: str) -> None:
        self.ended = why
        if (dialled := self.connection.sock) is not None:
            with suppress(OSError):  # not the method of a TLS socket, which is not for two threads
                socket.socket.shutdown(dialled, socket.SHUT_RDWR)


def _seconds(text: str) -> float:
    """A moment is not read as one: it is by another clock."""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0


#: Told of troubles that pass, in a sentence.
Tell = Callable[[str], None]


_WAIT_SECONDS = 30.0


_PAUSES_SECONDS = (0.2, 1.0, 5.0)


#: These pass: the service is stopping, full, or away.
_PASSING = {408, 429, 502, 503, 504}


class ServiceClient:
    """A service, by one connection that is opened again when it breaks; its key is in
    PENSTOCK_KEY. Not shared between threads."""

    def __init__(self, url: str, seconds_max: float = _WAIT_SECONDS * 2) -> None:
        """An answer that takes longer than `seconds_max` is none. Raises InvalidInput."""
        address = _address_of(url)
        self._url = url
        self._connection = address.connection(seconds_max)
        self._above = address.below("v1/").path
        key = _key()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._is_cut = False

    def ask(self, path: str, expected: str, body: object = None) -> dict[str, Any]:
        """What it answers at a path below /v1, with the field `expected`. Raises ServerUnreachable
        where that passes, else AnswerUnusable."""
        status, content = self._exchange(path, body)
        try:
            answer: dict[str, Any] = msgspec.json.decode(content, type=dict)
        except (ValueError, RecursionError):
            answer = {}
        if status in _PASSING:
            raise ServerUnreachable(url=self._url, why=answer.get("detail", status))
        if status != 200 or expected not in answer:
            why = answer.get("detail", "nothing that Penstock says")
            raise AnswerUnusable(url=self._url, status=status, why=why)
        return answer

    def cut(self) -> None:
        """From another thread: nobody waits for an answer any longer."""
        self._is_cut = True
        if (connected := self._connection.sock) is not None:
            with suppress(OSError):  # it is closed already
                connected.shutdown(socket.SHUT_RDWR)

    def _exchange(self, path: str, body: object) -> tuple[int, bytes]:
        """On a connection that was used before it is asked again: servers close idle ones."""
        used = self._connection.sock is not None
        try:
            return self._exchange_once(path, body)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if not used or self._is_cut or isinstance(error, TimeoutError):
                raise ServerUnreachable(url=self._url, why=error) from error
        try:
            return self._exchange_once(path, body)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ServerUnreachable(url=self._url, why=error) from error

    def _exchange_once(self, path: str, body: object) -> tuple[int, bytes]:
        method = "GET" if body is None else "POST"
        content = msgspec.json.encode(body) if body is not None else None
        self._connection.request(method, self._above + path, content, self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def _address_of(url: str) -> HttpAddress:
    """Raises InvalidInput."""
    what = f"--url {without_secrets(url)}"
    found = HttpAddress.of(url, what)
    if found.login is not None:
        why = "a login in it is not sent to the service, whose key is in PENSTOCK_KEY"
        raise InvalidInput(what=what, why=why)
    if found.query or found.fragment:
        raise InvalidInput(what=what, why="it holds a question, or a fragment, after its path")
    return found


def _key() -> str:
    """Files of secrets end with a line break, which is no part of it. Raises InvalidInput."""
    key = os.environ.get("PENSTOCK_KEY", "").strip()
    if not key.isascii() or not key.isprintable():
        raise InvalidInput(what="PENSTOCK_KEY", why="there are characters in it that no key has")
    return key


def channel_path(name: str) -> str:
    return f"channels/{quote(name, safe='')}"


def answers(
    service: ServiceClient, name: str, after: int | None, tell: Tell, ended: threading.Event
) -> Iterator[dict[str, Any]]:
    """What it answers to who waits for changes of a channel, time and again, until that is to end.
    Outages are told and outlasted. Raises AnswerUnusable."""
    failed = 0
    while not ended.is_set():
        query = f"?after={after}&wait={_WAIT_SECONDS:g}" if after is not None else ""
        try:
            answer = service.ask(channel_path(name) + query, "version")
        except ServerUnreachable as error:
            if ended.is_set():
                return
            pause_s = _PAUSES_SECONDS[min(failed, len(_PAUSES_SECONDS) - 1)]
            tell(f"{error} It is tried again in {pause_s:g} s.")
            ended.wait(pause_s)
            failed += 1
            continue
        failed = 0
        yield answer
        after = answer.get("next", answer["version"])
