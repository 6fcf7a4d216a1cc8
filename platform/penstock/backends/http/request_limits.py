"""Limits on requests: the size and time of bodies, the bytes of unread answers, and the threads of
slow work, in all and for each tenant."""

import asyncio
import contextlib
import threading
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException
from litestar.response import Stream

from penstock.backends.http.errors import BodyTooLarge, ClientGone, CutOff
from penstock.core.endpoint import DOCUMENT_BYTES_MAX
from penstock.core.errors import InvalidInput, TooManyRequests
from penstock.core.overload import crowded

T = TypeVar("T")

#: A client that sends nothing for so long is gone, or holds memory for nothing.
BODY_PAUSE_SECONDS_MAX = 30.0
PART_BYTES = 1024 * 1024


def media_type(request: Request[Any, Any, Any]) -> str:
    """Read the media type without parameters; empty if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def content_encoding(request: Request[Any, Any, Any]) -> str:
    return request.headers.get("content-encoding", "").strip().lower()


async def read_parts(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> list[bytes]:
    """Read a body in parts of `PART_BYTES`. One large part would keep others waiting."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise BodyTooLarge(limit_bytes=bytes_max, measure="as sent")
    parts: list[bytes] = []
    pieces: list[bytes] = []
    size = of_pieces = 0
    now_s = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(BODY_PAUSE_SECONDS_MAX) as pause:
            async for piece in request.stream():
                size += len(piece)
                if size > bytes_max:
                    raise BodyTooLarge(limit_bytes=bytes_max, measure="as sent")
                if piece:  # the last one is empty: without it a small body needs no copy
                    hold(len(piece))
                    pieces.append(piece)
                    of_pieces += len(piece)
                if of_pieces >= PART_BYTES:
                    parts.append(b"".join(pieces))
                    pieces, of_pieces = [], 0
                pause.reschedule(now_s() + BODY_PAUSE_SECONDS_MAX)
    except TimeoutError:
        why = f"The body stopped for {BODY_PAUSE_SECONDS_MAX:g} s. Nothing was accepted."
        raise HTTPException(why, status_code=408, headers={"Connection": "close"}) from None
    except InternalServerException:  # what Litestar makes of a disconnect
        raise ClientGone from None
    parts.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    return parts


async def read_body(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> bytes:
    return b"".join(await read_parts(request, bytes_max, hold))


async def read_document(
    request: Request[Any, Any, Any],
    kind: type[T],
    bytes_max: int = DOCUMENT_BYTES_MAX,
    hold: Callable[[int], None] = lambda _size: None,
) -> T:
    """Read a body of JSON; an empty one is an empty object. Raises InvalidInput, BodyTooLarge."""
    body = await read_body(request, bytes_max, hold)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


#: Bytes that are handed to the connection at once. Smaller answers are not counted.
PIECE_BYTES = 256 * 1024


class UnreadAnswers:
    """A bound on the bytes of unread answers: for all tenants together, and half of it for each."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_tenant: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        return self._by_tenant.total()

    def hold(self, tenant: str, answer: bytes) -> AsyncIterator[bytes]:
        """Yield the pieces of an answer. It counts until all are taken or the iterator is gone.
        Raises TooManyRequests."""
        own = self._by_tenant[tenant]
        if own and own + len(answer) > self._bytes_max // 2:
            raise TooManyRequests(why=f"{own} bytes of earlier answers were not fetched yet")
        if self.held_bytes and self.held_bytes + len(answer) > self._bytes_max:
            raise TooManyRequests(why=f"{self.held_bytes} bytes of answers were not fetched yet")
        self._by_tenant[tenant] += len(answer)

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(answer), PIECE_BYTES):
                yield answer[start : start + PIECE_BYTES]
            release()

        taken = pieces()
        # Also where it is never begun, and so has no end.
        release = weakref.finalize(taken, self._release, tenant, len(answer))
        return taken

    def _release(self, tenant: str, size: int) -> None:
        self._by_tenant[tenant] -= size
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]


def bounded_answer(
    answers: UnreadAnswers,
    tenant: str,
    answer: bytes,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response[Any]:
    """Answer with these bytes. Raises TooManyRequests."""
    if len(answer) <= PIECE_BYTES:
        return Response(answer, media_type=media_type, headers=headers)
    length = {"Content-Length": str(len(answer))}
    pieces = answers.hold(tenant, answer)
    return Stream(pieces, media_type=media_type, headers=length | dict(headers or {}))


# Threads


@dataclass(frozen=True)
class _Work:
    tenant: str
    function: Callable[[], Any]
    #: So that log lines of the work carry the id of its request.
    context: Context = field(default_factory=copy_context)
    result: "Future[Any]" = field(default_factory=Future)


#: So many tenants for each slot start work at once.
_TENANTS_PER_SLOT = 4


class RequestSlots:
    """Threads for slow work, which must not block the event loop.

    The first work of a tenant starts at once, whatever the others do, up to four times as many
    tenants as slots. Work beyond the slots is `crowded`, and takes less memory. Further work of a
    tenant waits for a slot, and has half of them at most."""

    def __init__(
        self, name: str, *, running_max: int, waiting_max: int, retry_after_s: int = 1
    ) -> None:
        """`name` is the plural of what runs here, as in: 4 queries."""
        self._name = name
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._retry_after_s = retry_after_s
        self._threads = ThreadPoolExecutor(_TENANTS_PER_SLOT * running_max, name)
        self._lock = threading.Lock()
        #: By tenant; some go on when nobody waits for the answer any more.
        self._running: Counter[str] = Counter()
        #: By tenant: the one whose turn is next comes first.
        self._waiting: dict[str, deque[_Work]] = {}

    @property
    def under_way(self) -> int:
        with self._lock:
            return self._running.total() + self._waiting_count()

    async def run(self, function: Callable[[], T], *, tenant: str) -> T:
        """Wait for the result of a function. Raises TooManyRequests, and CutOff where the request
        is cancelled, as when the service ends."""
        work = _Work(tenant, function)
        with self._lock:
            self._refuse_when_full(tenant)
            self._waiting.setdefault(tenant, deque()).append(work)
            self._start_those_who_can()
        with cut_off_when_cancelled():
            result: T = await asyncio.wrap_future(work.result)
            return result

    def stop(self) -> bool:
        """Start nothing more. Returns False while work goes on."""
        with self._lock:
            waiting = [work for queue in self._waiting.values() for work in queue]
            self._waiting.clear()
            self._threads.shutdown(wait=False)
            ended = not self._running
        for work in waiting:
            work.result.cancel()
        return ended

    def _refuse_when_full(self, tenant: str) -> None:
        if self._has_slot(tenant):
            return
        own, all_waiting = len(self._waiting.get(tenant, ())), self._waiting_count()
        if own >= max(1, self._waiting_max // 2):
            why = f"{self._running[tenant] + own} {self._name} of yours run or wait already"
        elif all_waiting >= self._waiting_max:
            why = f"{self._running.total() + all_waiting} {self._name} run or wait already"
        else:
            return
        raise TooManyRequests(why=why, retry_after_s=self._retry_after_s)

    def _waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _has_slot(self, tenant: str) -> bool:
        own, total = self._running[tenant], self._running.total()
        if not own:
            return total < _TENANTS_PER_SLOT * self._running_max
        return total < self._running_max and own < self._running_max // 2

    def _start_those_who_can(self) -> None:
        for tenant in list(self._waiting):
            queue = self._waiting[tenant]
            while queue and self._has_slot(tenant):
                work = queue.popleft()
                if self._running.total() >= self._running_max:
                    work.context.run(crowded.set, True)
                self._running[tenant] += 1
                self._threads.submit(self._run, work)
                del self._waiting[tenant]  # its next turn comes after those of the others
                self._waiting[tenant] = queue
            if not queue:
                del self._waiting[tenant]

    def _run(self, work: _Work) -> None:
        result = error = None
        wanted = work.result.set_running_or_notify_cancel()
        try:
            if wanted:
                result = work.context.run(work.function)
        except BaseException as raised:  # noqa: BLE001  # the request gets it, whatever it is
            error = raised
        with self._lock:
            self._running[work.tenant] -= 1
            self._running += Counter()  # forget tenants that run nothing
            self._start_those_who_can()
        if wanted:
            work.result.set_exception(error) if error else work.result.set_result(result)


@contextlib.contextmanager
def cut_off_when_cancelled() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        raise CutOff from None
