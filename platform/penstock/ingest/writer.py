"""The writer: stores all partitions that it can get in the lake, and survives outages."""

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import sqlalchemy as sa
import structlog

from penstock.backends.database.engine import now_us
from penstock.backends.database.leases import leased
from penstock.backends.database.tables import lease
from penstock.backends.eventlog.log import Claim, LogCorrupt
from penstock.core.errors import PenstockError, public_cause
from penstock.ingest.partition_writer import LogTruncated, PartitionWriter, WriterParts
from penstock.lake import FencedOff, LakeSettings, commits
from penstock.lake.commits import LogShape, agree_on_shape
from penstock.lake.lake import Lake

#: The pause between two looks for new events.
_POLL_SECONDS = 0.05
#: Held by whoever waits for events of the log to be stored.
_HURRY_LEASE = "hurry"
_HURRY_LOOK_SECONDS = 1.0

log_line = structlog.get_logger()

#: Errors that retrying does not solve: a person must look first.
_NEEDS_A_PERSON = (LogCorrupt, LogTruncated)
_RETRY_SECONDS_MIN = 0.1
#: The longest pause between retries during an outage.
RETRY_SECONDS_MAX = 5.0
#: The pause between two lag reports of a stopped writer.
_LAG_SECONDS = 1.0
_SURVEYS_A_LEASE = 6


class Writer:
    """Runs on a thread of its own."""

    def __init__(self, parts: WriterParts) -> None:
        self._parts = parts
        self.owner = parts.owner
        #: Opened here, because two threads might open it twice.
        self._log = parts.lake.log
        self._log_followed: tuple[str, int] | None = None
        self._shape: LogShape | None = None
        self._partitions: list[PartitionWriter] = []
        #: Whether other writers may exist.
        self._shares, self._surveyed_s = False, -math.inf
        #: Whether somebody waits for the log to be stored.
        self._hurried, self._looked_s = False, -math.inf
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._progress_s = parts.clock.elapsed_s()
        #: The reason that nothing is stored.
        self.problem: str | None = None

    def start(self) -> None:
        log_line.info("writer runs", owner=self.owner)
        self._thread.start()

    def end_soon(self) -> None:
        """Read only what is needed to finish."""
        self._stopping.set()

    def stop(self) -> bool:
        """Store what the log holds, within a time limit. False while the thread still runs: it uses
        the lake, so the process should simply exit."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(self._parts.lake.settings.shutdown_seconds_max)
        return not self._thread.is_alive()

    def progress_age_s(self) -> float:
        """Seconds since the last successful round."""
        return self._parts.clock.elapsed_s() - self._progress_s

    def drain(self, seconds_max: float = math.inf) -> bool:
        """Store all that the log holds, within a time limit, without the thread. False if another
        process owns a partition and stores it."""
        until_s = self._parts.clock.elapsed_s() + seconds_max
        try:
            self._follow_log()
            for partition in self._partitions:
                while self._parts.clock.elapsed_s() < until_s and partition.step(drain=True):
                    pass
                partition.release()
        except Exception:
            self._start_over()
            raise
        return all(partition.owned for partition in self._partitions)

    def round(self) -> None:
        """Take one step of each partition, without the thread."""
        ends = self._log.ends()
        self._follow_log()
        self._share()
        hurried = self._is_hurried()
        for partition, end in zip(self._partitions, ends, strict=False):
            partition.step(end=end, hurried=hurried)
        self._report_lag()

    def _is_hurried(self) -> bool:
        now_s = self._parts.clock.elapsed_s()
        if now_s - self._looked_s >= _HURRY_LOOK_SECONDS:
            self._looked_s = now_s
            waits = sa.exists().where(lease.c.name == _HURRY_LEASE, lease.c.until >= now_us())
            self._hurried = bool(self._parts.lake.database.scalar(sa.select(waits)))
        return self._hurried

    def finish(self) -> None:
        """Store what the log holds, within a time limit, and leave the rest to others."""
        try:
            for partition in self._partitions:
                partition.in_share = partition.claimed
            # Half of the time, because the last flush must also end in time.
            self.drain(self._parts.lake.settings.shutdown_seconds_max / 2)
            if self._shares:
                commits.remove_writer(self._parts.lake.database, self.owner)
        except Exception as error:  # noqa: BLE001 whatever it is, the events are in the log
            log_line.warning("the last events stay in the log until the next start", why=str(error))

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            try:
                self.round()
                if self.problem:
                    log_line.info("writer goes on")
                self.problem = None
                self._progress_s = self._parts.clock.elapsed_s()
                # Events within a pause share one read of the log.
                behind = any(partition.behind for partition in self._partitions)
                pause_s = 0.0 if behind else _POLL_SECONDS
            except _NEEDS_A_PERSON as error:
                log_line.error("writer stopped", why=str(error))
                self.problem = str(error)
                self._parts.metrics.set("writer_stopped", 1)
                while not self._stopping.wait(_LAG_SECONDS):
                    self._report_lag()
                return
            except Exception as error:  # noqa: BLE001 the thread lives on, and reports it
                pause_s = self._fail(error, pause_s)
        self.finish()

    def _follow_log(self) -> None:
        """Use the present log: it may have grown, or be another one."""
        present = (self._log.id, self._log.partitions)
        if present == self._log_followed:
            return
        shape = agree_on_shape(self._parts.lake.database, *present)
        if shape != self._shape:
            self._parts.known.forget()
            self._partitions = [
                PartitionWriter(self._parts, number, shape) for number in range(shape.partitions)
            ]
            self._shape = shape
        self._log_followed = present

    def _share(self) -> None:
        """Take a fair share of the partitions of a shared log."""
        if self._log.hold(0) is not Claim.UNKNOWN:
            return
        self._shares = True
        now_s = self._parts.clock.elapsed_s()
        if now_s - self._surveyed_s < self._parts.lease_s / _SURVEYS_A_LEASE:
            return
        database = self._parts.lake.database
        writers, owners = commits.survey_writers(database, self.owner, self._parts.lease_s)
        self._surveyed_s = now_s
        claim, release = divide(writers, owners, self.owner, len(self._partitions))
        for number, partition in enumerate(self._partitions):
            if number in release:
                partition.release()
            # After a restart the database still names this writer as owner.
            own = owners.get(number) == self.owner and number not in release
            partition.in_share = partition.claimed or number in claim or own

    def _fail(self, error: Exception, pause_s: float) -> float:
        """Start over after a pause, which grows with repeated errors."""
        problem = public_cause(error)
        if not isinstance(error, PenstockError):  # its text alone may be empty or a mere number
            problem = f"The writer failed and tries again: {problem}"
        if not isinstance(error, FencedOff) or self.problem is None:
            unexpected = not isinstance(error, (PenstockError, OSError))
            is_new = unexpected and problem != self.problem  # one traceback suffices
            log_line.warning("writer tries again", why=str(error), exc_info=is_new)
        self.problem = problem
        self._parts.metrics.add("writer_failures_total")
        self._start_over()
        self._report_lag()
        return min(max(_RETRY_SECONDS_MIN, pause_s * 2), RETRY_SECONDS_MAX)

    def _start_over(self) -> None:
        self._log_followed = None
        for partition in self._partitions:
            partition.start_over()

    def _report_lag(self) -> None:
        """Report the lag. Never fails: other metrics report an unreachable log."""
        with suppress(PenstockError, OSError):
            for partition in self._partitions:
                partition.report_lag()


@contextmanager
def hurried_writers(lake: Lake) -> Iterator[None]:
    """Let writers store immediately while the block runs: with thousands of tenants each would
    otherwise wait for minutes."""
    lease_s = lake.settings.room(LakeSettings).lease_seconds
    with leased(lake.database, _HURRY_LEASE, uuid.uuid4().hex, lease_s):
        yield


def wait_while(left: Callable[[], object], patience_s: float) -> bool:
    """Wait until nothing is left. False after this long without a change."""
    before, until_s = left(), time.monotonic() + patience_s
    while before and time.monotonic() < until_s:
        time.sleep(_POLL_SECONDS)
        if (now := left()) != before:
            before, until_s = now, time.monotonic() + patience_s
    return not before


def divide(
    writers: Sequence[str], owners: Mapping[int, str], mine: str, partitions: int
) -> tuple[set[int], set[int]]:
    """Divide partitions among writers: those to claim, and those to release. Shares differ by at
    most one, and each writer decides alone from the same facts."""
    ranked = sorted({*writers, mine})
    rank = ranked.index(mine)
    quota = partitions // len(ranked) + (rank < partitions % len(ranked))
    held = sorted(p for p, owner in owners.items() if owner == mine and p < partitions)
    free = [p for p in range(partitions) if p not in owners]
    start = rank * len(free) // len(ranked)  # so that writers claim different ones
    claim = (free[start:] + free[:start])[: max(0, quota - len(held))]
    return set(claim), set(held[quota:])
