"""One change of a channel: all of it in one transaction, or nothing.

Who changes a channel holds its row, so that changes of one channel come one after another, on any
database. Rows of checkpoints are held after it and in the order of their names: no two transactions
wait for each other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels import notices
from penstock.channels.channels import channels_at, newest
from penstock.channels.errors import ChannelUnknown
from penstock.channels.history import NO_HASH, Action, Change, Step
from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.checkpoints import Checkpoint, check_chain, find_in
from penstock.checkpoints.states import move
from penstock.database.engine import Database, insert_of, now_us
from penstock.gate.tables import verdict
from penstock.gate.verdicts import Verdict

#: What becomes of a checkpoint that a channel leaves.
Left = Literal["retired", "rolled_back"]


@dataclass(frozen=True)
class Changing:
    """A channel that nobody else changes now, as it was before."""

    connection: Connection
    tenant: str
    name: str
    before: Change | None

    @property
    def version(self) -> int:
        return self.before.version if self.before is not None else 0

    def steps(self) -> list[Step]:
        """What its changes did, the oldest first."""
        columns = channel_change.c
        query = (
            sa.select(columns.action, columns.checkpoint)
            .where(columns.tenant == self.tenant, columns.channel == self.name)
            .order_by(columns.version)
        )
        return [Step(*row) for row in self.connection.execute(query)]

    def next(self, action: Action, told: tuple[str, str]) -> Change:
        """The channel as it is, to be changed; (actor, reason) say who and why."""
        actor, reason = told
        version, at = self.version + 1, self._now()
        if self.before is None:
            return Change(
                tenant=self.tenant, channel=self.name, version=version, action=action,
                actor=actor, reason=reason, at=at,
            )  # fmt: skip
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

    def keep(self, said: Verdict) -> str:
        """Keep a verdict as evidence; its id."""
        row = {
            "tenant": self.tenant,
            "id": said.id,
            "channel": said.channel,
            "checkpoint": said.checkpoint,
            "outcome": said.outcome,
            "document": said.text,
        }
        made = insert_of(self.connection)(verdict).values(**row, made_at=now_us())
        self.connection.execute(made.on_conflict_do_nothing())
        return said.id

    def apply(self, after: Change, left: Left = "retired") -> Change:
        """Write the change, move the checkpoints, and put the notice into the outbox. Raises
        StateRefused, LineageBroken where a checkpoint cannot serve."""
        self._move(after, left)
        change = after.sealed()
        self.connection.execute(sa.insert(channel_change).values(**asdict(change)))
        self.connection.execute(
            sa.update(channel)
            .where(channel.c.tenant == self.tenant, channel.c.name == self.name)
            .values(version=change.version, hash=change.hash)
        )
        notices.note(self.connection, change)
        return change

    def _move(self, after: Change, left: Left) -> None:
        was = _served(self.before) if self.before is not None else set()
        is_ = _served(after)
        for one in self._held(sorted(was ^ is_)):
            place, told = (self.tenant, one.name), (after.actor, _why(after))
            if one.name in is_ and one.state != "serving":
                move(self.connection, place, (one.state, "serving"), told)
            if one.name in is_:
                check_chain(self.connection, one)
            elif not self._serves_elsewhere(one.name):
                move(self.connection, place, (one.state, left), told)

    def _serves_elsewhere(self, name: str) -> bool:
        found = channels_at(self.connection, self.tenant, name)
        return any(one.channel != self.name for one in found)

    def _held(self, names: Sequence[str]) -> list[Checkpoint]:
        return [find_in(self.connection, self.tenant, one, lock=True) for one in names]

    def _now(self) -> int:
        return int(self.connection.execute(sa.select(now_us())).scalar_one())


@contextmanager
def changing(
    database: Database, tenant: str, name: str, *, make: bool = False
) -> Iterator[Changing]:
    """Hold a channel until the block ends; what was applied is committed then. With `make` it need
    not be there. Raises ChannelUnknown."""
    if not name.isprintable():  # nobody's name, and some databases do not even take it
        raise ChannelUnknown(name=name)
    with database.write() as connection:
        if make:
            row = {"tenant": tenant, "name": name, "version": 0, "hash": NO_HASH}
            made = insert_of(connection)(channel).values(**row)
            connection.execute(made.on_conflict_do_nothing())
        held = connection.execute(
            sa.select(channel.c.version)
            .where(channel.c.tenant == tenant, channel.c.name == name)
            .with_for_update()
        ).first()
        if held is None:
            raise ChannelUnknown(name=name)
        yield Changing(connection, tenant, name, newest(connection, tenant, name))


def _served(change: Change) -> set[str]:
    return {one for one in (change.checkpoint, change.canary) if one is not None}


def _why(change: Change) -> str:
    return f"{change.action} of {change.channel}, version {change.version}: {change.reason}"
