"""Dropping a shard: its files go, and what it was stays: its row with counts, its manifest in a
note, its lineage.

The row says `dropping` before anything is deleted, and `dropped` afterwards. A drop that was cut
off is ended by the next one of the same shard, or by upkeep.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.audit.chain import append
from penstock.audit.entry import Deed
from penstock.database.engine import now_us
from penstock.lake.lake import Lake
from penstock.metrics import Metrics
from penstock.shards.errors import ShardNeeded
from penstock.shards.manifest import GoneNote, kept_manifest, replace_files_by_note
from penstock.shards.registered_shards import find_shard
from penstock.shards.tables import DROPPED, DROPPING, shard, shard_file
from penstock.terminal.output import time_of

#: A room's reasons why a tenant's shard is still needed, one sentence each. Rooms hand theirs in
#: as entry points of the group `penstock.shard_uses`.
ShardUses = Callable[[Connection, str, str], Iterable[str]]


@dataclass(frozen=True)
class ShardRemoval:
    shard: str
    #: Deleted now; none where it was gone before.
    files: int
    bytes: int
    #: What needed it, and was overruled.
    needed: list[str]
    #: What it was built from; it keeps files of the lake until it is dropped too.
    snapshot: str


def uses_of(connection: Connection, tenant: str, shard_id: str) -> list[str]:
    rooms: list[ShardUses] = [
        entry.load() for entry in sorted(entry_points(group="penstock.shard_uses"))
    ]
    return [reason for room in rooms for reason in room(connection, tenant, shard_id)]


def drop_shard(
    lake: Lake, tenant: str, text: str, *, by: str, reason: str = "", force: bool = False
) -> ShardRemoval:
    """By its id, the beginning of it, or its name. One that is gone stays gone. Raises
    ShardUnknown, ShardNeeded."""
    known = find_shard(lake.database, tenant, text)
    mine = (shard.c.tenant == tenant, shard.c.id == known.id)
    with lake.database.write() as connection:
        query = sa.select(shard.c.gone).where(*mine).with_for_update()
        gone = connection.execute(query).scalar_one()
        needed: list[str] = []
        if gone is None:
            needed = uses_of(connection, tenant, known.id)
            if needed and not force:
                raise ShardNeeded(shard=known.id, why="; ".join(needed))
            going = {"gone": DROPPING, "gone_at": now_us(), "gone_why": reason}
            connection.execute(sa.update(shard).where(*mine).values(**going))
            # Queries that begin now do not look for its rows.
            files = (shard_file.c.tenant == tenant, shard_file.c.shard == known.id)
            connection.execute(sa.delete(shard_file).where(*files))
            facts: dict[str, str | int | None] = {"name": known.name, "samples": known.samples}
            place = {"tenant": tenant, "actor": by, "subject": known.id}
            append(connection, Deed(**place, action="drop", facts=facts | {"needed": len(needed)}))
    deleted = _finish(lake, tenant, known.id) if gone in (None, DROPPING) else 0
    return ShardRemoval(known.id, deleted, known.bytes if deleted else 0, needed, known.snapshot)


def _finish(lake: Lake, tenant: str, shard_id: str) -> int:
    mine = (shard.c.tenant == tenant, shard.c.id == shard_id)
    columns = (shard.c.folder, shard.c.gone_at, shard.c.gone_why)
    with lake.database.read() as connection:
        row = connection.execute(sa.select(*columns).where(*mine)).one()
    at, manifest = time_of(row.gone_at).isoformat(), kept_manifest(lake.store, row.folder)
    note = GoneNote(how=DROPPED, at=at, why=row.gone_why, manifest=manifest)
    files = replace_files_by_note(lake.store, row.folder, note)
    done = sa.update(shard).where(*mine, shard.c.gone == DROPPING)
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
