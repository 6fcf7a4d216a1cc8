"""A channel as it is now: where it points, and which checkpoint serves a key."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import msgspec
import sqlalchemy as sa
from msgspec import UNSET, Meta, UnsetType
from sqlalchemy import Connection

from penstock.channels.change import Change, ChannelPointer, time_text
from penstock.channels.errors import ChannelUnknown, HistoryDamaged, NothingServed
from penstock.channels.history import CHANGE_COLUMNS, change_of, first_version_since, newest_change
from penstock.channels.notices import checkpoint_places
from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.digests import text_digest
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.tables import gate_policy
from penstock.terminal.output import facts

#: Which part of a channel's traffic: all but the canary's share, or that share.
Arm = Literal["current", "canary"]


@dataclass(frozen=True, kw_only=True)
class ChannelState(ChannelPointer):
    """A channel now. Before its first promotion it has a policy at most."""

    name: str
    uri: str | None
    canary_digest: str | None
    canary_uri: str | None
    #: When its checkpoint began to serve there.
    since: int | None
    changed_at: int


class PointerAnswer(msgspec.Struct, kw_only=True):
    """Where a channel points, as JSON."""

    channel: str
    version: int
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
    hash: str


class ChangeAnswer(PointerAnswer, kw_only=True):
    """A change of a channel, as webhooks and the topic are told of it."""

    tenant: str
    action: str
    verdict: str | None
    overridden: bool
    actor: str
    reason: str
    at: str
    previous_hash: str


class ChannelAnswer(PointerAnswer, kw_only=True, omit_defaults=True):
    """A channel as it is. With `after`, `changes` are those since then, the oldest first, and
    `next` is what to pass as `after` in order to miss none."""

    since: str | None
    changed_at: str
    changes: list[ChangeAnswer] | UnsetType = UNSET
    next: int | UnsetType = UNSET


def channel_answer(state: ChannelState) -> ChannelAnswer:
    since = time_text(state.since) if state.since is not None else None
    document = facts(state) | {"channel": state.name, "since": since}
    return msgspec.convert(document, ChannelAnswer)


def channel_state(database: Database, tenant: str, name: str) -> ChannelState:
    """Raises ChannelUnknown."""
    with database.read() as connection:
        return channel_state_in(connection, tenant, name)


def channel_state_in(connection: Connection, tenant: str, name: str) -> ChannelState:
    """The same within a transaction. Raises ChannelUnknown."""
    change = newest_change(connection, tenant, name)
    if change is None:
        raise ChannelUnknown(name=name)
    return _state_of(connection, change)


def list_channels(database: Database, tenant: str) -> list[ChannelState]:
    """All of a tenant, by name."""
    with database.read() as connection:
        return [_state_of(connection, change) for change in _newest_of_all(connection, tenant)]


def policy_of(database: Database, state: ChannelState) -> str | None:
    """The gate policy of a channel, as it was written; None where it has none. Raises
    HistoryDamaged."""
    if state.policy is None:
        return None
    query = sa.select(gate_policy.c.text).where(
        gate_policy.c.tenant == state.tenant, gate_policy.c.digest == state.policy
    )
    with database.read() as connection:
        text = connection.scalar(query)
    if text is None or text_digest(text) != state.policy:
        why = f"its policy {state.policy} is not there as it was written"
        raise HistoryDamaged(channel=state.name, version=state.version, why=why)
    return str(text)


def channels_at(connection: Connection, tenant: str, name: str) -> list[Change]:
    """The newest changes of the channels that are at a checkpoint, or try it on a part."""
    changes = _newest_of_all(connection, tenant)
    return [change for change in changes if name in (change.checkpoint, change.canary)]


@dataclass(frozen=True)
class ServingChannel:
    """A channel that a checkpoint serves, and to which of its arms."""

    channel: str
    arm: Arm


def serving_channels(database: Database, tenant: str, checkpoint_name: str) -> list[ServingChannel]:
    """The channels that serve a checkpoint, by name."""
    with database.read() as connection:
        return [
            ServingChannel(
                change.channel, "current" if change.checkpoint == checkpoint_name else "canary"
            )
            for change in channels_at(connection, tenant, checkpoint_name)
        ]


def _newest_of_all(connection: Connection, tenant: str) -> list[Change]:
    columns = channel_change.c
    newest = sa.and_(
        channel.c.tenant == columns.tenant,
        channel.c.name == columns.channel,
        channel.c.version == columns.version,
    )
    query = sa.select(*CHANGE_COLUMNS).join(channel, newest).where(channel.c.tenant == tenant)
    return [change_of(row) for row in connection.execute(query.order_by(channel.c.name))]


def _state_of(connection: Connection, change: Change) -> ChannelState:
    since: int | None = None
    columns = channel_change.c
    if change.checkpoint is not None:
        since = connection.scalar(
            sa.select(columns.at).where(
                columns.tenant == change.tenant,
                columns.channel == change.channel,
                columns.version == first_version_since(connection, change, "checkpoint"),
            )
        )
    return ChannelState(
        **{field.name: getattr(change, field.name) for field in fields(ChannelPointer)},
        **checkpoint_places(connection, change),
        name=change.channel,
        since=since,
        changed_at=change.at,
    )


#: Keys fall into so many parts, evenly.
_PARTS = 2**53


@dataclass(frozen=True)
class Assignment:
    checkpoint: str
    arm: Arm


class _TrafficSplit(msgspec.Struct):
    channel: str
    checkpoint: str | None
    canary: str | None
    canary_share: Annotated[float, Meta(ge=0, le=1)] | None


def choose_arm(
    channel: str, key: str, *, current: str, canary: str | None, share: float
) -> Assignment:
    """A key that is in the canary stays there as its share grows; each canary draws anew."""
    if canary is not None:
        digest = hashlib.sha256(f"{channel}\0{canary}\0{key}".encode()).digest()
        # A place between 0 and 1: the same for ever, everywhere.
        if int.from_bytes(digest[:8], "big") % _PARTS / _PARTS < share:
            return Assignment(canary, "canary")
    return Assignment(current, "current")


def assign(channel: ChannelState | Mapping[str, Any], key: str) -> Assignment:
    """Which checkpoint serves a key: a user, a session, whatever should stay with one model.
    `channel` is what `Lake.channel` gives, or the JSON of `GET /v1/channels/{name}`. Raises
    NothingServed before the first promotion, InvalidInput."""
    if isinstance(channel, ChannelState):
        split = _TrafficSplit(
            channel.name, channel.checkpoint, channel.canary, channel.canary_share
        )
    else:
        try:
            split = msgspec.convert(channel, _TrafficSplit)
        except msgspec.ValidationError as error:
            why = f"it is not the whole answer to GET /v1/channels/NAME: {error}"
            raise InvalidInput(what="The channel", why=why) from None
    if split.checkpoint is None:
        raise NothingServed(channel=split.channel)
    if not isinstance(key, str):  # else all users of whom nobody knows the name would be one user
        why = f"it is a text, as of a user or a session, and not {key!r}"
        raise InvalidInput(what="The key", why=why)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(what=f"The key {key!r}", why="it is no Unicode text") from error
    return choose_arm(
        split.channel,
        key,
        current=split.checkpoint,
        canary=split.canary,
        share=split.canary_share or 0.0,
    )
