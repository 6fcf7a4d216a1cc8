"""What a checkpoint came from and what came of it, and what it was trained on that it should not
have been."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.channels import channels_at
from penstock.checkpoints.checkpoints import Checkpoint, ancestors, find_in
from penstock.checkpoints.tables import checkpoint, checkpoint_move, checkpoint_shard
from penstock.database.engine import Database
from penstock.shards.tables import shard, shard_mark


@dataclass(frozen=True)
class TrainedOn:
    """A shard, and which of the line was trained on it."""

    checkpoint: str
    shard: str
    #: What the shard is called; None when it is known no more.
    name: str | None


@dataclass(frozen=True)
class Mark:
    """A session that a shard holds and should hold no more: who trained on it has learned it."""

    checkpoint: str
    shard: str
    session_id: str
    reason: str
    marked_at: int


@dataclass(frozen=True)
class ServedAs:
    channel: str
    arm: str


@dataclass(frozen=True)
class Move:
    """A step from one state to the next; the first has none before it."""

    from_state: str | None
    to_state: str
    actor: str
    reason: str
    at: int


@dataclass(frozen=True)
class Lineage:
    checkpoint: Checkpoint
    #: The parent first, then its parent.
    parents: tuple[Checkpoint, ...]
    children: tuple[str, ...]
    #: Those of the parents too, in the order of the line.
    shards: tuple[TrainedOn, ...]
    marks: tuple[Mark, ...]
    channels: tuple[ServedAs, ...]
    moves: tuple[Move, ...]


def lineage(database: Database, tenant: str, text: str) -> Lineage:
    """Of a checkpoint, by its name or digest. Raises CheckpointUnknown, LineageBroken."""
    with database.read() as connection:
        found = find_in(connection, tenant, text)
        parents = ancestors(connection, found)
        trained = _trained_on(connection, [found, *parents])
        return Lineage(
            checkpoint=found,
            parents=tuple(parents),
            children=_children(connection, found),
            shards=trained,
            marks=_marks(connection, tenant, trained),
            channels=tuple(
                ServedAs(one.channel, "current" if one.checkpoint == found.name else "canary")
                for one in channels_at(connection, tenant, found.name)
            ),
            moves=_moves(connection, found),
        )


@dataclass(frozen=True)
class Learner:
    """A checkpoint that was trained on a shard, or from one that was."""

    checkpoint: str
    state: str
    #: The checkpoint that it has it from; None where it was trained on the shard itself.
    through: str | None


def learners(database: Database, tenant: str, shard_id: str) -> list[Learner]:
    """All that learned from a shard, in the order in which they were registered."""
    named = sa.select(checkpoint_shard.c.checkpoint).where(
        checkpoint_shard.c.tenant == tenant, checkpoint_shard.c.shard == shard_id
    )
    columns = (checkpoint.c.name, checkpoint.c.state, checkpoint.c.parent)
    every = (
        sa.select(*columns)
        .where(checkpoint.c.tenant == tenant)
        .order_by(checkpoint.c.registered_at, checkpoint.c.name)
    )
    with database.read() as connection:
        trained = set(connection.scalars(named))
        rows = connection.execute(every).all()
    found: dict[str, Learner] = {}
    for row in rows:  # a parent was registered before its children
        if row.name in trained:
            found[row.name] = Learner(row.name, row.state, None)
        elif row.parent in found:
            found[row.name] = Learner(row.name, row.state, row.parent)
    return list(found.values())


def _children(connection: Connection, found: Checkpoint) -> tuple[str, ...]:
    query = (
        sa.select(checkpoint.c.name)
        .where(checkpoint.c.tenant == found.tenant, checkpoint.c.parent == found.name)
        .order_by(checkpoint.c.registered_at, checkpoint.c.name)
    )
    return tuple(connection.scalars(query))


def _trained_on(connection: Connection, line: Sequence[Checkpoint]) -> tuple[TrainedOn, ...]:
    held = [(one.name, id_) for one in line for id_ in one.shards]
    query = sa.select(shard.c.id, shard.c.name).where(shard.c.id.in_({id_ for _, id_ in held}))
    names = {row.id: row.name for row in connection.execute(query)}
    return tuple(TrainedOn(name, id_, names.get(id_)) for name, id_ in held)


def _marks(connection: Connection, tenant: str, trained: Sequence[TrainedOn]) -> tuple[Mark, ...]:
    columns = shard_mark.c
    query = (
        sa.select(columns.shard, columns.session_id, columns.reason, columns.marked_at)
        .where(columns.tenant == tenant, columns.shard.in_({one.shard for one in trained}))
        .order_by(columns.shard, columns.session_id, columns.reason)
    )
    found = connection.execute(query).all()
    return tuple(
        Mark(one.checkpoint, *row) for one in trained for row in found if row.shard == one.shard
    )


def _moves(connection: Connection, found: Checkpoint) -> tuple[Move, ...]:
    columns = checkpoint_move.c
    query = (
        sa.select(columns.from_state, columns.to_state, columns.actor, columns.reason, columns.at)
        .where(columns.tenant == found.tenant, columns.checkpoint == found.name)
        .order_by(columns.id)
    )
    return tuple(Move(*row) for row in connection.execute(query))
