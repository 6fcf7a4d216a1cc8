"""The routes that are more than a call: waiting for a channel, and registering a checkpoint, which
reads files. docs/reference/http.md and docs/promote.md describe them."""

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from penstock.access.endpoint_routes import caller_of
from penstock.access.keys import Authorizer
from penstock.backends.database.engine import Database
from penstock.backends.http.openapi import (
    KEY_NEEDED,
    RefusableOperation,
    operation_taking,
    refusals,
)
from penstock.backends.http.problems import Problem
from penstock.backends.http.request_limits import (
    RequestSlots,
    cut_off_when_cancelled,
    read_document,
)
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.lake.query.routes import until_gone
from penstock.registry.channels.change import ChannelNews
from penstock.registry.channels.channel_watcher import ChannelWatcher
from penstock.registry.checkpoints import registration
from penstock.registry.checkpoints.artifact_roots import ArtifactRoots
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.endpoints import REGISTER_CHECKPOINT, RegisterRequest

HttpRequest = Request[Any, Any, Any]

_VERSION_MAX = 2**63 - 1

Name = Annotated[str, Parameter(description="The channel.")]
After = Annotated[
    int | None, Parameter(ge=0, le=_VERSION_MAX, description="Changes after this version.")
]
Wait = Annotated[float, Parameter(ge=0, description="Seconds to wait for a change; needs `after`.")]


class Registry:
    """Shared state of the routes. Registrations read files for minutes, so they have their own
    slots."""

    def __init__(self, database: Database, settings: Settings, authorizer: Authorizer) -> None:
        """Raises SettingInvalid."""
        self.database = database
        self.settings = settings
        self.authorizer = authorizer
        self.artifact_roots = ArtifactRoots.of(settings)
        self.registrations = RequestSlots("registrations", running_max=2, waiting_max=16)


class ConflictProblem(Problem, kw_only=True):
    """A failed compare-and-swap: the checkpoint and version that were found."""

    expected: str | None = None
    found: str | None = None
    version: int | None = None


class GateProblem(Problem, kw_only=True):
    outcome: str | None = None
    verdict: dict[str, Any] | None = None
    verdict_id: str | None = None


@post(
    "/v1/checkpoints",
    status_code=200,
    summary=REGISTER_CHECKPOINT.summary,
    description="Repeating a registration changes nothing.",
    operation_class=operation_taking(RegisterRequest),
    responses=refusals(
        *(400, 401, 403, 404, 408, 409, 413, 422, 429, 503),
        said={422: "The files have another digest."},
    ),
    security=KEY_NEEDED,
)
async def post_checkpoint(request: HttpRequest, registry: Registry) -> Checkpoint:
    authorization = request.headers.get("authorization")
    grant = await registry.authorizer.authorize(authorization, "train", "promote")
    body = await read_document(request, RegisterRequest)
    who = {"tenant": grant.tenant, "actor": caller_of(grant).actor}
    fields = msgspec.structs.asdict(body) | who
    # Only the operator, on the machine itself, may read files elsewhere.
    fields["roots"] = registry.artifact_roots.of_tenant(grant.tenant)
    register = partial(registration.register, registry.database, registry.settings, **fields)
    return await registry.registrations.run(register, tenant=grant.tenant)


@get(
    "/v1/channels/{name:str}",
    summary="A channel, or its next change",
    description="With `after` and `wait` it answers as soon as the channel changes.",
    operation_class=RefusableOperation,
    responses=refusals(400, 401, 403, 404, 429, 503)
    | {304: ResponseSpec(None, description="The version named by `If-None-Match` is current.")},
    security=KEY_NEEDED,
)
async def get_channel(
    request: HttpRequest,
    *,
    registry: Registry,
    watcher: ChannelWatcher,
    name: Name,
    after: After = None,
    wait: Wait = 0.0,
) -> Response[ChannelNews]:
    grant = await registry.authorizer.authorize(
        request.headers.get("authorization"), "read", "serve", "promote"
    )
    key = (grant.tenant, name)
    if after is None:
        if wait:
            raise InvalidInput(what="wait", why="it needs `after`, the version you know")
        answer = ChannelNews(**vars(await watcher.channel(key)))
    else:
        with cut_off_when_cancelled():
            answer = await watcher.change(key, after, wait, until_gone(request))
    tag = f'"{answer.hash}"'
    known = request.headers.get("if-none-match", "").split(",")
    if not answer.changes and {"*", tag} & {text.strip().removeprefix("W/") for text in known}:
        return Response(None, status_code=304, headers={"ETag": tag})  # type: ignore[arg-type]
    return Response(answer, headers={"ETag": tag, "Cache-Control": "no-cache"})


ROUTES = [post_checkpoint, get_channel]
