"""What of the registry is no plain call: a channel that is waited for, and the registration of
checkpoints, which reads files. docs/reference/http.md and docs/promote.md describe them."""

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
from penstock.registry.channels.change import ChannelNews
from penstock.registry.channels.channel_watcher import ChannelWatcher
from penstock.registry.checkpoints import registration
from penstock.registry.checkpoints.artifact_roots import ArtifactRoots
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.endpoints import (
    REGISTER_CHECKPOINT,
    RegisterRequest,
)

HttpRequest = Request[Any, Any, Any]

_VERSION_MAX = 2**63 - 1

Name = Annotated[str, Parameter(description="The channel.")]
After = Annotated[
    int | None, Parameter(ge=0, le=_VERSION_MAX, description="Changes after this version.")
]
Wait = Annotated[float, Parameter(ge=0, description="Wait so many seconds for one, with `after`.")]


class Registry:
    """Registrations read the files of checkpoints, for minutes: nothing else waits behind them."""

    def __init__(self, database: Database, settings: Settings, authorizer: Authorizer) -> None:
        """Raises SettingInvalid."""
        self.database = database
        self.settings = settings
        self.authorizer = authorizer
        self.artifact_roots = ArtifactRoots.of(settings)
        self.registrations = RequestSlots("registrations", running_max=2, waiting_max=16)

    def stop(self) -> bool:
        return self.registrations.stop()


class ConflictProblem(Problem, kw_only=True):
    """Where a compare-and-swap found something else: which checkpoint, at which version."""

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
    description="The same facts again change nothing.",
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
    # No role but the operator's own, on the machine itself, looks anywhere else.
    fields["roots"] = registry.artifact_roots.of_tenant(grant.tenant)
    register = partial(registration.register, registry.database, registry.settings, **fields)
    return await registry.registrations.run(register, tenant=grant.tenant)


@get(
    "/v1/channels/{name:str}",
    summary="A channel, or its next change",
    description="With `after` and `wait` it answers as soon as the channel is at another version.",
    operation_class=RefusableOperation,
    responses=refusals(400, 401, 403, 404, 429, 503)
    | {304: ResponseSpec(None, description="As `If-None-Match` says that it is known.")},
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
            raise InvalidInput(what="wait", why="it needs `after`, the version that you know")
        answer = ChannelNews(**vars(await watcher.channel(key)))
    else:
        with cut_off_when_cancelled():
            answer = await watcher.change(key, after, wait, _disconnect(request))
    tag = f'"{answer.hash}"'
    known = request.headers.get("if-none-match", "").split(",")
    if not answer.changes and {"*", tag} & {text.strip().removeprefix("W/") for text in known}:
        return Response(None, status_code=304, headers={"ETag": tag})  # type: ignore[arg-type]
    return Response(answer, headers={"ETag": tag, "Cache-Control": "no-cache"})


ROUTES = [post_checkpoint, get_channel]


async def _disconnect(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
