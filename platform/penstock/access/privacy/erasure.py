"""Erasure: an order is stored first, then carried out step by step, and ends with a signed report.

The order sets tombstones, and writers check them as they store events. From then on nothing of it
is stored, so what is found later is complete. An interrupted step is repeated.
"""

import hashlib
import json
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.orders import (
    CONTENT,
    LINEAGE,
    LOG,
    UNKNOWN_US,
    WHOLE,
    ErasedPart,
    ErasureBusy,
    ErasureOrder,
    ErasureScope,
    ErasureStep,
    ErasureUnknown,
    erasure_steps,
)
from penstock.access.privacy.reach import Opening, find_below, find_sessions, openings
from penstock.access.privacy.tombstones import (
    SESSION,
    TENANT,
    USER,
    TombstoneKey,
    add_sessions,
    add_tombstones,
)
from penstock.access.tables import DONE, OPEN, consent_decision, erasure, erasure_session
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed, person_digest
from penstock.backends.database.engine import clock_us, now_us
from penstock.backends.database.leases import leased
from penstock.core.lake_keys import SecretSeal, SigningKey
from penstock.lake import LakeSettings
from penstock.lake.buckets import SessionId
from penstock.lake.iceberg.publication import forget_history
from penstock.lake.lake import Lake
from penstock.lake.query.spill import remove_left_spill
from penstock.lake.tables import consent_change, masked_session, reader_lease, session_link
from penstock.lake.upkeep.rewrites import (
    RewrittenSegment,
    delete_replaced,
    retire_sessions,
    rewrite_segments,
    segments_older,
)

_LEASE = "erasure"
#: How long a killed erasure keeps others out, beyond a lease.
_BUSY_SECONDS_MAX = 10.0
_LOOK_SECONDS = 0.2

Follow = Callable[[str], None]


class Erasure(msgspec.Struct, frozen=True):
    id: str
    tenant: str
    kind: str
    digest: str
    reason: str
    requested_by: str
    until_us: int
    state: str
    started_at: int
    finished_at: int | None
    report: dict[str, Any] | None = None


def count_reach(lake: Lake, scope: ErasureScope) -> int:
    """Count the sessions that an erasure would reach at most; changes nothing."""
    reached: set[SessionId] = set()
    with closing(find_sessions(lake, scope)) as found:
        for sessions in found:
            reached.update(sessions)

    def take(below: Sequence[SessionId]) -> Sequence[SessionId]:
        reached.update(below)
        return below

    find_below(lake, sorted(reached), take)
    return len(reached)


def order_erasure(lake: Lake, scope: ErasureScope, *, reason: str, by: str) -> str:
    """Store an order. From now on nothing of a session or tenant is stored; of a user or project,
    once the log was stored. Raises SecretKeyUnfit, SigningKeyUnfit."""
    _ = SigningKey.of(lake.settings).public  # fail early: the report needs it
    key = TombstoneKey.of(SecretSeal.of(lake.settings))
    id_ = uuid.uuid4().hex[:12]
    digest = key.digest(scope.tenant, scope.kind, scope.value)
    row = {"id": id_, "tenant": scope.tenant, "kind": scope.kind, "value": scope.value}
    row |= {"digest": digest, "reason": reason, "requested_by": by, "state": OPEN, "progress": "{}"}
    with lake.database.write() as connection:
        connection.execute(
            sa.insert(erasure).values(**row, until_us=scope.until_us, started_at=now_us())
        )
        if scope.label is None:
            _bury(connection, key, id_, scope)
        subject = person_digest(scope.tenant, scope.kind, scope.value)
        facts = {"erasure": id_, "state": "ordered"}
        append(connection, Deed(scope.tenant, by, "erase", subject, facts))
    return id_


def carry_out(lake: Lake, id_: str, follow: Follow = lambda _doing: None) -> dict[str, Any]:
    """Do the remaining steps of an erasure, and sign its report. Raises ErasureUnknown,
    ErasureBusy, and errors of steps, after which the erasure stays open."""
    lease_s = lake.settings.room(LakeSettings).lease_seconds
    patience_s = lease_s + _BUSY_SECONDS_MAX
    deadline = time.monotonic() + patience_s
    while True:
        with leased(lake.database, _LEASE, uuid.uuid4().hex, lease_s) as mine:
            if mine:
                return _carry_out(lake, id_, follow)
        if time.monotonic() > deadline:
            raise ErasureBusy(seconds=round(patience_s))
        time.sleep(_LOOK_SECONDS)


def _carry_out(lake: Lake, id_: str, follow: Follow) -> dict[str, Any]:
    with lake.database.read() as connection:
        row = connection.execute(sa.select(erasure).where(erasure.c.id == id_)).one_or_none()
    if row is None:
        raise ErasureUnknown(erasure=id_)
    if row.report is not None:
        _close(lake, id_)
        return dict(json.loads(row.report))
    scope = ErasureScope(row.tenant, row.kind, row.value, row.until_us)
    order = ErasureOrder(lake, id_, scope, follow)
    parts: dict[str, Any] = json.loads(row.progress)
    follow("looking for sessions")
    if scope.label is not None:
        _store_what_waits(order)
    _reach(order)
    for name, step in erasure_steps().items():
        follow(name)
        for piece in step.run(order):
            before = ErasedPart(**parts[name]) if name in parts else ErasedPart()
            parts[name] = asdict(before.plus(piece))
            progress = sa.update(erasure).where(erasure.c.id == id_)
            with lake.database.write() as connection:
                connection.execute(progress.values(progress=json.dumps(parts)))
    follow("writing the report")
    return _finish(order, parts)


def _bury(connection: Connection, key: TombstoneKey, id_: str, scope: ErasureScope) -> None:
    until_us = None if scope.kind == SESSION else scope.until_us
    add_tombstones(connection, key, id_, scope.kind, {(scope.tenant, scope.value): until_us})


def _store_what_waits(order: ErasureOrder) -> None:
    """Store the log as it is, then drop what names the user or project: afterwards nobody could
    say whose the other events of their sessions are."""
    for step in erasure_steps().values():
        if step.phase == LOG:
            deque(step.run(order), maxlen=0)
    key = TombstoneKey.of(SecretSeal.of(order.lake.settings))
    with order.lake.database.write() as connection:
        _bury(connection, key, order.id, order.scope)


def _reach(order: ErasureOrder) -> None:
    """Enter all sessions, and the tombstones of whole ones."""
    lake, scope = order.lake, order.scope
    with closing(find_sessions(lake, scope)) as found:
        for sessions in found:
            with lake.database.write() as connection:
                named = UNKNOWN_US if scope.label is not None else None
                add_sessions(connection, order.id, dict.fromkeys(sessions, named))
    if scope.kind == TENANT:  # its own tombstone suffices
        return
    label, owner = scope.label or USER, scope.value
    whose = partial(_enter, order, label=label, owner=owner)
    if scope.kind == SESSION:
        [session] = sessions
        opened = openings(lake, label, owner, [session]).get(session)
        whose = partial(_enter, order, label=label, owner=opened.owner if opened else None)
    for page in order.sessions(erasure_session.c.named_us == UNKNOWN_US):
        whose(page)
    for page in order.sessions(WHOLE):
        find_below(lake, page, whose)


def _enter(
    order: ErasureOrder, sessions: Sequence[SessionId], *, label: str, owner: str | None
) -> list[SessionId]:
    """Enter sessions by whose they are, and return the whole ones.

    A session of somebody else loses only events that name the erased; one of nobody is whole."""
    lake, scope = order.lake, order.scope
    opened = openings(lake, label, scope.value, sessions)
    until: dict[SessionId, int | None] = {}
    in_part: dict[SessionId, int | None] = {}
    for session in sessions:
        opening = opened.get(session, Opening())
        if opening.owner is None or owner in (None, opening.owner):
            until[session] = max(scope.until_us, opening.last_us) if scope.label else None
        elif opening.named_us is not None:
            in_part[session] = opening.named_us
    key = TombstoneKey.of(SecretSeal.of(lake.settings))
    with lake.database.write() as connection:
        add_sessions(connection, order.id, in_part | dict.fromkeys(until, None))
        add_tombstones(connection, key, order.id, SESSION, until)
    return list(until)


def _finish(order: ErasureOrder, parts: dict[str, Any]) -> dict[str, Any]:
    lake = order.lake
    mine = erasure_session.c.erasure == order.id
    total = ErasedPart()
    for part in parts.values():
        total = total.plus(ErasedPart(**part))
    digest = hashlib.sha256()
    sessions = in_part = 0
    key = TombstoneKey.of(SecretSeal.of(lake.settings))
    for page in order.sessions(~WHOLE):
        in_part += len(page)
    for page in order.sessions(WHOLE):
        for tenant, session in page:
            digest.update(bytes.fromhex(key.digest(tenant, SESSION, session)))
            sessions += 1
    with lake.database.write() as connection:
        row = connection.execute(sa.select(erasure).where(erasure.c.id == order.id)).one()
        finished = clock_us(connection)
        report = SigningKey.of(lake.settings).sign(
            {
                "erasure": order.id,
                "tenant": order.scope.tenant if order.scope.kind != TENANT else None,
                "kind": order.scope.kind,
                "subject": row.digest,
                "until_us": order.scope.until_us,
                "reason": row.reason,
                "requested_by": row.requested_by,
                "started_at_us": row.started_at,
                "finished_at_us": finished,
                "sessions": sessions,
                "sessions_in_part": in_part,
                "sessions_digest": digest.hexdigest(),
                "removed": dict(sorted(total.removed.items())),
                "seen_by": dict(sorted(total.seen_by.items())),
                "notes": list(total.notes),
            }
        )
        written = {"value": "", "progress": "{}", "report": json.dumps(report)}
        done = sa.update(erasure).where(erasure.c.id == order.id)
        connection.execute(done.values(**written, finished_at=finished))
        connection.execute(sa.delete(erasure_session).where(mine))
        facts = {"erasure": order.id, "state": f"done: {sessions} sessions"}
        append(connection, Deed(order.scope.tenant, row.requested_by, "erase", facts=facts))
    _close(lake, order.id)
    return report


def _close(lake: Lake, id_: str) -> None:
    """Close the erasure, and scrub deleted content from the database's files."""
    lake.database.scrub()
    with lake.database.write() as connection:
        connection.execute(sa.update(erasure).where(erasure.c.id == id_).values(state=DONE))


def list_erasures(lake: Lake) -> list[Erasure]:
    """All erasures, the newest last."""
    columns = [erasure.c[name] for name in Erasure.__struct_fields__]
    query = sa.select(*columns).order_by(erasure.c.started_at)
    with lake.database.read() as connection:
        rows = [dict(row) for row in connection.execute(query).mappings()]
    return [Erasure(**(row | {"report": json.loads(row["report"] or "null")})) for row in rows]


def open_erasures(lake: Lake) -> list[str]:
    """Interrupted erasures."""
    query = sa.select(erasure.c.id).where(erasure.c.state == OPEN).order_by(erasure.c.started_at)
    return list(lake.database.scalars(query))


#: How long readers of replaced files may go on; then they fail and can restart.
READERS_SECONDS_MAX = 120.0
_BACKUPS = (
    "Backups are out of reach: delete those made before the end of this erasure, or restore one"
    " only together with penstock erase of the same."
)
_BUCKET = (
    "What the bucket keeps beside its objects is out of reach: older versions, copies in other"
    " regions, and parts of uploads that were cut off. Its lifecycle rules end them."
)


def _erase_events(order: ErasureOrder) -> Iterator[ErasedPart]:
    lake, parts = order.lake, list[Iterator[RewrittenSegment]]()
    if order.is_aged:
        older = segments_older(lake, order.scope.tenant, order.scope.until_us)
        parts.append(retire_sessions(lake, older, order.chosen_rows))
    if order.breaks_snapshots:
        live = not order.is_aged
        parts.append(rewrite_segments(lake, order.prefixes(), order.chosen_rows, live=live))
    for done in chain.from_iterable(parts):
        yield ErasedPart({"events": done.events, "segments rewritten": 1})


def _erase_iceberg(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Remove replaced files from Iceberg's snapshots and metadata before they are deleted."""
    published = forget_history(order.lake, order.scope.tenant)
    yield ErasedPart({"Iceberg tables published anew": 1}) if published else ErasedPart()


def _erase_records(order: ErasureOrder) -> Iterator[ErasedPart]:
    links = order.delete_rows(session_link) + order.delete_rows(session_link, "parent_session")
    consents = order.delete_rows(consent_change) + _forget_decisions(order)
    order.delete_rows(masked_session)
    yield ErasedPart({"session links": links, "consents": consents})


def _forget_decisions(order: ErasureOrder) -> int:
    """Delete decisions on consent, which name their subjects."""
    scope, columns = order.scope, consent_decision.c
    about = [columns.tenant == scope.tenant]
    if scope.kind != TENANT:
        about += [columns.kind == scope.kind, columns.subject == scope.value]
    with order.lake.database.write() as connection:
        deleted = connection.execute(sa.delete(consent_decision).where(*about)).rowcount
    of_sessions = columns.kind == SESSION
    return int(deleted) + order.delete_rows(consent_decision, "subject", of_sessions)


def _erase_files(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Delete replaced files once nobody reads them."""
    wait_for_readers(order.lake, READERS_SECONDS_MAX)
    deleted = delete_replaced(order.lake)
    remove_left_spill(order.lake.settings.data)
    notes = [_BACKUPS] if order.lake.store.local else [_BACKUPS, _BUCKET]
    yield ErasedPart({"files deleted": 2 * deleted}, notes=notes)


def wait_for_readers(lake: Lake, seconds_max: float) -> bool:
    """Wait for all present readers; False if some have not finished."""
    alive = reader_lease.c.until >= now_us()
    reading = set(lake.database.scalars(sa.select(reader_lease.c.id).where(alive)))
    deadline = time.monotonic() + seconds_max
    while reading and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        reading &= set(lake.database.scalars(sa.select(reader_lease.c.id).where(alive)))
    return not reading


EVENTS = ErasureStep(CONTENT, _erase_events, aged="files")
ICEBERG = ErasureStep(CONTENT, _erase_iceberg, aged="replaced")
RECORDS = ErasureStep(CONTENT, _erase_records, aged="records")
FILES = ErasureStep(LINEAGE, _erase_files, aged="replaced")
