"""The endpoints of promotions: promote, roll back, approve, the gate's verdict, and lineage."""

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

if TYPE_CHECKING:
    from penstock.backends.database.engine import Database
    from penstock.backends.http.problems import Problem

# Answers


@dataclass(frozen=True, kw_only=True)
class PromotionAnswer(ChangeAnswer):
    """`signed`: whether a key signs the evidence, so that whoever writes to the database cannot
    forge it."""

    signed: bool


@dataclass(frozen=True, kw_only=True)
class RollbackAnswer(ChangeAnswer):
    """`left` is the former checkpoint, `left_canary` its canary."""

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


@dataclass(frozen=True, kw_only=True)
class LineageAnswer(Lineage):
    """`parents` start with the nearest; `shards` and `marks` include the parents'."""

    channels: list[ServingChannel]


# Questions


_SHARE = Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})


class PromoteRequest(Request):
    """`expect` is the checkpoint that the channel must point at: a name, a digest, or null for
    none. Without it, any. `share` makes a canary."""

    name: ChannelName
    checkpoint: CheckpointName
    reason: Reason
    expect: Expected = ANY
    expect_version: int | None = None
    share: Annotated[float, _SHARE] | None = None
    override: bool = False


class ApproveRequest(Request):
    """An approval of a checkpoint for a channel."""

    name: ChannelName
    checkpoint: CheckpointName
    reason: Reason


class RollbackRequest(Request):
    """`to` defaults to the last good checkpoint; `expect` as in a promotion."""

    name: ChannelName
    reason: Reason
    to: str | None = None
    expect: Expected = ANY
    expect_version: int | None = None


class VerdictRequest(Request):
    """`canary` judges for a share of the traffic, without live metrics."""

    name: ChannelName
    checkpoint: CheckpointName
    canary: bool = False


# Work


def _promote(lake: Lake, caller: Caller, request: PromoteRequest) -> PromotionAnswer:
    from penstock.registry.channels.promotion import Promotion, gate_judge, promote

    if request.override:
        _check_override(lake.database, caller)
    fields = msgspec.structs.asdict(request)
    channel = fields.pop("name")
    order = Promotion(tenant=caller.tenant, channel=channel, actor=caller.actor, **fields)
    judge = gate_judge(lake.database, caller.tenant, request.share)
    answer = committed(lake.database, promote(lake.database, order, judge))
    return PromotionAnswer(**vars(answer), signed=lake.database.signs)


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
    return VerdictAnswer(
        outcome=verdict.outcome,
        id=verdict.id,
        verdict=dict(verdict.document),
        channel=verdict.channel,
        checkpoint=verdict.checkpoint,
    )


def _trace(lake: Lake, caller: Caller, request: CheckpointRequest) -> LineageAnswer:
    from penstock.registry.checkpoints.lineage import lineage

    line = lineage(lake.database, caller.tenant, request.name)
    channels = serving_channels(lake.database, caller.tenant, line.checkpoint.name)
    return LineageAnswer(**vars(line), channels=channels)


def _check_override(database: "Database", caller: Caller) -> None:
    """Check that an admin key of the tenant allows an override, even on the lake's machine. Without
    any key, whoever has the database is admin. Raises RoleMissing, OverrideRefused."""
    from penstock.access.keys import KeyRefused, KeyRing, RoleMissing, list_keys
    from penstock.core.clock import SystemClock
    from penstock.registry.channels.change import OverrideRefused

    if not caller.is_admin:
        raise RoleMissing(role="admin")
    if not caller.is_local or not list_keys(database):
        return
    if not caller.key:
        raise OverrideRefused(why="pass an admin key with --key or PENSTOCK_KEY")
    ring = KeyRing(database, SystemClock())
    ring.refresh()
    try:
        grant = ring.grant(f"Bearer {caller.key}")
    except KeyRefused as error:
        raise OverrideRefused(why="the key is unknown or was revoked") from error
    if grant.role != "admin" or grant.tenant != caller.tenant:
        raise OverrideRefused(why=f"the key has the role {grant.role} of the tenant {grant.tenant}")


# Calls


def _change_problems() -> "Mapping[int, type[Problem]]":
    from penstock.registry.channels.routes import ConflictProblem, GateProblem

    return {409: ConflictProblem, 422: GateProblem}


PROMOTE = Endpoint(
    "POST /v1/channels/{name}/promote",
    _promote,
    ("promote",),
    "Promote a checkpoint",
    description="Asks the gate. Fails if the channel is not where it is expected.",
    refused={422: "The gate does not say PASS; `verdict` is its verdict."},
    problems=_change_problems,
)
APPROVE = Endpoint(
    "POST /v1/channels/{name}/approve",
    _approve,
    ("promote",),
    "Approve a checkpoint, if the channel's policy requires approvals",
)
ROLL_BACK = Endpoint(
    "POST /v1/channels/{name}/rollback",
    _roll_back,
    ("promote",),
    "Roll a channel back",
    description="The gate is not asked. The channel stays pinned until somebody releases it.",
    refused={409: None},
    problems=lambda: {409: _change_problems()[409]},
)
ASK_GATE = Endpoint(
    "GET /v1/channels/{name}/verdict",
    _judge,
    ("read", "promote"),
    "The gate's verdict on a checkpoint for a channel; changes nothing",
)
TRACE_CHECKPOINT = Endpoint(
    "GET /v1/checkpoints/{name}/lineage",
    _trace,
    ("read", "promote"),
    "The lineage of a checkpoint",
    refused={409: None},
)

ENDPOINTS: Endpoints = [PROMOTE, APPROVE, ROLL_BACK, ASK_GATE, TRACE_CHECKPOINT]
