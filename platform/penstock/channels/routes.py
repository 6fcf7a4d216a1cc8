"""Channels over HTTP, as docs/http.md and docs/delivery.md describe them."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from penstock.channels.channel import (
    ChangeAnswer,
    ChannelAnswer,
    assign,
    channel_answer,
    channel_state,
)
from penstock.channels.channel_watcher import ChannelWatcher
from penstock.channels.notices import Notice, notices_after
from penstock.checkpoints.routes import (
    HttpRequest,
    Registry,
    registry_get,
)
from penstock.database.engine import Database
from penstock.errors import InvalidInput
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
    """Where a compare-and-swap found something else: which checkpoint, at which version."""

    expected: str | None = None
    found: str | None = None
    version: int | None = None


class GateProblem(Problem, kw_only=True):
    """Where the gate did not say PASS: its document, whole."""

    outcome: str | None = None
    verdict: dict[str, Any] | None = None
    verdict_id: str | None = None


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
    grant = await registry.authorize(request, "read", "serve", "promote")
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
    grant = await registry.authorize(request, "read", "promote")

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


ROUTES = [get_channel, get_history, get_assignment]


def _change_answer(notice: Notice) -> ChangeAnswer:
    return msgspec.json.decode(notice.body, type=ChangeAnswer)


async def _disconnect(request: HttpRequest) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
