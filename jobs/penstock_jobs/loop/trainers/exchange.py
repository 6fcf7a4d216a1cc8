"""One HTTP request and its answer: over in time and bounded, whatever the other side does."""

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from penstock.errors import InvalidInput

_URL_CHARS_MAX = 4_000


@dataclass(frozen=True)
class Address:
    """Of HTTP. It holds no secret, so that it may be shown."""

    secure: bool
    host: str
    port: int
    #: With the query.
    path: str
    text: str

    def beside(self, location: str) -> "Address":
        """What a `Location` of its answer means. Raises InvalidInput, also where that is another
        server, which is not to be told this one's token."""
        try:
            joined = urljoin(self.text, location)
        except ValueError as error:
            raise InvalidInput(what="Its Location", why="it is no address") from error
        found = address_of(joined, "Its Location")
        if (found.secure, found.host, found.port) != (self.secure, self.host, self.port):
            raise InvalidInput(what="Its Location", why=f"it is not at {self.host}:{self.port}")
        return found


def address_of(url: str, what: str) -> Address:
    """Raises InvalidInput, which does not show the address: there may be a secret in it."""
    if len(url) > _URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        why = f"an address is at most {_URL_CHARS_MAX} printable ASCII characters, none a blank"
        raise InvalidInput(what=what, why=why)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(what=what, why="it is no address") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(what=what, why="it does not begin with http:// or https:// and a host")
    secure = parts.scheme == "https"
    if port is None:
        port = 443 if secure else 80
    return Address(secure, parts.hostname, port, _path_of(parts), url)


def _path_of(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


@dataclass(frozen=True)
class Heard:
    """`status` is 0 where there was no answer; `why` says what happened then."""

    status: int
    why: str = ""
    content: bytes = b""
    location: str | None = None
    #: Seconds that it asks to be left alone.
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class Bounds:
    seconds_max: float
    #: One byte more is read, so that who reads the answer sees that it is too long.
    bytes_max: int


def ask(
    method: str, address: Address, bounds: Bounds, headers: Mapping[str, str], body: bytes | None
) -> Heard:
    kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=bounds.seconds_max)
    over = threading.Event()
    too_late = Heard(0, f"it did not answer within {bounds.seconds_max:g} s")
    try:
        with _until_over(connection, bounds.seconds_max, over):
            connection.request(method, address.path, body, dict(headers))
            response = connection.getresponse()
            content = response.read(bounds.bytes_max + 1)
    except TimeoutError:
        return too_late
    except (OSError, http.client.HTTPException) as error:
        return too_late if over.is_set() else Heard(0, f"{type(error).__name__}: {error}")
    finally:
        connection.close()
    if over.is_set():  # what was cut off reads as an answer with fewer bytes
        return too_late
    if response.length and len(content) <= bounds.bytes_max:
        return Heard(0, "its answer was cut off")
    return Heard(
        response.status,
        content=content,
        location=response.getheader("Location"),
        retry_after_s=_seconds(response.getheader("Retry-After", "")),
    )


@contextmanager
def _until_over(
    connection: http.client.HTTPConnection, seconds_max: float, over: threading.Event
) -> Iterator[None]:
    """Time-outs of sockets count from byte to byte: who sends one now and then has no end."""

    def end() -> None:
        over.set()
        dialled = connection.sock
        if dialled is not None:
            with suppress(OSError):  # not the method of a TLS socket, which is not for two threads
                socket.socket.shutdown(dialled, socket.SHUT_RDWR)

    timer = threading.Timer(seconds_max, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _seconds(text: str) -> float:
    """A moment is not read as one: it is by another clock."""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0
