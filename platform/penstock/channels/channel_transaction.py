"""One change of a channel: all of it in one transaction, or nothing.

Whoever changes a channel holds its row, so that changes of one channel come one after another, on
any database. Rows of checkpoints are held after it, in the order of their names, so that no two
transactions wait for each other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Literal

import sqlalchemy as sa
from msgspec import UNSET, UnsetType
from sqlalchemy import Connection

from penstock.channels.change import NO_HASH, Action, Change, unused_channel
from penstock.channels.channel import channels_at
from penstock.channels.errors import ChannelUnknown, PromotionConflict
from penstock.channels.history import newest_change
from penstock.channels.notices import put_notice
from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.registration import check_chain, find_in, move_state
from penstock.database.engine import Database, insert_new, now_us
from penstock.gate import tables
from penstock.gate.verdict import Verdict

#: The state of a checkpoint that a channel has left.
LeftState = Literal["retired", "rolled_back"]

#: The checkpoint that a channel is expected at: its name or digest, or None for none. ANY is
#: whichever it is at when the call begins.
Expected = str | UnsetType | None
ANY = UNSET


@dataclass(frozen=True, kw_only=True)
class ChannelRequest:
    """Somebody wants to change a channel. At another version of it than `expect_version` nothing is
    done."""

    tenant: str
    channel: str
    reason: str
    actor: str
    expect: Expected = ANY
    expect_version: int | None = None


@dataclass(frozen=True)
class HeldChannel:
    """A channel that nobody else changes now, as it was before the change."""

    connection: Connection
    before: Change

    def next_change(self, action: Action, *, actor: str, reason: str) -> Change:
        """The channel as it is, in the next version; the caller replaces what changes."""
        at = int(self.connection.execute(sa.select(now_us())).scalar_one())
        return replace(
            self.before,
            version=self.before.version + 1,
            action=action,
            verdict=None,
            overridden=False,
            actor=actor,
            reason=reason,
            # A clock that was set back does not turn the history round.
            at=max(at, self.before.at),
            previous_hash=self.before.hash or NO_HASH,
        )

    def keep_verdict(self, verdict: Verdict) -> str:
        """Keep a verdict as evidence; its id."""
        row = {
            "tenant": self.before.tenant,
            "id": verdict.id,
            "channel": verdict.channel,
            "checkpoint": verdict.checkpoint,
            "outcome": verdict.outcome,
            "document": verdict.text,
            "made_at": now_us(),
        }
        insert_new(self.connection, tables.verdict, row)
        return verdict.id

    def apply(self, after: Change, left: LeftState = "retired") -> Change:
        """Write the change, move the checkpoints, and put the notice into the outbox. Raises
        StateRefused, LineageBroken where a checkpoint cannot serve."""
        self._move_checkpoints(after, left)
        change = after.sealed()
        self.connection.execute(sa.insert(channel_change).values(**asdict(change)))
        self.connection.execute(
            sa.update(channel)
            .where(channel.c.tenant == change.tenant, channel.c.name == change.channel)
            .values(version=change.version, hash=change.hash)
        )
        put_notice(self.connection, change)
        return change

    def _move_checkpoints(self, after: Change, left: LeftState) -> None:
        connection, tenant = self.connection, after.tenant
        serving = {after.checkpoint, after.canary} - {None}
        changed = serving ^ ({self.before.checkpoint, self.before.canary} - {None})
        reason = f"{after.action} of {after.channel}, version {after.version}: {after.reason}"
        names = sorted(name for name in changed if name is not None)
        for checkpoint in [find_in(connection, tenant, name, lock=True) for name in names]:
            if checkpoint.name in serving:
                if checkpoint.state != "serving":
                    move_state(connection, checkpoint, "serving", actor=after.actor, reason=reason)
                check_chain(connection, checkpoint)
                continue
            channels = channels_at(connection, tenant, checkpoint.name)
            if all(change.channel == after.channel for change in channels):
                move_state(connection, checkpoint, left, actor=after.actor, reason=reason)


@contextmanager
def hold_channel(
    database: Database, tenant: str, name: str, *, make: bool = False
) -> Iterator[HeldChannel]:
    """Hold a channel until the block ends; what was applied is committed then. With `make` it need
    not be there. Raises ChannelUnknown."""
    if not name.isprintable():  # nobody's name, and some databases do not even take it
        raise ChannelUnknown(name=name)
    with database.write() as connection:
        if make:
            row = {"tenant": tenant, "name": name, "version": 0, "hash": NO_HASH}
            insert_new(connection, channel, row)
        version = connection.scalar(
            sa.select(channel.c.version)
            .where(channel.c.tenant == tenant, channel.c.name == name)
            .with_for_update()
        )
        if version is None:
            raise ChannelUnknown(name=name)
        before = newest_change(connection, tenant, name) or unused_channel(tenant, name)
        yield HeldChannel(connection, before)


def refuse_unexpected(request: ChannelRequest, before: Change) -> None:
    """Raises PromotionConflict where a channel is not where the request expects it."""
    if request.expect_version not in (None, before.version):
        raise conflict(f"version {request.expect_version}", before)
    if request.expect is not ANY and request.expect not in (before.checkpoint, before.digest):
        raise conflict(request.expect, before)


def conflict(expected: object, present: Change) -> PromotionConflict:
    return PromotionConflict(
        channel=present.channel,
        expected=expected,
        found=present.checkpoint,
        version=present.version,
        since=f"{present.action} by {present.actor}" if present.version else "never used",
    )
