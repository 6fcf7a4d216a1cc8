"""The shards that the metadata database knows: finding them, the marks on them, dropping them.

Dropping deletes a shard's files, and keeps its row, its manifest in a note, and its lineage. The
row says `dropping` before anything is deleted, and `dropped` afterwards. A drop that was cut off is
ended by the next one of the same shard, or by upkeep.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from importlib.metadata import entry_points

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.audit.chain import append
from penstock.audit.entry import Deed
from penstock.database.engine import Database, now_us
from penstock.lake.lake import Lake
from penstock.metrics import Metrics
from penstock.privacy.consents import NO_TRAIN
from penstock.settings import Settings
from penstock.shards.errors import ShardNeeded, ShardUnknown, ShardWithdrawn
from penstock.shards.manifest import (
    GoneNote,
    kept_manifest,
    replace_files_by_note,
    shard_folder,
)
from penstock.shards.settings import REFUSE, ShardSettings
from penstock.shards.tables import (
    DROPPED,
    DROPPING,
    shard,
    shard_file,
    shard_left_out,
    shard_mark,
)
from penstock.terminal.output import time_of


@dataclass(frozen=True)
class RegisteredShard:
    id: str
    tenant: str
    name: str
    snapshot: str
    snap: int
    samples: int
    tokens: int
    trainable: int
    bytes: int
    created_at: int
    #: Its files are gone, or going: `dropping`, `dropped`, `erased`.
    gone: str | None
    gone_at: int | None
    gone_why: str | None

    @property
    def folder(self) -> str:
        """Where its files lie in the store."""
        return shard_folder(self.tenant, self.id)


def list_shards(database: Database, tenant: str) -> list[RegisteredShard]:
    """The newest comes last."""
    columns = [shard.c[column.name] for column in fields(RegisteredShard)]
    query = sa.select(*columns).where(shard.c.tenant == tenant)
    with database.read() as connection:
        rows = connection.execute(query.order_by(shard.c.created_at, shard.c.id))
        return [RegisteredShard(*row) for row in rows]


def find_shard(database: Database, tenant: str, text: str) -> RegisteredShard:
    """By its id, the beginning of it, or a name: then the newest of it. Raises ShardUnknown."""
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
    """By its id or the beginning of it, of whichever tenant; of several the one of `tenant`."""
    columns = [shard.c[column.name] for column in fields(RegisteredShard)]
    query = sa.select(*columns).where(shard.c.id.startswith(shard_id, autoescape=True))
    with database.read() as connection:
        known = [RegisteredShard(*row) for row in connection.execute(query)]
    return min(known, key=lambda each: (each.tenant != tenant, each.id), default=None)


def marks_of(database: Database, tenant: str, shard_id: str) -> list[tuple[str, str]]:
    """(session, reason)."""
    columns = (shard_mark.c.session_id, shard_mark.c.reason)
    mine = (shard_mark.c.tenant == tenant, shard_mark.c.shard == shard_id)
    query = sa.select(*columns).where(*mine).order_by(*columns)
    with database.read() as connection:
        return [(row.session_id, row.reason) for row in connection.execute(query)]


def left_out_of(database: Database, tenant: str, shard_id: str) -> list[tuple[str, str]]:
    """Examples of sessions that it does not hold: (session, reason)."""
    columns = (shard_left_out.c.session_id, shard_left_out.c.reason)
    mine = (shard_left_out.c.tenant == tenant, shard_left_out.c.shard == shard_id)
    query = sa.select(*columns).where(*mine)
    with database.read() as connection:
        rows = connection.execute(query.order_by(*reversed(columns)))
        return [(row.session_id, row.reason) for row in rows]


# Consent that was withdrawn


def count_withdrawn(database: Database, tenant: str, shard_id: str) -> int:
    """How many of its sessions may not be trained on any more."""
    mine = (shard_mark.c.tenant == tenant, shard_mark.c.shard == shard_id)
    query = sa.select(sa.func.count(sa.distinct(shard_mark.c.session_id)))
    query = query.where(*mine, shard_mark.c.reason == NO_TRAIN)
    with database.read() as connection:
        return connection.scalar(query) or 0


def check_withdrawn(database: Database, settings: Settings, tenant: str, shard_id: str) -> int:
    """How many there are, where that may be read all the same. Raises ShardWithdrawn."""
    count = count_withdrawn(database, tenant, shard_id)
    if count and settings.room(ShardSettings).withdrawn_shards == REFUSE:
        raise ShardWithdrawn(shard=shard_id, sessions=count)
    return count


# Dropping

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
    with lake.database.read() as connection:
        row = connection.execute(sa.select(shard.c.gone_at, shard.c.gone_why).where(*mine)).one()
    folder, at = shard_folder(tenant, shard_id), time_of(row.gone_at).isoformat()
    note = GoneNote(
        how=DROPPED, at=at, why=row.gone_why, manifest=kept_manifest(lake.store, folder)
    )
    files = replace_files_by_note(lake.store, folder, note)
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
