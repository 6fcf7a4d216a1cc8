"""What can be asked of promotions: to make one, to take one back, what the gate says of it, and
where a checkpoint came from and serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from penstock.backends.terminal.output import time_text
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.channels.change import ChangeAnswer
from penstock.registry.channels.channel import ANY, Expected, ServingChannel, serving_channels
from penstock.registry.channels.endpoints import ChannelName, committed
from penstock.registry.checkpoints.endpoints import CheckpointName, CheckpointRequest, Reason
from penstock.registry.checkpoints.lineage import Lineage
from penstock.registry.gate.frontier import FrontierPicture, frontier_picture

if TYPE_CHECKING:
    from penstock.backends.database.engine import Database
    from penstock.backends.http.problems import Problem

# Answers


@dataclass(frozen=True, kw_only=True)
class RollbackAnswer(ChangeAnswer):
    """`left` is the checkpoint that the channel was at, `left_canary` its canary."""

    left: str | None
    left_canary: str | None


class ApprovalAnswer(msgspec.Struct):
    channel: str
    checkpoint: str
    actor: str
    reason: str
    at: str


class VerdictAnswer(msgspec.Struct):
    outcome: str
    id: str
    verdict: dict[str, Any]
    channel: str
    checkpoint: str
    pictures: list[FrontierPicture]


@dataclass(frozen=True, kw_only=True)
class LineageAnswer(Lineage):
    """`parents` begin with the nearest; `shards` and `marks` include those of the parents."""

    channels: list[ServingChannel]


# Questions


_SHARE = Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})


class PromoteRequest(Request):
    """`expect` is the checkpoint that the channel is at, by name or digest, and null where it has
    none; without it, whichever it is at when the call begins. `share` makes a canary."""

    name: ChannelName
    checkpoint: CheckpointName
    reason: Reason
    expect: Expected = ANY
    expect_version: int | None = None
    share: Annotated[float, _SHARE] | None = None
    override: bool = False


class ApproveRequest(Request):
    """That a checkpoint, by its name or digest, may serve on the channel."""

    name: ChannelName
    checkpoint: CheckpointName
    reason: Reason


class RollbackRequest(Request):
    """Without `to`, to the last good one; `expect` as in a promotion."""

    name: ChannelName
    reason: Reason
    to: str | None = None
    expect: Expected = ANY
    expect_version: int | None = None


class VerdictRequest(Request):
    """`canary` asks for a part of the traffic: live metrics come later."""

    name: ChannelName
    checkpoint: CheckpointName
    canary: bool = False


# Work


def _promote(lake: Lake, caller: Caller, request: PromoteRequest) -> ChangeAnswer:
    from penstock.registry.channels.promotion import Promotion, gate_judge, promote

    if request.override:
        _check_override(lake.database, caller)
    fields = msgspec.structs.asdict(request)
    channel = fields.pop("name")
    order = Promotion(tenant=caller.tenant, channel=channel, actor=caller.actor, **fields)
    judge = gate_judge(lake.database, caller.tenant, request.share)
    return committed(lake.database, promote(lake.database, order, judge))


def _approve(lake: Lake, caller: Caller, request: ApproveRequest) -> ApprovalAnswer:
    from penstock.registry.gate.evidence import approve

    place = {"channel": request.name, "checkpoint": request.checkpoint}
    order = place | {"actor": caller.actor, "reason": request.reason}
    given = approve(lake.database, tenant=caller.tenant, **order)
    facts = {"actor": given.actor, "reason": given.reason, "at": time_text(given.at)}
    return ApprovalAnswer(**place, **facts)


def _roll_back(lake: Lake, caller: Caller, request: RollbackRequest) -> RollbackAnswer:
    from penstock.registry.channels.history import channel_changes
    from penstock.registry.channels.promotion import Rollback, roll_back

    fields = msgspec.structs.asdict(request)
    channel = fields.pop("name")
    order = Rollback(tenant=caller.tenant, channel=channel, actor=caller.actor, **fields)
    change = roll_back(lake.database, order)
    place = lake.database, caller.tenant, channel
    [before] = channel_changes(*place, after=change.version - 2, limit=1)
    answer = vars(committed(lake.database, change))
    return RollbackAnswer(**answer, left=before.checkpoint, left_canary=before.canary)


def _judge(lake: Lake, caller: Caller, request: VerdictRequest) -> VerdictAnswer:
    from penstock.registry.channels.promotion import judge

    place = lake.database, caller.tenant
    verdict = judge(*place, request.name, request.checkpoint, full=not request.canary)
    marks = {verdict.checkpoint: "candidate"}
    if incumbent := verdict.document.get("incumbent"):
        marks[incumbent["name"]] = "incumbent"
    suites: dict[str, Any] = verdict.document.get("suites") or {}
    pictures = [
        picture
        for name, suite in suites.items()
        if suite["version"] is not None
        and (picture := frontier_picture(*place, name, suite["version"], marks))
    ]
    return VerdictAnswer(
        outcome=verdict.outcome,
        id=verdict.id,
        verdict=dict(verdict.document),
        channel=verdict.channel,
        checkpoint=verdict.checkpoint,
        pictures=pictures,
    )


def _trace(lake: Lake, caller: Caller, request: CheckpointRequest) -> LineageAnswer:
    from penstock.registry.checkpoints.lineage import lineage

    line = lineage(lake.database, caller.tenant, request.name)
    channels = serving_channels(lake.database, caller.tenant, line.checkpoint.name)
    return LineageAnswer(**vars(line), channels=channels)


def _check_override(database: "Database", caller: Caller) -> None:
    """An override takes an admin key of the tenant, also on the machine of the lake. While there is
    no key at all, whoever has the database is the admin. Raises RoleMissing, OverrideRefused."""
    from penstock.access.errors import KeyRefused, RoleMissing
    from penstock.access.keys import KeyRing, list_keys
    from penstock.core.clock import SystemClock
    from penstock.registry.channels.change import OverrideRefused

    if not caller.is_admin:
        raise RoleMissing(role="admin")
    if not caller.is_local or not list_keys(database):
        return
    if not caller.key:
        raise OverrideRefused(why="name one with --key or PENSTOCK_KEY")
    ring = KeyRing(database, SystemClock())
    ring.refresh()
    try:
        grant = ring.grant(f"Bearer {caller.key}")
    except KeyRefused as error:
        raise OverrideRefused(why="the key is not known here, or was revoked") from error
    if grant.role != "admin" or grant.tenant != caller.tenant:
        raise OverrideRefused(why=f"the key is {grant.role} of the tenant {grant.tenant}")


# Calls


def _change_problems() -> "Mapping[int, type[Problem]]":
    from penstock.registry.channels.routes import ConflictProblem, GateProblem

    return {409: ConflictProblem, 422: GateProblem}


PROMOTE = Endpoint(
    "POST /v1/channels/{name}/promote",
    _promote,
    ("promote",),
    "Promote a checkpoint",
    description="Through the gate, if the channel is where it is expected.",
    refused={422: "The gate does not say PASS, and `verdict` is what it says."},
    problems=_change_problems,
)
APPROVE = Endpoint(
    "POST /v1/channels/{name}/approve",
    _approve,
    ("promote",),
    "Approve of a checkpoint, where the channel's policy asks for people",
)
ROLL_BACK = Endpoint(
    "POST /v1/channels/{name}/rollback",
    _roll_back,
    ("promote",),
    "Roll a channel back",
    description="Without the gate. The channel is pinned until somebody releases it.",
    refused={409: None},
    problems=lambda: {409: _change_problems()[409]},
)
ASK_GATE = Endpoint(
    "GET /v1/channels/{name}/verdict",
    _judge,
    ("read", "promote"),
    "What the gate says of a checkpoint for a channel; nothing is changed",
)
TRACE_CHECKPOINT = Endpoint(
    "GET /v1/checkpoints/{name}/lineage",
    _trace,
    ("read", "promote"),
    "What a checkpoint came from, and what came of it",
    refused={409: None},
)

ENDPOINTS: Endpoints = [PROMOTE, APPROVE, ROLL_BACK, ASK_GATE, TRACE_CHECKPOINT]
