"""The routes of endpoints. Each decodes the request, authorizes its key, runs the work, and answers
with the result."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from litestar import MediaType, Response, delete, get, post
from litestar import Request as HttpRequest
from litestar.handlers import HTTPRouteHandler

from penstock.access.keys import Authorizer, Grant
from penstock.access.quotas import Quotas
from penstock.backends.http.openapi import KEY_NEEDED, operation_taking, refusals
from penstock.backends.http.request_limits import RequestBounds, bounded_answer, read_document
from penstock.backends.terminal.output import encode
from penstock.core.endpoint import Caller, Endpoint, Request, is_list
from penstock.core.errors import InvalidInput
from penstock.lake.client import perform
from penstock.lake.lake import Lake

#: A field of the request; a `path` may contain slashes.
_IN_PATH = re.compile(r"{(\w+)(:path)?}")
_BYTES = "application/octet-stream"
#: Statuses that any request may get; a body may also be too slow or too large.
_REFUSED = (400, 401, 403, 429, 503)
_BODY_REFUSED = (408, 413)


@dataclass
class EndpointRoutes:
    """Shared state of the routes."""

    authorizer: Authorizer
    quotas: Quotas
    lake: Lake
    bounds: RequestBounds

    async def answer(
        self, endpoint: Endpoint[Any, Any], request: HttpRequest[Any, Any, Any]
    ) -> Response[Any]:
        roles: Any = endpoint.roles
        authorization = request.headers.get("authorization")
        grant = await self.authorizer.authorize(authorization, *roles)
        with self.bounds.bodies.holding(grant.tenant) as hold:
            asked = await _request(endpoint, request, hold)
        if endpoint.reads_rows:
            self.quotas.require(grant.tenant, "queries_per_hour")
            self.quotas.count(grant.tenant, "queries_per_hour")
        slots = self.bounds.slots(reads_rows=endpoint.reads_rows)
        work = partial(_encoded_answer, endpoint, self.lake, caller_of(grant), asked)
        answer = await slots.run(work, tenant=grant.tenant)
        media_type = _BYTES if endpoint.answer is bytes else MediaType.JSON
        return bounded_answer(self.bounds.answers, grant.tenant, answer, media_type)


def caller_of(grant: Grant) -> Caller:
    """The caller of a granted request, with the key as `penstock keys list` shows it."""
    name, is_admin = f"key {grant.key}", grant.role == "admin"
    return Caller(grant.tenant, name, is_admin, expires_at=grant.expires_at)


def _encoded_answer(
    endpoint: Endpoint[Any, Any], lake: Lake, caller: Caller, request: Request
) -> bytes:
    answer = perform(endpoint, lake, caller, request)
    return answer if isinstance(answer, bytes) else encode(answer)


def route_of(endpoint: Endpoint[Any, Any]) -> HTTPRouteHandler:
    async def answer_request(
        request: HttpRequest[Any, Any, Any], endpoint_routes: EndpointRoutes
    ) -> Response[Any]:
        return await endpoint_routes.answer(endpoint, request)

    # The OpenAPI document takes the answer's type from here.
    answer_request.__annotations__["return"] = Response[endpoint.answer]  # type: ignore[name-defined]
    in_path = set(_fields_in(endpoint.path))
    has_body = endpoint.method == "POST"
    statuses = {*_REFUSED, *endpoint.refused, *endpoint.problems()}
    statuses |= {*([404] if in_path else []), *(_BODY_REFUSED if has_body else [])}
    responses = refusals(*sorted(statuses), said=endpoint.refused, kinds=endpoint.problems())
    handlers: dict[str, Callable[..., Any]] = {"GET": get, "POST": post, "DELETE": delete}
    handler: HTTPRouteHandler = handlers[endpoint.method](
        _IN_PATH.sub(lambda field: f"{{{field[1]}{field[2] or ':str'}}}", endpoint.path),
        status_code=200,
        # By default all ids would be the name of this function.
        operation_id=re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_"),
        summary=endpoint.summary,
        description=endpoint.description or None,
        media_type=_BYTES if endpoint.answer is bytes else MediaType.JSON,
        operation_class=operation_taking(endpoint.request, in_path, has_body=has_body),
        responses=responses,
        security=KEY_NEEDED,
    )(answer_request)
    return handler


def _fields_in(path: str) -> list[str]:
    return [field[1] for field in _IN_PATH.finditer(path)]


async def _request(
    endpoint: Endpoint[Any, Any], request: HttpRequest[Any, Any, Any], hold: Callable[[int], None]
) -> Request:
    in_path = _fields_in(endpoint.path)
    if endpoint.method != "POST":
        what, strict = "The query string", False
        fields = _query_fields(endpoint.request, request)
    else:
        what, strict = "The request body", True
        fields = await read_document(request, dict[str, Any], endpoint.body_bytes_max, hold)
    if twice := fields.keys() & set(in_path):
        raise InvalidInput(what=what, why=f"{', '.join(twice)} is already in the path")
    kinds = {field.name: field.type for field in msgspec.structs.fields(endpoint.request)}
    try:
        for name in in_path:
            text = str(request.path_params[name]).removeprefix("/")
            fields[name] = msgspec.convert(text, kinds[name], strict=False)
        asked: Request = msgspec.convert(fields, endpoint.request, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidInput(what=what, why=str(error)) from None
    return asked


def _query_fields(kind: type[Request], request: HttpRequest[Any, Any, Any]) -> dict[str, Any]:
    """The fields of a query; only lists may be repeated."""
    lists = {field.name for field in msgspec.structs.fields(kind) if is_list(field.type)}
    fields: dict[str, Any] = {}
    for name, values in request.query_params.dict().items():
        if name not in lists and len(values) > 1:
            raise InvalidInput(what="The query string", why=f"it contains {name} twice")
        fields[name] = values if name in lists else values[0]
    return fields
