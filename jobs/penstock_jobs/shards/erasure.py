"""Shards, erased. A shard's name is the digest of its content, so no row can leave it: the files of
a shard that holds an erased session are deleted as a whole. What stays is its row, with its counts
and its lineage, and a mark for each session, by a digest. The same recipe, built again, makes the
shard without them."""

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from penstock.audit.entry import person_digest
from penstock.checkpoints.lineage import learners
from penstock.database.engine import clock_us, insert_new, now_us, portions
from penstock.lake.buckets import SessionId
from penstock.lake.tables import segment_intent
from penstock.privacy.orders import CONTENT, LINEAGE, ErasedPart, ErasureOrder, ErasureStep
from penstock.privacy.tombstones import SESSION
from penstock.safe_names import tenant_folder
from penstock.shards.local_copies import CACHE_FOLDER, LocalCopies
from penstock.shards.manifest import FOLDER, GoneNote, replace_files_by_note, shard_folder
from penstock.shards.tables import ERASED, shard, shard_file, shard_left_out, shard_mark
from penstock.terminal.output import time_of
from penstock_jobs.shards.registration import held_sessions, shards_suspected


def _erase_shards(order: ErasureOrder) -> Iterator[ErasedPart]:
    for page in order.sessions():
        _forget_left_out(order, page)
        for id_, held in _holding(order, page):
            deleted = _drop(order, id_, held)
            trained = learners(order.lake.database, order.scope.tenant, id_)
            seen_by = {"shards": [id_], "checkpoints": [each.checkpoint for each in trained]}
            yield ErasedPart({"files of shards": deleted}, seen_by)
    for id_ in _marked_but_there(order):  # cut off between its mark and its files
        yield ErasedPart({"files of shards": _delete_files(order, id_)})


def _forget_left_out(order: ErasureOrder, sessions: Sequence[SessionId]) -> None:
    """They are examples of what shards do not hold."""
    with order.lake.database.write() as connection:
        for names in portions([session.session_id for session in sessions]):
            own = shard_left_out.c.tenant == order.scope.tenant
            named = shard_left_out.c.session_id.in_(names)
            connection.execute(sa.delete(shard_left_out).where(own, named))


def _holding(order: ErasureOrder, sessions: Sequence[SessionId]) -> Iterator[tuple[str, list[str]]]:
    """Shards with the sessions of these that each holds."""
    ids = [session.session_id for session in sessions]
    for id_, suspected in shards_suspected(order.lake.database, order.scope.tenant, ids):
        held = held_sessions(order.lake, order.scope.tenant, id_, suspected)
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
        mine = (shard_mark.c.tenant == tenant, shard_mark.c.shard == id_)
        older = sa.delete(shard_mark).where(*mine, shard_mark.c.session_id.in_(held))
        connection.execute(older)
    return _delete_files(order, id_)


def _delete_files(order: ErasureOrder, id_: str) -> int:
    lake, tenant = order.lake, order.scope.tenant
    with lake.database.read() as connection:
        note = GoneNote(how=ERASED, at=time_of(clock_us(connection)).isoformat(), why="")
    deleted = replace_files_by_note(lake.store, shard_folder(tenant, id_), note)
    with lake.database.write() as connection:
        files = (shard_file.c.tenant == tenant, shard_file.c.shard == id_)
        connection.execute(sa.delete(shard_file).where(*files))
        # It holds nothing any more: nobody looks for sessions in it.
        empty = sa.update(shard).where(shard.c.tenant == tenant, shard.c.id == id_)
        gone = {"gone": ERASED, "gone_at": now_us(), "gone_why": ""}
        connection.execute(empty.values(session_filter=b"", bytes=0, **gone))
    return deleted


def _marked_but_there(order: ErasureOrder) -> Sequence[str]:
    tenant = order.scope.tenant
    mine = (shard_mark.c.tenant == tenant, shard_mark.c.reason == ERASED)
    there = (shard.c.tenant == tenant, shard.c.gone.is_distinct_from(ERASED))
    query = sa.select(shard.c.id).where(
        *there, shard.c.id.in_(sa.select(shard_mark.c.shard).where(*mine))
    )
    with order.lake.database.read() as connection:
        return list(connection.scalars(query))


def _erase_builds(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Files of builds that are under way or were killed, and local copies. Builds fail now, and can
    begin again."""
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
