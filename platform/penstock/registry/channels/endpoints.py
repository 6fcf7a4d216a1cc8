"""The endpoints of channels: their state, history, policy and key assignment."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.backends.audit.entry import Flaw
from penstock.backends.terminal.output import time_text
from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    decode_number,
    page_of,
)
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.channels.change import Change, ChangeAnswer, ChangeRecord, ChannelState
from penstock.registry.checkpoints.endpoints import Reason

if TYPE_CHECKING:
    from penstock.backends.database.engine import Database

# Answers


class ChannelsAnswer(Page):
    channels: list[ChannelState]


class PolicyAnswer(msgspec.Struct):
    """A channel's policy. `policy` is the digest of `text`; both are null without a policy."""

    channel: str
    policy: str | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class PolicyChangeAnswer(ChangeAnswer):
    """`unknown_suites` are named by the policy but not registered yet."""

    unknown_suites: list[str]
    known_suites: list[str]


@dataclass(frozen=True, kw_only=True)
class AuditedChange(ChangeRecord):
    """A change of the history, with the outcome of its verdict."""

    at: str
    outcome: str | None


class AuditAnswer(Page):
    """A checked history. `flaw` is the first altered version, `before` the change before those
    shown, and `left_out` the tasks that policies left out, by verdict."""

    channel: str
    changes: list[AuditedChange]
    before: AuditedChange | None
    flaw: Flaw | None
    #: Whether a key signs it, so that whoever writes to the database cannot forge it.
    signed: bool
    left_out: dict[str, dict[str, list[str]]]


class HistoryAnswer(msgspec.Struct):
    """`next` is the `after` of the next page, or null at the end."""

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


ChannelName = Annotated[str, Meta(description="The channel.", extra={"metavar": "NAME"})]
_LAST = "Show this many of the newest changes; by default all."
_BEFORE = "Show older changes: the cursor of the previous page."


class ChannelRequest(Request):
    name: ChannelName


class AuditRequest(Request):
    name: ChannelName
    last: Annotated[int, Meta(ge=1, le=2**31, description=_LAST)] | None = None
    cursor: Annotated[str, Meta(description=_BEFORE)] | None = None


class HistoryRequest(Request):
    name: ChannelName
    after: Annotated[int, Meta(ge=0, le=2**63 - 1, description="Changes after this version.")] = 0


_KEY = "A user, a session, anything that should stay with one model."


class AssignmentRequest(Request):
    name: ChannelName
    key: Annotated[str, Meta(max_length=1_024, description=_KEY)]


class SetPolicyRequest(Request):
    name: ChannelName
    text: str
    reason: str


class ReleaseRequest(Request):
    name: ChannelName
    reason: Reason


# Work


def _list(lake: Lake, caller: Caller, request: ListRequest) -> ChannelsAnswer:
    from penstock.registry.channels.channel import list_channels

    channels = list_channels(lake.database, caller.tenant)
    page, after = page_of(channels, request, lambda channel: channel.channel)
    return ChannelsAnswer(list(page), next=after)


def _show(lake: Lake, caller: Caller, request: ChannelRequest) -> ChannelState:
    from penstock.registry.channels.channel import channel_state

    return channel_state(lake.database, caller.tenant, request.name)


def _audit(lake: Lake, caller: Caller, request: AuditRequest) -> AuditAnswer:
    from penstock.registry.channels import history

    of_channel = lake.database, caller.tenant, request.name
    # One more, for `before`.
    limit = request.last + 1 if request.last is not None else None
    end = decode_number(request.cursor) if request.cursor is not None else None
    changes = history.channel_changes(*of_channel, limit=limit, latest=True, before=end)
    flaw = history.verify_history(*of_channel)
    outcomes, left_out = history.verdicts_of(*of_channel) if flaw is None else ({}, {})
    answers = []
    for change in changes:
        told = {"at": time_text(change.at), "outcome": outcomes.get(change.verdict or "")}
        answers.append(AuditedChange(**vars(change) | told))
    shown = answers[-request.last :] if request.last is not None else answers
    return AuditAnswer(
        channel=request.name,
        changes=shown,
        before=answers[-len(shown) - 1] if len(answers) > len(shown) else None,
        next=str(shown[0].version) if len(answers) > len(shown) else None,
        flaw=flaw,
        signed=lake.database.signs,
        left_out=left_out,
    )


def _history(lake: Lake, caller: Caller, request: HistoryRequest) -> HistoryAnswer:
    from penstock.registry.channels.channel import channel_state_in
    from penstock.registry.channels.history import notices_after

    with lake.database.read() as connection:
        place = connection, caller.tenant, request.name
        newest = channel_state_in(*place).version
        changes = notices_after(*place, request.after)
    last = changes[-1].version if changes else newest
    return HistoryAnswer(request.name, changes, last if last < newest else None)


def _assign(lake: Lake, caller: Caller, request: AssignmentRequest) -> AssignmentAnswer:
    from penstock.registry.channels.channel import assign, channel_state

    channel = channel_state(lake.database, caller.tenant, request.name)
    chosen = assign(channel, request.key)
    files = (channel.digest, channel.uri)
    if chosen.arm == "canary":
        files = (channel.canary_digest, channel.canary_uri)
    place = (request.name, channel.version, request.key)
    return AssignmentAnswer(*place, chosen.checkpoint, chosen.arm, *files)


def _show_policy(lake: Lake, caller: Caller, request: ChannelRequest) -> PolicyAnswer:
    from penstock.registry.channels.channel import channel_state, policy_of

    channel = channel_state(lake.database, caller.tenant, request.name)
    return PolicyAnswer(request.name, channel.policy, policy_of(lake.database, channel))


def _set_policy(lake: Lake, caller: Caller, request: SetPolicyRequest) -> PolicyChangeAnswer:
    from penstock.registry.channels.promotion import set_policy
    from penstock.registry.checkpoints.suites import suite_names
    from penstock.registry.gate.policy import parse

    known = suite_names(lake.database, caller.tenant)
    unknown = sorted(set(parse(request.text, "the policy").suites) - set(known))
    order = {"text": request.text, "reason": request.reason, "actor": caller.actor}
    change = set_policy(lake.database, tenant=caller.tenant, channel=request.name, **order)
    fields = vars(committed(lake.database, change))
    return PolicyChangeAnswer(**fields, unknown_suites=unknown, known_suites=list(known))


def _release(lake: Lake, caller: Caller, request: ReleaseRequest) -> ChangeAnswer:
    from penstock.registry.channels.promotion import release

    order = {"reason": request.reason, "actor": caller.actor}
    change = release(lake.database, tenant=caller.tenant, channel=request.name, **order)
    return committed(lake.database, change)


def committed(database: "Database", change: Change) -> ChangeAnswer:
    """The answer for a change that was just committed."""
    from penstock.registry.channels.history import notice_of

    with database.read() as connection:
        return notice_of(connection, change)


# Calls


LIST_CHANNELS = Endpoint("GET /v1/channels", _list, ("read", "promote"), "All channels")
#: Its route can wait for a change: see `channels/routes.py`.
SHOW_CHANNEL = Endpoint(
    "GET /v1/channels/{name}", _show, ("read", "serve", "promote"), "A channel, or its next change"
)
AUDIT_CHANNEL = Endpoint(
    "GET /v1/channels/{name}/audit", _audit, ("read", "promote"), "The checked history of a channel"
)
CHANNEL_HISTORY = Endpoint(
    "GET /v1/channels/{name}/history", _history, ("read", "promote"), "The changes of a channel"
)
ASSIGN_KEY = Endpoint(
    "GET /v1/channels/{name}/assign",
    _assign,
    ("read", "serve"),
    "Which checkpoint serves a key",
    refused={409: None},
)
SHOW_POLICY = Endpoint(
    "GET /v1/channels/{name}/policy",
    _show_policy,
    ("read", "promote"),
    "The gate policy of a channel",
    refused={500: "The stored policy is missing or changed."},
)
SET_POLICY = Endpoint(
    "POST /v1/channels/{name}/policy",
    _set_policy,
    (),
    "Set the policy of a channel; creates the channel",
)
RELEASE = Endpoint(
    "POST /v1/channels/{name}/release",
    _release,
    ("promote",),
    "Allow promotions to a channel again after a rollback",
    refused={409: None},
)

ENDPOINTS: Endpoints = [
    LIST_CHANNELS,
    AUDIT_CHANNEL,
    CHANNEL_HISTORY,
    ASSIGN_KEY,
    SHOW_POLICY,
    SET_POLICY,
    RELEASE,
]
