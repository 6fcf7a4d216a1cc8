"""Promotion through the gate, and rollback without it.

Both compare and swap the version of a channel, and add one row to its history."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import Database, insert_new, now_us
from penstock.core.errors import InvalidInput
from penstock.registry.channels.change import (
    Action,
    AlreadyServing,
    Change,
    ChannelPinned,
    NothingToRollBackTo,
    NotPinned,
    unused_channel,
)
from penstock.registry.channels.channel import (
    ChangeOrder,
    HeldChannel,
    conflict,
    hold_channel,
    refuse_unexpected,
)
from penstock.registry.channels.history import (
    chain_of,
    first_version_since,
    last_rollback_at,
    newest_change,
    select_changes,
)
from penstock.registry.checkpoints.checkpoint import (
    Checkpoint,
    check_channel_name,
    check_edge,
    check_name,
    check_reason,
)
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.registration import ancestors, check_chain, find_in
from penstock.registry.checkpoints.tables import checkpoint
from penstock.registry.gate import policy
from penstock.registry.gate.decision import decide
from penstock.registry.gate.evidence import Evidence, GatedChannel, gather_evidence
from penstock.registry.gate.tables import gate_policy
from penstock.registry.gate.verdict import GateRefused, Verdict

#: Gives the verdict on a checkpoint for a channel.
Judge = Callable[[str, str], Verdict]


class Promotion(ChangeOrder, frozen=True, kw_only=True):
    """`share` makes a canary. The caller checks whether the actor may `override`."""

    checkpoint: str
    share: float | None = None
    override: bool = False


def promote(database: Database, promotion: Promotion, judge: Judge) -> Change:
    check_channel_name(promotion.channel)
    actor, reason = check_name("Who does it", promotion.actor), check_reason(promotion.reason)
    if promotion.share is not None and not 0 < promotion.share < 1:
        why = f"it must be between 0 and 1, not {promotion.share}; omit it for all traffic"
        raise InvalidInput(what="The share of a canary", why=why)
    with database.read() as connection:
        newest = newest_change(connection, promotion.tenant, promotion.channel)
        before = newest or unused_channel(promotion.tenant, promotion.channel)
        candidate = _check_candidate(connection, promotion, before)
    verdict = judge(promotion.channel, candidate.name)
    if verdict.outcome != "PASS" and not promotion.override:
        place = {"checkpoint": candidate.name, "channel": promotion.channel}
        raise GateRefused(outcome=verdict.outcome, verdict=verdict, **place)
    with hold_channel(database, promotion.tenant, promotion.channel, make=True) as held:
        if held.before.version != before.version:
            raise conflict(before.checkpoint, held.before)
        held.check_newest()
        candidate = _check_candidate(held.connection, promotion, held.before)
        action: Action = "promote" if promotion.share is None else "canary"
        change = held.next_change(action, actor=actor, reason=reason)
        if promotion.share is None:
            change = change.pointed_at(candidate.name, candidate.digest)
        else:
            change = replace(change, canary=candidate.name, canary_share=promotion.share)
        overridden = verdict.outcome != "PASS" or held.before.pinned
        change = replace(change, verdict=held.keep_verdict(verdict), overridden=overridden)
        return held.apply(change)


def release(database: Database, *, tenant: str, channel: str, reason: str, actor: str) -> Change:
    """Allow promotions again after a rollback. Raises NotPinned, ChannelUnknown."""
    actor, reason = check_name("Who releases it", actor), check_reason(reason)
    with hold_channel(database, tenant, channel) as held:
        if not held.before.pinned:
            raise NotPinned(channel=channel)
        change = held.next_change("release", actor=actor, reason=reason)
        return held.apply(replace(change, pinned=False))


def set_policy(
    database: Database, *, tenant: str, channel: str, text: str, reason: str, actor: str
) -> Change:
    """Set a channel's policy. An unchanged policy makes no change. Raises InvalidInput for an
    invalid one."""
    check_channel_name(channel)
    actor, reason = check_name("Who sets the policy", actor), check_reason(reason)
    policy.parse(text, "the policy")
    digest = text_digest(text)
    with hold_channel(database, tenant, channel, make=True) as held:
        if held.before.policy == digest:
            return held.before
        row = {"tenant": tenant, "digest": digest, "text": text, "created_at": now_us()}
        insert_new(held.connection, gate_policy, row)
        change = held.next_change("policy", actor=actor, reason=reason)
        return held.apply(replace(change, policy=digest))


class GateQuestion(TypedDict, total=False):
    """`full`, or a `share` above the policy's last step, needs live metrics too."""

    full: bool
    share: float | None
    at_us: int | None


def channel_evidence(
    database: Database, tenant: str, channel: str, checkpoint: str, **question: Unpack[GateQuestion]
) -> Evidence:
    """The evidence for a verdict, read at one moment. Raises CheckpointUnknown."""
    with database.read() as connection:
        change = newest_change(connection, tenant, channel) or unused_channel(tenant, channel)
        since = 0
        if change.canary is not None:
            since = first_version_since(connection, change, "canary", "checkpoint")
        gated = GatedChannel(
            tenant=tenant,
            name=channel,
            version=change.version,
            checkpoint=change.checkpoint,
            policy=change.policy,
            canary=change.canary,
            canary_since=since,
            rolled_back_at=last_rollback_at(connection, tenant, channel),
            flaw=chain_of(tenant, channel).flaw(connection) if change.version else None,
            signed=database.signs,
        )
        return gather_evidence(connection, gated, checkpoint, **question)


def judge(
    database: Database, tenant: str, channel: str, checkpoint: str, **question: Unpack[GateQuestion]
) -> Verdict:
    """The verdict on a checkpoint for a channel. Raises CheckpointUnknown."""
    return decide(channel_evidence(database, tenant, channel, checkpoint, **question))


def gate_judge(database: Database, tenant: str, share: float | None = None) -> Judge:
    """The judge that `promote` asks. Without a `share` it judges for all traffic."""
    return partial(judge, database, tenant, full=share is None, share=share)


def _check_candidate(connection: Connection, promotion: Promotion, before: Change) -> Checkpoint:
    """The checkpoint, if everything but the gate allows the promotion."""
    candidate = find_in(connection, promotion.tenant, promotion.checkpoint)
    if candidate.state != "serving":
        check_edge(candidate.name, candidate.state, "serving")
    check_chain(connection, candidate)
    refuse_unexpected(promotion, before)
    how = None
    if candidate.name == before.checkpoint:
        how = f"; a rollback ends its canary {before.canary}" if before.canary else ""
    elif (candidate.name, promotion.share) == (before.canary, before.canary_share):
        how = f", as a canary with a share of {promotion.share:g}"
    if how is not None:
        raise AlreadyServing(channel=before.channel, checkpoint=candidate.name, how=how)
    if before.pinned and not promotion.override:
        rollback = newest_change(connection, before.tenant, before.channel, action="rollback")
        by = rollback or before
        raise ChannelPinned(channel=before.channel, actor=by.actor, reason=by.reason)
    if promotion.share is not None and before.checkpoint is None:
        why = f"{promotion.channel} has no checkpoint to compare with; promote one first"
        raise InvalidInput(what="A canary", why=why)
    return candidate


class Rollback(ChangeOrder, frozen=True, kw_only=True):
    """`to` names the checkpoint to roll back to."""

    to: str | None = None


def roll_back(database: Database, rollback: Rollback) -> Change:
    """Roll a channel back and pin it. A promotion in progress then fails."""
    actor, reason = check_name("Who does it", rollback.actor), check_reason(rollback.reason)
    with hold_channel(database, rollback.tenant, rollback.channel) as held:
        refuse_unexpected(rollback, held.before)
        target = _target(held, rollback.to)
        change = held.next_change("rollback", actor=actor, reason=reason)
        change = replace(change.pointed_at(target.name, target.digest), pinned=True)
        return held.apply(change, left="rolled_back")


def rollback_candidates(steps: Sequence[tuple[str, str | None]]) -> list[str]:
    """Former checkpoints, the latest first, without those that were rolled back since."""
    bad: set[str] = set()
    good: list[str] = []
    for action, name in steps:
        before = good[-1] if good else None
        if name is None or name == before:
            continue
        if action == "rollback" and before is not None:
            bad.add(before)
        bad.discard(name)
        good = [*(each for each in good if each != name), name]
    return [name for name in reversed(good[:-1]) if name not in bad]


def _target(held: HeldChannel, to: str | None) -> Checkpoint:
    connection, before = held.connection, held.before
    if before.checkpoint is None:
        raise NothingToRollBackTo(channel=before.channel, why="it has no checkpoint yet")
    present = find_in(connection, before.tenant, before.checkpoint)
    if to is not None:
        target = find_in(connection, before.tenant, to)
        if target.name == present.name:
            if before.canary is None:
                raise AlreadyServing(channel=before.channel, checkpoint=target.name, how="")
            return target
        parents = {parent.name for parent in ancestors(connection, present)}
        if target.name not in {name for _, name in _steps(held)} | parents:
            why = f"{target.name} never served on it and is not a parent of {present.name}"
            raise NothingToRollBackTo(channel=before.channel, why=why)
        return target
    if before.canary is not None:
        return present
    usable = sa.select(checkpoint.c.name).where(
        checkpoint.c.tenant == before.tenant,
        checkpoint.c.state.not_in(["rolled_back", "withdrawn"]),
    )
    names = set(connection.scalars(usable))
    for name in rollback_candidates(_steps(held)):
        if name in names:
            return find_in(connection, before.tenant, name)
    why = f"no usable checkpoint served before {present.name}"
    raise NothingToRollBackTo(channel=before.channel, why=why)


def _steps(held: HeldChannel) -> list[tuple[str, str | None]]:
    before = held.before
    changes = held.connection.execute(select_changes(before.tenant, before.channel))
    return [(change.action, change.checkpoint) for change in changes]
