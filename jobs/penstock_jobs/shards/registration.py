"""Registration of shards in one transaction, and marks on shards with forbidden sessions."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import msgspec
import numpy as np
import sqlalchemy as sa

from penstock.access.privacy.consents import NO_TRAIN
from penstock.access.privacy.tombstones import SESSION
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import OPERATOR, Deed
from penstock.backends.database.engine import Database, insert_new, insert_of, now_us
from penstock.backends.storage.object_store import ObjectStore
from penstock.backends.terminal.output import time_text
from penstock.events.event import session_key
from penstock.lake import FileLost, segments
from penstock.lake.buckets import SessionId, ids_by_tenant
from penstock.lake.catalog import NO_PARTITION, announce_files
from penstock.lake.commits import SHARD, next_snap
from penstock.lake.lake import Lake
from penstock.lake.tables import consent_change, segment_intent
from penstock.registry.proof.document import ProofSubject, shard_record
from penstock.shards.manifest import StoredShard, files_of, read_rows, stored_shard
from penstock.shards.registered_shards import marks_of
from penstock.shards.shard import ShardDamaged, ShardGoing, ShardMissing, shard_folder
from penstock.shards.tables import (
    DROPPING,
    ERASED,
    of_shard,
    shard,
    shard_file,
    shard_left_out,
    shard_mark,
)
from penstock_jobs.shards.exclusion import spread_denials
from penstock_jobs.shards.selection.session_facts import SnapshotQueries


class AnnouncingStore(msgspec.Struct, frozen=True):
    """Creates announced files, so that unfinished ones can be removed."""

    store: ObjectStore
    database: Database
    owner: str

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        announce_files(self.database, [name], NO_PARTITION, self.owner)
        return self.store.create(name)


def announce_once(database: Database, tenant: str, shard_id: str, name: str, owner: str) -> bool:
    """Announce a file. Returns False if the shard is already registered.

    If two builds write the same file, the later one owns the name."""
    row = {"name": name, "partition": NO_PARTITION, "owner": owner, "created_at": now_us()}
    taken_over = {"owner": owner, "created_at": now_us(), "claimed_at": None}
    with database.write() as connection:
        if _is_registered(connection, tenant, shard_id):
            return False
        insert = insert_of(connection)(segment_intent).values(**row)
        connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=taken_over))
    return True


def register(
    database: Database,
    stored: StoredShard,
    tenant: str,
    sessions: Iterable[str],
    *,
    left_out: Sequence[tuple[str, str]] = (),
    by: str = OPERATOR,
) -> bool:
    """Register a shard whose files are in the store, and drop their announcements.

    Returns False if it is already registered. Raises FileLost."""
    manifest, folder = stored.manifest, stored.folder
    announced = segment_intent.c.name.startswith(f"{folder}/", autoescape=True)
    claimed = announced & segment_intent.c.claimed_at.is_not(None)
    snapshot = manifest.snapshot
    row = {
        **{name: getattr(manifest.counts, name) for name in ("samples", "tokens", "trainable")},
        "id": manifest.id,
        "tenant": tenant,
        "name": manifest.name,
        "snapshot": snapshot.name if snapshot else "",
        "snap": snapshot.snap if snapshot else 0,
        "bytes": sum(file.bytes for file in files_of(manifest)),
        "record": shard_record(manifest),
        "session_filter": segments.make_filter(session_key(tenant, name) for name in sessions),
    }
    with database.write() as connection:
        if _is_registered(connection, tenant, manifest.id):
            return False
        lost = connection.execute(sa.select(segment_intent.c.name).where(claimed)).first()
        if lost is not None:
            raise FileLost(name=lost.name)
        connection.execute(sa.delete(segment_intent).where(announced))
        # A dropped shard is restored.
        connection.execute(sa.delete(shard).where(of_shard(shard, tenant, manifest.id)))
        snap = next_snap(connection, SHARD)
        connection.execute(sa.insert(shard).values(**row, created_at=now_us(), added_snap=snap))
        owned = {"shard": manifest.id, "tenant": tenant}
        rows = [{"name": stored.path(part), **owned} for part in manifest.files]
        connection.execute(sa.insert(shard_file), rows)
        old = of_shard(shard_left_out, tenant, manifest.id)
        connection.execute(sa.delete(shard_left_out).where(old))
        if left_out:
            names = ("session_id", "reason")
            examples = [owned | dict(zip(names, each, strict=True)) for each in left_out]
            connection.execute(sa.insert(shard_left_out), examples)
        facts = {"name": manifest.name, "samples": row["samples"], "snap": row["snap"]}
        append(connection, Deed(tenant, by, "shard", manifest.id, facts))
    return True


def _is_registered(connection: sa.Connection, tenant: str, shard_id: str) -> bool:
    """Whether the shard is registered with its files. Raises ShardGoing."""
    query = sa.select(shard.c.gone).where(of_shard(shard, tenant, shard_id))
    row = connection.execute(query).one_or_none()
    if row is not None and row.gone == DROPPING:
        raise ShardGoing(shard=shard_id)
    return row is not None and row.gone is None


def forget(database: Database, owner: str) -> None:
    """Remove this owner's announcements."""
    with database.write() as connection:
        connection.execute(sa.delete(segment_intent).where(segment_intent.c.owner == owner))


# Marks of shards that hold forbidden sessions


def shards_suspected(
    database: Database, tenant: str, ids: list[str]
) -> Iterator[tuple[str, set[str]]]:
    """Yield shards whose filters may hold some of these sessions, with those."""
    prefixes = segments.session_prefixes(session_key(tenant, session) for session in ids)
    query = sa.select(shard.c.id, shard.c.session_filter).where(shard.c.tenant == tenant)
    rows = database.rows(query)
    for row in rows:
        hits = segments.may_hold(segments.read_filter(row.session_filter), prefixes)
        if hits.any():
            yield row.id, {ids[place] for place in np.flatnonzero(hits)}


def mark_sessions(lake: Lake, sessions: Iterable[SessionId], reason: str) -> int:
    """Mark every shard with one of these sessions. Returns the number of new marks."""
    marked = 0
    for tenant, ids in ids_by_tenant(sessions).items():
        for id_, suspected in shards_suspected(lake.database, tenant, ids):
            unmarked = suspected - marked_sessions(lake.database, tenant, id_, reason)
            if not unmarked:  # its files need not be read again
                continue
            held = sorted(held_sessions(lake, tenant, id_, unmarked))
            with lake.database.write() as connection:
                for session in held:
                    mark: dict[str, Any] = {"shard": id_, "tenant": tenant, "session_id": session}
                    mark |= {"reason": reason, "marked_at": now_us()}
                    marked += insert_new(connection, shard_mark, mark)
    return marked


def marked_sessions(database: Database, tenant: str, shard_id: str, reason: str) -> set[str]:
    return {session for session, why in marks_of(database, tenant, shard_id) if why == reason}


def count_denied(database: Database, tenant: str) -> dict[str, int]:
    """Count sessions without consent by shard."""
    query = (
        sa.select(shard_mark.c.shard, sa.func.count().label("marks"))
        .where(shard_mark.c.tenant == tenant, shard_mark.c.reason == NO_TRAIN)
        .group_by(shard_mark.c.shard)
    )
    return {row.shard: row.marks for row in database.rows(query)}


def held_sessions(lake: Lake, tenant: str, shard_id: str, suspected: set[str]) -> set[str]:
    """Return suspected sessions that a shard holds.

    If its files are gone or damaged, all count, since the filter is hardly ever wrong."""
    try:
        stored = stored_shard(lake.store, shard_folder(tenant, shard_id), shard_id)
        columns = ["session_id", "hint_session_id"]
        tables = (rows[name].unique() for rows in read_rows(stored, columns) for name in columns)
        return suspected & {session for names in tables for session in names.to_pylist()}
    except (ShardMissing, ShardDamaged):
        return suspected


def mark_consent(lake: Lake) -> int:
    """Mark shards of sessions that became `no_train` since the oldest shard.

    Returns the number of new marks."""
    oldest = sa.select(sa.func.min(shard.c.snap)).scalar_subquery()
    query = sa.select(consent_change.c.tenant, consent_change.c.session_id).where(
        consent_change.c.consent == NO_TRAIN, consent_change.c.added_snap > oldest
    )
    denied: dict[str, set[str]] = {}
    for tenant, session in lake.database.rows(query):
        denied.setdefault(tenant, set()).add(session)
    return sum(mark_denied(lake, tenant, sessions) for tenant, sessions in denied.items())


def mark_denied(lake: Lake, tenant: str, sessions: Collection[str]) -> int:
    """Mark shards of these sessions, their chains, and all that resume or fork them.

    Returns the number of new marks."""
    links = SnapshotQueries(lake, None, tenant).links()
    members = links.whole_chains({*sessions, *links.repeats})
    chains = {member: links.chain(member) for member in members}
    denied = spread_denials(dict.fromkeys(sessions, SESSION), chains, links.repeats)
    ids = [SessionId(tenant, session) for session in sorted(denied)]
    return mark_sessions(lake, ids, NO_TRAIN)


def show_withdrawn(subject: ProofSubject) -> list[dict[str, Any]]:
    mark_consent(subject.lake)
    columns = shard_mark.c
    place = (columns.shard, columns.reason)
    query = sa.select(*place, sa.func.count().label("sessions"), sa.func.min(columns.marked_at))
    query = query.where(columns.tenant == subject.tenant, columns.reason != ERASED)
    query = query.where(columns.shard.in_(subject.shards)).group_by(*place).order_by(*place)
    return [
        {"shard": shard, "reason": reason, "sessions": count, "since": time_text(first)}
        for shard, reason, count, first in subject.lake.database.rows(query)
    ]
