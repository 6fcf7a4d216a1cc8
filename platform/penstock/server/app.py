"""The ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

import penstock
from penstock.errors import PenstockError
from penstock.server.problems import on_http_error, on_penstock_error, on_unexpected_error
from penstock.server.routes import ROUTES
from penstock.server.schema import SECURITY_SCHEMES
from penstock.server.service import Service


def make_app(service: Service) -> Litestar:
    """The application of this service; starting and stopping it starts and stops the service."""

    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        async with service.running():
            yield

    return Litestar(
        ROUTES,
        lifespan=[lifespan],
        dependencies={"service": Provide(lambda: service, sync_to_thread=False)},
        exception_handlers={
            PenstockError: on_penstock_error,
            HTTPException: on_http_error,
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
