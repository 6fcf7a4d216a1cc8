"""An endpoint: something that can be asked of a lake, declared once.

Its HTTP route, its entry in the OpenAPI document, the remote client and the options of commands
come from the declaration. A room lists its endpoints in `endpoints.py`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_origin

import msgspec

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
    at_the_lake: bool = False
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
    noted: Any = None

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
