"""Shards, erased. A shard's name is the digest of its content, so no row can leave it: the files of
a shard that holds an erased session are deleted as a whole. What stays is its row, with its counts
and its lineage, and a mark for each session, by a digest. The same recipe, built again, makes the
shard without them."""

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from penstock.audit.entry import person_digest
from penstock.checkpoints.lineage import learners
from penstock.database.engine import insert_new, now_us
from penstock.lake.buckets import SessionId
from penstock.privacy.orders import CONTENT, ErasedPart, ErasureOrder, ErasureStep
from penstock.privacy.tombstones import SESSION
from penstock.shards.errors import ShardMissing
from penstock.shards.manifest import folder_of
from penstock.shards.tables import ERASED, shard, shard_file, shard_mark
from penstock_jobs.shards.registration import sessions_of, shards_suspected


def _erase_shards(order: ErasureOrder) -> Iterator[ErasedPart]:
    for page in order.sessions():
        for id_, held in _holding(order, page):
            deleted = _drop(order, id_, held)
            trained = learners(order.lake.database, order.scope.tenant, id_)
            seen_by = {"shards": [id_], "checkpoints": [each.checkpoint for each in trained]}
            yield ErasedPart({"files of shards": deleted}, seen_by)
    for id_ in _marked_but_there(order):  # cut off between its mark and its files
        yield ErasedPart({"files of shards": _delete_files(order, id_)})


def _holding(order: ErasureOrder, sessions: Sequence[SessionId]) -> Iterator[tuple[str, list[str]]]:
    """Shards with the sessions of these that each holds."""
    ids = [session.session_id for session in sessions]
    for id_, suspected in shards_suspected(order.lake.database, order.scope.tenant, ids):
        try:
            held = suspected & sessions_of(order.lake.store, id_)
        except ShardMissing:
            held = suspected
        if held:
            yield id_, sorted(held)


def _drop(order: ErasureOrder, id_: str, held: Sequence[str]) -> int:
    """Mark it, and delete its files; how many."""
    tenant = order.scope.tenant
    with order.lake.database.write() as connection:
        for session in held:
            mark = {"shard": id_, "tenant": tenant, "reason": ERASED, "marked_at": now_us()}
            mark["session_id"] = person_digest(tenant, SESSION, session)
            insert_new(connection, shard_mark, mark)
        older = (shard_mark.c.shard == id_, shard_mark.c.session_id.in_(held))
        connection.execute(sa.delete(shard_mark).where(*older))
    return _delete_files(order, id_)


def _delete_files(order: ErasureOrder, id_: str) -> int:
    folder = folder_of(id_) + "/"
    names = [file.name for file in order.lake.store.list(folder.rstrip("/"))]
    for name in names:
        order.lake.store.delete(name)
    with order.lake.database.write() as connection:
        connection.execute(sa.delete(shard_file).where(shard_file.c.shard == id_))
        # It holds nothing any more: nobody looks for sessions in it.
        empty = sa.update(shard).where(shard.c.id == id_)
        connection.execute(empty.values(session_filter=b"", bytes=0))
    return len(names)


def _marked_but_there(order: ErasureOrder) -> Sequence[str]:
    marked = sa.select(shard_mark.c.shard).where(shard_mark.c.reason == ERASED)
    query = sa.select(shard.c.id).where(shard.c.bytes > 0, shard.c.id.in_(marked))
    with order.lake.database.read() as connection:
        return list(connection.scalars(query.where(shard.c.tenant == order.scope.tenant)))


PART = ErasureStep(CONTENT, _erase_shards)
