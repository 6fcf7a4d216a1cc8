"""The lake's part of an erasure: events, links, consents, what jobs found, and replaced files."""

import time
from collections.abc import Iterator
from itertools import chain

import sqlalchemy as sa

from penstock.access.privacy.orders import CONTENT, LINEAGE, ErasedPart, ErasureOrder, ErasureStep
from penstock.access.privacy.tables import consent_decision
from penstock.access.privacy.tombstones import SESSION, TENANT
from penstock.backends.database.engine import now_us
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

#: How long readers of the replaced files may go on; then they fail, and can begin again.
READERS_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.2
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
        parts.append(retire_sessions(lake, older, order.chosen))
    if order.breaks_snapshots:
        live = not order.is_aged
        parts.append(rewrite_segments(lake, order.prefixes(), order.chosen, live=live))
    for done in chain.from_iterable(parts):
        yield ErasedPart({"events": done.events, "segments rewritten": 1})


def _erase_iceberg(order: ErasureOrder) -> Iterator[ErasedPart]:
    """No snapshot or metadata of Iceberg names the replaced files any more, before they go."""
    published = forget_history(order.lake, order.scope.tenant)
    yield ErasedPart({"Iceberg tables published anew": 1}) if published else ErasedPart()


def _erase_records(order: ErasureOrder) -> Iterator[ErasedPart]:
    links = order.delete_rows(session_link) + order.delete_rows(session_link, "parent_session")
    consents = order.delete_rows(consent_change) + _forget_decisions(order)
    order.delete_rows(masked_session)
    yield ErasedPart({"session links": links, "consents": consents})


def _forget_decisions(order: ErasureOrder) -> int:
    """Delete decisions on consent, which name whom they are about."""
    scope, columns = order.scope, consent_decision.c
    about = [columns.tenant == scope.tenant]
    if scope.kind != TENANT:
        about += [columns.kind == scope.kind, columns.subject == scope.value]
    with order.lake.database.write() as connection:
        deleted = connection.execute(sa.delete(consent_decision).where(*about)).rowcount
    of_sessions = columns.kind == SESSION
    return int(deleted) + order.delete_rows(consent_decision, "subject", of_sessions)


def _erase_files(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Delete replaced files when nobody reads them any more."""
    wait_for_readers(order.lake, READERS_SECONDS_MAX)
    deleted = delete_replaced(order.lake)
    remove_left_spill(order.lake.settings.data)
    notes = [_BACKUPS] if order.lake.store.local else [_BACKUPS, _BUCKET]
    yield ErasedPart({"files deleted": 2 * deleted}, notes=notes)


def wait_for_readers(lake: Lake, seconds_max: float) -> bool:
    """Wait for all who read at this moment; False where some have not finished."""
    alive = reader_lease.c.until >= now_us()
    with lake.database.read() as connection:
        reading = set(connection.scalars(sa.select(reader_lease.c.id).where(alive)))
    deadline = time.monotonic() + seconds_max
    while reading and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        with lake.database.read() as connection:
            reading &= set(connection.scalars(sa.select(reader_lease.c.id).where(alive)))
    return not reading


EVENTS = ErasureStep(CONTENT, _erase_events, aged="files")
ICEBERG = ErasureStep(CONTENT, _erase_iceberg, aged="replaced")
RECORDS = ErasureStep(CONTENT, _erase_records, aged="records")
FILES = ErasureStep(LINEAGE, _erase_files, aged="replaced")
