"""The ASGI application: the routes of all rooms, probes, metrics, and a page of the API."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeVar

import jinja2
import msgspec
from litestar import Litestar, MediaType, Request, Response, Router, get
from litestar.di import Provide
from litestar.enums import OpenAPIMediaType
from litestar.exceptions import HTTPException, NotFoundException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.plugins.core import MsgspecDIPlugin
from litestar.serialization import encode_json
from litestar.types import ASGIApp

import penstock
from penstock.access.endpoint_routes import caller_of, route_of
from penstock.access.keys import Authorizer
from penstock.access.quotas import Quotas
from penstock.backends.http.openapi import KEY_NEEDED, SECURITY_SCHEMES, refusals
from penstock.backends.http.problems import (
    RequestLog,
    on_http_error,
    on_penstock_error,
    on_unexpected_error,
)
from penstock.core.endpoint import Caller
from penstock.core.errors import PenstockError
from penstock.core.room import rooms
from penstock.doors.console.routes import console_routes, on_console_http_error
from penstock.doors.server.service import Service
from penstock.doors.settings import ServerSettings
from penstock.ingest import routes as ingest
from penstock.ingest.otlp import routes as otlp
from penstock.lake.query import routes as lake
from penstock.registry.channels import routes as channels

_REFERENCE = "#/components/schemas/"
_POLICY = (
    "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
#: A path of a file, which a stranger need not know.
_PATH = re.compile(r"(?:(?:sqlite|file|local):|(?<![\w:/.])/)[^\s'\",;)]+")
#: Deeper schemas are shown as `…`.
_DEPTH_MAX = 4

T = TypeVar("T")
Document = Mapping[str, Any]


def fields_of(schema: Document) -> Iterator[Document]:
    """The properties of an object, or of the objects in an array, with their names."""
    if schema.get("type") == "array":
        schema = schema.get("items", {})
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        about = each.get("description", "")
        yield {"name": name, "schema": each, "required": name in required, "description": about}


def type_text(schema: Document, depth: int = 0) -> str:
    """Describe a schema in one line."""
    if depth > _DEPTH_MAX:
        return "…"
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            texts = (type_text(each, depth + 1) for each in schema[several])
            return " or ".join(dict.fromkeys(texts))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {type_text(schema.get('items', {}), depth + 1)}"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"object of {type_text(values, depth + 1)}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


#: Stands in the page where each answer has a nonce of its own.
_NONCE = secrets.token_urlsafe(16)


@cache
def _api_schema(app: Litestar) -> dict[str, Any]:
    return app.openapi_schema.to_schema()


@cache
def _api_document(app: Litestar) -> bytes:
    return encode_json(_api_schema(app))


@cache
def _api_page(app: Litestar) -> str:
    text = files("penstock.doors.server").joinpath("api_page.html.jinja").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"type_text": type_text, "fields_of": fields_of}
    return environment.from_string(text).render(document=_api_schema(app), nonce=_NONCE)


async def for_everybody(service: Service, make: Callable[[], T]) -> T:
    """Make what needs no key. All who have none take turns as one tenant."""
    return await service.calls.run(make, tenant="")


@get("/docs", media_type=MediaType.HTML, include_in_schema=False)
async def get_docs(request: Request[Any, Any, Any], service: Service) -> Response[str]:
    page = await for_everybody(service, partial(_api_page, request.app))
    nonce = secrets.token_urlsafe(16)
    headers = {
        "Content-Security-Policy": _POLICY.format(nonce=nonce),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",  # each answer has its own nonce
    }
    return Response(page.replace(_NONCE, nonce), media_type=MediaType.HTML, headers=headers)


@get("/healthz", media_type=MediaType.TEXT, summary="Alive", sync_to_thread=False)
def get_healthz() -> str:
    return "alive\n"


class Readiness(msgspec.Struct):
    """`problems` stop the process from making progress. `warnings` need a person's attention.
    Paths of files are left out; the log has them."""

    ready: bool
    problems: list[str]
    warnings: list[str]


@get(
    "/readyz",
    summary="Making progress",
    sync_to_thread=False,
    responses={503: ResponseSpec(Readiness, description="No progress; see `problems`.")},
)
def get_readyz(service: Service) -> Response[Readiness]:
    problems = [_PATH.sub("…", problem) for problem in service.problems()]
    warnings = [_PATH.sub("…", warning) for warning in service.warnings()]
    body = Readiness(not problems, problems, warnings)
    return Response(body, status_code=503 if problems else 200)


@get(
    "/metrics",
    media_type=MediaType.TEXT,
    summary="Prometheus",
    description="Without a key: the sum over all tenants. With an admin key: its tenant alone.",
    responses=refusals(401, 403, 429, 503),
    security=[{}, *KEY_NEEDED],
)
async def get_metrics(
    request: Request[Any, Any, Any], service: Service, authorizer: Authorizer
) -> Response[bytes]:
    authorization = request.headers.get("authorization")
    grant = await authorizer.authorize(authorization) if authorization else None
    if grant is None:
        text = await for_everybody(service, partial(service.exposition, None))
    else:
        make = partial(service.exposition, grant.tenant)
        text = await service.calls.run(make, tenant=grant.tenant)
    return Response(text, media_type="text/plain; version=0.0.4")


ROUTES = [
    *ingest.ROUTES,
    *otlp.ROUTES,
    *lake.ROUTES,
    *channels.ROUTES,
    *(route_of(endpoint) for room in rooms() for endpoint in room.endpoints()),
    get_healthz,
    get_readyz,
    get_metrics,
    get_docs,
]


#: Routes may ask for these parts of the service by name.
_PARTS = (
    "gateway", "lake", "authorizer", "quotas", "queries", "answers", "registry", "watcher",
    "metrics", "endpoint_routes", "console",
)  # fmt: skip


async def reading_caller(
    request: Request[Any, Any, Any], authorizer: Authorizer, quotas: Quotas
) -> Caller:
    """The caller of a request that reads rows. Counts as a query."""
    authorization = request.headers.get("authorization")
    grant = await authorizer.authorize(authorization, "read")
    quotas.require(grant.tenant, "queries_per_hour")
    quotas.count(grant.tenant, "queries_per_hour")
    return caller_of(grant)


def make_app(service: Service) -> ASGIApp:
    """Make the application. It starts and stops the service as it starts and stops."""

    async def document(request: Request[Any, Any, Any]) -> Response[bytes]:
        content = await for_everybody(service, partial(_api_document, request.app))
        return Response(content, media_type=OpenAPIMediaType.OPENAPI_JSON)

    app = _App(
        [*ROUTES, *console_routes()],
        lifespan=[lambda _app: service.running()],
        dependencies={
            name: Provide(_part_of(service, name), sync_to_thread=False) for name in _PARTS
        }
        | {
            "reading_caller": Provide(reading_caller),
            "service": Provide(lambda: service, sync_to_thread=False),
        },
        exception_handlers={
            PenstockError: on_penstock_error,
            HTTPException: on_http_error,
            NotFoundException: on_no_address,
            Exception: on_unexpected_error,
        },
        openapi_config=OpenAPIConfig(
            title="Penstock",
            version=penstock.__version__,
            render_plugins=[JsonRenderPlugin(path="/")],
            openapi_router=Router(
                "/openapi.json",
                route_handlers=[],
                include_in_schema=False,
                before_request=document,  # what the plugin would make, anew for each
            ),
            components=SECURITY_SCHEMES,
        ),
        request_max_body_size=None,  # each route that reads a body has its own limit
        logging_config=None,
    )
    which = service.settings.room(ServerSettings).request_log
    return RequestLog(app, service.metrics, which)


class _App(Litestar):
    @staticmethod
    def _get_default_plugins(plugins: list[Any]) -> list[Any]:
        """Leave out pydantic's and attrs', which Litestar loads wherever they are installed."""
        return [*plugins, MsgspecDIPlugin()]


def on_no_address(request: Request[Any, Any, Any], error: NotFoundException) -> Response[Any]:
    """Answer a browser with a page, a program (all paths under /v1) with a problem document."""
    accepted = request.headers.get("accept", "")
    wants_page = "text/html" in accepted and not request.url.path.startswith("/v1/")
    return on_console_http_error(request, error) if wants_page else on_http_error(request, error)


def _part_of(service: Service, name: str) -> Callable[[], Any]:
    return lambda: getattr(service, name)
