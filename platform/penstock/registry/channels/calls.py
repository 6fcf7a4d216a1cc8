"""What can be asked of channels: where they point, how they got there, what they demand."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.backends.terminal.output import time_text
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, Page, decode_number, page_of
from penstock.registry.channels.change import (
    Change,
    ChangeAnswer,
    ChangeRecord,
    ChannelState,
    Misfit,
)
from penstock.registry.checkpoints.calls import Reason

if TYPE_CHECKING:
    from penstock.backends.database.engine import Database

# Answers


class ChannelsAnswer(Page):
    channels: list[ChannelState]


class PolicyAnswer(msgspec.Struct):
    """`policy` is the digest of the text; both are null where the channel has no policy."""

    channel: str
    policy: str | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class PolicyChangeAnswer(ChangeAnswer):
    """`unknown_suites` are those that the policy names and nobody has registered yet."""

    unknown_suites: list[str]
    known_suites: list[str]


@dataclass(frozen=True, kw_only=True)
class AuditedChange(ChangeRecord):
    """A change as the history holds it, and the outcome of its verdict."""

    at: str
    outcome: str | None


class AuditAnswer(Page):
    """The whole history is checked: `misfit` is the first version that is not as it was written.
    `before` is the change before those that are shown, `left_out` the tasks that policies left
    out, by verdict."""

    channel: str
    changes: list[AuditedChange]
    before: AuditedChange | None
    misfit: Misfit | None
    left_out: dict[str, dict[str, list[str]]]


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


# Questions


class ChannelsQuestion(ListQuestion):
    """All of them."""


ChannelName = Annotated[str, Meta(description="The channel.", extra={"metavar": "NAME"})]
_LAST = "Show so many changes, the newest; all by default."
_BEFORE = "Those before: the cursor that a list before named."


class ChannelQuestion(Question):
    name: ChannelName


class AuditQuestion(Question):
    name: ChannelName
    last: Annotated[int, Meta(ge=1, le=2**31, description=_LAST)] | None = None
    cursor: Annotated[str, Meta(description=_BEFORE)] | None = None


class HistoryQuestion(Question):
    """Databases count no further."""

    name: ChannelName
    after: Annotated[int, Meta(ge=0, le=2**63 - 1, description="Changes after this version.")] = 0


_KEY = "A user, a session, whatever should stay with one model."


class AssignmentQuestion(Question):
    name: ChannelName
    key: Annotated[str, Meta(max_length=1_024, description=_KEY)]


class SetPolicyQuestion(Question):
    name: ChannelName
    text: str
    reason: str


class ReleaseQuestion(Question):
    name: ChannelName
    reason: Reason


# Work


def _list(lake: Lake, caller: Caller, question: ChannelsQuestion) -> ChannelsAnswer:
    from penstock.registry.channels.channel import list_channels

    channels = list_channels(lake.database, caller.tenant)
    page, after = page_of(channels, question, lambda channel: channel.channel)
    return ChannelsAnswer(list(page), next=after)


def _show(lake: Lake, caller: Caller, question: ChannelQuestion) -> ChannelState:
    from penstock.registry.channels.channel import channel_state

    return channel_state(lake.database, caller.tenant, question.name)


def _audit(lake: Lake, caller: Caller, question: AuditQuestion) -> AuditAnswer:
    from penstock.registry.channels import history

    of_channel = lake.database, caller.tenant, question.name
    # One more, to tell of each what was before it.
    limit = question.last + 1 if question.last is not None else None
    end = decode_number(question.cursor) if question.cursor is not None else None
    changes = history.channel_changes(*of_channel, limit=limit, latest=True, before=end)
    outcomes, left_out = history.verdicts_of(*of_channel)
    answers = []
    for change in changes:
        told = {"at": time_text(change.at), "outcome": outcomes.get(change.verdict or "")}
        answers.append(AuditedChange(**vars(change) | told))
    shown = answers[-question.last :] if question.last is not None else answers
    return AuditAnswer(
        channel=question.name,
        changes=shown,
        before=answers[-len(shown) - 1] if len(answers) > len(shown) else None,
        next=str(shown[0].version) if len(answers) > len(shown) else None,
        misfit=history.verify_history(*of_channel),
        left_out=left_out,
    )


def _history(lake: Lake, caller: Caller, question: HistoryQuestion) -> HistoryAnswer:
    from penstock.registry.channels.channel import channel_state
    from penstock.registry.channels.notices import notices_after

    place = lake.database, caller.tenant, question.name
    newest = channel_state(*place).version
    changes = notices_after(*place, question.after, up_to=newest)
    last = changes[-1].version if changes else newest
    return HistoryAnswer(question.name, changes, last if last < newest else None)


def _assign(lake: Lake, caller: Caller, question: AssignmentQuestion) -> AssignmentAnswer:
    from penstock.registry.channels.channel import assign, channel_state

    channel = channel_state(lake.database, caller.tenant, question.name)
    chosen = assign(channel, question.key)
    files = (channel.digest, channel.uri)
    if chosen.arm == "canary":
        files = (channel.canary_digest, channel.canary_uri)
    place = (question.name, channel.version, question.key)
    return AssignmentAnswer(*place, chosen.checkpoint, chosen.arm, *files)


def _show_policy(lake: Lake, caller: Caller, question: ChannelQuestion) -> PolicyAnswer:
    from penstock.registry.channels.channel import channel_state, policy_of

    channel = channel_state(lake.database, caller.tenant, question.name)
    return PolicyAnswer(question.name, channel.policy, policy_of(lake.database, channel))


def _set_policy(lake: Lake, caller: Caller, question: SetPolicyQuestion) -> PolicyChangeAnswer:
    from penstock.registry.channels.promotion import set_policy
    from penstock.registry.checkpoints.suites import suite_names
    from penstock.registry.gate.policy import parse

    known = suite_names(lake.database, caller.tenant)
    unknown = sorted(set(parse(question.text, "the policy").suites) - set(known))
    order = {"text": question.text, "reason": question.reason, "actor": caller.actor}
    change = set_policy(lake.database, tenant=caller.tenant, channel=question.name, **order)
    fields = vars(committed(lake.database, change))
    return PolicyChangeAnswer(**fields, unknown_suites=unknown, known_suites=list(known))


def _release(lake: Lake, caller: Caller, question: ReleaseQuestion) -> ChangeAnswer:
    from penstock.registry.channels.promotion import release

    order = {"reason": question.reason, "actor": caller.actor}
    change = release(lake.database, tenant=caller.tenant, channel=question.name, **order)
    return committed(lake.database, change)


def committed(database: "Database", change: Change) -> ChangeAnswer:
    """A change as everybody is told of it."""
    from penstock.registry.channels.notices import notices_after

    place = (change.tenant, change.channel, change.version - 1)
    [notice] = notices_after(database, *place, up_to=change.version)
    return notice


# Calls


LIST_CHANNELS = Call("GET /v1/channels", _list, ("read", "promote"), "All channels")
#: Its route can wait for a change: see `channels/routes.py`.
SHOW_CHANNEL = Call(
    "GET /v1/channels/{name}", _show, ("read", "serve", "promote"), "A channel, or its next change"
)
AUDIT_CHANNEL = Call(
    "GET /v1/channels/{name}/audit",
    _audit,
    ("read", "promote"),
    "The history of a channel, checked",
)
CHANNEL_HISTORY = Call(
    "GET /v1/channels/{name}/history", _history, ("read", "promote"), "The changes of a channel"
)
ASSIGN_KEY = Call(
    "GET /v1/channels/{name}/assign",
    _assign,
    ("read", "serve"),
    "Which checkpoint serves a key",
    refused={409: None},
)
SHOW_POLICY = Call(
    "GET /v1/channels/{name}/policy",
    _show_policy,
    ("read", "promote"),
    "What the gate demands for a channel",
    refused={500: "The policy is not there as it was written."},
)
SET_POLICY = Call(
    "POST /v1/channels/{name}/policy",
    _set_policy,
    (),
    "Give a channel a policy; one that is not there yet is made",
)
RELEASE = Call(
    "POST /v1/channels/{name}/release",
    _release,
    ("promote",),
    "Let a channel be promoted again after a rollback",
    refused={409: None},
)

CALLS = [
    LIST_CHANNELS,
    AUDIT_CHANNEL,
    CHANNEL_HISTORY,
    ASSIGN_KEY,
    SHOW_POLICY,
    SET_POLICY,
    RELEASE,
]
