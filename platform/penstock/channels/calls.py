"""What can be asked of channels, of the gate, and of what promotes and rolls back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from penstock.channels.change import Change, Misfit, change_document
from penstock.channels.channel import (
    ANY,
    ChangeAnswer,
    ChannelAnswer,
    Expected,
    ServingChannel,
    channel_answer,
    channel_state,
    list_channels,
    policy_of,
    serving_channels,
)
from penstock.checkpoints.calls import (
    CheckpointAnswer,
    CheckpointQuestion,
    MoveAnswer,
    checkpoint_answer,
    move_answer,
    refused_for,
)
from penstock.checkpoints.lineage import TrainingShard
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.terminal.output import facts

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.gate.frontier import FrontierPicture
    from penstock.http.problems import Problem

# Answers


class ChannelsAnswer(msgspec.Struct):
    channels: list[ChannelAnswer]


class RollbackAnswer(ChangeAnswer, kw_only=True):
    """`left` is the checkpoint that the channel was at, `left_canary` its canary."""

    left: str | None
    left_canary: str | None


class PolicyAnswer(msgspec.Struct):
    """`policy` is the digest of the text; both are null where the channel has no policy."""

    channel: str
    policy: str | None
    text: str | None


class PolicyChangeAnswer(ChangeAnswer, kw_only=True):
    """`unknown_suites` are those that the policy names and nobody has registered yet."""

    unknown_suites: list[str]
    known_suites: list[str]


class AuditedChange(msgspec.Struct):
    """A change as the history holds it, and the outcome of its verdict."""

    tenant: str
    version: int
    checkpoint: str | None
    digest: str | None
    previous: str | None
    canary: str | None
    canary_share: float | None
    pinned: bool
    policy: str | None
    hash: str
    channel: str
    action: str
    verdict: str | None
    overridden: bool
    actor: str
    reason: str
    at: str
    previous_hash: str
    outcome: str | None


class AuditAnswer(msgspec.Struct):
    """The whole history is checked: `misfit` is the first version that is not as it was written,
    `unbound` those whose evidence nobody can check. `before` is the change before those that are
    shown, `left_out` the tasks that policies left out, by verdict."""

    channel: str
    changes: list[AuditedChange]
    before: AuditedChange | None
    misfit: Misfit | None
    unbound: list[int]
    left_out: dict[str, dict[str, list[str]]]


class PicturePoint(msgspec.Struct):
    checkpoint: str
    quality: float
    cost: float


class PictureAnswer(msgspec.Struct):
    """Quality against cost at a suite."""

    suite: str
    cost: str
    points: list[PicturePoint]
    marks: dict[str, str]


class VerdictAnswer(msgspec.Struct):
    outcome: str
    id: str
    verdict: dict[str, Any]
    channel: str
    checkpoint: str
    pictures: list[PictureAnswer]


class LineageMark(msgspec.Struct):
    checkpoint: str
    shard: str
    session_id: str
    reason: str
    marked_at: str


class LineageAnswer(msgspec.Struct):
    """`parents` begin with the nearest; `shards` and `marks` include those of the parents."""

    checkpoint: CheckpointAnswer
    parents: list[CheckpointAnswer]
    children: list[str]
    shards: list[TrainingShard]
    marks: list[LineageMark]
    channels: list[ServingChannel]
    moves: list[MoveAnswer]


# Questions


class ChannelsQuestion(Question):
    """All of them."""


class ChannelQuestion(Question):
    name: str


class AuditQuestion(Question):
    """`last` shows so many changes, the newest; all without it."""

    name: str
    last: Annotated[int, Meta(ge=1, le=2**31)] | None = None


class PromoteQuestion(Question):
    """`expect` is the checkpoint that the channel is at, by name or digest, and null where it has
    none; without it, whichever it is at when the call begins. `share` makes a canary."""

    name: str
    checkpoint: str
    reason: str
    expect: Expected = ANY
    expect_version: int | None = None
    share: (
        Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})]
        | None
    ) = None
    override: bool = False


class RollbackQuestion(Question):
    """Without `to`, to the last good one; `expect` as in a promotion."""

    name: str
    reason: str
    to: str | None = None
    expect: Expected = ANY
    expect_version: int | None = None


class ReleaseQuestion(Question):
    name: str
    reason: str


class SetPolicyQuestion(Question):
    name: str
    text: str
    reason: str


class VerdictQuestion(Question):
    """`canary` asks for a part of the traffic: live metrics come later."""

    name: str
    checkpoint: str
    canary: bool = False


# Work


def _list(lake: Lake, caller: Caller, _question: ChannelsQuestion) -> ChannelsAnswer:
    channels = list_channels(lake.database, caller.tenant)
    return ChannelsAnswer([channel_answer(channel) for channel in channels])


def _show(lake: Lake, caller: Caller, question: ChannelQuestion) -> ChannelAnswer:
    return channel_answer(channel_state(lake.database, caller.tenant, question.name))


def _audit(lake: Lake, caller: Caller, question: AuditQuestion) -> AuditAnswer:
    from penstock.channels import history

    of_channel = lake.database, caller.tenant, question.name
    # One more, to tell of each what was before it.
    limit = question.last + 1 if question.last is not None else None
    changes = history.channel_changes(*of_channel, limit=limit, latest=True)
    outcomes = history.verdict_outcomes(*of_channel)
    answers = [
        msgspec.convert(
            change_document(change) | {"outcome": outcomes.get(change.verdict or "")},
            AuditedChange,
        )
        for change in changes
    ]
    shown = answers[-question.last :] if question.last is not None else answers
    return AuditAnswer(
        channel=question.name,
        changes=shown,
        before=answers[-len(shown) - 1] if len(answers) > len(shown) else None,
        misfit=history.verify_history(*of_channel),
        unbound=history.unbound_versions(*of_channel),
        left_out=history.left_out_tasks(*of_channel),
    )


def _show_policy(lake: Lake, caller: Caller, question: ChannelQuestion) -> PolicyAnswer:
    channel = channel_state(lake.database, caller.tenant, question.name)
    return PolicyAnswer(question.name, channel.policy, policy_of(lake.database, channel))


def _set_policy(lake: Lake, caller: Caller, question: SetPolicyQuestion) -> PolicyChangeAnswer:
    from penstock.channels.promotion import set_policy
    from penstock.checkpoints.suites import suite_names
    from penstock.gate.policy import parse

    known = suite_names(lake.database, caller.tenant)
    unknown = sorted(set(parse(question.text, "the policy").suites) - set(known))
    order = {"text": question.text, "reason": question.reason, "actor": caller.actor}
    change = set_policy(lake.database, tenant=caller.tenant, channel=question.name, **order)
    fields = msgspec.structs.asdict(committed(lake.database, change))
    return PolicyChangeAnswer(**fields, unknown_suites=unknown, known_suites=list(known))


def _promote(lake: Lake, caller: Caller, question: PromoteQuestion) -> ChangeAnswer:
    from penstock.channels.channel_verdict import gate_judge
    from penstock.channels.override import check_override
    from penstock.channels.promotion import Promotion, promote

    if question.override:
        check_override(lake.database, caller)
    fields = msgspec.structs.asdict(question)
    channel = fields.pop("name")
    order = Promotion(tenant=caller.tenant, channel=channel, actor=caller.actor, **fields)
    judge = gate_judge(lake.database, caller.tenant, question.share)
    return committed(lake.database, promote(lake.database, order, judge))


def _roll_back(lake: Lake, caller: Caller, question: RollbackQuestion) -> RollbackAnswer:
    from penstock.channels.history import channel_changes
    from penstock.channels.rollback import Rollback, roll_back

    fields = msgspec.structs.asdict(question)
    channel = fields.pop("name")
    order = Rollback(tenant=caller.tenant, channel=channel, actor=caller.actor, **fields)
    change = roll_back(lake.database, order)
    place = lake.database, caller.tenant, channel
    [before] = channel_changes(*place, after=change.version - 2, limit=1)
    answer = msgspec.structs.asdict(committed(lake.database, change))
    return RollbackAnswer(**answer, left=before.checkpoint, left_canary=before.canary)


def _release(lake: Lake, caller: Caller, question: ReleaseQuestion) -> ChangeAnswer:
    from penstock.channels.promotion import release

    order = {"reason": question.reason, "actor": caller.actor}
    change = release(lake.database, tenant=caller.tenant, channel=question.name, **order)
    return committed(lake.database, change)


def committed(database: "Database", change: Change) -> ChangeAnswer:
    """A change as everybody is told of it."""
    from penstock.channels.notices import notices_after

    place = (change.tenant, change.channel, change.version - 1)
    [notice] = notices_after(database, *place, up_to=change.version)
    return msgspec.json.decode(notice.body, type=ChangeAnswer)


def _judge(lake: Lake, caller: Caller, question: VerdictQuestion) -> VerdictAnswer:
    from penstock.channels.channel_verdict import judge
    from penstock.gate.frontier import frontier_picture

    place = lake.database, caller.tenant
    verdict = judge(*place, question.name, question.checkpoint, full=not question.canary)
    marks = {verdict.checkpoint: "candidate"}
    if incumbent := verdict.document.get("incumbent"):
        marks[incumbent["name"]] = "incumbent"
    suites: dict[str, Any] = verdict.document.get("suites") or {}
    pictures = [
        _picture_answer(picture)
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


def _picture_answer(picture: "FrontierPicture") -> PictureAnswer:
    return msgspec.convert(asdict(picture), PictureAnswer)


def _trace(lake: Lake, caller: Caller, question: CheckpointQuestion) -> LineageAnswer:
    from penstock.checkpoints.lineage import lineage

    line = lineage(lake.database, caller.tenant, question.name)
    return LineageAnswer(
        checkpoint=checkpoint_answer(line.checkpoint),
        parents=[checkpoint_answer(parent) for parent in line.parents],
        children=list(line.children),
        shards=list(line.shards),
        marks=[msgspec.convert(facts(mark), LineageMark) for mark in line.marks],
        channels=serving_channels(lake.database, caller.tenant, line.checkpoint.name),
        moves=[move_answer(move) for move in line.moves],
    )


# Calls


def _change_problems() -> "Mapping[int, type[Problem]]":
    from penstock.channels.problems import ConflictProblem, GateProblem

    return {409: ConflictProblem, 422: GateProblem}


LIST_CHANNELS = Call(
    path="/v1/channels",
    question=ChannelsQuestion,
    answer=ChannelsAnswer,
    work=_list,
    roles=("read",),
    summary="All channels",
    refused=refused_for(),
)
#: Its route can wait for a change: see `channels/routes.py`.
SHOW_CHANNEL = Call(
    path="/v1/channels/{name}",
    question=ChannelQuestion,
    answer=ChannelAnswer,
    work=_show,
    roles=("read", "serve"),
    summary="A channel, or its next change",
)
AUDIT_CHANNEL = Call(
    path="/v1/channels/{name}/audit",
    question=AuditQuestion,
    answer=AuditAnswer,
    work=_audit,
    roles=("read",),
    summary="The history of a channel, checked",
    refused=refused_for(404),
)
SHOW_POLICY = Call(
    path="/v1/channels/{name}/policy",
    question=ChannelQuestion,
    answer=PolicyAnswer,
    work=_show_policy,
    roles=("read",),
    summary="What the gate demands for a channel",
    refused=refused_for(404) | {500: "The policy is not there as it was written."},
)
SET_POLICY = Call(
    method="POST",
    path="/v1/channels/{name}/policy",
    question=SetPolicyQuestion,
    answer=PolicyChangeAnswer,
    work=_set_policy,
    roles=(),
    summary="Give a channel a policy; one that is not there yet is made",
    refused=refused_for(),
)
PROMOTE = Call(
    method="POST",
    path="/v1/channels/{name}/promote",
    question=PromoteQuestion,
    answer=ChangeAnswer,
    work=_promote,
    roles=("promote",),
    summary="Promote a checkpoint",
    description="Through the gate, if the channel is where it is expected.",
    refused=refused_for(404, 409, 422),
    problems=_change_problems,
)
ROLL_BACK = Call(
    method="POST",
    path="/v1/channels/{name}/rollback",
    question=RollbackQuestion,
    answer=RollbackAnswer,
    work=_roll_back,
    roles=("promote",),
    summary="Roll a channel back",
    description="Without the gate. The channel is pinned until somebody releases it.",
    refused=refused_for(404, 409),
    problems=lambda: {409: _change_problems()[409]},
)
RELEASE = Call(
    method="POST",
    path="/v1/channels/{name}/release",
    question=ReleaseQuestion,
    answer=ChangeAnswer,
    work=_release,
    roles=("promote",),
    summary="Let a channel be promoted again after a rollback",
    refused=refused_for(404, 409),
)
ASK_GATE = Call(
    path="/v1/channels/{name}/verdict",
    question=VerdictQuestion,
    answer=VerdictAnswer,
    work=_judge,
    roles=("read", "promote"),
    summary="What the gate says of a checkpoint for a channel; nothing is changed",
    refused=refused_for(404),
)
TRACE_CHECKPOINT = Call(
    path="/v1/checkpoints/{name}/lineage",
    question=CheckpointQuestion,
    answer=LineageAnswer,
    work=_trace,
    roles=("read",),
    summary="What a checkpoint came from, and what came of it",
    refused=refused_for(404, 409),
)

CALLS = [
    LIST_CHANNELS,
    AUDIT_CHANNEL,
    SHOW_POLICY,
    SET_POLICY,
    PROMOTE,
    ROLL_BACK,
    RELEASE,
    ASK_GATE,
    TRACE_CHECKPOINT,
]
