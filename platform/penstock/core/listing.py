"""Lists a page at a time: each begins behind the last entry of the page before, whatever came in
between."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec

from penstock.core.endpoint import Request
from penstock.core.errors import InvalidInput

#: Of one page.
_ENTRIES_MAX = 1000

_LIMIT = "So many at most; all by default."
Limit = Annotated[int, msgspec.Meta(ge=1, le=_ENTRIES_MAX, description=_LIMIT)]
Cursor = Annotated[
    str, msgspec.Meta(description="Those behind: the cursor that a list before named.")
]
T = TypeVar("T")


class ListRequest(Request):
    """Some of a list: those behind the `next` of a page before."""

    cursor: Cursor | None = None
    limit: Limit | None = None


class Page(msgspec.Struct, kw_only=True):
    """`next` is the cursor of the page that follows; null where there is none."""

    next: str | None = None


def page_of(
    entries: Sequence[T], request: ListRequest, key: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """The entries of the page that is asked for, and its `next`. The key of an entry is its own,
    and entries keep their order. Raises InvalidInput."""
    start = 0
    if request.cursor is not None:
        keys = [key(entry) for entry in entries]
        if request.cursor not in keys:
            why = "it is the `next` of a page before, whose last entry is not in the list now"
            raise InvalidInput(what=f"The cursor {request.cursor[:100]!r}", why=why)
        start = keys.index(request.cursor) + 1
    end = len(entries) if request.limit is None else start + request.limit
    page = entries[start:end]
    return page, key(page[-1]) if end < len(entries) and page else None


def encode_cursor(*place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str, length: int) -> list[str]:
    """Raises InvalidInput."""
    try:
        content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        place = msgspec.json.decode(content, type=list[str | int])
    except (ValueError, binascii.Error, RecursionError):
        place = []
    if len(place) != length:
        raise InvalidInput(what="The cursor", why="it is none that an answer gave as `next`")
    return [str(part) for part in place]


def decode_number(cursor: str) -> int:
    """Raises InvalidInput."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise InvalidInput(what="The cursor", why="it is none that an answer gave as `next`")
    return int(cursor)
