"""Checkpoints and channels over HTTP, as docs/http.md and docs/delivery.md describe them."""

from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from litestar import Request, Response, get, post
from litestar.params import Parameter
from msgspec import UNSET, UnsetType

from penstock.access.keys import Grant, Role
from penstock.channels import promotion
from penstock.channels.change import Change
from penstock.channels.channel import assign, channel_state, list_channels
from penstock.channels.channel_transaction import ANY, Expected
from penstock.channels.notices import Notice, notices_after
from penstock.channels.promotion import Promotion
from penstock.channels.rollback import Rollback, roll_back
from penstock.checkpoints import registration
from penstock.checkpoints.digests import can_read_files
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.fleet.documents import (
    FleetAnswer,
    ReportAnswer,
    ReportRequest,
    fleet_answer,
    standing_answer,
)
from penstock.fleet.replicas import Report, fleet, report
from penstock.gate.verdict import Verdict
from penstock.http.body import read_body
from penstock.http.openapi import KEY_NEEDED, RefusableOperation
from penstock.http.request_slots import cut_off_when_cancelled
from penstock.server.registry_documents import (
    AssignmentAnswer,
    ChangeAnswer,
    ChannelAnswer,
    ChannelsAnswer,
    CheckpointAnswer,
    CheckpointsAnswer,
    HistoryAnswer,
    PromoteRequest,
    RegisterRequest,
    ReleaseRequest,
    RollbackRequest,
    change_answer,
    change_since_answer,
    channel_answer,
    checkpoint_answer,
)
from penstock.server.registry_schema import (
    UNCHANGED,
    PromoteOperation,
    RegisterOperation,
    ReleaseOperation,
    ReportOperation,
    RollbackOperation,
    promotion_refusals,
    registry_refusals,
)
from penstock.server.service import Service

_BODY_BYTES_MAX = 1024 * 1024
_KEY_CHARS_MAX = 1_024
#: Databases count no further.
_VERSION_MAX = 2**63 - 1

_Request = Request[Any, Any, Any]
Name = Annotated[str, Parameter(description="The channel.")]
After = Annotated[
    int | None, Parameter(ge=0, le=_VERSION_MAX, description="Changes after this version.")
]
Wait = Annotated[float, Parameter(ge=0, description="Wait so many seconds for one, with `after`.")]

T = TypeVar("T")
Asked = TypeVar("Asked", bound=msgspec.Struct)


# Checkpoints


@post(
    "/v1/checkpoints",
    status_code=200,
    summary="Register a checkpoint",
    description="The same facts again change nothing.",
    operation_class=RegisterOperation,
    responses=registry_refusals(400, 401, 403, 404, 408, 409, 413, 422, 429, 503),
    security=KEY_NEEDED,
)
async def post_checkpoint(request: _Request, service: Service) -> CheckpointAnswer:
    grant = await _authorize(request, service, "train", "promote")
    asked = await _body(request, RegisterRequest)
    register = partial(
        registration.register,
        service.lake.database,
        service.settings,
        tenant=grant.tenant,
        name=asked.name,
        uri=asked.uri,
        digest=asked.digest,
        actor=_actor(grant),
        parent=asked.parent,
        form=asked.form,
        shards=asked.shards,
        note=asked.note,
        look=asked.look and _may_look(grant, asked.uri),
    )
    with cut_off_when_cancelled():
        return checkpoint_answer(await service.registry.register(register))


@get(
    "/v1/checkpoints",
    summary="All checkpoints, the newest last",
    operation_class=RefusableOperation,
    responses=registry_refusals(401, 403, 429, 503),
    security=KEY_NEEDED,
)
async def get_checkpoints(request: _Request, service: Service) -> CheckpointsAnswer:
    grant = await _authorize(request, service, "read")
    found = await _call(service, registration.list_checkpoints, grant.tenant)
    return CheckpointsAnswer([checkpoint_answer(one) for one in found])


@get(
    "/v1/checkpoints/{name:str}",
    summary="A checkpoint, by its name or digest",
    operation_class=RefusableOperation,
    responses=registry_refusals(401, 403, 404, 429, 503),
    security=KEY_NEEDED,
)
async def get_checkpoint(request: _Request, service: Service, name: str) -> CheckpointAnswer:
    grant = await _authorize(request, service, "read", "serve")
    return checkpoint_answer(await _call(service, registration.find, grant.tenant, name))


# Channels


@get(
    "/v1/channels",
    summary="All channels",
    operation_class=RefusableOperation,
    responses=registry_refusals(401, 403, 429, 503),
    security=KEY_NEEDED,
)
async def get_channels(request: _Request, service: Service) -> ChannelsAnswer:
    grant = await _authorize(request, service, "read")
    found = await _call(service, list_channels, grant.tenant)
    return ChannelsAnswer([channel_answer(one) for one in found])


@get(
    "/v1/channels/{name:str}",
    summary="A channel, or its next change",
    description="With `after` and `wait` it answers as soon as the channel is at another version.",
    operation_class=RefusableOperation,
    responses=registry_refusals(400, 401, 403, 404, 429, 503) | UNCHANGED,
    security=KEY_NEEDED,
)
async def get_channel(
    request: _Request,
    service: Service,
    name: Name,
    after: After = None,
    wait: Wait = 0.0,
) -> Response[ChannelAnswer]:
    grant = await _authorize(request, service, "read", "serve")
    key = (grant.tenant, name)
    if after is None:
        if wait:
            raise InvalidInput(what="wait", why="it needs `after`, the version that you know")
        answer = channel_answer((await service.registry.channel(key)).state)
    else:
        with cut_off_when_cancelled():
            seen = await service.registry.change(key, after, wait, _gone(request))
        answer = change_since_answer(seen)
    tag = f'"{answer.hash}"'
    if not answer.changes and _matches(request.headers.get("if-none-match"), tag):
        return Response(None, status_code=304, headers={"ETag": tag})  # type: ignore[arg-type]
    return Response(answer, headers={"ETag": tag, "Cache-Control": "no-cache"})


@get(
    "/v1/channels/{name:str}/history",
    summary="The changes of a channel",
    operation_class=RefusableOperation,
    responses=registry_refusals(400, 401, 403, 404, 429, 503),
    security=KEY_NEEDED,
)
async def get_history(
    request: _Request, service: Service, name: Name, after: After = None
) -> HistoryAnswer:
    grant = await _authorize(request, service, "read")
    found = await _call(service, _history, grant.tenant, name, after or 0)
    newest, notices = found
    more = bool(notices) and notices[-1].version < newest
    changes = [change_answer(one) for one in notices]
    return HistoryAnswer(name, changes, notices[-1].version if more else None)


@get(
    "/v1/channels/{name:str}/assign",
    summary="Which checkpoint serves a key",
    operation_class=RefusableOperation,
    responses=registry_refusals(400, 401, 403, 404, 409, 429, 503),
    security=KEY_NEEDED,
)
async def get_assignment(
    request: _Request,
    service: Service,
    name: Name,
    key: Annotated[str, Parameter(max_length=_KEY_CHARS_MAX, description="A user, a session, …")],
) -> AssignmentAnswer:
    grant = await _authorize(request, service, "read", "serve")
    found = (await service.registry.channel((grant.tenant, name))).state
    chosen = assign(found, key)
    canary = chosen.arm == "canary"
    return AssignmentAnswer(
        channel=name,
        version=found.version,
        key=key,
        checkpoint=chosen.checkpoint,
        arm=chosen.arm,
        digest=found.canary_digest if canary else found.digest,
        uri=found.canary_uri if canary else found.uri,
    )


@get(
    "/v1/channels/{name:str}/replicas",
    summary="Who serves a channel, and what each has loaded",
    operation_class=RefusableOperation,
    responses=registry_refusals(401, 403, 404, 429, 503),
    security=KEY_NEEDED,
)
async def get_replicas(request: _Request, service: Service, name: Name) -> FleetAnswer:
    grant = await _authorize(request, service, "read", "serve")
    found = await _call(service, fleet, service.settings, grant.tenant, name)
    return fleet_answer(found)


@post(
    "/v1/channels/{name:str}/replicas",
    status_code=200,
    summary="Report what a replica has loaded",
    description="A sidecar does it at each change, and now and then between them.",
    operation_class=ReportOperation,
    responses=registry_refusals(400, 401, 403, 404, 408, 409, 413, 429, 503),
    security=KEY_NEEDED,
)
async def post_replica(request: _Request, service: Service, name: Name) -> ReportAnswer:
    grant = await _authorize(request, service, "serve")
    asked = await _body(request, ReportRequest)
    said = Report(**msgspec.structs.asdict(asked))
    parts = await _call(service, report, service.settings, grant.tenant, name, said)
    return ReportAnswer(name, [standing_answer(one) for one in parts])


@post(
    "/v1/channels/{name:str}/promote",
    status_code=200,
    summary="Promote a checkpoint",
    description="Through the gate, if the channel is where it is expected.",
    operation_class=PromoteOperation,
    responses=promotion_refusals(400, 401, 403, 404, 408, 409, 413, 422, 429, 503),
    security=KEY_NEEDED,
)
async def post_promote(request: _Request, service: Service, name: Name) -> ChangeAnswer:
    grant = await _authorize(request, service, "promote")
    asked = await _body(request, PromoteRequest)
    if asked.override:
        grant.require("admin")
    wanted = Promotion(
        tenant=grant.tenant,
        channel=name,
        checkpoint=asked.checkpoint,
        reason=asked.reason,
        actor=_actor(grant),
        expect=_expected(asked.expect),
        expect_version=asked.expect_version,
        share=asked.share,
        override=asked.override,
    )
    return await _change(service, _promote, wanted)


@post(
    "/v1/channels/{name:str}/rollback",
    status_code=200,
    summary="Roll a channel back",
    description="Without the gate. The channel is pinned until somebody releases it.",
    operation_class=RollbackOperation,
    responses=promotion_refusals(400, 401, 403, 404, 408, 409, 413, 429, 503),
    security=KEY_NEEDED,
)
async def post_rollback(request: _Request, service: Service, name: Name) -> ChangeAnswer:
    grant = await _authorize(request, service, "promote")
    asked = await _body(request, RollbackRequest)
    wanted = Rollback(
        tenant=grant.tenant,
        channel=name,
        reason=asked.reason,
        actor=_actor(grant),
        to=asked.to,
        expect=_expected(asked.expect),
        expect_version=asked.expect_version,
    )
    return await _change(service, roll_back, wanted)


@post(
    "/v1/channels/{name:str}/release",
    status_code=200,
    summary="Let a channel be promoted again after a rollback",
    operation_class=ReleaseOperation,
    responses=registry_refusals(400, 401, 403, 404, 408, 409, 413, 429, 503),
    security=KEY_NEEDED,
)
async def post_release(request: _Request, service: Service, name: Name) -> ChangeAnswer:
    grant = await _authorize(request, service, "promote")
    asked = await _body(request, ReleaseRequest)
    release = partial(
        promotion.release,
        tenant=grant.tenant,
        channel=name,
        reason=asked.reason,
        actor=_actor(grant),
    )
    return await _change(service, release)


REGISTRY_ROUTES = [
    post_checkpoint,
    get_checkpoints,
    get_checkpoint,
    get_channels,
    get_channel,
    get_history,
    get_assignment,
    get_replicas,
    post_replica,
    post_promote,
    post_rollback,
    post_release,
]


async def _authorize(request: _Request, service: Service, *roles: Role) -> Grant:
    return await service.authorizer.authorize(request.headers.get("authorization"), *roles)


def _actor(grant: Grant) -> str:
    """Who did it, in the history: the key as `penstock keys list` shows it."""
    return f"key {grant.key}"


def _may_look(grant: Grant, uri: str) -> bool:
    """A digest tells of a file's content, and an address may name a service that would then be
    called with this server's rights. Of its own files, and by such an address, only an admin has
    it look."""
    try:
        address = urlsplit(uri)
    except ValueError:
        return True  # it is refused before anybody looks
    own = address.scheme in ("", "file") or "://" not in uri
    return can_read_files(uri) and (grant.role == "admin" or not (own or address.query))


async def _body(request: _Request, kind: type[Asked]) -> Asked:
    body = await read_body(request, _BODY_BYTES_MAX, hold=lambda _size: None)
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="The request body", why=str(error)) from None


async def _call(service: Service, work: Any, *arguments: Any) -> Any:
    with cut_off_when_cancelled():
        return await service.registry.call(partial(work, service.lake.database, *arguments))


async def _change(service: Service, make: Any, *arguments: Any) -> ChangeAnswer:
    def work(database: Database) -> Notice:
        change: Change = make(database, *arguments)
        place = (change.tenant, change.channel, change.version - 1)
        return notices_after(database, *place, up_to=change.version)[0]

    return change_answer(await _call(service, work))


def _promote(database: Database, wanted: Promotion) -> Change:
    from penstock.channels.judgement import judge

    def judged(channel: str, checkpoint: str) -> Verdict:
        share, place = wanted.share, (wanted.tenant, channel, checkpoint)
        return judge(database, *place, full=share is None, share=share)

    return promotion.promote(database, wanted, judged)


def _expected(asked: str | UnsetType | None) -> Expected:
    return ANY if asked is UNSET else asked


def _history(database: Database, tenant: str, name: str, after: int) -> tuple[int, list[Notice]]:
    newest = channel_state(database, tenant, name).version
    return newest, notices_after(database, tenant, name, after, up_to=newest)


def _matches(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in tags or tag in tags


async def _gone(request: _Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
