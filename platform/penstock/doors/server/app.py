"""The ASGI application: the routes of all rooms, and whether the process is well."""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, get
from litestar.di import Provide
from litestar.exceptions import HTTPException, NotFoundException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
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
from penstock.doors.server.api_page import get_docs
from penstock.doors.server.service import Service
from penstock.doors.server.settings import ServerSettings
from penstock.ingest import routes as ingest
from penstock.ingest.otlp import routes as otlp
from penstock.lake.query import routes as lake
from penstock.registry.channels import routes as channels


@get("/healthz", media_type=MediaType.TEXT, summary="Alive", sync_to_thread=False)
def get_healthz() -> str:
    return "alive\n"


class Readiness(msgspec.Struct):
    """`problems` keep the process from making progress; a person should see to `warnings`."""

    ready: bool
    problems: list[str]
    warnings: list[str]


@get(
    "/readyz",
    summary="Making progress",
    sync_to_thread=False,
    responses={503: ResponseSpec(Readiness, description="No progress; `problems` say why.")},
)
def get_readyz(service: Service) -> Response[Readiness]:
    problems = list(service.problems())
    body = Readiness(not problems, problems, service.warnings())
    return Response(body, status_code=503 if problems else 200)


@get(
    "/metrics",
    media_type=MediaType.TEXT,
    summary="Prometheus",
    description="Without a key all tenants are added up; with an admin key, those of its tenant.",
    responses=refusals(401, 403, 429),
    security=[{}, *KEY_NEEDED],
)
async def get_metrics(
    request: Request[Any, Any, Any], service: Service, authorizer: Authorizer
) -> Response[bytes]:
    authorization = request.headers.get("authorization")
    grant = await authorizer.authorize(authorization) if authorization else None
    text = service.exposition(grant.tenant if grant else None)
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
    """Whoever asks with a key that may read rows; counts as a query."""
    authorization = request.headers.get("authorization")
    grant = await authorizer.authorize(authorization, "read")
    quotas.require(grant.tenant, "queries_per_hour")
    quotas.count(grant.tenant, "queries_per_hour")
    return caller_of(grant)


def make_app(service: Service) -> ASGIApp:
    """The application, which starts and stops the service as it starts and stops."""
    app = Litestar(
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
            path="/openapi.json",
            render_plugins=[JsonRenderPlugin(path="/")],
            components=SECURITY_SCHEMES,
        ),
        request_max_body_size=None,  # each route that reads a body has a limit of its own
        logging_config=None,
    )
    which = service.settings.room(ServerSettings).request_log
    return RequestLog(app, service.metrics, which)


def on_no_address(request: Request[Any, Any, Any], error: NotFoundException) -> Response[Any]:
    """A page for a browser; a problem below /v1, which is for programs."""
    accepted = request.headers.get("accept", "")
    wants_page = "text/html" in accepted and not request.url.path.startswith("/v1/")
    return on_console_http_error(request, error) if wants_page else on_http_error(request, error)


def _part_of(service: Service, name: str) -> Callable[[], Any]:
    return lambda: getattr(service, name)
