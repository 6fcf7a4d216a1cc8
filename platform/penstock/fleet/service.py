"""The registry, asked over HTTP."""

import http.client
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.checkpoints.errors import LineageBroken
from penstock.errors import InvalidInput
from penstock.fleet.fleet import Standing
from penstock.fleet.replicas import Report
from penstock.fleet.sources import Piece, Pointing, Tell
from penstock.http.address import HttpAddress
from penstock.http.errors import AnswerUnusable, ServerUnreachable
from penstock.settings import without_secrets

_WAIT_SECONDS = 30.0
_ANSWER_SECONDS_MAX = 15.0
_PAUSES_SECONDS = (0.2, 1.0, 5.0)
#: These pass: the service is stopping, full, or away.
_PASSING = {408, 429, 502, 503, 504}
_POINTING = [one.name for one in fields(Pointing)]
_PIECE = [one.name for one in fields(Piece)]


class Service:
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
    service: Service, name: str, after: int | None, tell: Tell, ended: threading.Event
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


class ServiceSource:
    """A Source."""

    def __init__(self, url: str, channel: str) -> None:
        self._channel = channel
        self._asking = Service(url, _ANSWER_SECONDS_MAX)
        self._reporting = Service(url, _ANSWER_SECONDS_MAX)
        self._waiting = Service(url)
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()
        self._waiting.cut()

    def pointing(self) -> Pointing:
        return _pointing(self._asking.ask(channel_path(self._channel), "version"))

    def pointings(self, tell: Tell) -> Iterator[Pointing]:
        known: int | None = None
        for answer in answers(self._waiting, self._channel, None, tell, self._closed):
            if answer["version"] != known:
                known = answer["version"]
                yield _pointing(answer)

    def chain(self, name: str) -> Sequence[Piece]:
        line = [self._piece(name)]
        while line[-1].form == "delta":
            parent = line[-1].parent
            if parent is None or parent in {one.name for one in line}:
                raise LineageBroken(name=name, why="none of its ancestors is whole")
            line.append(self._piece(parent))
        return line[::-1]

    def report(self, said: Report) -> Sequence[Standing]:
        path = f"{channel_path(self._channel)}/replicas"
        answer = self._reporting.ask(path, "parts", asdict(said))
        return [standing_of(one) for one in answer["parts"]]

    def _piece(self, name: str) -> Piece:
        answer = self._asking.ask(f"checkpoints/{quote(name, safe='')}", "digest")
        return Piece(**{one: answer[one] for one in _PIECE})


def standing_of(answer: dict[str, Any]) -> Standing:
    since = answer["since"]
    us = round(datetime.fromisoformat(since).timestamp() * 1_000_000) if since else None
    return msgspec.convert(answer | {"since": us}, Standing)


def _pointing(answer: dict[str, Any]) -> Pointing:
    return Pointing(**{name: answer[name] for name in _POINTING})
