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

from penstock.channels.change import NO_HASH, Action, Change
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
    tenant: str
    name: str
    before: Change | None

    @property
    def version(self) -> int:
        return self.before.version if self.before is not None else 0

    def next_change(self, action: Action, *, actor: str, reason: str) -> Change:
        """The channel as it is, in the next version; the caller replaces what changes."""
        version = self.version + 1
        at = int(self.connection.execute(sa.select(now_us())).scalar_one())
        if self.before is None:
            return Change(
                tenant=self.tenant,
                channel=self.name,
                version=version,
                action=action,
                actor=actor,
                reason=reason,
                at=at,
            )
        return replace(
            self.before,
            version=version,
            action=action,
            verdict=None,
            overridden=False,
            actor=actor,
            reason=reason,
            # A clock that was set back does not turn the history round.
            at=max(at, self.before.at),
            previous_hash=self.before.hash,
        )

    def keep_verdict(self, verdict: Verdict) -> str:
        """Keep a verdict as evidence; its id."""
        row = {
            "tenant": self.tenant,
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
            .where(channel.c.tenant == self.tenant, channel.c.name == self.name)
            .values(version=change.version, hash=change.hash)
        )
        put_notice(self.connection, change)
        return change

    def _move_checkpoints(self, after: Change, left: LeftState) -> None:
        before = _serving(self.before) if self.before is not None else set()
        serving = _serving(after)
        reason = f"{after.action} of {after.channel}, version {after.version}: {after.reason}"
        changed = [
            find_in(self.connection, self.tenant, name, lock=True)
            for name in sorted(before ^ serving)
        ]
        for checkpoint in changed:
            if checkpoint.name in serving:
                if checkpoint.state != "serving":
                    move_state(
                        self.connection, checkpoint, "serving", actor=after.actor, reason=reason
                    )
                check_chain(self.connection, checkpoint)
                continue
            serving_it = channels_at(self.connection, self.tenant, checkpoint.name)
            if all(change.channel == self.name for change in serving_it):
                move_state(self.connection, checkpoint, left, actor=after.actor, reason=reason)


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
        yield HeldChannel(connection, tenant, name, newest_change(connection, tenant, name))


def refuse_unexpected(request: ChannelRequest, before: Change | None) -> None:
    """Raises PromotionConflict where a channel is not where the request expects it."""
    if request.expect_version not in (None, before.version if before is not None else 0):
        raise conflict(request.channel, f"version {request.expect_version}", before)
    present = (before.checkpoint, before.digest) if before is not None else (None, None)
    if request.expect is not ANY and request.expect not in present:
        raise conflict(request.channel, request.expect, before)


def conflict(channel_name: str, expected: object, present: Change | None) -> PromotionConflict:
    return PromotionConflict(
        channel=channel_name,
        expected=expected,
        found=present.checkpoint if present is not None else None,
        version=present.version if present is not None else 0,
        since=f"{present.action} by {present.actor}" if present is not None else "never used",
    )


def _serving(change: Change) -> set[str]:
    return {name for name in (change.checkpoint, change.canary) if name is not None}
