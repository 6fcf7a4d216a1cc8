"""Endpoints: requests that a lake answers, each declared once.

The HTTP route, its entry in the OpenAPI document, the remote client and the options of commands
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
    """The fields of a request. Those that the path names are sent in the path."""


def is_list(kind: Any) -> bool:
    """Whether a field of this type takes several values."""
    return get_origin(kind) is list or any(is_list(part) for part in getattr(kind, "__args__", ()))


R = TypeVar("R", bound=Request)
A = TypeVar("A")


@dataclass(frozen=True)
class Caller:
    """The person or program that asks. On the lake's own machine it is the operator, without a
    key."""

    tenant: str
    actor: str
    is_admin: bool = True
    is_local: bool = False
    #: The key that was named on the lake's machine, where none is needed.
    key: str | None = field(default=None, repr=False)
    #: When the caller's key expires, in microseconds since 1970; None is never.
    expires_at: int | None = None

    @property
    def own_tenant(self) -> str | None:
        """The tenant whose data are meant; on the lake's machine, all tenants."""
        return None if self.is_local else self.tenant


@dataclass(frozen=True)
class Endpoint(Generic[R, A]):
    """A route, such as `GET /v1/channels/{name}`, and the work behind it.

    `work` gets the lake, the caller and the request; its annotations are the types of request and
    answer. Keys with one of the `roles` may ask, and admin keys always."""

    route: str
    work: Callable[[Any, Caller, R], A]
    roles: tuple[str, ...]
    summary: str
    _: KW_ONLY
    description: str = ""
    #: Refusals of this endpoint alone: why, by status. None is the usual text of the status.
    refused: Mapping[int, str | None] = field(default_factory=lambda: _NOTHING)
    #: Refusals that have fields of their own.
    problems: Callable[[], Mapping[int, Any]] = lambda: _NOTHING
    body_bytes_max: int = DOCUMENT_BYTES_MAX
    #: Whether it reads events or their files, and so is counted and bounded as a query.
    reads_rows: bool = False
    #: The action that the audit records before the work. Work with a transaction records itself in
    #: it and has none here; what reads rows is recorded as `read`.
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
        """The type of the answer, which JSON is decoded to."""
        given: type[A] = self.work.__annotations__["return"]
        return given


class Answer(msgspec.Struct, frozen=True):
    """The rows of a query, readable while the query is open."""

    batches: "pa.RecordBatchReader"
    snap: int
    cut_off: bool


class Client(Protocol):
    """Calls endpoints of a lake, wherever it is."""

    def call(self, endpoint: Endpoint[R, A], request: R) -> A:
        """Do the work here or ask the service. Raises what the work raises."""

    def rows(self, sql: str, as_of: str | None) -> AbstractContextManager[Answer]:
        """Run a query; its rows are readable until the block ends. Raises what LakeQuery.run
        does."""


# Lists, a page at a time

_PAGE_ENTRIES_MAX = 1000
_LIMIT = "How many at most; all by default."
Limit = Annotated[int, msgspec.Meta(ge=1, le=_PAGE_ENTRIES_MAX, description=_LIMIT)]
Cursor = Annotated[
    str, msgspec.Meta(description="Where to go on: the cursor that the page before named.")
]
T = TypeVar("T")


class ListRequest(Request):
    """A page of a list: the entries behind the `next` of the page before."""

    cursor: Cursor | None = None
    limit: Limit | None = None


class Page(msgspec.Struct, kw_only=True):
    """`next` is the cursor of the page that follows; null where there is none."""

    next: str | None = None


def page_of(
    entries: Sequence[T], request: ListRequest, key: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Choose the entries of a page; also returns its `next`. Keys are unique, and entries keep
    their order. Raises InvalidInput."""
    start = 0
    if request.cursor is not None:
        keys = [key(entry) for entry in entries]
        if request.cursor not in keys:
            why = "it is no `next` of an answer, or that entry is not in the list any more"
            raise InvalidInput(what=f"The cursor {request.cursor[:100]!r}", why=why)
        start = keys.index(request.cursor) + 1
    end = len(entries) if request.limit is None else start + request.limit
    page = entries[start:end]
    return page, key(page[-1]) if end < len(entries) and page else None


def encode_cursor(*place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str, length: int) -> list[str]:
    """Read what `encode_cursor` wrote. Raises InvalidInput."""
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
