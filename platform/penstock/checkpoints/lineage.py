"""What a checkpoint came from, what was trained from it, and which marked sessions it learned."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.checkpoint import Checkpoint
from penstock.checkpoints.registration import ancestors, find_in
from penstock.checkpoints.tables import checkpoint, checkpoint_move, checkpoint_shard
from penstock.database.engine import Database
from penstock.shards.tables import shard, shard_mark


@dataclass(frozen=True)
class TrainingShard:
    """A shard, and the checkpoint that was trained on it. `name` is None for a shard that is no
    longer registered."""

    checkpoint: str
    shard: str
    name: str | None


@dataclass(frozen=True)
class ShardMark:
    """A session that should not be in a shard any more, and a checkpoint that learned it."""

    checkpoint: str
    shard: str
    session_id: str
    reason: str
    marked_at: int


@dataclass(frozen=True)
class StateMove:
    """A step from one state to the next. The first has no state before it."""

    from_state: str | None
    to_state: str
    actor: str
    reason: str
    at: int


@dataclass(frozen=True)
class Lineage:
    """`parents` begin with the nearest; `shards` and `marks` include those of the parents."""

    checkpoint: Checkpoint
    parents: tuple[Checkpoint, ...]
    children: tuple[str, ...]
    shards: tuple[TrainingShard, ...]
    marks: tuple[ShardMark, ...]
    moves: tuple[StateMove, ...]


def lineage(database: Database, tenant: str, text: str) -> Lineage:
    """Of a checkpoint, by its name or digest. Raises CheckpointUnknown, LineageBroken."""
    with database.read() as connection:
        subject = find_in(connection, tenant, text)
        parents = ancestors(connection, subject)
        shards = _training_shards(connection, [subject, *parents])
        return Lineage(
            checkpoint=subject,
            parents=tuple(parents),
            children=_children(connection, subject),
            shards=shards,
            marks=_marks(connection, tenant, shards),
            moves=_moves(connection, subject),
        )


@dataclass(frozen=True)
class Learner:
    """A checkpoint that was trained on a shard, or whose parent was. `through` is the parent that
    it inherited the shard from, None where it was trained on the shard itself."""

    checkpoint: str
    state: str
    through: str | None


def learners(database: Database, tenant: str, shard_id: str) -> list[Learner]:
    """All checkpoints that learned from a shard, in the order in which they were registered."""
    named = sa.select(checkpoint_shard.c.checkpoint).where(
        checkpoint_shard.c.tenant == tenant, checkpoint_shard.c.shard == shard_id
    )
    every = (
        sa.select(checkpoint.c.name, checkpoint.c.state, checkpoint.c.parent)
        .where(checkpoint.c.tenant == tenant)
        .order_by(checkpoint.c.registered_at, checkpoint.c.name)
    )
    with database.read() as connection:
        trained = set(connection.scalars(named))
        rows = connection.execute(every).all()
    by_name: dict[str, Learner] = {}
    for row in rows:  # a parent was registered before its children
        if row.name in trained:
            by_name[row.name] = Learner(row.name, row.state, None)
        elif row.parent in by_name:
            by_name[row.name] = Learner(row.name, row.state, row.parent)
    return list(by_name.values())


def _children(connection: Connection, subject: Checkpoint) -> tuple[str, ...]:
    query = (
        sa.select(checkpoint.c.name)
        .where(checkpoint.c.tenant == subject.tenant, checkpoint.c.parent == subject.name)
        .order_by(checkpoint.c.registered_at, checkpoint.c.name)
    )
    return tuple(connection.scalars(query))


def _training_shards(
    connection: Connection, line: Sequence[Checkpoint]
) -> tuple[TrainingShard, ...]:
    trained = [(member.name, shard_id) for member in line for shard_id in member.shards]
    query = sa.select(shard.c.id, shard.c.name).where(
        shard.c.id.in_({shard_id for _, shard_id in trained})
    )
    names = {row.id: row.name for row in connection.execute(query)}
    return tuple(TrainingShard(name, shard_id, names.get(shard_id)) for name, shard_id in trained)


def _marks(
    connection: Connection, tenant: str, shards: Sequence[TrainingShard]
) -> tuple[ShardMark, ...]:
    columns = shard_mark.c
    query = (
        sa.select(columns.shard, columns.session_id, columns.reason, columns.marked_at)
        .where(columns.tenant == tenant, columns.shard.in_({entry.shard for entry in shards}))
        .order_by(columns.shard, columns.session_id, columns.reason)
    )
    rows = connection.execute(query).all()
    return tuple(
        ShardMark(entry.checkpoint, *row)
        for entry in shards
        for row in rows
        if row.shard == entry.shard
    )


def _moves(connection: Connection, subject: Checkpoint) -> tuple[StateMove, ...]:
    columns = checkpoint_move.c
    query = (
        sa.select(columns.from_state, columns.to_state, columns.actor, columns.reason, columns.at)
        .where(columns.tenant == subject.tenant, columns.checkpoint == subject.name)
        .order_by(columns.id)
    )
    return tuple(StateMove(*row) for row in connection.execute(query))
