"""The lineage of a checkpoint: parents, children, shards, and marked sessions that it learned
from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

import msgspec
import sqlalchemy as sa

from penstock.access.privacy.consents import NO_TRAIN
from penstock.backends.database.engine import Database, portions
from penstock.backends.terminal.output import time_text
from penstock.events.event import session_key
from penstock.lake.segments import may_hold, read_filter, session_prefixes
from penstock.registry.checkpoints.checkpoint import Checkpoint, Learner, LineageBroken, StateMove
from penstock.registry.checkpoints.registration import ancestors, find_in
from penstock.registry.checkpoints.tables import checkpoint, checkpoint_move, checkpoint_shard
from penstock.shards.tables import ERASED, shard, shard_mark


class TrainingShard(msgspec.Struct, frozen=True):
    """A shard that trained a checkpoint. `name` is None if it is no longer registered."""

    checkpoint: str
    shard: str
    name: str | None


class ShardMark(msgspec.Struct, frozen=True):
    checkpoint: str
    shard: str
    session_id: str
    reason: str
    marked_at: str


class MarkedTraining(msgspec.Struct, frozen=True):
    """Counts of learned sessions that were erased or lost their consent, and their shards."""

    erased: int = 0
    withdrawn: int = 0
    shards: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lineage:
    """`parents` start with the nearest; `shards` and `marks` include the parents'."""

    checkpoint: Checkpoint
    parents: tuple[Checkpoint, ...]
    children: tuple[str, ...]
    shards: tuple[TrainingShard, ...]
    marks: tuple[ShardMark, ...]
    moves: tuple[StateMove, ...]


def lineage(database: Database, tenant: str, text: str) -> Lineage:
    """The lineage of a checkpoint by name or digest. Raises CheckpointUnknown, LineageBroken."""
    with database.read() as connection:
        subject = find_in(connection, tenant, text)
        parents = ancestors(connection, subject)
        children = (
            sa.select(checkpoint.c.name)
            .where(checkpoint.c.tenant == tenant, checkpoint.c.parent == subject.name)
            .order_by(checkpoint.c.registered_at, checkpoint.c.name)
        )
        ancestry = (subject, *parents)
        trained = [(learner.name, each) for learner in ancestry for each in learner.shards]
        ids = {each for _, each in trained}
        mine = (shard.c.tenant == tenant, shard.c.id.in_(ids))
        named = sa.select(shard.c.id, shard.c.name).where(*mine)
        names = {row.id: row.name for row in connection.execute(named)}
        columns = shard_mark.c
        marked = (
            sa.select(columns.shard, columns.session_id, columns.reason, columns.marked_at)
            .where(columns.tenant == tenant, columns.shard.in_(ids))
            .order_by(columns.shard, columns.session_id, columns.reason)
        )
        marks = [(*row[:3], time_text(row[3])) for row in connection.execute(marked)]
        steps = checkpoint_move.c
        moves = (
            sa.select(*(steps[field.name] for field in fields(StateMove)))
            .where(steps.tenant == tenant, steps.checkpoint == subject.name)
            .order_by(steps.id)
        )
        known = [
            StateMove(**{**row._mapping, "at": time_text(row.at)})
            for row in connection.execute(moves)
        ]
        return Lineage(
            checkpoint=subject,
            parents=tuple(parents),
            children=tuple(connection.scalars(children)),
            shards=tuple(TrainingShard(name, each, names.get(each)) for name, each in trained),
            marks=tuple(
                ShardMark(name, *row) for name, each in trained for row in marks if row[0] == each
            ),
            moves=tuple(known),
        )


def _learned_shards(connection: sa.Connection, subject: Checkpoint) -> list[str]:
    """The shards of a checkpoint and its known parents."""
    try:
        ancestry = [subject, *ancestors(connection, subject)]
    except LineageBroken:
        ancestry = [subject]
    return sorted({each for learner in ancestry for each in learner.shards})


def learned_of(
    connection: sa.Connection, subject: Checkpoint, sessions: Sequence[str]
) -> list[str]:
    """The sessions among some that a checkpoint or its parents learned from, by the filters of
    their shards, which are hardly ever wrong."""
    prefixes = session_prefixes(session_key(subject.tenant, session) for session in sessions)
    found: set[str] = set()
    for some in portions(_learned_shards(connection, subject)) if sessions else ():
        query = sa.select(shard.c.session_filter).where(shard.c.id.in_(some))
        for stored in connection.scalars(query.where(shard.c.tenant == subject.tenant)):
            hits = may_hold(read_filter(stored), prefixes)
            found |= {session for session, hit in zip(sessions, hits, strict=True) if hit}
    return sorted(found)


def marked_training(connection: sa.Connection, subject: Checkpoint) -> MarkedTraining:
    """Marked sessions in the shards of a checkpoint and its known parents."""
    ids = _learned_shards(connection, subject)
    columns = shard_mark.c
    marks = sa.select(columns.shard, columns.session_id, columns.reason)
    marks = marks.where(columns.tenant == subject.tenant)
    rows = [
        row
        for some in portions(ids)
        for row in connection.execute(marks.where(columns.shard.in_(some)))
    ]
    sessions = {(row.reason, row.session_id) for row in rows}
    counts = Counter(reason for reason, _ in sessions)
    shards = tuple(sorted({row.shard for row in rows if row.reason in {ERASED, NO_TRAIN}}))
    return MarkedTraining(counts[ERASED], counts[NO_TRAIN], shards)


def learners(database: Database, tenant: str, shard_id: str) -> list[Learner]:
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
    for row in rows:  # parents are registered before their children
        if row.name in trained:
            by_name[row.name] = Learner(row.name, row.state, None)
        elif row.parent in by_name:
            by_name[row.name] = Learner(row.name, row.state, row.parent)
    return list(by_name.values())
