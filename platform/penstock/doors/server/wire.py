"""Listening sockets, and bounds on the cost of their connections."""

import asyncio
import resource
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.backends.http.address import address_group
from penstock.core.errors import PenstockError

#: Connections that wait to be accepted.
BACKLOG = 2048
#: Headers and trailers of one request together.
HEADER_BYTES_MAX = 32 * 1024
#: A short header takes many times its bytes in memory.
HEADERS_MAX = 128
#: Counts from the connection, or from the first byte of a request.
HEADER_SECONDS_MAX = 10.0
#: Longest pause and lowest rate of a body.
BODY_PAUSE_SECONDS_MAX = 30.0
BODY_BYTES_PER_SECOND_MIN = 1024
#: A body is held in memory until it is complete.
BODY_SECONDS_MAX = 600.0
#: Pieces that a body may come in, and bytes that earn one more. Each piece delays all requests.
BODY_PIECES_MIN = 1000
BODY_PIECE_BYTES_MIN = 64
#: Requests sent before an earlier one was answered.
PIPELINED_REQUESTS_MAX = 16
#: A client that reads nothing of its answer for longer is cut off.
ANSWER_PAUSE_SECONDS_MAX = 60.0
#: Sum of the pauses of one answer, which is held in memory meanwhile.
ANSWER_PAUSES_SECONDS_MAX = 600.0
#: A closing connection whose client has not read everything lasts up to twice as long.
CLOSE_SECONDS_MAX = 60.0
#: What is written at once, since it is no head of an answer with a short body.
_JOINED_BYTES_MAX = 4_096
#: Open files apart from connections.
OTHER_FILES_MAX = 512

_END = b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large" + _END
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout" + _END
_TOO_SMALL_PIECES = b"HTTP/1.1 400 Bad Request" + _END
_TOO_MANY_PIPELINED = b"HTTP/1.1 429 Too Many Requests" + _END
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5" + _END


class ListeningAddressTaken(PenstockError, exit_status=3):
    """Cannot listen on {host}:{port}: {why}. Choose another port with --port."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one. Raises ListeningAddressTaken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except (OSError, OverflowError) as error:  # OverflowError: a port over 65535
        why = getattr(error, "strerror", None) or error
        raise ListeningAddressTaken(host=host, port=port, why=why) from error
    return bound


def listening_url(bound: socket.socket, *, secure: bool = False) -> str:
    address, port = bound.getsockname()[:2]
    host = f"[{address}]" if ":" in address else address
    return f"{'https' if secure else 'http'}://{host}:{port}"


class _BoundReached(Exception):
    """Stops the parser from within its callbacks."""


@dataclass
class ConnectionCounts:
    """Open connections, bounded in total and per address."""

    connections_max: int
    address_connections_max: int
    by_address: Counter[str] = field(default_factory=Counter)

    def open(self, address: str) -> bool:
        """Count one more connection. Returns False if a bound is reached."""
        full = self.by_address.total() >= self.connections_max
        if full or self.by_address[address] >= self.address_connections_max:
            return False
        self.by_address[address] += 1
        return True

    def close(self, address: str) -> None:
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class _JoinedWrites:
    """A transport with one call of the system for the little that a turn of the loop writes.
    Uvicorn writes the head of an answer and its body apart, and uvloop sends each. More is written
    at once, so that whoever writes it waits for the reader."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(data)
        if sum(map(len, self._waiting)) > _JOINED_BYTES_MAX:
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        if data and not self._transport.is_closing():
            self._transport.write(data)


class BoundedProtocol(HttpToolsProtocol):
    counts: ConnectionCounts

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._pauses_left_s = ANSWER_PAUSES_SECONDS_MAX
        self._bytes_since_progress = 0
        self._body_deadline_s = self._body_end_s = 0.0
        self._pieces_left = 0.0
        self._bound_answer = b""
        self._was_closing = False
        self._closing_timer = self.loop.call_later(CLOSE_SECONDS_MAX, self._end_if_closing)
        self._address = address_group(self.client[0]) if self.client else ""
        self._counted = self.counts.open(self._address)
        if self._counted:
            self._expect_within(HEADER_SECONDS_MAX)
        else:
            self._refuse(_TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self.counts.close(self._address)
        self._stop_timers()
        self._closing_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._progressed = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        # Pieces that complete a header or belong to a body have bounds of their own.
        self._bytes_since_progress = (
            0 if self._progressed else self._bytes_since_progress + len(data)
        )
        if self._bytes_since_progress > HEADER_BYTES_MAX:
            self._refuse(_TOO_LARGE)
        elif self._timer is None and (self.cycle is None or self.cycle.response_complete):
            # Any byte, even of an empty line, ends uvicorn's timeout for idle connections.
            self._expect_within(HEADER_SECONDS_MAX)

    def send_400_response(self, msg: str) -> None:
        if self._bound_answer:
            self._refuse(self._bound_answer)
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._pauses_left_s = ANSWER_PAUSES_SECONDS_MAX
        self._body_deadline_s = 0.0
        self._expect_within(HEADER_SECONDS_MAX)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS_MAX:
            self._stop_reading(_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED_REQUESTS_MAX:
            self._stop_reading(_TOO_MANY_PIPELINED)
        self._progressed = True
        self._pieces_left = BODY_PIECES_MIN
        now_s = self.loop.time()
        self._body_end_s = now_s + BODY_SECONDS_MAX
        self._body_deadline_s = now_s + BODY_PAUSE_SECONDS_MAX
        self._expect_within(BODY_PAUSE_SECONDS_MAX)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        self._pieces_left += len(body) / BODY_PIECE_BYTES_MIN - 1
        if self._pieces_left < 0:
            self._stop_reading(_TOO_SMALL_PIECES)
        if not self.cycle.response_complete:  # an answered request gets no more time
            latest_s = min(self.loop.time() + BODY_PAUSE_SECONDS_MAX, self._body_end_s)
            earned_s = len(body) / BODY_BYTES_PER_SECOND_MIN
            self._body_deadline_s = min(self._body_deadline_s + earned_s, latest_s)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
        self._body_deadline_s = 0.0
        self._stop_timer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        abort = self.transport.abort
        left_s = min(ANSWER_PAUSE_SECONDS_MAX, self._pauses_left_s)
        self._paused_at_s = self.loop.time()
        self._answer_timer = self.loop.call_later(left_s, abort)

    def resume_writing(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._pauses_left_s -= self.loop.time() - self._paused_at_s
        super().resume_writing()

    def _expect_within(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        now_s = self.loop.time()
        in_body = self._body_deadline_s > 0
        if self.flow.read_paused and in_body:  # we do not read: that is no pause of the client
            self._body_deadline_s = min(now_s + BODY_PAUSE_SECONDS_MAX, self._body_end_s)
        if self._body_deadline_s > now_s:
            self._expect_within(self._body_deadline_s - now_s)
        elif self.flow.read_paused and not in_body:  # an earlier request is being answered
            self._expect_within(HEADER_SECONDS_MAX)
        else:
            self._refuse(_TOO_SLOW)

    def _end_if_closing(self) -> None:
        """Abort a closing connection whose client does not read the rest."""
        if self._was_closing:
            self.transport.abort()
            return
        self._was_closing = self.transport.is_closing()
        self._closing_timer = self.loop.call_later(CLOSE_SECONDS_MAX, self._end_if_closing)

    def _stop_reading(self, answer: bytes) -> None:
        self._bound_answer = answer
        raise _BoundReached

    def _refuse(self, answer: bytes) -> None:
        """Close the connection, with an answer if none has started."""
        self._stop_timers()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(answer)
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_timers(self) -> None:
        self._stop_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()


def bounded_protocol(counts: ConnectionCounts) -> type[BoundedProtocol]:
    """Make the protocol of one server, whose connections are counted together."""
    fields: dict[str, Any] = {"counts": counts}
    return type("ServerProtocol", (BoundedProtocol,), fields)


def make_room_for(connections_max: int) -> int:
    """Raise this process's limit of open files. Returns the number of connections that fit beside
    the lake's files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + OTHER_FILES_MAX
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections_max
    reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return min(connections_max, max(reachable - OTHER_FILES_MAX, reachable // 2))
