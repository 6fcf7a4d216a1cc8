"""Erasure of shards: no row can leave one, since its name is the digest of its content. The files
of a shard that holds an erased session are deleted. What stays is its row, with counts and lineage,
and a mark for each session, by a digest."""

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from penstock.access.privacy.orders import CONTENT, LINEAGE, ErasedPart, ErasureOrder, ErasureStep
from penstock.access.privacy.tombstones import SESSION
from penstock.backends.audit.entry import person_digest
from penstock.backends.database.engine import clock_us, insert_new, now_us, portions
from penstock.backends.terminal.output import time_of
from penstock.core.files import tenant_folder
from penstock.lake.tables import segment_intent
from penstock.registry.checkpoints.lineage import learners
from penstock.shards.local_copies import CACHE_FOLDER, LocalCopies
from penstock.shards.manifest import FOLDER, GoneNote, replace_files_by_note, shard_folder
from penstock.shards.tables import ERASED, of_shard, shard, shard_file, shard_left_out, shard_mark
from penstock_jobs.shards.registration import held_sessions, shards_suspected


def _erase_shards(order: ErasureOrder) -> Iterator[ErasedPart]:
    database, tenant = order.lake.database, order.scope.tenant
    for page in order.sessions():
        ids = [session.session_id for session in page]
        with database.write() as connection:
            for names in portions(ids):  # examples of what shards do not hold
                named = shard_left_out.c.session_id.in_(names)
                own = shard_left_out.c.tenant == tenant
                connection.execute(sa.delete(shard_left_out).where(own, named))
        for id_, suspected in shards_suspected(database, tenant, ids):
            if held := sorted(held_sessions(order.lake, tenant, id_, suspected)):
                _mark(order, id_, held)
                deleted = _delete_files(order, id_)
                trained = learners(database, tenant, id_)
                seen_by = {"shards": [id_], "checkpoints": [each.checkpoint for each in trained]}
                yield ErasedPart({"files of shards": deleted}, seen_by)
    marked = sa.select(shard_mark.c.shard).where(
        shard_mark.c.tenant == tenant, shard_mark.c.reason == ERASED
    )
    there = (shard.c.tenant == tenant, shard.c.gone.is_distinct_from(ERASED))
    with database.read() as connection:  # cut off between their marks and their files
        left = list(connection.scalars(sa.select(shard.c.id).where(*there, shard.c.id.in_(marked))))
    for id_ in left:
        yield ErasedPart({"files of shards": _delete_files(order, id_)})


def _mark(order: ErasureOrder, id_: str, held: Sequence[str]) -> None:
    tenant = order.scope.tenant
    with order.lake.database.write() as connection:
        for session in held:
            mark = {"shard": id_, "tenant": tenant, "reason": ERASED, "marked_at": now_us()}
            mark["session_id"] = person_digest(tenant, SESSION, session)
            insert_new(connection, shard_mark, mark)
        older = sa.delete(shard_mark).where(of_shard(shard_mark, tenant, id_))
        connection.execute(older.where(shard_mark.c.session_id.in_(held)))


def _delete_files(order: ErasureOrder, id_: str) -> int:
    lake, tenant = order.lake, order.scope.tenant
    with lake.database.read() as connection:
        note = GoneNote(how=ERASED, at=time_of(clock_us(connection)).isoformat(), why="")
    deleted = replace_files_by_note(lake.store, shard_folder(tenant, id_), note)
    with lake.database.write() as connection:
        connection.execute(sa.delete(shard_file).where(of_shard(shard_file, tenant, id_)))
        # It holds nothing any more: nobody looks for sessions in it.
        empty = {"session_filter": b"", "bytes": 0}
        gone = {"gone": ERASED, "gone_at": now_us(), "gone_why": ""}
        mine = of_shard(shard, tenant, id_)
        connection.execute(sa.update(shard).where(mine).values(**empty, **gone))
    return deleted


def _erase_builds(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Erase files of builds that are under way or were killed, and local copies. Builds fail now,
    and can begin again."""
    lake = order.lake
    if next(order.sessions(), None) is None:
        return
    own = f"{FOLDER}/{tenant_folder(order.scope.tenant)}/"
    unfinished = segment_intent.c.name.startswith(own, autoescape=True)
    open_ = unfinished & segment_intent.c.claimed_at.is_(None)
    deleted = 0
    while True:
        with lake.database.write() as connection:
            names = list(connection.scalars(sa.select(segment_intent.c.name).where(open_)))
            for batch in portions(names):  # from here on their builds cannot register a shard
                claimed = sa.update(segment_intent).where(segment_intent.c.name.in_(batch))
                connection.execute(claimed.values(claimed_at=now_us()))
        if not names:
            break
        for name in names:
            lake.store.delete(name)
        deleted += len(names)
    yield ErasedPart({"files of unfinished shards": deleted})
    copies = LocalCopies(lake.settings.data / CACHE_FOLDER, 0)
    yield ErasedPart({"local copies of shards": copies.forget()})
    yield from _erase_shards(order)  # one may have been registered just before


PART = ErasureStep(CONTENT, _erase_shards)
BUILDS = ErasureStep(LINEAGE, _erase_builds)
