"""Reading the body of a request, of a bounded size and in bounded time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.response import Stream

from penstock.errors import InvalidInput, TooManyRequests
from penstock.http.errors import BodyTooLarge

#: A client that sends no more of its body for so long is gone, or holds memory for nothing.
BODY_PAUSE_SECONDS_MAX = 30.0
DOCUMENT_BYTES_MAX = 1024 * 1024
PART_BYTES = 1024 * 1024

Document = TypeVar("Document", bound=msgspec.Struct)


def media_type(request: Request[Any, Any, Any]) -> str:
    """What its body is, without parameters; empty where it does not say."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def content_encoding(request: Request[Any, Any, Any]) -> str:
    """How its body is compressed; empty where it is not."""
    return request.headers.get("content-encoding", "").strip().lower()


async def read_parts(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> list[bytes]:
    """The body in parts, of which all but the last have `PART_BYTES`: to put a large one together
    would keep others waiting."""
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
        why = f"No more of the body came for {BODY_PAUSE_SECONDS_MAX:g} s. Nothing was accepted."
        raise HTTPException(why, status_code=408, headers={"Connection": "close"}) from None
    parts.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    return parts


async def read_body(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> bytes:
    return b"".join(await read_parts(request, bytes_max, hold))


async def read_document(request: Request[Any, Any, Any], kind: type[Document]) -> Document:
    """A small body of JSON. Raises InvalidInput, BodyTooLarge."""
    body = await read_body(request, DOCUMENT_BYTES_MAX, hold=lambda _size: None)
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


async def read_fields(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> dict[str, Any]:
    """The fields of a JSON object; there are none where there is no body. Raises as
    `read_document` does."""
    body = await read_body(request, bytes_max, hold)
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


#: What is handed to the connection at once. Answers up to this size are not counted: connections
#: are.
PIECE_BYTES = 256 * 1024


class UnreadAnswers:
    """Counts their bytes, bounded for all tenants together and at half of that for each. For one
    event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_tenant: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        return self._by_tenant.total()

    def hold(self, tenant: str, answer: bytes) -> AsyncIterator[bytes]:
        """The pieces of an answer, which counts until the last of them is taken or the iterator is
        gone. Raises TooManyRequests."""
        own = self._by_tenant[tenant]
        if own and own + len(answer) > self._bytes_max // 2:
            raise TooManyRequests(why=f"{own} bytes of earlier answers were not fetched yet")
        if self.held_bytes and self.held_bytes + len(answer) > self._bytes_max:
            raise TooManyRequests(why=f"{self.held_bytes} bytes of answers were not fetched yet")
        return _AnswerPieces(self._by_tenant, tenant, answer)


def held_answer(
    answers: UnreadAnswers,
    tenant: str,
    answer: bytes,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response[Any]:
    """The response with these bytes. Raises TooManyRequests."""
    if len(answer) <= PIECE_BYTES:
        return Response(answer, media_type=media_type, headers=headers)
    length = {"Content-Length": str(len(answer))}
    pieces = answers.hold(tenant, answer)
    return Stream(pieces, media_type=media_type, headers=length | dict(headers or {}))


class _AnswerPieces:
    """Not a generator: one that was never begun has no end either."""

    def __init__(self, counts: Counter[str], tenant: str, answer: bytes) -> None:
        self._counts, self._tenant = counts, tenant
        self._answer: bytes | None = answer
        self._size = len(answer)
        self._next = 0
        counts[tenant] += self._size

    def __aiter__(self) -> "_AnswerPieces":
        return self

    async def __anext__(self) -> bytes:
        if self._answer is None or self._next >= self._size:
            self._release()
            raise StopAsyncIteration
        start, self._next = self._next, self._next + PIECE_BYTES
        return self._answer[start : self._next]

    def _release(self) -> None:
        if self._answer is not None:
            self._answer = None
            self._counts[self._tenant] -= self._size
            if not self._counts[self._tenant]:
                del self._counts[self._tenant]

    def __del__(self) -> None:
        self._release()
