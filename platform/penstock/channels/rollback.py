"""Rollback: a channel goes back to a checkpoint that was good, without asking the gate.

Without a name it goes back to the checkpoint that served last before the present one, passing over
those that were themselves rolled back or withdrawn. While a canary is tried, it ends the canary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from penstock.channels.change import Change
from penstock.channels.channel import ChannelRequest, HeldChannel, hold_channel, refuse_unexpected
from penstock.channels.errors import AlreadyServing, NothingToRollBackTo
from penstock.channels.tables import channel_change
from penstock.checkpoints.checkpoint import Checkpoint, check_name, check_reason
from penstock.checkpoints.registration import ancestors, find_in
from penstock.checkpoints.tables import checkpoint
from penstock.database.engine import Database


@dataclass(frozen=True, kw_only=True)
class Rollback(ChannelRequest):
    """`to` names the checkpoint to go back to."""

    to: str | None = None


def roll_back(database: Database, rollback: Rollback) -> Change:
    """Take a channel back, without asking the gate, and pin it. A promotion that has begun and is
    not committed yet fails. Raises ChannelUnknown, NothingToRollBackTo, AlreadyServing,
    StateRefused, PromotionConflict, CheckpointUnknown, InvalidInput."""
    actor, reason = check_name("Who does it", rollback.actor), check_reason(rollback.reason)
    with hold_channel(database, rollback.tenant, rollback.channel) as held:
        refuse_unexpected(rollback, held.before)
        target = _target(held, rollback.to)
        change = held.next_change("rollback", actor=actor, reason=reason)
        change = replace(change.pointed_at(target.name, target.digest), pinned=True)
        return held.apply(change, left="rolled_back")


@dataclass(frozen=True)
class HistoryStep:
    """A change, and the checkpoint that the channel pointed at then."""

    action: str
    checkpoint: str | None


def served(steps: Iterable[HistoryStep]) -> set[str]:
    """The checkpoints that had all traffic of a channel at some time."""
    return {step.checkpoint for step in steps if step.checkpoint is not None}


def rollback_candidates(steps: Sequence[HistoryStep]) -> list[str]:
    """The checkpoints that a channel may go back to, the best first: those that served on it
    before, the latest first, without those that it was rolled back from and that were not promoted
    again since."""
    current = steps[-1].checkpoint if steps else None
    bad: set[str] = set()
    good: list[str] = []
    before: str | None = None
    for step in steps:
        if step.checkpoint == before or step.checkpoint is None:
            continue
        if step.action == "rollback" and before is not None:
            bad.add(before)
        bad.discard(step.checkpoint)
        if step.checkpoint in good:
            good.remove(step.checkpoint)
        good.append(step.checkpoint)
        before = step.checkpoint
    return [name for name in reversed(good) if name != current and name not in bad]


def _target(held: HeldChannel, to: str | None) -> Checkpoint:
    connection, before = held.connection, held.before
    if before.checkpoint is None:
        raise NothingToRollBackTo(channel=before.channel, why="nothing was promoted to it yet")
    present = find_in(connection, before.tenant, before.checkpoint)
    if to is not None:
        target = find_in(connection, before.tenant, to)
        if target.name == present.name:
            if before.canary is None:
                raise AlreadyServing(channel=before.channel, checkpoint=target.name, how="")
            return target
        parents = {parent.name for parent in ancestors(connection, present)}
        if target.name not in served(_steps(held)) | parents:
            why = f"{target.name} never served on it and is no parent of {present.name}"
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
    why = f"no checkpoint before {present.name} is good"
    raise NothingToRollBackTo(channel=before.channel, why=why)


def _steps(held: HeldChannel) -> list[HistoryStep]:
    """The steps of the channel's history, the oldest first."""
    columns = channel_change.c
    place = columns.tenant == held.before.tenant, columns.channel == held.before.channel
    query = sa.select(columns.action, columns.checkpoint).where(*place).order_by(columns.version)
    return [HistoryStep(*row) for row in held.connection.execute(query)]
