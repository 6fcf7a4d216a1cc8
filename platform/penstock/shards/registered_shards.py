"""The shards that the metadata database knows: finding them, the marks on them, dropping them.

Dropping deletes a shard's files, and keeps its row, its manifest in a note, and its lineage. The
row says `dropping` before anything is deleted, and `dropped` afterwards. One that was cut off is
ended by the next, or by upkeep.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.consents import NO_TRAIN
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed
from penstock.backends.database.engine import Database, now_us
from penstock.backends.terminal.output import time_text
from penstock.core.metrics import Metrics
from penstock.core.room import rooms
from penstock.core.settings import Settings
from penstock.lake.lake import Lake
from penstock.shards.errors import ShardNeeded, ShardUnknown, ShardWithdrawn
from penstock.shards.manifest import GoneNote, kept_manifest, replace_files_by_note, shard_folder
from penstock.shards.settings import REFUSE, ShardSettings
from penstock.shards.shard import RegisteredShard, ShardDropped
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
    with database.read() as connection:
        rows = [row._asdict() for row in connection.execute(query)]
    for row in rows:
        at = row["gone_at"]
        row |= {"created_at": time_text(row["created_at"]), "gone_at": at and time_text(at)}
    return [RegisteredShard(**row) for row in rows]


def list_shards(database: Database, tenant: str) -> list[RegisteredShard]:
    """The newest comes last."""
    return _shards(database, shard.c.tenant == tenant)


def find_shard(database: Database, tenant: str, text: str) -> RegisteredShard:
    """Find one by its id, the beginning of it, or a name: then the newest. Raises ShardUnknown."""
    known = list_shards(database, tenant)
    digits = text.removeprefix("sha256:")
    matches = [each for each in known if each.id == text]
    matches = matches or [each for each in known if each.name == text][-1:]
    start = f"sha256:{digits}"
    matches = matches or [each for each in known if digits and each.id.startswith(start)]
    if len(matches) != 1:
        raise ShardUnknown(shard=text, why="several begin so" if matches else "there is none")
    return matches[0]


def find_by_id(database: Database, tenant: str, shard_id: str) -> RegisteredShard | None:
    """Find one by the beginning of its id, of any tenant; of several the one of `tenant`."""
    known = _shards(database, shard.c.id.startswith(shard_id, autoescape=True))
    return min(known, key=lambda each: (each.tenant != tenant, each.id), default=None)


def marks_of(database: Database, tenant: str, shard_id: str) -> list[tuple[str, str]]:
    """Its sessions that should be in it no more, with reasons."""
    return sorted(_sessions(database, shard_mark, tenant, shard_id))


def left_out_of(database: Database, tenant: str, shard_id: str) -> list[tuple[str, str]]:
    """Examples of sessions that it does not hold, by their reasons."""
    found = _sessions(database, shard_left_out, tenant, shard_id)
    return sorted(found, key=lambda each: each[::-1])


def _sessions(
    database: Database, table: sa.Table, tenant: str, shard_id: str
) -> list[tuple[str, str]]:
    query = sa.select(table.c.session_id, table.c.reason).where(of_shard(table, tenant, shard_id))
    with database.read() as connection:
        return [(row.session_id, row.reason) for row in connection.execute(query)]


# Consent that was withdrawn


def check_withdrawn(database: Database, settings: Settings, tenant: str, shard_id: str) -> int:
    """Count those of its sessions that may not be trained on any more. Raises ShardWithdrawn."""
    query = sa.select(sa.func.count()).where(of_shard(shard_mark, tenant, shard_id))
    with database.read() as connection:
        count = connection.scalar(query.where(shard_mark.c.reason == NO_TRAIN)) or 0
    if count and settings.room(ShardSettings).withdrawn_shards == REFUSE:
        raise ShardWithdrawn(shard=shard_id, sessions=count)
    return count


# Dropping

#: A room's reasons why a tenant's shard is still needed, one sentence each.
ShardUses = Callable[[Connection, str, str], Iterable[str]]


def drop_shard(
    lake: Lake, tenant: str, text: str, *, by: str, reason: str = "", force: bool = False
) -> ShardDropped:
    """Drop one by its id, the beginning of it, or its name. What is gone stays gone. Raises
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
            # Queries that begin now do not look for its rows.
            files = of_shard(shard_file, tenant, known.id)
            connection.execute(sa.delete(shard_file).where(files))
            facts: dict[str, str | int | None] = {"name": known.name, "samples": known.samples}
            place = {"tenant": tenant, "actor": by, "subject": known.id}
            append(connection, Deed(**place, action="drop", facts=facts | {"needed": len(needed)}))
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
    """An upkeep job: end what was cut off."""
    query = sa.select(shard.c.tenant, shard.c.id).where(shard.c.gone == DROPPING)
    with lake.database.read() as connection:
        dropping = connection.execute(query).all()
    files = sum(_finish(lake, row.tenant, row.id) for row in dropping)
    return f"deleted {files} files of {len(dropping)} dropped shards" if dropping else None
