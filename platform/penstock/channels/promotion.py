"""Promotion through the gate, and rollback past it. Each is a compare-and-swap on the version of a
channel, and one row of its history.

The gate is asked first, without holding anything. What it said counts only for the channel as it
was then: when anything changed meanwhile, nothing is promoted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.changing import Changing, changing
from penstock.channels.channels import newest
from penstock.channels.errors import (
    AlreadyServing,
    ChannelPinned,
    NothingToRollBackTo,
    NotPinned,
    PromotionConflict,
)
from penstock.channels.history import Change, candidates_to_return_to, served
from penstock.checkpoints.checkpoints import Checkpoint, ancestors, check_chain, find_in
from penstock.checkpoints.digests import text_digest
from penstock.checkpoints.names import check_channel_name, check_name, check_reason
from penstock.checkpoints.states import check_edge
from penstock.checkpoints.tables import checkpoint
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput, PenstockError
from penstock.gate import policy
from penstock.gate.errors import GateRefused
from penstock.gate.tables import gate_policy
from penstock.gate.verdicts import Verdict

#: What says of a channel and a checkpoint whether it may go there.
Judge = Callable[[str, str], Verdict]


class Expect(Enum):
    """Which checkpoint a channel is expected at, beside a name, a digest, or None for none."""

    ANY = "whichever it is at when the call begins"


ANY = Expect.ANY
Expected = str | None | Expect


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """`share` tries a checkpoint on a part of the traffic; without it, it gets all. Whether the
    actor may `override` is the caller's to check."""

    tenant: str
    channel: str
    checkpoint: str
    reason: str
    actor: str
    expect: Expected = ANY
    #: The version of the channel that the caller decided on; at another one nothing is done.
    expect_version: int | None = None
    share: float | None = None
    override: bool = False


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """`to` names where; else it is the last good one, or, while a canary is tried, the present one
    without it."""

    tenant: str
    channel: str
    reason: str
    actor: str
    to: str | None = None
    expect: Expected = ANY
    #: As of a promotion.
    expect_version: int | None = None


def promote(database: Database, wanted: Promotion, judge: Judge) -> Change:
    """Point a channel at a checkpoint. Raises GateRefused with the verdict, PromotionConflict,
    ChannelPinned, AlreadyServing, StateRefused, LineageBroken, CheckpointUnknown, InvalidInput, and
    what the judge raises."""
    wanted = _checked(wanted)
    with database.read() as connection:
        before = newest(connection, wanted.tenant, wanted.channel)
        found = _fit(connection, wanted, before)
    said = judge(wanted.channel, found.name)
    if (said.channel, said.checkpoint) != (wanted.channel, found.name):
        raise PenstockError(what=f"a verdict on {said.checkpoint} for {said.channel} came instead")
    if said.outcome != "PASS" and not wanted.override:
        raise GateRefused(
            outcome=said.outcome, checkpoint=found.name, channel=wanted.channel, verdict=said
        )
    with changing(database, wanted.tenant, wanted.channel, make=True) as held:
        if held.version != (before.version if before is not None else 0):
            raise _conflict(wanted.channel, before.checkpoint if before else None, held.before)
        found = _fit(held.connection, wanted, held.before)
        pinned = held.before is not None and held.before.pinned
        after = held.next("promote" if wanted.share is None else "canary", _told(wanted))
        after = replace(
            _with(after, found, wanted.share),
            verdict=held.keep(said),
            overridden=said.outcome != "PASS" or pinned,
        )
        return held.apply(after)


def rollback(database: Database, wanted: Rollback) -> Change:
    """Take a channel back, without asking the gate, and pin it. A promotion that has begun and is
    not committed yet fails. Raises ChannelUnknown, NothingToRollBackTo, AlreadyServing,
    StateRefused, PromotionConflict, CheckpointUnknown, InvalidInput."""
    told = _told(wanted)
    with changing(database, wanted.tenant, wanted.channel) as held:
        _refuse_unexpected(wanted, held.before)
        target = _target(held, wanted.to)
        after = held.next("rollback", told)
        after = replace(_with(after, target, None), pinned=True)
        return held.apply(after, left="rolled_back")


def release(database: Database, *, tenant: str, channel: str, reason: str, actor: str) -> Change:
    """Let a channel that was rolled back be promoted again. Raises NotPinned, ChannelUnknown."""
    told = check_name("Who releases it", actor), check_reason(reason)
    with changing(database, tenant, channel) as held:
        if held.before is None or not held.before.pinned:
            raise NotPinned(channel=channel)
        return held.apply(replace(held.next("release", told), pinned=False))


def set_policy(
    database: Database, *, tenant: str, channel: str, text: str, reason: str, actor: str
) -> Change:
    """Give a channel its gate policy; the same one again is no change. Raises InvalidInput where it
    is none."""
    check_channel_name(channel)
    told = check_name("Who sets the policy", actor), check_reason(reason)
    policy.parse(text, "the policy")
    digest = text_digest(text)
    with changing(database, tenant, channel, make=True) as held:
        if held.before is not None and held.before.policy == digest:
            return held.before
        row = {"tenant": tenant, "digest": digest, "text": text, "created_at": now_us()}
        made = insert_of(held.connection)(gate_policy).values(**row)
        held.connection.execute(made.on_conflict_do_nothing())
        return held.apply(replace(held.next("policy", told), policy=digest))


# What can be wrong with it


def _checked(wanted: Promotion) -> Promotion:
    check_channel_name(wanted.channel)
    _told(wanted)
    if wanted.share is not None and not 0 < wanted.share < 1:
        why = f"it lies between 0 and 1, and is {wanted.share}; without one it gets all"
        raise InvalidInput(what="The share of a canary", why=why)
    return wanted


def _told(wanted: Promotion | Rollback) -> tuple[str, str]:
    return check_name("Who does it", wanted.actor), check_reason(wanted.reason)


def _fit(connection: Connection, wanted: Promotion, before: Change | None) -> Checkpoint:
    """The checkpoint, where a channel that is so can be promoted to it; but for the gate."""
    found = find_in(connection, wanted.tenant, wanted.checkpoint)
    if found.state != "serving":
        check_edge(found.name, found.state, "serving")
    check_chain(connection, found)
    _refuse_unexpected(wanted, before)
    if before is not None:
        _refuse_where_it_is(wanted, before, found.name)
        if before.pinned and not wanted.override:
            raise _pinned(connection, before)
    if wanted.share is not None and (before is None or before.checkpoint is None):
        why = f"{wanted.channel} has no checkpoint to compare it with; promote one to all first"
        raise InvalidInput(what="A canary", why=why)
    return found


def _refuse_unexpected(wanted: Promotion | Rollback, before: Change | None) -> None:
    if wanted.expect_version not in (None, before.version if before is not None else 0):
        raise _conflict(wanted.channel, f"version {wanted.expect_version}", before)
    if wanted.expect is ANY:
        return
    at = (before.checkpoint, before.digest) if before is not None else (None, None)
    if wanted.expect not in at:
        raise _conflict(wanted.channel, wanted.expect, before)


def _refuse_where_it_is(wanted: Promotion, before: Change, name: str) -> None:
    if name == before.checkpoint:
        how = f"; a rollback ends its canary {before.canary}" if before.canary else ""
        raise AlreadyServing(channel=before.channel, checkpoint=name, how=how)
    if wanted.share is not None and (name, wanted.share) == (before.canary, before.canary_share):
        how = f", as a canary with a share of {wanted.share:g}"
        raise AlreadyServing(channel=before.channel, checkpoint=name, how=how)


def _conflict(channel: str, expected: object, found: Change | None) -> PromotionConflict:
    return PromotionConflict(
        channel=channel,
        expected=expected,
        found=found.checkpoint if found is not None else None,
        version=found.version if found is not None else 0,
        since=f"{found.action} by {found.actor}" if found is not None else "never used",
    )


def _pinned(connection: Connection, before: Change) -> ChannelPinned:
    by = newest(connection, before.tenant, before.channel, action="rollback") or before
    return ChannelPinned(channel=before.channel, actor=by.actor, reason=by.reason)


# Where it goes


def _with(after: Change, found: Checkpoint, share: float | None) -> Change:
    """All traffic to a checkpoint, or a share of it beside the present one."""
    if share is not None:
        return replace(after, canary=found.name, canary_share=share)
    return replace(
        after,
        checkpoint=found.name,
        digest=found.digest,
        previous=after.previous if found.name == after.checkpoint else after.checkpoint,
        canary=None,
        canary_share=None,
    )


def _target(held: Changing, to: str | None) -> Checkpoint:
    """Where to go back to."""
    connection, before = held.connection, held.before
    if before is None or before.checkpoint is None:
        raise NothingToRollBackTo(channel=held.name, why="nothing was promoted to it yet")
    if to is not None:
        return _named_target(held, before, to)
    if before.canary is not None:
        return find_in(connection, held.tenant, before.checkpoint)
    usable = set(
        connection.scalars(
            sa.select(checkpoint.c.name).where(
                checkpoint.c.tenant == held.tenant,
                checkpoint.c.state.not_in(["rolled_back", "withdrawn"]),
            )
        )
    )
    for name in candidates_to_return_to(held.steps()):
        if name in usable:
            return find_in(connection, held.tenant, name)
    why = f"no checkpoint before {before.checkpoint} is good"
    raise NothingToRollBackTo(channel=held.name, why=why)


def _named_target(held: Changing, before: Change, to: str) -> Checkpoint:
    found = find_in(held.connection, held.tenant, to)
    if found.name == before.checkpoint:
        if before.canary is None:
            raise AlreadyServing(channel=held.name, checkpoint=found.name, how="")
        return found
    present = find_in(held.connection, held.tenant, before.checkpoint or "")
    known = served(held.steps()) | {one.name for one in ancestors(held.connection, present)}
    if found.name not in known:
        why = f"{found.name} never served on it and is no parent of {present.name}"
        raise NothingToRollBackTo(channel=held.name, why=why)
    return found
