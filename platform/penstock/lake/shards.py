"""Training shards, as the metadata database knows them: what the views over them read."""

import pyarrow as pa
import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.lake.known_rows import TIME, rows_of
from penstock.shards.tables import shard, shard_file, shard_mark

#: A row a shard. `marked_sessions` are those that it holds and should hold no more.
SHARD_LIST = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("snapshot", pa.string(), nullable=False),
        pa.field("snap", pa.int64(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64(), nullable=False),
        pa.field("trainable", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("marked_sessions", pa.int64(), nullable=False),
        pa.field("created_at", TIME, nullable=False),
    ]
)
#: What the view `samples` reads of the shards' files, where there are none.
SAMPLE_ROWS = pa.schema(
    [
        pa.field("sample_id", pa.string()),
        pa.field("session_id", pa.string()),
        pa.field("rollout_id", pa.string()),
        pa.field("group_id", pa.string()),
        pa.field("task_id", pa.string()),
        pa.field("branch_index", pa.int16()),
        pa.field("chain_pos", pa.int16()),
        pa.field("n_tokens", pa.int32()),
        pa.field("n_trainable", pa.int32()),
        pa.field("min_policy_version", pa.int32()),
        pa.field("max_policy_version", pa.int32()),
        pa.field("reward", pa.float32()),
        pa.field("advantage", pa.float32()),
        pa.field("loss_weight", pa.float32()),
        pa.field("status", pa.string()),
        pa.field("token_source", pa.string()),
        pa.field("checkpoint_id", pa.string()),
        pa.field("split", pa.string()),
        pa.field("consent", pa.string()),
        pa.field("created_at", TIME),
        pa.field("filename", pa.string()),
    ]
)
#: Which shard a file belongs to, by the path under which the query finds it.
SHARD_PATHS = pa.schema([pa.field("filename", pa.string()), pa.field("shard", pa.string())])


def shards_at(database: Database, snap: int, tenant: str) -> pa.Table:
    """Those of a tenant that a reader at `snap` sees: SHARD_LIST. Marks are those of now."""
    marks = (
        sa.select(sa.func.count(sa.distinct(shard_mark.c.session_id)))
        .where(shard_mark.c.shard == shard.c.id)
        .scalar_subquery()
    )
    columns = [shard.c[one] for one in SHARD_LIST.names[1:8]]
    query = (
        sa.select(shard.c.id, *columns, marks, shard.c.created_at)
        .where(shard.c.tenant == tenant, shard.c.added_snap <= snap)
        .order_by(shard.c.created_at, shard.c.id)
    )
    return rows_of(database, query, SHARD_LIST)


def shard_files_at(database: Database, snap: int, tenant: str) -> dict[str, str]:
    """The files of those shards, with the shard of each."""
    query = (
        sa.select(shard_file.c.name, shard_file.c.shard)
        .join(shard, shard.c.id == shard_file.c.shard)
        .where(shard.c.tenant == tenant, shard.c.added_snap <= snap)
        .order_by(shard_file.c.name)
    )
    with database.read() as connection:
        return {row.name: row.shard for row in connection.execute(query)}
