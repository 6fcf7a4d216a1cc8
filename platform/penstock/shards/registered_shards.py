"""The shards that the metadata database knows, and the marks on them."""

from dataclasses import dataclass, fields

import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.shards.errors import ShardUnknown
from penstock.shards.manifest import shard_folder
from penstock.shards.tables import shard, shard_left_out, shard_mark


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
    #: Where its files lie in the store.
    folder: str
    #: Its files are gone, or going: `dropping`, `dropped`, `erased`.
    gone: str | None
    gone_at: int | None
    gone_why: str | None


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


def known_folder(database: Database, tenant: str, shard_id: str) -> str:
    """Where a shard with this id lies, or would lie if it were built now."""
    query = sa.select(shard.c.folder).where(shard.c.tenant == tenant, shard.c.id == shard_id)
    with database.read() as connection:
        return connection.scalar(query) or shard_folder(tenant, shard_id)


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
