"""Channels over HTTP, as docs/http.md and docs/delivery.md describe them."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIType, Schema
from litestar.params import Parameter
from msgspec.structs import asdict

from penstock.channels.change import Change
from penstock.channels.channel import (
    ANY,
    ChangeAnswer,
    ChannelAnswer,
    Expected,
    assign,
    channel_answer,
    channel_state,
    list_channels,
)
from penstock.channels.channel_watcher import ChannelWatcher
from penstock.channels.notices import Notice, notices_after
from penstock.channels.promotion import Promotion, promote, release
from penstock.channels.rollback import Rollback, roll_back
from penstock.checkpoints.routes import (
    HttpRequest,
    Registry,
    key_actor,
    registry_get,
    registry_post,
)
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.http.body import read_document
from penstock.http.openapi import operation_taking
from penstock.http.problems import Problem
from penstock.http.request_slots import cut_off_when_cancelled

_KEY_CHARS_MAX = 1_024
#: Databases count no further.
_VERSION_MAX = 2**63 - 1

Name = Annotated[str, Parameter(description="The channel.")]
After = Annotated[
    int | None, Parameter(ge=0, le=_VERSION_MAX, description="Changes after this version.")
]
Wait = Annotated[float, Parameter(ge=0, description="Wait so many seconds for one, with `after`.")]


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`expect` is the checkpoint that the channel is at, by name or digest, and null where it has
    none; without it, whichever it is at when the call begins. `share` makes a canary."""

    checkpoint: str
    reason: str
    expect: Expected = ANY
    expect_version: int | None = None
    share: float | None = None
    override: bool = False


class RollbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Without `to`, to the last good one; `expect` as in a promotion."""

    reason: str
    to: str | None = None
    expect: Expected = ANY
    expect_version: int | None = None


class ReleaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    reason: str


class ChannelsAnswer(msgspec.Struct):
    channels: list[ChannelAnswer]


class HistoryAnswer(msgspec.Struct):
    """`next` is what to pass as `after` for those that follow; null when there are none."""

    channel: str
    changes: list[ChangeAnswer]
    next: int | None


class AssignmentAnswer(msgspec.Struct):
    """The checkpoint that serves a key."""

    channel: str
    version: int
    key: str
    checkpoint: str
    arm: str
    digest: str | None
    uri: str | None


class ConflictProblem(Problem, kw_only=True):
    """A compare-and-swap found something else: which checkpoint, at which version."""

    expected: str | None
    found: str | None
    version: int


class GateProblem(Problem, kw_only=True):
    """The gate did not say PASS: its document, whole."""

    outcome: str
    verdict: dict[str, Any]
    verdict_id: str


_CHANGE_PROBLEMS: dict[int, type[Problem]] = {409: ConflictProblem, 422: GateProblem}
_SHARE = Schema(type=OpenAPIType.NUMBER, exclusive_minimum=0, exclusive_maximum=1)


@registry_get("/v1/channels", "All channels")
async def get_channels(request: HttpRequest, registry: Registry) -> ChannelsAnswer:
    grant = await registry.authorize(request, "read")
    channels = await registry.call(grant.tenant, list_channels, grant.tenant)
    return ChannelsAnswer([channel_answer(channel) for channel in channels])


@registry_get(
    "/v1/channels/{name:str}",
    "A channel, or its next change",
    400,
    404,
    responses={304: ResponseSpec(None, description="As `If-None-Match` says that it is known.")},
    description="With `after` and `wait` it answers as soon as the channel is at another version.",
)
async def get_channel(
    request: HttpRequest,
    *,
    registry: Registry,
    watcher: ChannelWatcher,
    name: Name,
    after: After = None,
    wait: Wait = 0.0,
) -> Response[ChannelAnswer]:
    grant = await registry.authorize(request, "read", "serve")
    key = (grant.tenant, name)
    if after is None:
        if wait:
            raise InvalidInput(what="wait", why="it needs `after`, the version that you know")
        answer = channel_answer((await watcher.channel(key)).state)
    else:
        with cut_off_when_cancelled():
            news = await watcher.change(key, after, wait, _disconnect(request))
        answer = channel_answer(news.state)
        answer.changes = [_change_answer(notice) for notice in news.notices]
        answer.next = news.notices[-1].version if news.notices else news.state.version
    tag = f'"{answer.hash}"'
    known = request.headers.get("if-none-match", "").split(",")
    if not answer.changes and {"*", tag} & {text.strip().removeprefix("W/") for text in known}:
        return Response(None, status_code=304, headers={"ETag": tag})  # type: ignore[arg-type]
    return Response(answer, headers={"ETag": tag, "Cache-Control": "no-cache"})


@registry_get("/v1/channels/{name:str}/history", "The changes of a channel", 400, 404)
async def get_history(
    request: HttpRequest, registry: Registry, name: Name, after: After = None
) -> HistoryAnswer:
    grant = await registry.authorize(request, "read")

    def history(database: Database) -> HistoryAnswer:
        newest = channel_state(database, grant.tenant, name).version
        notices = notices_after(database, grant.tenant, name, after or 0, up_to=newest)
        last = notices[-1].version if notices else newest
        changes = [_change_answer(notice) for notice in notices]
        return HistoryAnswer(name, changes, last if last < newest else None)

    return await registry.call(grant.tenant, history)


@registry_get("/v1/channels/{name:str}/assign", "Which checkpoint serves a key", 400, 404, 409)
async def get_assignment(
    request: HttpRequest,
    registry: Registry,
    watcher: ChannelWatcher,
    name: Name,
    key: Annotated[str, Parameter(max_length=_KEY_CHARS_MAX, description="A user, a session, …")],
) -> AssignmentAnswer:
    grant = await registry.authorize(request, "read", "serve")
    channel = (await watcher.channel((grant.tenant, name))).state
    assignment = assign(channel, key)
    canary = assignment.arm == "canary"
    return AssignmentAnswer(
        channel=name,
        version=channel.version,
        key=key,
        checkpoint=assignment.checkpoint,
        arm=assignment.arm,
        digest=channel.canary_digest if canary else channel.digest,
        uri=channel.canary_uri if canary else channel.uri,
    )


@registry_post(
    "/v1/channels/{name:str}/promote",
    "Promote a checkpoint",
    operation_taking(PromoteRequest, share=_SHARE),
    422,
    kinds=_CHANGE_PROBLEMS,
    description="Through the gate, if the channel is where it is expected.",
)
async def post_promote(request: HttpRequest, registry: Registry, name: Name) -> ChangeAnswer:
    grant = await registry.authorize(request, "promote")
    body = await read_document(request, PromoteRequest)
    if body.override:
        grant.require("admin")
    promotion = Promotion(tenant=grant.tenant, channel=name, actor=key_actor(grant), **asdict(body))

    def change(database: Database) -> ChangeAnswer:
        from penstock.channels.channel_verdict import gate_judge  # it brings scipy

        judge = gate_judge(database, promotion.tenant, promotion.share)
        return _committed(database, promote(database, promotion, judge))

    return await registry.call(grant.tenant, change)


@registry_post(
    "/v1/channels/{name:str}/rollback",
    "Roll a channel back",
    operation_taking(RollbackRequest),
    kinds=_CHANGE_PROBLEMS,
    description="Without the gate. The channel is pinned until somebody releases it.",
)
async def post_rollback(request: HttpRequest, registry: Registry, name: Name) -> ChangeAnswer:
    grant = await registry.authorize(request, "promote")
    body = await read_document(request, RollbackRequest)
    rollback = Rollback(tenant=grant.tenant, channel=name, actor=key_actor(grant), **asdict(body))
    return await registry.call(
        grant.tenant, lambda database: _committed(database, roll_back(database, rollback))
    )


@registry_post(
    "/v1/channels/{name:str}/release",
    "Let a channel be promoted again after a rollback",
    operation_taking(ReleaseRequest),
)
async def post_release(request: HttpRequest, registry: Registry, name: Name) -> ChangeAnswer:
    grant = await registry.authorize(request, "promote")
    body = await read_document(request, ReleaseRequest)
    place = {"tenant": grant.tenant, "channel": name}
    order = place | {"actor": key_actor(grant), "reason": body.reason}
    return await registry.call(
        grant.tenant, lambda database: _committed(database, release(database, **order))
    )


ROUTES = [
    get_channels,
    get_channel,
    get_history,
    get_assignment,
    post_promote,
    post_rollback,
    post_release,
]


def _change_answer(notice: Notice) -> ChangeAnswer:
    return msgspec.json.decode(notice.body, type=ChangeAnswer)


def _committed(database: Database, change: Change) -> ChangeAnswer:
    """A change as everybody is told of it."""
    place = (change.tenant, change.channel, change.version - 1)
    [notice] = notices_after(database, *place, up_to=change.version)
    return _change_answer(notice)


async def _disconnect(request: HttpRequest) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
