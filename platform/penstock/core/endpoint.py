"""An endpoint: something that can be asked of a lake, declared once.

Its HTTP route, its entry in the OpenAPI document, the remote client and the options of commands
come from the declaration. A room lists its endpoints in `endpoints.py`."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar, get_origin

import msgspec

from penstock.core.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa


#: Requests are short.
DOCUMENT_BYTES_MAX = 1024 * 1024
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an endpoint is asked with; fields that its path names stand there."""


def is_list(kind: Any) -> bool:
    """Whether a field of this type takes several values."""
    return get_origin(kind) is list or any(is_list(part) for part in getattr(kind, "__args__", ()))


R = TypeVar("R", bound=Request)
A = TypeVar("A")


@dataclass(frozen=True)
class Caller:
    """Who asks. Whoever is at the lake itself is its operator, and no key is asked for."""

    tenant: str
    actor: str
    is_admin: bool = True
    is_local: bool = False
    #: One that was named there all the same.
    key: str | None = field(default=None, repr=False)
    #: Until when the caller's key holds, in microseconds since 1970; None is for ever.
    expires_at: int | None = None


@dataclass(frozen=True)
class Endpoint(Generic[R, A]):
    """Beside `roles` an admin's key may always ask.

    The route is a method and a path, `GET /v1/channels/{name}`. The types of request and answer are
    those that `work` declares; it is given the lake, the caller and the request."""

    route: str
    work: Callable[[Any, Caller, R], A]
    roles: tuple[str, ...]
    summary: str
    _: KW_ONLY
    description: str = ""
    #: By status, why it is refused beside what any endpoint may be refused for. None is what the
    #: status says of others too.
    refused: Mapping[int, str | None] = field(default_factory=lambda: _NOTHING)
    #: Refusals that have fields of their own.
    problems: Callable[[], Mapping[int, Any]] = lambda: _NOTHING
    body_bytes_max: int = DOCUMENT_BYTES_MAX
    #: Reads events or their files, as a query does, and is counted and bounded as one.
    reads_rows: bool = False
    #: The audit's word for it, noted before it is done. Deeds that have a transaction note
    #: themselves within it, and have nothing here; what reads rows is noted as `read`.
    audited_as: Any = None

    @property
    def method(self) -> str:
        return self.route.split()[0]

    @property
    def path(self) -> str:
        return self.route.split()[1]

    @property
    def request(self) -> type[R]:
        asked: type[R] = [*self.work.__annotations__.values()][2]
        return asked

    @property
    def answer(self) -> type[A]:
        """A type that JSON can be read as."""
        given: type[A] = self.work.__annotations__["return"]
        return given


@dataclass(frozen=True)
class Answer:
    """The rows of a query, readable while it is open."""

    batches: "pa.RecordBatchReader"
    snap: int
    cut_off: bool


class Client(Protocol):
    """Calls endpoints of a lake, wherever it is."""

    def call(self, endpoint: Endpoint[R, A], request: R) -> A:
        """The answer. Raises what the work raises, wherever it is done."""

    def rows(self, sql: str, as_of: str | None) -> AbstractContextManager[Answer]:
        """The rows of a query, readable until the block ends. Raises what LakeQuery.run does."""


# Lists, a page at a time

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
