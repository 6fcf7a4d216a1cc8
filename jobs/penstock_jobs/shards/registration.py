"""Shards in the metadata database: registration, and marks on shards that hold too much.

A shard appears in one transaction, when its files and its manifest are in the store.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import BinaryIO

import numpy as np
import sqlalchemy as sa

from penstock.database.engine import Database, insert_new, insert_of, now_us
from penstock.events.event import session_key
from penstock.lake import segments
from penstock.lake.buckets import SessionId
from penstock.lake.commits import NO_PARTITION, SHARD, announce_file, next_snap
from penstock.lake.errors import FileLost
from penstock.lake.lake import Lake
from penstock.lake.tables import consent_change, segment_intent
from penstock.shards.errors import ShardUnknown
from penstock.shards.files import read_rows
from penstock.shards.manifest import Manifest, folder_of, read_manifest
from penstock.shards.tables import shard, shard_file, shard_mark
from penstock.storage import ObjectStore
from penstock_jobs.shards.exclusion.consent import with_repeats
from penstock_jobs.shards.session_facts import SnapshotQueries


class AnnouncingStore:
    """Creates files that were announced before, so that unfinished ones can be cleared away."""

    def __init__(self, store: ObjectStore, database: Database, owner: str) -> None:
        self._store = store
        self._database = database
        self._owner = owner

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        announce_file(self._database, name, NO_PARTITION, self._owner)
        return self._store.create(name)


#: Of a session that said so after the shard was built.
NO_TRAIN = "no_train"


@dataclass(frozen=True)
class RegisteredShard:
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


_KEPT = [one.name for one in fields(RegisteredShard)]


def announce_once(database: Database, id_: str, name: str, owner: str) -> bool:
    """Announce a file of this shard that is about to be written; False where the shard is
    registered by now. Of two builds that write the same file, the later one owns its name."""
    row = {"name": name, "partition": NO_PARTITION, "owner": owner, "created_at": now_us()}
    mine = {"owner": owner, "created_at": now_us(), "claimed_at": None}
    with database.write() as connection:
        if _is_registered(connection, id_):
            return False
        insert = insert_of(connection)(segment_intent).values(**row)
        connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=mine))
    return True


def register(database: Database, manifest: Manifest, tenant: str, sessions: Sequence[str]) -> bool:
    """Put a shard into the database whose files are in the store. False where it is there already:
    the same shard may be built twice, even at the same time. From then on its files count as known
    and are announced no longer. Raises FileLost where one of them was cleared away meanwhile."""
    folder = folder_of(manifest.id) + "/"
    announced = segment_intent.c.name.startswith(folder, autoescape=True)
    claimed = announced & segment_intent.c.claimed_at.is_not(None)
    files = manifest.files
    row = {
        "id": manifest.id,
        "tenant": tenant,
        "name": manifest.name,
        "snapshot": manifest.snapshot.name if manifest.snapshot else "",
        "snap": manifest.snapshot.snap if manifest.snapshot else 0,
        "samples": manifest.counts.samples,
        "tokens": manifest.counts.tokens,
        "trainable": manifest.counts.trainable,
        "bytes": sum(part.bytes + (part.routes.bytes if part.routes else 0) for part in files),
        "session_filter": segments.make_filter([session_key(tenant, one) for one in sessions]),
    }
    with database.write() as connection:
        if _is_registered(connection, manifest.id):
            return False
        lost = connection.execute(sa.select(segment_intent.c.name).where(claimed)).first()
        if lost is not None:
            raise FileLost(name=lost.name)
        connection.execute(sa.delete(segment_intent).where(announced))
        snap = next_snap(connection, SHARD)
        connection.execute(sa.insert(shard).values(**row, created_at=now_us(), added_snap=snap))
        rows = [{"name": folder + part.name, "shard": manifest.id} for part in files]
        connection.execute(sa.insert(shard_file), rows)
    return True


def _is_registered(connection: sa.Connection, id_: str) -> bool:
    return connection.execute(sa.select(shard.c.id).where(shard.c.id == id_)).first() is not None


def forget(database: Database, owner: str) -> None:
    """Of what was announced nothing is left."""
    with database.write() as connection:
        connection.execute(sa.delete(segment_intent).where(segment_intent.c.owner == owner))


def list_shards(database: Database, tenant: str) -> list[RegisteredShard]:
    """The newest comes last."""
    columns = [shard.c[name] for name in _KEPT]
    query = sa.select(*columns).where(shard.c.tenant == tenant)
    with database.read() as connection:
        rows = connection.execute(query.order_by(shard.c.created_at, shard.c.id))
        return [RegisteredShard(*row) for row in rows]


def find_shard(database: Database, tenant: str, text: str) -> RegisteredShard:
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
    wanted = segments.session_prefixes([session_key(tenant, one) for one in ids])
    columns = (shard.c.id, shard.c.session_filter)
    with database.read() as connection:
        rows = connection.execute(sa.select(*columns).where(shard.c.tenant == tenant)).all()
    marks = []
    for row in rows:
        hits = segments.may_hold(segments.read_filter(row.session_filter), wanted)
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
        links = SnapshotQueries(lake, None, tenant).links()
        chains = {one: links.chain(one) for one in links.whole_chains({*sessions, *links.repeats})}
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
