"""The two clients, on the lake's own machine and over the HTTP of a service.

The local one opens the lake and does the work of an endpoint here. The remote one sends the request
to a service, whose route does the same work there."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.backends.terminal.options import actor
from penstock.core.endpoint import A, Answer, Caller, Client, Endpoint, R, Request
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT

if TYPE_CHECKING:
    from penstock.backends.audit.entry import Action
    from penstock.backends.http.client import ServiceClient
    from penstock.lake.lake import Lake

#: A person waits, and has Ctrl-C.
_ANSWER_SECONDS_MAX = 600.0
#: The media type in which rows are asked for.
ARROW_STREAM = "application/vnd.apache.arrow.stream"


def perform(endpoint: Endpoint[R, A], lake: "Lake", caller: Caller, request: R) -> A:
    """Do the work of an endpoint, after an entry in the audit. Raises what the work raises."""
    action: Action | None = endpoint.audited_as or ("read" if endpoint.reads_rows else None)
    if action:
        if action == "read":
            lake.tally.count(caller.tenant, caller.actor, action, endpoint.route)
        else:
            _note(lake, caller, action, endpoint.route, request)
    return endpoint.work(lake, caller, request)


def note_query(lake: "Lake", caller: Caller, subject: str = "POST /v1/query") -> None:
    """Count a query. The audit has one entry a minute for each caller and subject, without the
    statement: it is never erased, and texts may quote people."""
    lake.tally.count(caller.tenant, caller.actor, "read", subject)


def _note(lake: "Lake", caller: Caller, action: "Action", subject: str, request: Request) -> None:
    from penstock.backends.audit.chain import record
    from penstock.backends.audit.entry import Deed

    asked = msgspec.json.encode(request, order="sorted")
    facts = {"request": hashlib.sha256(asked).hexdigest()}
    record(lake.database, Deed(caller.tenant, caller.actor, action, subject, facts))


class LocalClient(msgspec.Struct, frozen=True):
    """A client on the lake's own machine."""

    lake: "Lake"
    caller: Caller

    def call(self, endpoint: Endpoint[R, A], request: R) -> A:
        return perform(endpoint, self.lake, self.caller, request)

    def rows(self, sql: str, as_of: str | None) -> "AbstractContextManager[Answer]":
        note_query(self.lake, self.caller)
        return self.lake.query(sql, as_of=as_of, tenant=self.caller.tenant).run()


class RemoteClient(msgspec.Struct, frozen=True):
    """A client anywhere, over the HTTP of a service."""

    service: "ServiceClient"

    def call(self, endpoint: Endpoint[R, A], request: R) -> A:
        fields = {
            name: value
            for name, value in msgspec.to_builtins(request).items()
            if value != _default(endpoint.request, name)
        }
        return self.service.call(endpoint.method, endpoint.path, fields, endpoint.answer)

    @contextmanager
    def rows(self, sql: str, as_of: str | None) -> "Iterator[Answer]":
        import pyarrow as pa

        request = {"sql": sql, "as_of": as_of}
        with self.service.streaming("/v1/query", request, Accept=ARROW_STREAM) as (headers, body):
            snap, complete = headers["penstock-snap"], headers["penstock-complete"]
            yield Answer(pa.ipc.open_stream(body), int(snap), complete != "true")


def _default(request: type[Request], name: str) -> object:
    fields = {field.name: field.default for field in msgspec.structs.fields(request)}
    return fields[name]


# Which twin


def service_url(data: Path | None, url: str | None) -> str | None:
    """Find the service that a command asks: --url, else PENSTOCK_URL, else the one of `penstock
    login` if no data directory is named. Raises InvalidInput."""
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
def open_client(
    data: Path | None,
    url: str | None,
    tenant: str = TENANT_DEFAULT,
    *,
    by: str | None = None,
    key: str | None = None,
    make: bool = False,
) -> Iterator[Client]:
    """Open a client of the lake in the data directory, which `make` makes if it is missing, or of
    the service at the URL. `key` replaces the kept one. Raises LakeMissing, InvalidInput."""
    address = service_url(data, url)
    with ExitStack() as closing:
        if address is not None:
            for option, given in (("--tenant", tenant != TENANT_DEFAULT), ("--by", by is not None)):
                if given:
                    why = f"the key for {address} decides it"
                    raise InvalidInput(what=option, why=why)
            yield RemoteClient(closing.enter_context(asked_service(address, key)))
            return
        from penstock.core.settings import load_settings
        from penstock.lake.lake import open_existing, open_or_make

        caller = Caller(tenant, actor(by), is_local=True, key=key)
        lake = open_or_make(load_settings(data)) if make else open_existing(data)
        yield LocalClient(closing.enter_context(lake), caller)


def asked_service(url: str, key: str | None) -> "ServiceClient":
    """Make a client of the service at a URL; the key defaults to the one that is kept for it.
    Raises InvalidInput."""
    from penstock.backends.http.client import ServiceClient
    from penstock.backends.http.login import service_key

    return ServiceClient(url, key or service_key(url), _ANSWER_SECONDS_MAX)
