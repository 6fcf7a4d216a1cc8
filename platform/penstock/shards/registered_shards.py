"""Shards in the metadata database: finding them, marks on their sessions, and dropping them.

Dropping deletes a shard's files but keeps its row, its lineage, and its manifest in a note. The row
says `dropping` before anything is deleted, and `dropped` afterwards. An interrupted drop is
finished by the next one, or by upkeep.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.consents import NO_TRAIN
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed, Facts
from penstock.backends.database.engine import Database, now_us
from penstock.backends.terminal.output import time_text
from penstock.core.metrics import Metrics
from penstock.core.room import rooms
from penstock.core.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.query.view_sources import ViewSources
from penstock.shards.manifest import (
    GoneNote,
    StoredShard,
    kept_manifest,
    replace_files_by_note,
    stored_shard,
)
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.shard import (
    REFUSE,
    RegisteredShard,
    ShardDropped,
    ShardNeeded,
    ShardSettings,
    ShardUnknown,
    ShardWithdrawn,
    shard_folder,
)
from penstock.shards.tables import (
    DROPPED,
    DROPPING,
    of_shard,
    shard,
    shard_file,
    shard_left_out,
    shard_mark,
)


def _shards(database: Database, condition: sa.ColumnElement[bool]) -> list[RegisteredShard]:
    columns = [shard.c[column.name] for column in fields(RegisteredShard)]
    query = sa.select(*columns).where(condition).order_by(shard.c.created_at, shard.c.id)
    rows = [row._asdict() for row in database.rows(query)]
    for row in rows:
        at = row["gone_at"]
        row |= {"created_at": time_text(row["created_at"]), "gone_at": at and time_text(at)}
    return [RegisteredShard(**row) for row in rows]


def list_shards(database: Database, tenant: str) -> list[RegisteredShard]:
    """List shards; the newest comes last."""
    return _shards(database, shard.c.tenant == tenant)


def find_shard(database: Database, tenant: str, text: str) -> RegisteredShard:
    """Find a shard by its id, the beginning of it, or a name: then the newest. Raises
    ShardUnknown."""
    known = list_shards(database, tenant)
    digits = text.removeprefix("sha256:")
    matches = [each for each in known if each.id == text]
    matches = matches or [each for each in known if each.name == text][-1:]
    start = f"sha256:{digits}"
    matches = matches or [each for each in known if digits and each.id.startswith(start)]
    if len(matches) != 1:
        raise ShardUnknown(
            shard=text, why="several ids begin like this" if matches else "it does not exist"
        )
    return matches[0]


def find_by_id(database: Database, tenant: str, shard_id: str) -> RegisteredShard | None:
    """Find a shard by the beginning of its id, of any tenant; preferably of `tenant`."""
    known = _shards(database, shard.c.id.startswith(shard_id, autoescape=True))
    return min(known, key=lambda each: (each.tenant != tenant, each.id), default=None)


def marks_of(database: Database, tenant: str, shard_id: str) -> list[tuple[str, str]]:
    """Sessions of a shard that were erased or lost their consent, with reasons."""
    return sorted(_sessions(database, shard_mark, tenant, shard_id))


def left_out_of(database: Database, tenant: str, shard_id: str) -> list[tuple[str, str]]:
    """Example sessions that were left out, by reason."""
    found = _sessions(database, shard_left_out, tenant, shard_id)
    return sorted(found, key=lambda each: each[::-1])


def _sessions(
    database: Database, table: sa.Table, tenant: str, shard_id: str
) -> list[tuple[str, str]]:
    query = sa.select(table.c.session_id, table.c.reason).where(of_shard(table, tenant, shard_id))
    return [(row.session_id, row.reason) for row in database.rows(query)]


# Withdrawn consent


def check_withdrawn(database: Database, settings: Settings, tenant: str, shard_id: str) -> int:
    """Count sessions that must no longer be trained on. Raises ShardWithdrawn."""
    query = sa.select(sa.func.count()).where(of_shard(shard_mark, tenant, shard_id))
    count = database.scalar(query.where(shard_mark.c.reason == NO_TRAIN)) or 0
    if count and settings.room(ShardSettings).withdrawn_shards == REFUSE:
        raise ShardWithdrawn(shard=shard_id, sessions=count)
    return count


def readable_shard(lake: Lake, tenant: str, text: str) -> StoredShard:
    """Find a shard that may be read. Raises ShardUnknown, ShardWithdrawn, ShardMissing, ShardGone,
    ShardDamaged."""
    known = find_shard(lake.database, tenant, text)
    check_withdrawn(lake.database, lake.settings, tenant, known.id)
    return stored_shard(lake.store, known.folder, known.id)


# Dropping

#: A room's reasons to keep a tenant's shard, one sentence each.
ShardUses = Callable[[Connection, str, str], Iterable[str]]


def drop_shard(
    lake: Lake, tenant: str, text: str, *, by: str, reason: str = "", force: bool = False
) -> ShardDropped:
    """Drop a shard by its id, the beginning of it, or its name. Dropping is final. Raises
    ShardUnknown, ShardNeeded."""
    known = find_shard(lake.database, tenant, text)
    mine = of_shard(shard, tenant, known.id)
    with lake.database.write() as connection:
        query = sa.select(shard.c.gone).where(mine).with_for_update()
        gone = connection.execute(query).scalar_one()
        needed: list[str] = []
        if gone is None:
            uses: list[ShardUses] = [find for room in rooms() for find in room.shard_uses()]
            needed = [why for find in uses for why in find(connection, tenant, known.id)]
            if needed and not force:
                raise ShardNeeded(shard=known.id, why="; ".join(needed))
            going = {"gone": DROPPING, "gone_at": now_us(), "gone_why": reason}
            connection.execute(sa.update(shard).where(mine).values(**going))
            # New queries no longer look for its rows.
            files = of_shard(shard_file, tenant, known.id)
            connection.execute(sa.delete(shard_file).where(files))
            facts: Facts = {"name": known.name, "samples": known.samples, "needed": len(needed)}
            append(connection, Deed(tenant, by, "drop", known.id, facts))
    deleted = _finish(lake, tenant, known.id) if gone in (None, DROPPING) else 0
    return ShardDropped(known.id, deleted, known.bytes if deleted else 0, needed, known.snapshot)


def _finish(lake: Lake, tenant: str, shard_id: str) -> int:
    mine = of_shard(shard, tenant, shard_id)
    with lake.database.read() as connection:
        row = connection.execute(sa.select(shard.c.gone_at, shard.c.gone_why).where(mine)).one()
    folder, at = shard_folder(tenant, shard_id), time_text(row.gone_at)
    kept = kept_manifest(lake.store, folder)
    note = GoneNote(how=DROPPED, at=at, why=row.gone_why, manifest=kept)
    files = replace_files_by_note(lake.store, folder, note)
    done = sa.update(shard).where(mine, shard.c.gone == DROPPING)
    with lake.database.write() as connection:
        connection.execute(done.values(gone=DROPPED, bytes=0))
    return files


def finish_drops(lake: Lake, _metrics: Metrics) -> str | None:
    """Finish interrupted drops: an upkeep job."""
    query = sa.select(shard.c.tenant, shard.c.id).where(shard.c.gone == DROPPING)
    dropping = lake.database.rows(query)
    files = sum(_finish(lake, row.tenant, row.id) for row in dropping)
    return f"deleted {files} files of {len(dropping)} dropped shards" if dropping else None


_COLUMNS = [
    *("id", "name", "snapshot", "snap", "samples", "tokens", "trainable", "bytes", "created_at"),
    "gone",
]
_SAMPLE_COLUMNS = [
    *("sample_id", "session_id", "rollout_id", "group_id", "task_id", "branch_index", "chain_pos"),
    *("n_tokens", "n_trainable", "min_policy_version", "max_policy_version", "reward", "advantage"),
    *("loss_weight", "status", "token_source", "tokenizer_id", "checkpoint_id", "license"),
    *("split", "consent", "created_at", "documents"),
]
#: The empty table that `samples` reads without shards.
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
        shards = {row.name: row.shard for row in sources.database.rows(files)}
        paths = sources.bind_files("stored_samples", list(shards), _SAMPLE_ROWS, with_paths=True)
        columns = [pa.array(values, pa.string()) for values in (paths, shards.values())]
        shard_paths = pa.Table.from_arrays(columns, names=["filename", "shard"])
        sources.connection.register("shard_paths", shard_paths)
