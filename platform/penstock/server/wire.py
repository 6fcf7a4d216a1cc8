"""Bounds on what a connection may cost before a request is read and after it is answered.

A client that sends or reads too slowly holds a connection, some memory and nothing else, for a
bounded time; one address holds a bounded number of connections.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: The request line, the headers and the trailers of one request.
HEADER_BYTES_MAX = 64 * 1024
#: From the connection, or the first byte of a request, to the end of its headers.
HEADER_SECONDS_MAX = 10.0
#: A body has so long, and a second more for each of these bytes.
BODY_SECONDS_MIN = 30.0
BODY_BYTES_PER_SECOND_MIN = 1024
#: A client that takes nothing of its answer for so long is cut off.
ANSWER_PAUSE_SECONDS_MAX = 60.0
#: And so long all such pauses of one answer may last together: it is held in memory meanwhile.
ANSWER_PAUSES_SECONDS_MAX = 600.0

_END = b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large" + _END
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout" + _END
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5" + _END


@dataclass
class ConnectionCounts:
    """Open connections of one server, bounded for all together and for each address."""

    connections_max: int
    address_connections_max: int
    by_address: Counter[str] = field(default_factory=Counter)

    def open(self, address: str) -> bool:
        """Whether one more may be opened; then it counts until `close`."""
        full = self.by_address.total() >= self.connections_max
        if full or self.by_address[address] >= self.address_connections_max:
            return False
        self.by_address[address] += 1
        return True

    def close(self, address: str) -> None:
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with these bounds."""

    counts: ConnectionCounts

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._pauses_left_s = ANSWER_PAUSES_SECONDS_MAX
        self._bytes_since_progress = 0
        self._body_deadline_s = 0.0
        self._address = self.client[0] if self.client else ""
        self._counted = self.counts.open(self._address)
        if self._counted:
            self._expect_within(HEADER_SECONDS_MAX)
        else:
            self._refuse(_TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self.counts.close(self._address)
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._progressed = False
        super().data_received(data)
        # A piece that ends a header or brings some of a body is bounded by what reads it.
        self._bytes_since_progress = (
            0 if self._progressed else self._bytes_since_progress + len(data)
        )
        if self._bytes_since_progress > HEADER_BYTES_MAX and not self.transport.is_closing():
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._pauses_left_s = ANSWER_PAUSES_SECONDS_MAX
        self._body_deadline_s = 0.0
        self._expect_within(HEADER_SECONDS_MAX)

    def on_headers_complete(self) -> None:
        self._progressed = True
        self._body_deadline_s = self.loop.time() + BODY_SECONDS_MIN
        self._expect_within(BODY_SECONDS_MIN)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        self._body_deadline_s += len(body) / BODY_BYTES_PER_SECOND_MIN
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
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
        left_s = self._body_deadline_s - self.loop.time()
        if self.flow.read_paused:  # an earlier request is being answered: we do not read
            self._expect_within(HEADER_SECONDS_MAX)
        elif left_s > 0:
            self._expect_within(left_s)
        else:
            self._refuse(_TOO_SLOW)

    def _refuse(self, answer: bytes) -> None:
        """Only who has not been answered yet gets an answer."""
        self._stop_timers()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(answer)
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _stop_timers(self) -> None:
        self._stop_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()


def bounded_protocol(counts: ConnectionCounts) -> type[BoundedProtocol]:
    """The protocol of one server: its connections are counted together."""
    fields: dict[str, Any] = {"counts": counts}
    return type("ServerProtocol", (BoundedProtocol,), fields)
