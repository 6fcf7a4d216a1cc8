"""Rounds of upkeep jobs while serving, in one process at a time, and one of the jobs: collection.

Collection deletes replaced files that nobody needs, and files that can never be committed."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec
import sqlalchemy as sa
import structlog
from sqlalchemy import Connection, bindparam

from penstock.backends.database.engine import now_us
from penstock.backends.database.leases import wait_for_lease
from penstock.core.errors import PenstockError, public_cause
from penstock.core.metrics import Metrics
from penstock.core.room import rooms
from penstock.lake import CompactionConflict, LakeSettings, UpkeepBusy
from penstock.lake.catalog import claim_files, file_tables, schedule_deletion, writer_is_gone
from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.tables import lake_commit, lake_head, reader_lease, segment_intent, snapshot

#: A job returns a line for the log, or None if there was nothing to do.
UpkeepJob = Callable[[Lake, Metrics], str | None]
_NICE = 10
#: How long a person waits for the round of another process.
_WAIT_SECONDS_MAX = 60

log_line = structlog.get_logger()


def upkeep_jobs() -> dict[str, UpkeepJob]:
    return {name: job for room in rooms() for name, job in room.upkeep().items()}


def upkeep_lease(lake: Lake, wait_s: float = 0) -> AbstractContextManager[bool]:
    """Try to be the only process that does upkeep until the block ends. Yields whether it is."""
    lease_s = lake.settings.room(LakeSettings).lease_seconds
    return wait_for_lease(lake.database, "upkeep", lease_s, wait_s)


@contextmanager
def upkeep_by_hand(lake: Lake) -> Iterator[None]:
    with upkeep_lease(lake, _WAIT_SECONDS_MAX) as mine:
        if not mine:
            raise UpkeepBusy(seconds=_WAIT_SECONDS_MAX)
        yield


class Upkeep:
    def __init__(
        self,
        lake: Lake,
        metrics: Metrics,
        find_jobs: Callable[[], dict[str, UpkeepJob]] = upkeep_jobs,
    ) -> None:
        self._lake = lake
        self._metrics = metrics
        self._find_jobs = find_jobs
        self._problems: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        self._stopping.set()

    def stop(self) -> bool:
        """Wait for the running job. Returns whether it ended."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(self._lake.settings.shutdown_seconds_max)
        return not self._thread.is_alive()

    def problems(self) -> list[str]:
        return list(self._problems.values())

    def _run(self) -> None:
        if sys.platform == "linux":  # requests and the writer go first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._stopping.wait(self._lake.settings.room(LakeSettings).upkeep_seconds):
            with self._reported("looking for jobs"), upkeep_lease(self._lake) as mine:
                for name, job in self._find_jobs().items() if mine else ():
                    if self._stopping.is_set():
                        break
                    with self._reported(name), suppress(CompactionConflict):
                        if report := job(self._lake, self._metrics):
                            log_line.info("upkeep", did=report)

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """Report a failure in the block as a problem until the block succeeds."""
        try:
            yield
            self._problems.pop(name, None)
        except Exception as error:
            self._metrics.add("upkeep_failures_total")
            problem = f"Upkeep ({name}) failed and is tried again: {public_cause(error)}"
            unexpected = not isinstance(error, (PenstockError, OSError))
            news = unexpected and problem != self._problems.get(name)  # a traceback once is enough
            log_line.warning("upkeep failed", job=name, why=str(error), exc_info=news)
            self._problems[name] = problem


# Collection


class CollectionReport(msgspec.Struct, frozen=True):
    #: Replaced files, by folder.
    replaced: dict[str, int]
    uncommitted: int
    leases: int

    @property
    def segments(self) -> int:
        return self.replaced["events"]


def clean_up(lake: Lake, metrics: Metrics) -> str | None:
    report = collect(lake)
    deleted = sum(report.replaced.values()) + report.uncommitted
    metrics.add("files_collected_total", 2 * deleted)
    return f"deleted {deleted} files that nobody needs" if deleted else None


def collect(lake: Lake, grace_s: float | None = None) -> CollectionReport:
    """Delete files that nobody needs. The next round finishes a killed one."""
    if grace_s is None:
        grace_s = lake.settings.room(LakeSettings).collection_grace_seconds
    tables = file_tables()
    with lake.database.write() as connection:
        claim_files(connection, to_collect=True)
        ended = sa.delete(reader_lease).where(reader_lease.c.until < now_us())
        leases = connection.execute(ended).rowcount
        replaced = {
            folder: _give_up_replaced(connection, table, grace_s)
            for folder, table in tables.items()
        }
        # Intents whose owner cannot commit any more or, for a merge, is surely gone.
        old = segment_intent.c.created_at <= now_us(-grace_s)
        hopeless = writer_is_gone() | (segment_intent.c.epoch.is_(None) & old)
        uncommitted = connection.execute(
            sa.update(segment_intent)
            .where(segment_intent.c.claimed_at.is_(None), hopeless)
            .values(claimed_at=now_us())
        ).rowcount
    _delete_given_up(lake, grace_s)
    return CollectionReport(replaced, uncommitted, leases)


def _give_up_replaced(connection: Connection, table: sa.Table, grace_s: float) -> int:
    removed_snap = table.c.removed_snap
    replaced_at = sa.select(lake_commit.c.committed_at).where(lake_commit.c.snap == removed_snap)
    is_read = [
        sa.exists(sa.select(snap).where(table.c.added_snap <= snap, removed_snap > snap))
        for snap in (snapshot.c.snap, reader_lease.c.snap)
    ]
    unneeded = connection.execute(
        sa.select(table.c.id, table.c.name, removed_snap).where(
            removed_snap.is_not(None),
            replaced_at.scalar_subquery() <= now_us(-grace_s),
            ~sa.or_(*is_read),
        )
    ).all()
    if not unneeded:
        return 0
    newest = max(row.removed_snap for row in unneeded)
    connection.execute(
        sa.update(lake_head).where(lake_head.c.readable_from < newest).values(readable_from=newest)
    )
    gone = sa.delete(table).where(table.c.id == bindparam("gone"))
    connection.execute(gone, [{"gone": row.id} for row in unneeded])
    schedule_deletion(connection, [row.name for row in unneeded])
    return len(unneeded)


def _delete_given_up(lake: Lake, grace_s: float) -> None:
    """Delete the files at once, and again after the grace: their owner may have been writing."""
    over = (segment_intent.c.claimed_at <= now_us(-grace_s)).label("over")
    claimed = segment_intent.c.claimed_at.is_not(None)
    rows = lake.database.rows(sa.select(segment_intent.c.name, over).where(claimed))
    for row in rows:
        lake.store.delete(row.name)
        lake.store.delete(sessions_name(row.name))
    if done := [{"done": row.name} for row in rows if row.over]:
        with lake.database.write() as connection:
            gone = sa.delete(segment_intent).where(segment_intent.c.name == bindparam("done"))
            connection.execute(gone, done)
