"""Promotion through the gate: a compare-and-swap on the version of a channel, and one row of its
history.

The gate is asked first, without holding anything. Its verdict counts only for the channel as it was
then: when anything changed meanwhile, nothing is promoted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from penstock.channels.change import Action, Change, unused_channel
from penstock.channels.channel import ChannelRequest, conflict, hold_channel, refuse_unexpected
from penstock.channels.errors import AlreadyServing, ChannelPinned, NotPinned
from penstock.channels.history import newest_change
from penstock.checkpoints.checkpoint import (
    Checkpoint,
    check_channel_name,
    check_edge,
    check_name,
    check_reason,
)
from penstock.checkpoints.digests import text_digest
from penstock.checkpoints.registration import check_chain, find_in
from penstock.database.engine import Database, insert_new, now_us
from penstock.errors import InvalidInput, PenstockError
from penstock.gate import policy
from penstock.gate.errors import GateRefused
from penstock.gate.tables import gate_policy
from penstock.gate.verdict import Verdict

#: Says of a channel and a checkpoint whether it may go there.
Judge = Callable[[str, str], Verdict]


@dataclass(frozen=True, kw_only=True)
class Promotion(ChannelRequest):
    """`share` tries a checkpoint on a part of the traffic; without it, it gets all. Whether the
    actor may `override` is the caller's to check."""

    checkpoint: str
    share: float | None = None
    override: bool = False


def promote(database: Database, promotion: Promotion, judge: Judge) -> Change:
    """Point a channel at a checkpoint. Raises GateRefused with the verdict, PromotionConflict,
    ChannelPinned, AlreadyServing, StateRefused, LineageBroken, CheckpointUnknown, InvalidInput, and
    what the judge raises."""
    check_channel_name(promotion.channel)
    actor, reason = check_name("Who does it", promotion.actor), check_reason(promotion.reason)
    if promotion.share is not None and not 0 < promotion.share < 1:
        why = f"it lies between 0 and 1, and is {promotion.share}; without one it gets all"
        raise InvalidInput(what="The share of a canary", why=why)
    with database.read() as connection:
        newest = newest_change(connection, promotion.tenant, promotion.channel)
        before = newest or unused_channel(promotion.tenant, promotion.channel)
        candidate = _check_candidate(connection, promotion, before)
    verdict = judge(promotion.channel, candidate.name)
    if (verdict.channel, verdict.checkpoint) != (promotion.channel, candidate.name):
        came = f"a verdict on {verdict.checkpoint} for {verdict.channel} came instead of one on"
        raise PenstockError(what=f"{came} {candidate.name} for {promotion.channel}")
    if verdict.outcome != "PASS" and not promotion.override:
        place = {"checkpoint": candidate.name, "channel": promotion.channel}
        raise GateRefused(outcome=verdict.outcome, verdict=verdict, **place)
    with hold_channel(database, promotion.tenant, promotion.channel, make=True) as held:
        if held.before.version != before.version:
            raise conflict(before.checkpoint, held.before)
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
    """Let a channel that was rolled back be promoted again. Raises NotPinned, ChannelUnknown."""
    actor, reason = check_name("Who releases it", actor), check_reason(reason)
    with hold_channel(database, tenant, channel) as held:
        if not held.before.pinned:
            raise NotPinned(channel=channel)
        change = held.next_change("release", actor=actor, reason=reason)
        return held.apply(replace(change, pinned=False))


def set_policy(
    database: Database, *, tenant: str, channel: str, text: str, reason: str, actor: str
) -> Change:
    """Give a channel its gate policy; the same policy again is no change. Raises InvalidInput where
    the text is no policy."""
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


def _check_candidate(connection: Connection, promotion: Promotion, before: Change) -> Checkpoint:
    """The checkpoint, if all but the gate lets the channel be promoted to it."""
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
        why = f"{promotion.channel} has no checkpoint to compare it with; promote one to all first"
        raise InvalidInput(what="A canary", why=why)
    return candidate
