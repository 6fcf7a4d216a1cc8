"""Reading the body of a request, of a bounded size and in bounded time."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException

from penstock.errors import InvalidInput
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
