"""The lake's own part of an erasure: events in segments, links, consents, what jobs found, and at
the end the files that were replaced."""

import time
from collections.abc import Iterator
from itertools import chain

import sqlalchemy as sa

from penstock.database.engine import now_us
from penstock.encryption.sealed_store import SealedStore
from penstock.lake.key_rotation import delete_unneeded_keys, replace_data_key, retired_keys
from penstock.lake.lake import Lake
from penstock.lake.rewrites import (
    RewrittenSegment,
    delete_replaced,
    retire_sessions,
    rewrite_segments,
    segments_older,
)
from penstock.lake.spill import remove_left_spill
from penstock.lake.tables import (
    consent_change,
    job,
    job_result,
    masked_session,
    reader_lease,
    session_link,
)
from penstock.privacy.orders import (
    CONTENT,
    KEYS,
    LINEAGE,
    LOG,
    ErasedPart,
    ErasureOrder,
    ErasureStep,
)
from penstock.privacy.tables import consent_decision
from penstock.privacy.tombstones import SESSION, TENANT
from penstock.safe_names import tenant_folder

#: How long those who read the replaced files may finish; then they fail, and can begin again.
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

_KEYS_NEEDED = (
    "Files that came while this was done still need an earlier data key of the tenant:"
    " `penstock encryption rotate` deletes it once they are merged."
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


def _erase_records(order: ErasureOrder) -> Iterator[ErasedPart]:
    lake = order.lake
    links = order.delete_rows(session_link) + order.delete_rows(session_link, "parent_session")
    consents = order.delete_rows(consent_change) + _forget_decisions(order)
    order.delete_rows(masked_session)
    yield ErasedPart({"session links": links, "consents": consents})
    with lake.database.write() as connection:  # they name sessions, and can be asked again
        done = sa.select(job.c.id).where(job.c.finished_at.is_not(None))
        results = sa.delete(job_result).where(job_result.c.job.in_(done))
        found = connection.execute(results).rowcount
        connection.execute(sa.delete(job).where(job.c.finished_at.is_not(None)))
    yield ErasedPart({"results of jobs": found})


def _forget_decisions(order: ErasureOrder) -> int:
    """Decisions on consent name whom they are about."""
    scope, columns = order.scope, consent_decision.c
    about = [columns.tenant == scope.tenant]
    if scope.kind != TENANT:
        about += [columns.kind == scope.kind, columns.subject == scope.value]
    with order.lake.database.write() as connection:
        deleted = connection.execute(sa.delete(consent_decision).where(*about)).rowcount
    of_sessions = columns.kind == SESSION
    return int(deleted) + order.delete_rows(consent_decision, "subject", of_sessions)


def _erase_files(order: ErasureOrder) -> Iterator[ErasedPart]:
    """The files that were replaced, when nobody reads them any more."""
    wait_for_readers(order.lake, READERS_SECONDS_MAX)
    deleted = delete_replaced(order.lake)
    remove_left_spill(order.lake.settings.data)
    notes = [_BACKUPS] if order.lake.store.local else [_BACKUPS, _BUCKET]
    yield ErasedPart({"files deleted": 2 * deleted}, notes=notes)


def wait_for_readers(lake: Lake, seconds_max: float) -> bool:
    """Wait until all who read at this moment have finished. False where some have not."""
    alive = reader_lease.c.until >= now_us()
    with lake.database.read() as connection:
        reading = set(connection.scalars(sa.select(reader_lease.c.id).where(alive)))
    deadline = time.monotonic() + seconds_max
    while reading and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        with lake.database.read() as connection:
            reading &= set(connection.scalars(sa.select(reader_lease.c.id).where(alive)))
    return not reading


def _replace_data_key(order: ErasureOrder) -> Iterator[ErasedPart]:
    """What comes from now on is sealed with another key than what is erased."""
    if order.scope.kind == TENANT:
        replace_data_key(order.lake, order.scope.tenant)
    yield ErasedPart()


def _delete_data_keys(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Whatever is left of the files, on disks or as versions in buckets, opens no more."""
    lake, tenant = order.lake, order.scope.tenant
    if order.scope.kind == TENANT and isinstance(lake.store, SealedStore):
        owner = tenant_folder(tenant)
        deleted = delete_unneeded_keys(lake, owner)
        left = retired_keys(lake, owner)
        yield ErasedPart({"data keys": deleted}, notes=[_KEYS_NEEDED] if left else [])


NEW_DATA_KEY = ErasureStep(LOG, _replace_data_key)
DATA_KEYS = ErasureStep(KEYS, _delete_data_keys)
EVENTS = ErasureStep(CONTENT, _erase_events, aged="files")
RECORDS = ErasureStep(CONTENT, _erase_records, aged="records")
FILES = ErasureStep(LINEAGE, _erase_files, aged="replaced")
