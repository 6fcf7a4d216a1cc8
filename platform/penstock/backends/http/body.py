"""Reading the body of a request, of a bounded size and in bounded time."""

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.response import Stream

from penstock.backends.http.errors import BodyTooLarge
from penstock.core.errors import InvalidInput, TooManyRequests

#: A client that sends nothing for so long is gone, or holds memory for nothing.
BODY_PAUSE_SECONDS_MAX = 30.0
DOCUMENT_BYTES_MAX = 1024 * 1024
PART_BYTES = 1024 * 1024

Document = TypeVar("Document", bound=msgspec.Struct)


def media_type(request: Request[Any, Any, Any]) -> str:
    """The type without parameters; empty where the request does not say."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def content_encoding(request: Request[Any, Any, Any]) -> str:
    return request.headers.get("content-encoding", "").strip().lower()


async def read_parts(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> list[bytes]:
    """Read a body in parts of `PART_BYTES`: one large one would keep others waiting."""
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
    """Read a small body of JSON. Raises InvalidInput, BodyTooLarge."""
    body = await read_body(request, DOCUMENT_BYTES_MAX, hold=lambda _size: None)
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


async def read_fields(
    request: Request[Any, Any, Any], bytes_max: int, hold: Callable[[int], None]
) -> dict[str, Any]:
    """Read the fields of a JSON object, or none. Raises InvalidInput, BodyTooLarge."""
    body = await read_body(request, bytes_max, hold)
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


#: Handed to the connection at once. Smaller answers are not counted: connections are.
PIECE_BYTES = 256 * 1024


class UnreadAnswers:
    """Bytes of answers, bounded for all tenants together and at half of that for each."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_tenant: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        return self._by_tenant.total()

    def hold(self, tenant: str, answer: bytes) -> AsyncIterator[bytes]:
        """The pieces of an answer, which counts until all are taken or the iterator is gone. Raises
        TooManyRequests."""
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


def held_answer(
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
