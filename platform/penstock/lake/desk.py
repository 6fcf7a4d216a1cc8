"""What people ask of a lake from their desks: on its own machine, or over HTTP from anywhere.

A room lists what can be asked as the calls of its `calls.py`, and its commands ask a desk. The
local twin opens the lake and does the work here. The remote one sends the question to a service,
whose route of the call does the same work there: `access/call_routes.py` makes the routes."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_origin

import msgspec

from penstock.backends.terminal.options import actor
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT

if TYPE_CHECKING:
    from penstock.backends.audit.entry import Action
    from penstock.backends.http.client import ServiceClient
    from penstock.backends.http.problems import Problem
    from penstock.lake.lake import Lake
    from penstock.lake.query.lake_query import Answer

#: A person waits, and has Ctrl-C.
_ANSWER_SECONDS_MAX = 600.0
#: What an answer of rows is asked for as.
ARROW_STREAM = "application/vnd.apache.arrow.stream"
#: Questions are short.
DOCUMENT_BYTES_MAX = 1024 * 1024
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Question(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a call is asked with; fields that its path names stand there."""


def is_list(kind: Any) -> bool:
    """Whether a field of this type takes several values."""
    return get_origin(kind) is list or any(is_list(part) for part in getattr(kind, "__args__", ()))


Q = TypeVar("Q", bound=Question)
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
class Call(Generic[Q, A]):
    """Something that can be asked of a lake. Beside `roles` an admin's key may always ask.

    The route is a method and a path, `GET /v1/channels/{name}`; what is asked with and answered are
    the types that `work` declares."""

    route: str
    work: Callable[["Lake", Caller, Q], A]
    roles: tuple[str, ...]
    summary: str
    _: KW_ONLY
    description: str = ""
    #: By status, why it is refused beside what any call of its kind may be refused for. None is
    #: what the status says of others too.
    refused: Mapping[int, str | None] = field(default_factory=lambda: _NOTHING)
    #: Refusals that have fields of their own.
    problems: Callable[[], Mapping[int, "type[Problem]"]] = lambda: _NOTHING
    body_bytes_max: int = DOCUMENT_BYTES_MAX
    #: Reads events or their files, as a query does, and is counted and bounded as one.
    reads_rows: bool = False
    #: The audit's word for it, noted before it is done. Deeds that have a transaction note
    #: themselves within it, and have nothing here; what reads rows is noted as `read`.
    noted: "Action | None" = None

    @property
    def method(self) -> str:
        return self.route.split()[0]

    @property
    def path(self) -> str:
        return self.route.split()[1]

    @property
    def question(self) -> type[Q]:
        asked: type[Q] = [*self.work.__annotations__.values()][2]
        return asked

    @property
    def answer(self) -> type[A]:
        """A type that JSON can be read as."""
        given: type[A] = self.work.__annotations__["return"]
        return given


def perform(call: Call[Q, A], lake: "Lake", caller: Caller, question: Q) -> A:
    """The answer, after the audit says who asked. Raises what the work raises."""
    if action := call.noted or ("read" if call.reads_rows else None):
        asked = msgspec.json.encode(question, order="sorted")
        facts = {"question": hashlib.sha256(asked).hexdigest()}
        _note(lake, caller, action, call.route, facts)
    return call.work(lake, caller, question)


def note_query(
    lake: "Lake", caller: Caller, sql: str, as_of: str | None, subject: str = "POST /v1/query"
) -> None:
    """Before it runs. Its text may name people and quote them, and what is audited is never erased:
    the digest of the text stands for it."""
    facts = {"sql": hashlib.sha256(sql.encode(errors="replace")).hexdigest(), "as_of": as_of}
    _note(lake, caller, "read", subject, facts)


def _note(
    lake: "Lake", caller: Caller, action: "Action", subject: str, facts: Mapping[str, str | None]
) -> None:
    from penstock.backends.audit.chain import record
    from penstock.backends.audit.entry import Deed

    place = {"tenant": caller.tenant, "actor": caller.actor}
    record(lake.database, Deed(**place, action=action, subject=subject, facts=facts))


class Desk(Protocol):
    def ask(self, call: Call[Q, A], question: Q) -> A:
        """The answer. Raises what the work raises, wherever it is done."""

    def rows(self, sql: str, as_of: str | None) -> "AbstractContextManager[Answer]":
        """The rows of a query, readable until the block ends. Raises what LakeQuery.run does."""


@dataclass(frozen=True)
class LocalDesk:
    """At the lake's own machine."""

    lake: "Lake"
    caller: Caller

    def ask(self, call: Call[Q, A], question: Q) -> A:
        return perform(call, self.lake, self.caller, question)

    def rows(self, sql: str, as_of: str | None) -> "AbstractContextManager[Answer]":
        note_query(self.lake, self.caller, sql, as_of)
        return self.lake.query(sql, as_of=as_of, tenant=self.caller.tenant).run()


@dataclass(frozen=True)
class RemoteDesk:
    """Anywhere, by the HTTP of a service."""

    service: "ServiceClient"

    def ask(self, call: Call[Q, A], question: Q) -> A:
        fields = {
            name: value
            for name, value in msgspec.to_builtins(question).items()
            if value != _default(call.question, name)
        }
        return self.service.call(call.method, call.path, fields, call.answer)

    @contextmanager
    def rows(self, sql: str, as_of: str | None) -> "Iterator[Answer]":
        import pyarrow as pa

        from penstock.lake.query.lake_query import Answer

        question = {"sql": sql, "as_of": as_of}
        with self.service.streaming("/v1/query", question, Accept=ARROW_STREAM) as (headers, body):
            snap, complete = headers["penstock-snap"], headers["penstock-complete"]
            yield Answer(pa.ipc.open_stream(body), int(snap), complete != "true")


def _default(question: type[Question], name: str) -> object:
    fields = {field.name: field.default for field in msgspec.structs.fields(question)}
    return fields[name]


def all_calls() -> list[Call[Any, Any]]:
    """The calls of all rooms."""
    entries = sorted(entry_points(group="penstock.calls"), key=lambda entry: entry.name)
    return [call for entry in entries for call in entry.load()]


# Which twin


def service_url(data: Path | None, url: str | None) -> str | None:
    """The service that a command asks: the option --url, else PENSTOCK_URL, else that of `penstock
    login` where no data directory is named. Raises InvalidInput."""
    if url is not None and data is not None:
        raise InvalidInput(what="--url with --data", why="a command asks one of them")
    if url is not None or data is not None:
        return url
    if named := os.environ.get("PENSTOCK_URL", "").strip():
        return named
    if os.environ.get("PENSTOCK_DATA"):
        return None
    from penstock.backends.http.login import read_login

    login = read_login()
    return login.url if login else None


@contextmanager
def open_desk(
    data: Path | None,
    url: str | None,
    tenant: str = TENANT_DEFAULT,
    *,
    by: str | None = None,
    key: str | None = None,
    make: bool = False,
) -> Iterator[Desk]:
    """The lake of the data directory, made if need be with `make`; or the service of the URL, to
    which `key` is sent rather than the one that is kept. Raises LakeMissing, InvalidInput."""
    address = service_url(data, url)
    with ExitStack() as closing:
        if address is not None:
            for option, given in (("--tenant", tenant != TENANT_DEFAULT), ("--by", by is not None)):
                if given:
                    why = f"the key that {address} is asked with says it"
                    raise InvalidInput(what=option, why=why)
            yield RemoteDesk(closing.enter_context(_service_at(address, key)))
            return
        from penstock.core.settings import load_settings
        from penstock.lake.lake import open_existing, open_or_make

        caller = Caller(tenant, actor(by), at_the_lake=True, key=key)
        lake = open_or_make(load_settings(data)) if make else open_existing(data)
        yield LocalDesk(closing.enter_context(lake), caller)


def _service_at(url: str, key: str | None) -> "ServiceClient":
    from penstock.backends.http.client import ServiceClient
    from penstock.backends.http.login import service_key

    return ServiceClient(url, key or service_key(url), _ANSWER_SECONDS_MAX)
