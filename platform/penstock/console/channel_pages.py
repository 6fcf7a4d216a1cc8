"""Pages of channels: where each points and how it got there, what the gate says of a checkpoint,
and promoting, rolling back and releasing with a reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.channels.calls import (
    AUDIT_CHANNEL,
    LIST_CHANNELS,
    SET_POLICY,
    SHOW_CHANNEL,
    SHOW_POLICY,
    AuditAnswer,
    AuditedChange,
    AuditQuestion,
    ChannelQuestion,
    ChannelsQuestion,
    SetPolicyQuestion,
)
from penstock.channels.change import Change, PromotionConflict, change_marks, describe_change
from penstock.channels.promotion import HistoryStep, rollback_candidates
from penstock.channels.promotion_calls import (
    APPROVE,
    ASK_GATE,
    PROMOTE,
    RELEASE,
    ROLL_BACK,
    ApproveQuestion,
    PromoteQuestion,
    ReleaseQuestion,
    RollbackQuestion,
    VerdictQuestion,
)
from penstock.checkpoints.calls import LIST_CHECKPOINTS, CheckpointsQuestion
from penstock.console.figures import part, url
from penstock.console.page import ConsolePage, Content, Redirect, Refusal
from penstock.console.verdict_charts import drawn_parts, frontier_chart, side_rows
from penstock.console.visitor import Visitor
from penstock.fleet.calls import SHOW_FLEET, FleetQuestion
from penstock.gate.frontier import FrontierPicture, FrontierPoint
from penstock.gate.verdict import GateRefused
from penstock.lake.desk import Question

#: How many changes of a history are shown at once.
_CHANGES_SHOWN = 50
#: How many replicas, and how many checkpoints may be chosen from, the newest first.
_REPLICAS_SHOWN, _CHOICES_MAX = 50, 200
_CHOSEN_STATES = ("registered", "serving", "retired", "rolled_back")

Share = Annotated[float, Meta(ge=0, le=1)]


class PromotionForm(Question):
    """`version` is the channel's when the page was made: if somebody changed it since, nothing
    happens."""

    name: str
    checkpoint: str
    version: int
    reason: str
    share: Share | None = None


class RollbackForm(Question):
    name: str
    version: int
    reason: str
    to: str | None = None


class HistoryQuestion(Question):
    name: str
    cursor: str | None = None


@dataclass(frozen=True)
class HistoryRow:
    change: AuditedChange
    text: str
    marks: str


def channel_path(name: str) -> str:
    return f"/channels/{part(name)}"


def verdict_path(channel: str, checkpoint: str) -> str:
    return url(f"{channel_path(channel)}/verdict", checkpoint=checkpoint)


# Where channels point


def _list(visitor: Visitor, _question: ChannelsQuestion) -> Content:
    return {"channels": visitor.ask(LIST_CHANNELS, ChannelsQuestion()).channels}


def _show(visitor: Visitor, question: HistoryQuestion) -> Content:
    name = question.name
    channel = visitor.ask(SHOW_CHANNEL, ChannelQuestion(name=name))
    audit = visitor.ask(
        AUDIT_CHANNEL, AuditQuestion(name=name, last=_CHANGES_SHOWN, cursor=question.cursor)
    )
    fleet = visitor.ask(SHOW_FLEET, FleetQuestion(name=name, limit=_REPLICAS_SHOWN))
    changes = audit.changes if question.cursor is None else []
    return {
        "channel": channel,
        "policy": visitor.ask(SHOW_POLICY, ChannelQuestion(name=name)),
        "audit": audit,
        "rows": list(reversed(list(_history_rows(audit)))),
        "fleet": fleet,
        "choices": _choices(visitor, channel.checkpoint),
        "targets": _targets(changes),
        "may_promote": visitor.may_ask(PROMOTE),
        "may_set_policy": visitor.may_ask(SET_POLICY),
    }


def _history_rows(audit: AuditAnswer) -> Iterator[HistoryRow]:
    for before, entry in zip([audit.before, *audit.changes], audit.changes, strict=False):
        change = _change_of(entry)
        text = describe_change(change, _change_of(before) if before else None)
        yield HistoryRow(entry, text, change_marks(change))


def _change_of(entry: AuditedChange) -> Change:
    return msgspec.convert(msgspec.structs.asdict(entry) | {"at": 0}, Change)


def _choices(visitor: Visitor, present: str | None) -> list[str]:
    """The checkpoints that may be promoted, the newest first."""
    if not visitor.may_ask(LIST_CHECKPOINTS):
        return []
    known = visitor.ask(LIST_CHECKPOINTS, CheckpointsQuestion()).checkpoints
    usable = [each.name for each in known if each.state in _CHOSEN_STATES and each.name != present]
    return usable[::-1][:_CHOICES_MAX]


def _targets(changes: Sequence[AuditedChange]) -> list[str]:
    """What the channel may be rolled back to, the best first."""
    return rollback_candidates([HistoryStep(each.action, each.checkpoint) for each in changes])


# What the gate says


def _judge(visitor: Visitor, question: VerdictQuestion) -> Content:
    verdict = visitor.ask(ASK_GATE, question)
    drawn = []
    for each in verdict.pictures:
        points = [FrontierPoint(at.checkpoint, at.quality, at.cost) for at in each.points]
        drawn.append(frontier_chart(FrontierPicture(each.suite, each.cost, points, each.marks)))
    facts = {"outcome": verdict.outcome, "id": verdict.id, "pictures": drawn}
    return _verdict_content(visitor, question.name, verdict.verdict) | facts


def _verdict_content(visitor: Visitor, name: str, document: dict[str, Any]) -> dict[str, Any]:
    incumbent = document.get("incumbent")
    return {
        "channel": visitor.ask(SHOW_CHANNEL, ChannelQuestion(name=name)),
        "checkpoint": document["candidate"]["name"],
        "incumbent": incumbent["name"] if incumbent else None,
        "document": document,
        "parts": drawn_parts(document),
        "sides": list(side_rows(document)),
        "may_promote": visitor.may_ask(PROMOTE),
        "problem": "",
    }


# What changes a channel


def _promote(visitor: Visitor, form: PromotionForm) -> Redirect | Refusal:
    name = form.name
    order = PromoteQuestion(
        name=name,
        checkpoint=form.checkpoint,
        reason=form.reason,
        expect_version=form.version,
        share=form.share,
    )
    try:
        change = visitor.ask(PROMOTE, order)
    except GateRefused as refused:
        fields = refused.http_fields
        content = _verdict_content(visitor, name, fields["verdict"])
        content |= {"outcome": fields["outcome"], "id": fields["verdict_id"], "pictures": []}
        return Refusal(content | {"problem": _sentence(refused)}, refused.http_status)
    except PromotionConflict as conflict:
        asked = VerdictQuestion(name=name, checkpoint=form.checkpoint, canary=bool(form.share))
        content = dict(_judge(visitor, asked)) | {"problem": _sentence(conflict)}
        return Refusal(content, conflict.http_status)
    share = f" as a canary on {100 * form.share:g} % of the traffic" if form.share else ""
    told = f"{name} is at version {change.version}: {form.checkpoint} was promoted{share}."
    return Redirect(channel_path(name), told)


def _approve(visitor: Visitor, form: ApproveQuestion) -> Redirect:
    given = visitor.ask(APPROVE, form)
    told = f"{given.actor} approves of {given.checkpoint} for {given.channel}."
    return Redirect(verdict_path(form.name, form.checkpoint), told)


def _roll_back(visitor: Visitor, form: RollbackForm) -> Redirect:
    order = RollbackQuestion(
        name=form.name, reason=form.reason, to=form.to, expect_version=form.version
    )
    change = visitor.ask(ROLL_BACK, order)
    told = f"{form.name} is back at {change.checkpoint}, and pinned until somebody releases it."
    return Redirect(channel_path(form.name), told)


def _release(visitor: Visitor, form: ReleaseQuestion) -> Redirect:
    visitor.ask(RELEASE, form)
    return Redirect(channel_path(form.name), f"{form.name} can be promoted again.")


def _set_policy(visitor: Visitor, form: SetPolicyQuestion) -> Redirect:
    change = visitor.ask(SET_POLICY, form)
    told = f"{form.name} has a new policy at version {change.version}."
    if change.unknown_suites:
        told += f" Nobody has registered {', '.join(change.unknown_suites)} yet."
    return Redirect(channel_path(form.name), told)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())


PAGES = [
    ConsolePage(
        path="/channels",
        title="Channels",
        question=ChannelsQuestion,
        work=_list,
        template="channels.html.jinja",
        roles=("read", "promote"),
        group="Release",
        place=0,
        shortcut="c",
    ),
    ConsolePage(
        path="/channels/{name}",
        title="Channel",
        question=HistoryQuestion,
        work=_show,
        template="channel.html.jinja",
        roles=("read", "promote"),
    ),
    ConsolePage(
        path="/channels/{name}/verdict",
        title="Verdict",
        question=VerdictQuestion,
        work=_judge,
        template="verdict.html.jinja",
        roles=("read", "promote"),
    ),
    ConsolePage(
        path="/channels/{name}/promote",
        title="Verdict",
        method="POST",
        question=PromotionForm,
        work=_promote,
        template="verdict.html.jinja",
        roles=("promote",),
    ),
    ConsolePage(
        path="/channels/{name}/approve",
        title="Approve",
        method="POST",
        question=ApproveQuestion,
        work=_approve,
        roles=("promote",),
    ),
    ConsolePage(
        path="/channels/{name}/rollback",
        title="Roll back",
        method="POST",
        question=RollbackForm,
        work=_roll_back,
        roles=("promote",),
    ),
    ConsolePage(
        path="/channels/{name}/release",
        title="Release",
        method="POST",
        question=ReleaseQuestion,
        work=_release,
        roles=("promote",),
    ),
    ConsolePage(
        path="/channels/{name}/policy",
        title="Policy",
        method="POST",
        question=SetPolicyQuestion,
        work=_set_policy,
        roles=(),
    ),
]
