"""One request over HTTP and its answer: over in time and bounded, whatever the other side does."""

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from penstock.http.address import HttpAddress


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
