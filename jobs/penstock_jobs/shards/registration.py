"""Files that are announced as they are created: what is never finished can be cleared away."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from penstock.database.engine import Database, now_us
from penstock.database.inserting import insert_new, insert_of
from penstock.events.identity import session_key
from penstock.lake import filters
from penstock.lake.buckets import SessionId
from penstock.lake.commit import NO_PARTITION, SHARD, announce, next_snap
from penstock.lake.errors import FileLost
from penstock.lake.lake import Lake
from penstock.lake.tables import consent_change, segment_intent
from penstock.shards.errors import ShardUnknown
from penstock.shards.files import read_rows
from penstock.shards.manifest import folder_of, read_manifest
from penstock.shards.tables import shard, shard_file, shard_mark
from penstock.storage import ObjectStore, StoredObject
from penstock_jobs.shards.exclusion.consent import with_repeats
from penstock_jobs.shards.session_facts import Asking


class AnnouncingStore:
    """A store whose files the metadata database hears of before they are written."""

    def __init__(self, store: ObjectStore, database: Database, owner: str) -> None:
        self._store = store
        self._database = database
        self._owner = owner

    @property
    def local(self) -> bool:
        return self._store.local

    def check(self) -> None:
        self._store.check()

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        announce(self._database, name, NO_PARTITION, self._owner)
        return self._store.create(name)

    def open(self, name: str) -> pa.NativeFile:
        return self._store.open(name)

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        return self._store.list(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def address(self, name: str) -> str:
        return self._store.address(name)


#: Of a session that said so after the shard was built.
NO_TRAIN = "no_train"


@dataclass(frozen=True)
class Registered:
    """A shard in the database."""

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


@dataclass(frozen=True)
class Entry:
    """A shard that is finished: its files are in the store, and announced."""

    id: str
    tenant: str
    name: str
    snapshot: str
    snap: int
    samples: int
    tokens: int
    trainable: int
    bytes: int
    sessions: tuple[str, ...]
    files: tuple[str, ...]


_KEPT = [one.name for one in fields(Registered)]


def announce_once(database: Database, id_: str, name: str, owner: str) -> bool:
    """Say that a file of this shard is about to be written; False where the shard is there by now.
    Another build may be writing the same bytes to it: the name is whoever's said it last."""
    row = {"name": name, "partition": NO_PARTITION, "owner": owner, "created_at": now_us()}
    mine = {"owner": owner, "created_at": now_us(), "claimed_at": None}
    with database.write() as connection:
        if connection.execute(sa.select(shard.c.id).where(shard.c.id == id_)).first() is not None:
            return False
        insert = insert_of(connection)(segment_intent).values(**row)
        connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=mine))
    return True


def register(database: Database, entry: Entry) -> bool:
    """Whether it is new: the same shard may be built twice, at the same time too. From then on its
    files are known, and no longer announced by anybody. Raises FileLost where one was
    cleared away meanwhile."""
    keys = [session_key(entry.tenant, one) for one in entry.sessions]
    facts = {name: getattr(entry, name) for name in _KEPT if name != "created_at"}
    folder = folder_of(entry.id) + "/"
    announced = segment_intent.c.name.startswith(folder, autoescape=True)
    with database.write() as connection:
        known = connection.execute(sa.select(shard.c.id).where(shard.c.id == entry.id)).first()
        if known is not None:
            return False
        claimed = sa.select(segment_intent.c.name).where(
            announced, segment_intent.c.claimed_at.is_not(None)
        )
        if (lost := connection.execute(claimed).first()) is not None:
            raise FileLost(name=lost.name)
        connection.execute(sa.delete(segment_intent).where(announced))
        snap = next_snap(connection, SHARD)
        row = facts | {"session_filter": filters.make_filter(keys), "created_at": now_us()}
        connection.execute(sa.insert(shard).values(**row, added_snap=snap))
        files = [{"name": name, "shard": entry.id} for name in entry.files]
        connection.execute(sa.insert(shard_file), files)
    return True


def forget(database: Database, owner: str) -> None:
    """Of what was announced nothing is left."""
    with database.write() as connection:
        connection.execute(sa.delete(segment_intent).where(segment_intent.c.owner == owner))


def list_shards(database: Database, tenant: str) -> list[Registered]:
    """The newest comes last."""
    columns = [shard.c[name] for name in _KEPT]
    query = sa.select(*columns).where(shard.c.tenant == tenant)
    with database.read() as connection:
        rows = connection.execute(query.order_by(shard.c.created_at, shard.c.id))
        return [Registered(*row) for row in rows]


def find_shard(database: Database, tenant: str, text: str) -> Registered:
    """By its id, the beginning of it, or a name: then the newest of it. Raises ShardUnknown."""
    known = list_shards(database, tenant)
    digits = text.removeprefix("sha256:")
    found = [one for one in known if one.id == text]
    found = found or [one for one in known if one.name == text][-1:]
    found = found or [
        one for one in known if digits and one.id.removeprefix("sha256:").startswith(digits)
    ]
    if len(found) != 1:
        raise ShardUnknown(shard=text, why="several begin so" if found else "there is none")
    return found[0]


# Marks: a shard that holds a session which it should hold no more


def mark_sessions(
    database: Database, store: ObjectStore, sessions: Iterable[SessionId], reason: str
) -> int:
    """Mark every shard that holds one of these sessions; how many marks are new."""
    by_tenant: dict[str, list[str]] = {}
    for one in sessions:
        by_tenant.setdefault(one.tenant, []).append(one.session_id)
    return sum(_mark_of(database, store, *one, reason) for one in by_tenant.items())


def _mark_of(
    database: Database, store: ObjectStore, tenant: str, ids: list[str], reason: str
) -> int:
    wanted = filters.prefixes([session_key(tenant, one) for one in ids])
    columns = (shard.c.id, shard.c.session_filter)
    with database.read() as connection:
        rows = connection.execute(sa.select(*columns).where(shard.c.tenant == tenant)).all()
    marks = []
    for row in rows:
        hits = filters.may_hold(filters.read_filter(row.session_filter), wanted)
        held = {ids[at] for at in np.flatnonzero(hits)}
        marks += [(row.id, one) for one in sorted(held and held & _sessions_of(store, row.id))]
    return sum(_mark(database, tenant, mark, reason) for mark in marks)


def _sessions_of(store: ObjectStore, id_: str) -> set[str]:
    """A filter may be wrong about a session; the files are not."""
    manifest = read_manifest(store, id_)
    found: set[str] = set()
    for rows in read_rows(store, manifest, ["session_id"]):
        found.update(rows["session_id"].unique().to_pylist())
    return found


def _mark(database: Database, tenant: str, mark: tuple[str, str], reason: str) -> bool:
    id_, session = mark
    row = {"shard": id_, "tenant": tenant, "session_id": session, "reason": reason}
    with database.write() as connection:
        return insert_new(connection, shard_mark, {**row, "marked_at": now_us()})


def mark_consent(lake: Lake) -> int:
    """Mark the shards of sessions that said `no_train` since the oldest of them was built, of the
    rest of their chains, and of all that resume or fork them: they hold what was said there."""
    oldest = sa.select(sa.func.min(shard.c.snap)).scalar_subquery()
    query = sa.select(consent_change.c.tenant, consent_change.c.session_id).where(
        consent_change.c.consent == NO_TRAIN, consent_change.c.added_snap > oldest
    )
    with lake.database.read() as connection:
        denied: dict[str, set[str]] = {}
        for tenant, session in connection.execute(query):
            denied.setdefault(tenant, set()).add(session)
    marked = 0
    for tenant, sessions in denied.items():
        links = Asking(lake, None, tenant).links()
        chains = {one: links.chain(one) for one in links.closed({*sessions, *links.repeats})}
        said = with_repeats(dict.fromkeys(sessions, NO_TRAIN), chains, links.repeats)
        refused = [SessionId(tenant, one) for one, what in sorted(said.items()) if what == NO_TRAIN]
        marked += mark_sessions(lake.database, lake.store, refused, NO_TRAIN)
    return marked


def marks_of(database: Database, id_: str) -> list[tuple[str, str]]:
    """(session, reason)."""
    columns = (shard_mark.c.session_id, shard_mark.c.reason)
    query = sa.select(*columns).where(shard_mark.c.shard == id_).order_by(*columns)
    with database.read() as connection:
        return [(row.session_id, row.reason) for row in connection.execute(query)]
