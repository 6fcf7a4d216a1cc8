"""The views `shards` and `samples`: what a reader at the snap of a query sees of them."""

import pyarrow as pa
import sqlalchemy as sa

from penstock.lake.query.view_sources import ViewSources
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.tables import shard, shard_file, shard_mark

_COLUMNS = [
    *("id", "name", "snapshot", "snap", "samples", "tokens", "trainable", "bytes", "created_at"),
    "gone",
]
_SAMPLE_COLUMNS = [
    *("sample_id", "session_id", "rollout_id", "group_id", "task_id", "branch_index", "chain_pos"),
    *("n_tokens", "n_trainable", "min_policy_version", "max_policy_version", "reward", "advantage"),
    *("loss_weight", "status", "token_source", "tokenizer_id", "checkpoint_id", "license"),
    *("split", "consent", "created_at"),
]
#: What `samples` reads of the shards' files, where there are none.
_SAMPLE_ROWS = pa.schema([SHARD_ROWS.field(name).with_nullable(True) for name in _SAMPLE_COLUMNS])


def bind_views(sources: ViewSources, views: frozenset[str]) -> None:
    visible = (shard.c.tenant == sources.tenant) & (shard.c.added_snap <= sources.snap)
    if "shards" in views:
        marks = (
            sa.select(sa.func.count(sa.distinct(shard_mark.c.session_id)))
            .where(shard_mark.c.tenant == shard.c.tenant, shard_mark.c.shard == shard.c.id)
            .scalar_subquery()
        )
        columns = [shard.c[name] for name in _COLUMNS]
        marked = sa.type_coerce(marks, sa.BigInteger).label("marked_sessions")
        query = sa.select(*columns, marked).where(visible)
        sources.bind_query("shard_list", query.order_by(shard.c.created_at, shard.c.id))
    if "samples" in views:
        files = (
            sa.select(shard_file.c.name, shard_file.c.shard)
            .join(
                shard, (shard.c.id == shard_file.c.shard) & (shard.c.tenant == shard_file.c.tenant)
            )
            .where(visible)
            .order_by(shard_file.c.name)
        )
        with sources.database.read() as connection:
            shards = {row.name: row.shard for row in connection.execute(files)}
        paths = sources.bind_files("stored_samples", list(shards), _SAMPLE_ROWS, with_paths=True)
        columns = [pa.array(values, pa.string()) for values in (paths, shards.values())]
        shard_paths = pa.Table.from_arrays(columns, names=["filename", "shard"])
        sources.connection.register("shard_paths", shard_paths)
