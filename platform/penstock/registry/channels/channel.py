"""A channel: its present state, a change of it, and which checkpoint serves a key.

A change is one transaction. It locks the channel's row, then the rows of checkpoints in the order
of their names, so transactions never deadlock."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Annotated, Any, Literal

import msgspec
import sqlalchemy as sa
from msgspec import UNSET, Meta, UnsetType
from sqlalchemy import Connection

from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed
from penstock.backends.database.engine import Database, insert_new, now_us
from penstock.backends.terminal.output import time_text
from penstock.core.errors import InvalidInput
from penstock.registry.channels.change import (
    Action,
    Change,
    ChannelPointer,
    ChannelState,
    ChannelUnknown,
    HistoryDamaged,
    NothingServed,
    PromotionConflict,
    unused_channel,
)
from penstock.registry.channels.history import (
    chain_of,
    checkpoint_places,
    first_version_since,
    newest_change,
    newest_changes,
)
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.registration import check_chain, find_in, move_state
from penstock.registry.gate import tables
from penstock.registry.gate.verdict import Verdict

#: A part of a channel's traffic: the canary's share, or all the rest.
Arm = Literal["current", "canary"]


def channel_state(database: Database, tenant: str, name: str) -> ChannelState:
    """Raises ChannelUnknown."""
    with database.read() as connection:
        return channel_state_in(connection, tenant, name)


def channel_state_in(connection: Connection, tenant: str, name: str) -> ChannelState:
    """Raises ChannelUnknown."""
    change = newest_change(connection, tenant, name)
    if change is None:
        raise ChannelUnknown(name=name)
    return _state_of(connection, change)


def list_channels(database: Database, tenant: str) -> list[ChannelState]:
    with database.read() as connection:
        return [_state_of(connection, change) for change in newest_changes(connection, tenant)]


def policy_of(database: Database, state: ChannelState) -> str | None:
    """The text of a channel's policy, or None without one. Raises HistoryDamaged."""
    if state.policy is None:
        return None
    query = sa.select(tables.gate_policy.c.text)
    query = query.filter_by(tenant=state.tenant, digest=state.policy)
    text = database.scalar(query)
    if text is None or text_digest(text) != state.policy:
        why = f"the text of its policy {state.policy} is missing or changed"
        raise HistoryDamaged(channel=state.channel, version=state.version, why=why)
    return str(text)


def channels_at(connection: Connection, tenant: str, name: str) -> list[Change]:
    changes = newest_changes(connection, tenant)
    return [change for change in changes if name in (change.checkpoint, change.canary)]


class ServingChannel(msgspec.Struct, frozen=True):
    channel: str
    arm: Arm


def serving_channels(database: Database, tenant: str, checkpoint_name: str) -> list[ServingChannel]:
    with database.read() as connection:
        return [
            ServingChannel(
                change.channel, "current" if change.checkpoint == checkpoint_name else "canary"
            )
            for change in channels_at(connection, tenant, checkpoint_name)
        ]


def _state_of(connection: Connection, change: Change) -> ChannelState:
    since: int | None = None
    if change.checkpoint is not None:
        first = first_version_since(connection, change, "checkpoint")
        place = {"tenant": change.tenant, "channel": change.channel, "version": first}
        since = connection.scalar(sa.select(channel_change.c.at).filter_by(**place))
    return ChannelState(
        **{field.name: getattr(change, field.name) for field in fields(ChannelPointer)},
        **checkpoint_places(connection, change),
        since=time_text(since) if since is not None else None,
        changed_at=time_text(change.at),
    )


#: The checkpoint that a channel must point at: a name, a digest, or None for no checkpoint. ANY
#: accepts the present one.
Expected = str | UnsetType | None
ANY = UNSET


class ChangeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A request to change a channel. It fails unless the channel is at `expect_version`."""

    tenant: str
    channel: str
    reason: str
    actor: str
    expect: Expected = ANY
    expect_version: int | None = None


class HeldChannel(msgspec.Struct, frozen=True):
    connection: Connection
    before: Change

    def next_change(self, action: Action, *, actor: str, reason: str) -> Change:
        """The next version with the present values; the caller replaces what changes."""
        return replace(
            self.before,
            version=self.before.version + 1,
            action=action,
            verdict=None,
            overridden=False,
            actor=actor,
            reason=reason,
        )

    def check_newest(self) -> None:
        """Raises HistoryDamaged where the newest change is not the one that was signed."""
        newest = self.before
        if flaw := chain_of(newest.tenant, newest.channel).flaw(self.connection, newest=True):
            raise HistoryDamaged(channel=newest.channel, version=flaw.number, why=flaw.why)

    def keep_verdict(self, verdict: Verdict) -> str:
        """Store a verdict as evidence, and return its id."""
        row = {
            "tenant": self.before.tenant,
            "id": verdict.id,
            "channel": verdict.channel,
            "checkpoint": verdict.checkpoint,
            "document": verdict.text,
            "made_at": now_us(),
        }
        insert_new(self.connection, tables.verdict, row)
        return verdict.id

    def apply(self, after: Change, left: Literal["retired", "rolled_back"] = "retired") -> Change:
        """Commit a change. A checkpoint that the channel leaves gets the state `left`."""
        connection, tenant, before = self.connection, after.tenant, self.before
        serving = {after.checkpoint, after.canary}
        numbers: dict[str | None, int | None] = {
            **dict.fromkeys(serving, after.version),
            before.checkpoint: before.checkpoint_version,
            before.canary: before.canary_version,
            None: None,
        }
        main, canary = numbers[after.checkpoint], numbers[after.canary]
        after = replace(after, checkpoint_version=main, canary_version=canary)
        changed = serving ^ {before.checkpoint, before.canary}
        names = sorted(name for name in changed if name is not None)
        reason = f"{after.action} of {after.channel}, version {after.version}: {after.reason}"
        for checkpoint in [find_in(connection, tenant, name, lock=True) for name in names]:
            if checkpoint.name in serving:
                if checkpoint.state != "serving":
                    move_state(connection, checkpoint, "serving", actor=after.actor, reason=reason)
                check_chain(connection, checkpoint)
                continue
            channels = channels_at(connection, tenant, checkpoint.name)
            if all(change.channel == after.channel for change in channels):
                move_state(connection, checkpoint, left, actor=after.actor, reason=reason)
        [row] = chain_of(tenant, after.channel).append(connection, asdict(after))
        change = Change(**row)
        names = ["version", "hash", "checkpoint", "canary"]
        facts = {name: getattr(change, name) for name in names}
        subject = f"channel {change.channel}"
        append(connection, Deed(tenant, change.actor, change.action, subject, facts))
        return change


@contextmanager
def hold_channel(
    database: Database, tenant: str, name: str, *, make: bool = False
) -> Iterator[HeldChannel]:
    """Lock a channel until the block ends, then commit. `make` creates it. Raises
    ChannelUnknown."""
    chain = chain_of(tenant, name)
    with database.write() as connection:
        if chain.hold(connection, make=make) is None:
            raise ChannelUnknown(name=name)
        before = newest_change(connection, tenant, name) or unused_channel(tenant, name)
        yield HeldChannel(connection, before)


def refuse_unexpected(request: ChangeOrder, before: Change) -> None:
    """Raises PromotionConflict unless the channel is where the request expects it."""
    if request.expect_version not in (None, before.version):
        raise conflict(f"version {request.expect_version}", before)
    if request.expect is not ANY and request.expect not in (before.checkpoint, before.digest):
        raise conflict(request.expect, before)


def conflict(expected: object, present: Change) -> PromotionConflict:
    since = f"{present.action} by {present.actor}" if present.version else "never used"
    place = {"channel": present.channel, "found": present.checkpoint, "version": present.version}
    return PromotionConflict(expected=expected, since=since, **place)


_PARTS = 2**53


class Assignment(msgspec.Struct, frozen=True):
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
    """Choose the arm of a key. A key stays in a canary as its share grows; each canary draws
    anew."""
    if canary is not None:
        digest = hashlib.sha256(f"{channel}\0{canary}\0{key}".encode()).digest()
        # A number between 0 and 1, the same for ever and on every machine.
        if int.from_bytes(digest[:8], "big") % _PARTS / _PARTS < share:
            return Assignment(canary, "canary")
    return Assignment(current, "current")


def assign(channel: ChannelState | Mapping[str, Any], key: str) -> Assignment:
    """The checkpoint that serves a key: a user, a session, anything that should stay with one
    model. `channel` is what `Lake.channel` gives, or the JSON of `GET /v1/channels/{name}`."""
    try:
        split = msgspec.convert(channel, _TrafficSplit, from_attributes=True)
    except msgspec.ValidationError as error:
        why = f"it is not a complete answer of GET /v1/channels/NAME: {error}"
        raise InvalidInput(what="The channel", why=why) from None
    if split.checkpoint is None:
        raise NothingServed(channel=split.channel)
    if not isinstance(key, str):  # otherwise all users without a name would count as one
        why = f"it must be a text, such as the id of a user or a session, not {key!r}"
        raise InvalidInput(what="The key", why=why)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(what=f"The key {key!r}", why="it is not Unicode text") from error
    current, share = split.checkpoint, split.canary_share or 0.0
    return choose_arm(split.channel, key, current=current, canary=split.canary, share=share)
