"""Limits on requests: the size and time of bodies, the bytes of unread answers, and the threads of
slow work, in all and for each tenant."""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException
from litestar.response import Stream

from penstock.backends.http import BodyTooLarge, ClientGone, CutOff
from penstock.core.endpoint import DOCUMENT_BYTES_MAX
from penstock.core.errors import InvalidInput
from penstock.core.fairness import Holdings, TenantQueue, crowded

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


def bounded_answer(
    answers: Holdings,
    tenant: str,
    answer: bytes,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response[Any]:
    """Answer with these bytes, which the tenant holds until they are fetched or nobody can."""
    if len(answer) <= PIECE_BYTES:
        return Response(answer, media_type=media_type, headers=headers)
    answers.take(tenant, len(answer))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(answer), PIECE_BYTES):
            yield answer[start : start + PIECE_BYTES]
        release()

    fetched = pieces()
    # Also where it is never begun, and so has no end.
    release = weakref.finalize(fetched, answers.give_back, tenant, len(answer))
    length = {"Content-Length": str(len(answer))}
    return Stream(fetched, media_type=media_type, headers=length | dict(headers or {}))


# Threads


class _Work(msgspec.Struct, frozen=True):
    tenant: str
    function: Callable[[], Any]
    #: So that log lines of the work carry the id of its request.
    context: Context = msgspec.field(default_factory=copy_context)
    result: "Future[Any]" = msgspec.field(default_factory=Future)


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
        self._running_max = running_max
        tenants_max = _TENANTS_PER_SLOT * running_max
        self._threads = ThreadPoolExecutor(tenants_max, name)
        self._lock = threading.Lock()
        #: Some go on when nobody waits for the answer any more.
        self._running = Holdings(f"{name} run", tenants_max, running_max // 2)
        self._places = Holdings(f"{name} wait already", waiting_max, retry_after_s=retry_after_s)
        self._waiting: TenantQueue[_Work] = TenantQueue()

    @property
    def under_way(self) -> int:
        return self._running.total + self._places.total

    async def run(self, function: Callable[[], T], *, tenant: str) -> T:
        """Wait for the result of a function. Raises TooManyRequests, Backlogged, and CutOff where
        the request is cancelled, as when the service ends."""
        work = _Work(tenant, function)
        with self._lock:
            if self._may_start(tenant):
                self._start(work)
            else:
                self._places.take(tenant)
                self._waiting.append(tenant, work)
        with cut_off_when_cancelled():
            result: T = await asyncio.wrap_future(work.result)
            return result

    def stop(self) -> bool:
        """Start nothing more. Returns False while work goes on."""
        with self._lock:
            while (tenant := self._waiting.next_tenant(self._running.of)) is not None:
                self._places.give_back(tenant)
                self._waiting.pop(tenant).result.cancel()
            self._threads.shutdown(wait=False)
            return not self._running.total

    def _may_start(self, tenant: str) -> bool:
        if self._running.of(tenant) and self._running.total >= self._running_max:
            return False
        return self._running.refusal(tenant) is None

    def _start(self, work: _Work) -> None:
        if self._running.total >= self._running_max:
            work.context.run(crowded.set, True)
        self._running.take(work.tenant)
        self._threads.submit(self._run, work)

    def _run(self, work: _Work) -> None:
        result = error = None
        wanted = work.result.set_running_or_notify_cancel()
        try:
            if wanted:
                result = work.context.run(work.function)
        except BaseException as raised:  # noqa: BLE001  # the request gets it, whatever it is
            error = raised
        with self._lock:
            self._running.give_back(work.tenant)
            # Where whoever holds least may not start, nobody may.
            while (next_one := self._waiting.next_tenant(self._running.of)) is not None:
                if not self._may_start(next_one):
                    break
                self._places.give_back(next_one)
                waited = self._waiting.pop(next_one)
                if not waited.result.cancelled():
                    self._start(waited)
        if wanted:
            work.result.set_exception(error) if error else work.result.set_result(result)


class RequestBounds(msgspec.Struct, frozen=True):
    """Threads and bytes that all requests share, each tenant a part of them."""

    #: Threads for work, and for work that reads rows.
    calls: RequestSlots
    queries: RequestSlots
    #: Bytes of bodies, and of answers that are not fetched yet.
    bodies: Holdings
    answers: Holdings

    def slots(self, *, reads_rows: bool) -> RequestSlots:
        return self.queries if reads_rows else self.calls


@contextlib.contextmanager
def cut_off_when_cancelled() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        raise CutOff from None
