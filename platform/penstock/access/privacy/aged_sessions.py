"""Retention of sessions: those whose last event is too old are found by summaries of segments, and
removed by the erasure steps that rewrite files.

By default snapshots and older times still see them; collection deletes the old files when nothing
needs them. A run may be interrupted: it keeps lists of the sessions that were found, that are no
longer live, and that are in no file.
"""

import hashlib
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.access.privacy.consents import decided_consents
from penstock.access.privacy.orders import ErasureOrder, ErasureScope, ErasureStep, erasure_steps
from penstock.access.privacy.retention import RetentionCount, RetentionPart, RetentionScope
from penstock.access.privacy.tombstones import RETENTION, SESSION, TombstoneKey, add_tombstones
from penstock.access.tables import erasure_session
from penstock.backends.database.engine import insert_of, portions
from penstock.core.lake_keys import SecretSeal
from penstock.events.event import session_key
from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.segments import (
    SessionPrefixes,
    may_hold,
    read_filter,
    read_summaries,
    session_prefixes,
)
from penstock.lake.tables import segment, snapshot
from penstock.lake.upkeep.rewrites import segments_older

_FOUND, _LEFT, _GONE = "found", "left", "gone"
_SAID_NO_TRAIN = "SELECT session_id FROM sessions WHERE consent = 'no_train'"

#: Lists the sessions that a rule selects.
_Finder = Callable[[ErasureOrder], None]


def _count(lake: Lake, scope: RetentionScope, find: _Finder) -> RetentionCount:
    counted = _order(lake, scope, uuid.uuid4().hex[:12])  # another run may go on meanwhile
    try:
        find(counted)
        return replace(_sum(counted), held=_held(lake, scope))
    finally:
        _forget(counted)


def _run(lake: Lake, scope: RetentionScope, find: _Finder) -> RetentionCount:
    found, left, gone = (_order(lake, scope, list_) for list_ in (_FOUND, _LEFT, _GONE))
    find(found)
    count = _sum(found)
    if count.sessions:
        _bury(found)
        for step in _steps("files", breaks_snapshots=scope.breaks_snapshots):
            deque(step.run(found), maxlen=0)
        for page in found.sessions():
            _add(left, page)
        _forget(found)
    _clear_records(left, gone)
    return replace(count, held=_held(lake, scope))


def _order(lake: Lake, scope: RetentionScope, list_: str) -> ErasureOrder:
    """An order whose sessions are the tenant's own list."""
    whose = hashlib.sha256(scope.tenant.encode()).hexdigest()[:12]
    aged = ErasureScope(scope.tenant, "age", "", scope.until_us)
    breaks = scope.breaks_snapshots
    return ErasureOrder(lake, f"{list_}-{whose}", aged, is_aged=True, breaks_snapshots=breaks)


def _steps(aged: str, *, breaks_snapshots: bool) -> Iterator[ErasureStep]:
    for step in erasure_steps().values():
        if step.aged == aged or (step.aged == "replaced" and breaks_snapshots):
            yield step


# Find


def _find_aged(order: ErasureOrder) -> None:
    """List sessions that are too old in some segment, without those that have a later event
    elsewhere."""
    lake, tenant, until_us = order.lake, order.scope.tenant, order.scope.until_us
    _forget(order)
    for stored in segments_older(lake, tenant, until_us):
        rows = _summaries(lake, stored.name)
        _add(order, _sessions(tenant, rows.filter(pc.less_equal(rows["last_ts"], until_us))))
    prefixes = order.prefixes()
    if not len(prefixes):
        return
    younger = sa.select(segment.c.name, segment.c.session_filter).where(
        segment.c.tenant == tenant, segment.c.removed_snap.is_(None), segment.c.ts_max > until_us
    )
    segments = lake.database.rows(younger)
    for row in segments:
        if may_hold(prefixes, read_filter(row.session_filter)).any():
            rows = _summaries(lake, row.name)
            _remove(order, _sessions(tenant, rows.filter(pc.greater(rows["last_ts"], until_us))))


def _find_refused(order: ErasureOrder) -> None:
    """List aged sessions that must not be trained on."""
    lake, tenant = order.lake, order.scope.tenant
    _find_aged(order)
    said = lake.query(OwnQuery(_SAID_NO_TRAIN, frozenset({"sessions"})), tenant=tenant).arrow()
    refused = set(said["session_id"].to_pylist())
    for page in order.sessions():
        denied = decided_consents(lake, tenant, [session.session_id for session in page]).denied
        _remove(
            order, [session for session in page if session.session_id not in {*refused, *denied}]
        )


def _summaries(lake: Lake, name: str) -> pa.Table:
    rows = read_summaries(lake.store, name, ["session_id", "events", "last_ts"])
    return rows.set_column(2, "last_ts", rows["last_ts"].cast(pa.int64()))


def _sessions(tenant: str, rows: pa.Table) -> list[SessionId]:
    return [SessionId(tenant, id_) for id_ in pc.unique(rows["session_id"]).to_pylist()]


def _sum(order: ErasureOrder) -> RetentionCount:
    """Count sessions; bytes are their share of the segments."""
    sessions, rows, size = set[str](), 0, 0
    for stored in segments_older(order.lake, order.scope.tenant, order.scope.until_us):
        table = _summaries(order.lake, stored.name)
        ids = table["session_id"].to_pylist()
        chosen = order.chosen(_sessions(order.scope.tenant, table))
        mine = pa.array([SessionId(order.scope.tenant, id_) in chosen for id_ in ids], pa.bool_())
        events = pc.sum(table["events"].filter(mine)).as_py() or 0
        sessions.update(session.session_id for session in chosen)
        rows += events
        size += round(stored.bytes * events / max(stored.rows, 1))
    return RetentionCount(len(sessions), rows, size)


def _held(lake: Lake, scope: RetentionScope) -> dict[str, int]:
    """Bytes of files with such old events that a snapshot keeps."""
    if scope.breaks_snapshots:
        return {}
    sees = (segment.c.added_snap <= snapshot.c.snap) & (segment.c.removed_snap > snapshot.c.snap)
    older = (segment.c.tenant == scope.tenant, segment.c.ts_min <= scope.until_us)
    query = sa.select(snapshot.c.name, sa.func.sum(segment.c.bytes)).join(segment, sees)
    query = query.where(*older).group_by(snapshot.c.name).order_by(snapshot.c.name)
    return {name: int(size) for name, size in lake.database.rows(query)}


# Remove


def _bury(order: ErasureOrder) -> None:
    key, until_us = TombstoneKey.of(SecretSeal.of(order.lake.settings)), order.scope.until_us
    for page in order.sessions():
        with order.lake.database.write() as connection:
            add_tombstones(connection, key, RETENTION, SESSION, dict.fromkeys(page, until_us))


def _clear_records(left: ErasureOrder, gone: ErasureOrder) -> None:
    """Delete records of sessions that are in no file any more."""
    held = _filters(left.lake, left.scope.tenant)
    for page in left.sessions():
        there = may_hold(held, session_prefixes(session_key(*session) for session in page))
        _add(gone, [page[int(at)] for at in np.flatnonzero(~there)])
    if next(gone.sessions(), None) is not None:
        for step in _steps("records", breaks_snapshots=False):
            deque(step.run(gone), maxlen=0)
    for page in gone.sessions():
        _remove(left, page)
    _forget(gone)


def _filters(lake: Lake, tenant: str) -> SessionPrefixes:
    """The session filters of all existing segments, live or not."""
    mine = segment.c.tenant == tenant
    stored = lake.database.scalars(sa.select(segment.c.session_filter).where(mine))
    return np.unique(np.concatenate([np.empty(0, np.uint32), *map(read_filter, stored)]))


# Lists of sessions


def _add(order: ErasureOrder, sessions: Sequence[SessionId]) -> None:
    rows = [{"erasure": order.id, "tenant": t, "session_id": id_} for t, id_ in sessions]
    if rows:
        with order.lake.database.write() as connection:
            statement: Any = insert_of(connection)(erasure_session)
            connection.execute(statement.on_conflict_do_nothing(), rows)


def _remove(order: ErasureOrder, sessions: Sequence[SessionId]) -> None:
    mine = erasure_session.c.erasure == order.id
    with order.lake.database.write() as connection:
        for batch in portions([session.session_id for session in sessions]):
            here = erasure_session.c.session_id.in_(batch)
            connection.execute(sa.delete(erasure_session).where(mine, here))


def _forget(order: ErasureOrder) -> None:
    with order.lake.database.write() as connection:
        mine = erasure_session.c.erasure == order.id
        connection.execute(sa.delete(erasure_session).where(mine))


EVENTS = RetentionPart(partial(_count, find=_find_aged), partial(_run, find=_find_aged))
NO_TRAIN = RetentionPart(partial(_count, find=_find_refused), partial(_run, find=_find_refused))
