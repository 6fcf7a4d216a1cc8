"""What the routes of the registry take and give."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.channels.channel import ChannelState, channel_document
from penstock.channels.notices import Notice, time_text
from penstock.channels.watchers import ChannelNews
from penstock.checkpoints.checkpoint import Checkpoint, Form

# Asked


class RegisterRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`look` compares the files with the digest where they can be reached."""

    name: str
    uri: str
    digest: str
    parent: str | None = None
    form: Form = "whole"
    shards: list[str] = []
    note: str = ""
    look: bool = True


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`expect` is the checkpoint that the channel is at, by name or digest, and null where it has
    none; without it, whichever it is at when the call begins. `share` makes a canary."""

    checkpoint: str
    reason: str
    expect: str | UnsetType | None = UNSET
    expect_version: int | None = None
    share: float | None = None
    override: bool = False


class RollbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Without `to`, to the last good one; `expect` as in a promotion."""

    reason: str
    to: str | None = None
    expect: str | UnsetType | None = UNSET
    expect_version: int | None = None


class ReleaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    reason: str


# Answered


class CheckpointAnswer(msgspec.Struct):
    name: str
    digest: str
    uri: str
    form: str
    parent: str | None
    shards: list[str]
    state: str
    checked: str
    bytes: int | None
    note: str
    registered_by: str
    registered_at: str


class CheckpointsAnswer(msgspec.Struct):
    checkpoints: list[CheckpointAnswer]


class ChangeAnswer(msgspec.Struct):
    """A change of a channel, as webhooks and the topic are told of it."""

    tenant: str
    channel: str
    version: int
    action: str
    checkpoint: str | None
    digest: str | None
    uri: str | None
    previous: str | None
    canary: str | None
    canary_digest: str | None
    canary_uri: str | None
    canary_share: float | None
    pinned: bool
    policy: str | None
    verdict: str | None
    overridden: bool
    actor: str
    reason: str
    at: str
    previous_hash: str
    hash: str


class ChannelAnswer(msgspec.Struct, omit_defaults=True):
    """A channel as it is. With `after`, `changes` are those since then, the oldest first, and
    `next` is what to pass as `after` in order to miss none."""

    channel: str
    version: int
    checkpoint: str | None
    digest: str | None
    uri: str | None
    since: str | None
    previous: str | None
    canary: str | None
    canary_digest: str | None
    canary_uri: str | None
    canary_share: float | None
    pinned: bool
    policy: str | None
    hash: str
    changed_at: str
    changes: list[ChangeAnswer] | UnsetType = UNSET
    next: int | UnsetType = UNSET


class ChannelsAnswer(msgspec.Struct):
    channels: list[ChannelAnswer]


class HistoryAnswer(msgspec.Struct):
    """`next` is what to pass as `after` for those that follow; null when there are none."""

    channel: str
    changes: list[ChangeAnswer]
    next: int | None


class AssignmentAnswer(msgspec.Struct):
    """Which checkpoint serves a key."""

    channel: str
    version: int
    key: str
    checkpoint: str
    arm: str
    digest: str | None
    uri: str | None


def checkpoint_answer(found: Checkpoint) -> CheckpointAnswer:
    facts = _facts(found) | {"registered_at": time_text(found.registered_at)}
    return msgspec.convert(facts, CheckpointAnswer)


def change_answer(notice: Notice) -> ChangeAnswer:
    return msgspec.json.decode(notice.body, type=ChangeAnswer)


def channel_answer(state: ChannelState) -> ChannelAnswer:
    return msgspec.convert(channel_document(state), ChannelAnswer)


def change_since_answer(seen: ChannelNews) -> ChannelAnswer:
    answer = channel_answer(seen.state)
    answer.changes = [change_answer(one) for one in seen.notices]
    answer.next = seen.notices[-1].version if seen.notices else seen.state.version
    return answer


def _facts(value: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
