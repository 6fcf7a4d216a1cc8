"""Checkpoints, scores and promotions, as the metadata database knows them: what the views over them
read. A reader at a moment sees what was there then."""

import pyarrow as pa
import sqlalchemy as sa

from penstock.channels.tables import channel_change
from penstock.checkpoints.tables import (
    benchmark_attempt,
    checkpoint,
    checkpoint_move,
    checkpoint_shard,
)
from penstock.database.engine import Database
from penstock.lake.known_rows import TIME, rows_of

CHECKPOINT_LIST = pa.schema(
    [
        pa.field("checkpoint", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("form", pa.string(), nullable=False),
        pa.field("parent", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("checked", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
        pa.field("note", pa.string(), nullable=False),
        pa.field("registered_by", pa.string(), nullable=False),
        pa.field("registered_at", TIME, nullable=False),
    ]
)
CHECKPOINT_SHARDS = pa.schema([pa.field("checkpoint", pa.string()), pa.field("shard", pa.string())])
ATTEMPT_LIST = pa.schema(
    [
        pa.field("checkpoint", pa.string(), nullable=False),
        pa.field("suite", pa.string(), nullable=False),
        pa.field("suite_version", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("error", pa.string()),
        pa.field("completion_tokens", pa.int64()),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("cost_usd", pa.float64()),
        pa.field("latency_s", pa.float64()),
        pa.field("steps", pa.int64()),
        pa.field("tool_calls", pa.int64()),
        pa.field("invalid_tool_calls", pa.int64()),
        pa.field("edited", pa.bool_()),
        pa.field("asked", pa.bool_()),
        pa.field("retries", pa.int32(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("scored_at", TIME, nullable=False),
    ]
)
PROMOTION_LIST = pa.schema(
    [
        pa.field("channel", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("checkpoint", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("previous", pa.string()),
        pa.field("canary", pa.string()),
        pa.field("canary_share", pa.float64()),
        pa.field("pinned", pa.bool_(), nullable=False),
        pa.field("policy", pa.string()),
        pa.field("verdict", pa.string()),
        pa.field("overridden", pa.bool_(), nullable=False),
        pa.field("actor", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("at", TIME, nullable=False),
        pa.field("previous_hash", pa.string(), nullable=False),
        pa.field("hash", pa.string(), nullable=False),
    ]
)


def checkpoints_at(database: Database, moment: int | None, tenant: str) -> pa.Table:
    """CHECKPOINT_LIST, each in the state that it had."""
    moves = checkpoint_move.c
    latest = (
        sa.select(moves.to_state)
        .where(moves.tenant == tenant, moves.checkpoint == checkpoint.c.name)
        .where(_until(moves.at, moment))
        .order_by(moves.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    columns = [
        checkpoint.c.name if field.name == "checkpoint"
        else sa.func.coalesce(latest, checkpoint.c.state) if field.name == "state"
        else checkpoint.c[field.name]
        for field in CHECKPOINT_LIST
    ]  # fmt: skip
    query = (
        sa.select(*columns)
        .where(checkpoint.c.tenant == tenant, _until(checkpoint.c.registered_at, moment))
        .order_by(checkpoint.c.registered_at, checkpoint.c.name)
    )
    return rows_of(database, query, CHECKPOINT_LIST)


def checkpoint_shards(database: Database, tenant: str) -> pa.Table:
    """CHECKPOINT_SHARDS of every checkpoint; they come with it and never change."""
    query = (
        sa.select(checkpoint_shard.c.checkpoint, checkpoint_shard.c.shard)
        .where(checkpoint_shard.c.tenant == tenant)
        .order_by(checkpoint_shard.c.checkpoint, checkpoint_shard.c.shard)
    )
    return rows_of(database, query, CHECKPOINT_SHARDS)


def attempts_at(database: Database, moment: int | None, tenant: str) -> pa.Table:
    """ATTEMPT_LIST."""
    columns = [benchmark_attempt.c[name] for name in ATTEMPT_LIST.names]
    mine = benchmark_attempt.c.tenant == tenant
    query = (
        sa.select(*columns)
        .where(mine, _until(benchmark_attempt.c.scored_at, moment))
        .order_by(*columns[:5])
    )
    return rows_of(database, query, ATTEMPT_LIST)


def promotions_at(database: Database, moment: int | None, tenant: str) -> pa.Table:
    """PROMOTION_LIST."""
    columns = [channel_change.c[name] for name in PROMOTION_LIST.names]
    mine = channel_change.c.tenant == tenant
    query = (
        sa.select(*columns).where(mine, _until(channel_change.c.at, moment)).order_by(*columns[:2])
    )
    return rows_of(database, query, PROMOTION_LIST)


def _until(column: sa.Column[int], moment: int | None) -> sa.ColumnElement[bool]:
    return sa.true() if moment is None else column <= moment
