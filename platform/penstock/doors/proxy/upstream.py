"""Connections to the upstream. Requests go out whole or in pieces, answers come in pieces."""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, cast

import httptools

from penstock.backends.http.address import HttpAddress
from penstock.core.errors import PenstockError, one_line


class UpstreamUnreachable(PenstockError, exit_status=3):
    """The upstream {url} cannot be reached: {why}."""


class UpstreamBroken(PenstockError, exit_status=3):
    """The upstream {url} broke off its answer: {why}."""


Headers = list[tuple[bytes, bytes]]

_CONNECT_SECONDS_MAX = 10.0
#: Servers close connections that idle for some seconds; a request sent meanwhile must be repeated.
_IDLE_SECONDS_MAX = 2.0
_IDLE_MAX = 64
#: Bytes of an answer that wait for its client before reading stops.
_WAITING_BYTES_MAX = 256 * 1024
_HEADERS_MAX = 256
_NOT_MODIFIED, _NO_CONTENT = 304, 204


class AnswerHead(NamedTuple):
    status: int
    headers: Headers

    def value(self, name: bytes) -> bytes:
        return next((value for named, value in self.headers if named == name), b"")


class UpstreamConnection(asyncio.Protocol):
    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_lost = False
        self._waiter: asyncio.Future[None] | None = None
        self._begin("")

    def _begin(self, method: str) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._method = method
        self._headers: Headers = []
        self._head: AnswerHead | None = None
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._is_complete = False
        self._until_close = False
        self._problem = ""
        self.answered = False

    @property
    def is_open(self) -> bool:
        return not self._is_lost and self._transport is not None

    async def send(self, head: bytes, body: bytes, method: str) -> None:
        self._begin(method)
        assert self._transport is not None
        self._transport.writelines([head, body] if body else [head])
        await self._writable.wait()

    async def send_more(self, piece: bytes) -> None:
        assert self._transport is not None
        if not self._is_lost:
            self._transport.write(piece)
            await self._writable.wait()

    async def head(self) -> AnswerHead:
        while self._head is None:
            self._check()
            await self._wait()
        return self._head

    async def read(self) -> bytes:
        """Read the next bytes, empty at the end. Raises UpstreamBroken."""
        while not self._pieces:
            if self._is_complete:
                return b""
            self._check()
            await self._wait()
        piece = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._waiting > _WAITING_BYTES_MAX and self._transport is not None:
            self._transport.resume_reading()
        self._waiting = 0
        return piece

    def abort(self, why: str = "it was called off") -> None:
        self._problem = self._problem or why
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def release(self) -> None:
        """End the exchange. The connection is kept for the next one if it can be."""
        ended = self._is_complete and self.is_open and not self._until_close
        if ended and self._parser.should_keep_alive():
            self._upstream.keep(self)
        else:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another class

    def data_received(self, data: bytes) -> None:
        self.answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._problem = "it changed to another protocol"
        except httptools.HttpParserError as error:
            self._problem = one_line(error) or "its answer is not HTTP"
        if self._problem and self._transport is not None:
            self._transport.abort()
        if self._waiting > _WAITING_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._head is not None and self._until_close and exc is None:
            self._is_complete = True
        self._problem = self._problem or (one_line(exc) if exc else "it closed the connection")
        self._upstream.forget(self)
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._headers) >= _HEADERS_MAX:
            raise ValueError("its answer has too many headers")
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim response
            return
        self._head = AnswerHead(status, self._headers)
        names = {name for name, _ in self._headers}
        has_body = status not in (_NO_CONTENT, _NOT_MODIFIED) and self._method != "HEAD"
        sized = bool(names & {b"content-length", b"transfer-encoding"})
        if not has_body:
            self._is_complete = True
            self._until_close = self._method == "HEAD" and sized  # the parser waits for a body
        elif not sized:
            self._until_close = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._waiting += len(piece)

    def on_message_complete(self) -> None:
        if self._head is None:
            self._headers = []
        else:
            self._is_complete = True

    def _check(self) -> None:
        if self._problem or self._is_lost:
            raise UpstreamBroken(url=self._upstream.url, why=self._problem)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Upstream:
    def __init__(self, address: HttpAddress) -> None:
        self.url = f"{'https' if address.secure else 'http'}://{address.host}:{address.port}"
        self._address = address
        self._prefix = address.path.rstrip("/").encode()
        self._tls = ssl.create_default_context() if address.secure else None
        self._idle: deque[tuple[float, UpstreamConnection]] = deque()

    async def request(
        self, method: str, target: bytes, headers: Headers, body: bytes, *, whole: bool = True
    ) -> UpstreamConnection:
        """Send a request and return its connection. Raises UpstreamUnreachable.

        A request that is not `whole` continues with `send_more`."""
        head = self._head(method, target, headers)
        while True:
            connection = self._taken() if whole else None
            reused = connection is not None
            if connection is None:
                connection = await self._connected()
            await connection.send(head, body, method)
            if not reused:
                return connection
            # The server may have closed an idle connection at this moment.
            with suppress(UpstreamBroken):
                await connection.head()
                return connection
            if connection.answered:
                return connection

    def keep(self, connection: UpstreamConnection) -> None:
        self._idle.append((asyncio.get_running_loop().time(), connection))
        if len(self._idle) > _IDLE_MAX:
            self._idle.popleft()[1].close()

    def forget(self, connection: UpstreamConnection) -> None:
        for entry in self._idle:
            if entry[1] is connection:
                self._idle.remove(entry)
                return

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _taken(self) -> UpstreamConnection | None:
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            since_s, connection = self._idle.pop()
            if connection.is_open and now_s - since_s < _IDLE_SECONDS_MAX:
                return connection
            connection.close()
        return None

    async def _connected(self) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        host, port = self._address.host, self._address.port
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(self), host, port, ssl=self._tls
                )
        except TimeoutError:
            why = f"no connection within {_CONNECT_SECONDS_MAX:g} s"
            raise UpstreamUnreachable(url=self.url, why=why) from None
        except OSError as error:
            raise UpstreamUnreachable(url=self.url, why=one_line(error)) from error
        return connection

    def _head(self, method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        host, port = self._address.host, self._address.port
        named = f"[{host}]" if ":" in host else host
        is_usual = port == (443 if self._address.secure else 80)
        lines = [
            b"%s %s%s HTTP/1.1" % (method.encode(), self._prefix, target),
            b"host: " + (named if is_usual else f"{named}:{port}").encode(),
            *(b"%s: %s" % header for header in headers),
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n"
