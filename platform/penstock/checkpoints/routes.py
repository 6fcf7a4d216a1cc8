"""Checkpoints over HTTP, as docs/http.md describes them, and what all routes of the registry
share: keys, and threads for calls of the database."""

from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Operation

from penstock.access import Role
from penstock.access.keys import Authorizer, Grant
from penstock.checkpoints import registration
from penstock.checkpoints.artifact_roots import ArtifactRoots
from penstock.checkpoints.calls import (
    REGISTER_CHECKPOINT,
    REGISTRY_REFUSALS,
    CheckpointAnswer,
    RegisterQuestion,
    checkpoint_answer,
)
from penstock.database.engine import Database
from penstock.http.body import read_document
from penstock.http.openapi import KEY_NEEDED, RefusableOperation, operation_taking, refusals
from penstock.http.problems import Problem
from penstock.http.request_slots import RequestSlots
from penstock.settings import Settings

HttpRequest = Request[Any, Any, Any]

P = ParamSpec("P")
T = TypeVar("T")


class Registry:
    """Checkpoints and channels, as requests reach them."""

    def __init__(self, database: Database, settings: Settings, authorizer: Authorizer) -> None:
        """Raises SettingInvalid."""
        self.database = database
        self.settings = settings
        self.artifact_roots = ArtifactRoots.of(settings)
        self._authorizer = authorizer
        # Each of them holds a connection to the database.
        self._calls = RequestSlots("such requests", running_max=4, waiting_max=64)
        # They read the files of checkpoints, for minutes: promotions do not wait behind them.
        self.registrations = RequestSlots("registrations", running_max=2, waiting_max=16)

    def stop(self) -> bool:
        """Start nothing more; whether nothing goes on."""
        return all([self._calls.stop(), self.registrations.stop()])

    async def authorize(self, request: HttpRequest, *roles: Role) -> Grant:
        """The grant of the request's key, with one of these roles. Raises KeyRefused,
        RoleMissing."""
        return await self._authorizer.authorize(request.headers.get("authorization"), *roles)

    async def call(
        self,
        tenant: str,
        work: Callable[Concatenate[Database, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """The result of `work(database, …)`, from a thread. Raises TooManyRequests."""
        function = partial(work, self.database, *arguments, **named)
        return await self._calls.run(function, tenant=tenant)


def registry_get(
    path: str, summary: str, *statuses: int, **more: Any
) -> Callable[[Any], HTTPRouteHandler]:
    """A route that reads; each may be refused for its key, or for now."""
    refused = refusals(*sorted((401, 403, 429, 503, *statuses)), said=REGISTRY_REFUSALS)
    more["responses"] = refused | more.get("responses", {})
    more |= {"operation_class": RefusableOperation, "security": KEY_NEEDED}
    return get(path, summary=summary, **more)


def registry_post(
    path: str,
    summary: str,
    operation: type[Operation],
    *statuses: int,
    kinds: dict[int, type[Problem]] | None = None,
    **more: Any,
) -> Callable[[Any], HTTPRouteHandler]:
    """A route that changes something; `kinds` are the refusals that have fields of their own."""
    statuses = (400, 401, 403, 404, 408, 409, 413, 429, 503, *statuses)
    more["responses"] = refusals(*sorted(statuses), said=REGISTRY_REFUSALS, kinds=kinds)
    more |= {"operation_class": operation, "security": KEY_NEEDED}
    return post(path, status_code=200, summary=summary, **more)


def key_actor(grant: Grant) -> str:
    """Who did it, in the history: the key as `penstock keys list` shows it."""
    return f"key {grant.key}"


@registry_post(
    "/v1/checkpoints",
    REGISTER_CHECKPOINT.summary,
    operation_taking(RegisterQuestion),
    422,
    description="The same facts again change nothing.",
)
async def post_checkpoint(request: HttpRequest, registry: Registry) -> CheckpointAnswer:
    grant = await registry.authorize(request, "train", "promote")
    body = await read_document(request, RegisterQuestion)
    who = {"tenant": grant.tenant, "actor": key_actor(grant)}
    fields = msgspec.structs.asdict(body) | who
    # No role but the operator's own, on the machine itself, looks anywhere else.
    fields["roots"] = registry.artifact_roots.of_tenant(grant.tenant)
    register = partial(registration.register, registry.database, registry.settings, **fields)
    return checkpoint_answer(await registry.registrations.run(register, tenant=grant.tenant))


ROUTES = [post_checkpoint]
