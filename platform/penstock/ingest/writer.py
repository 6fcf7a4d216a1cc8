"""The writer: takes every partition that it can get into the lake, and survives outages."""

import math
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass

import structlog

from penstock.errors import PenstockError
from penstock.eventlog import Held
from penstock.eventlog.errors import LogCorrupt
from penstock.ingest.errors import LogTruncated, RejectedLimitReached
from penstock.ingest.partition_writer import PartitionWriter, Parts
from penstock.ingest.rejection_limit import RejectionLimit
from penstock.ingest.settings import IngestSettings
from penstock.ingest.sharing import Sharing
from penstock.lake.duplicates import KnownEvents
from penstock.lake.errors import FencedOff
from penstock.lake.partitions import LogState, agree_on
from penstock.lake.settings import LakeSettings

#: How often the writer looks for events of others.
_POLL_SECONDS = 0.05

log_line = structlog.get_logger()

#: Trying again would not help: a person has to look first.
_NEEDS_A_PERSON = (RejectedLimitReached, LogCorrupt, LogTruncated)
_RETRY_SECONDS_MIN = 0.1
#: How often the lag is told while nothing is written.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class WriterState:
    """What /readyz needs to know."""

    problem: str | None
    stopped: bool
    progress_age_s: float


class Writer:
    """Runs on a thread of its own."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        settings = parts.settings
        self.owner = uuid.uuid4().hex
        # Shared by the partitions, so that both limits hold for the process.
        self._known = KnownEvents(
            parts.database, parts.store, bytes_max=settings.room(LakeSettings).known_bytes_max
        )
        self._rejections = RejectionLimit(
            settings.room(IngestSettings).rejected_ratio_max,
            settings.room(IngestSettings).rejected_window_lines,
        )
        self._log_seen: tuple[str, int] | None = None
        self._log: LogState | None = None
        self._partitions: list[PartitionWriter] = []
        self._sharing: Sharing | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._progress_s = parts.clock.elapsed_s()
        self._problem: str | None = None
        self._stopped = False

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """Read no more but to finish."""
        self._stopping.set()

    def stop(self) -> bool:
        """Store what the log holds, as far as that goes in time, and end. Whether it ended: if
        not, the lake is in use still, and the process had better just go."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(self._parts.settings.shutdown_seconds_max)
        return not self._thread.is_alive()

    def state(self) -> WriterState:
        age_s = self._parts.clock.elapsed_s() - self._progress_s
        return WriterState(self._problem, self._stopped, age_s)

    def drain(self, seconds_max: float = math.inf) -> bool:
        """Without the thread: take all that the log holds into the lake now, as far as that
        goes in time. False when another process owns a partition and does it. Raises what
        stops it."""
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

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            try:
                self.round()
                self._went_well()
                # Not for each append: what comes within a pause costs one look at the log.
                behind = any(partition.behind for partition in self._partitions)
                pause_s = 0.0 if behind else _POLL_SECONDS
            except _NEEDS_A_PERSON as error:
                self._stop_for_a_person(error)
                while not self._stopping.wait(_LOOK_SECONDS):
                    self._tell_lag()
                return
            except Exception as error:  # noqa: BLE001 the thread lives, and says what is wrong
                pause_s = self._failed(error, pause_s)
        self.finish()

    def round(self) -> None:
        """Without the thread: one look at each partition."""
        ends = self._parts.log.ends()
        self._follow_log()
        self._share()
        for partition, end in zip(self._partitions, ends, strict=False):
            partition.step(end=end)
        self._tell_lag()

    def _follow_log(self) -> None:
        """Go by the log as it is now: it may have grown, or be another."""
        seen = (self._parts.log.id, self._parts.log.partitions)
        if seen == self._log_seen:
            return
        log = agree_on(self._parts.database, *seen)
        if log != self._log:
            self._known.forget()
            self._partitions = [
                PartitionWriter(
                    self._parts,
                    number,
                    log,
                    owner=self.owner,
                    known=self._known,
                    rejections=self._rejections,
                )
                for number in range(log.partitions)
            ]
            self._log = log
        self._log_seen = seen

    def _share(self) -> None:
        """Have as many partitions as the other writers of a log that several may read."""
        if self._parts.log.hold(0) is not Held.UNKNOWN:
            return
        if self._sharing is None:
            settings, database = self._parts.settings, self._parts.database
            lease_s, clock = settings.room(LakeSettings).lease_seconds, self._parts.clock
            self._sharing = Sharing(database, self.owner, lease_s, clock)
        division = self._sharing.look(len(self._partitions))
        if division is None:
            return
        for number, partition in enumerate(self._partitions):
            if number in division.release:
                partition.release()
            partition.wanted = partition.claimed or number in division.claim

    def _went_well(self) -> None:
        if self._problem:
            log_line.info("writer goes on")
        self._problem = None
        self._progress_s = self._parts.clock.elapsed_s()

    def _failed(self, error: Exception, pause_s: float) -> float:
        """Start over after a pause that grows while things stay bad."""
        problem = _sentence(error)
        if not isinstance(error, FencedOff) or self._problem is None:
            unexpected = not isinstance(error, (PenstockError, OSError))
            news = unexpected and problem != self._problem  # a traceback once is enough
            log_line.warning("writer tries again", why=str(error), exc_info=news)
        self._problem = problem
        self._parts.metrics.add("writer_failures_total")
        self._start_over()
        self._tell_lag()
        longest = self._parts.settings.room(IngestSettings).retry_seconds_max
        return min(max(_RETRY_SECONDS_MIN, pause_s * 2), longest)

    def _stop_for_a_person(self, error: Exception) -> None:
        log_line.error("writer stopped", why=str(error))
        self._problem, self._stopped = str(error), True
        self._parts.metrics.set("writer_stopped", 1)

    def _start_over(self) -> None:
        self._log_seen = None
        for partition in self._partitions:
            partition.start_over()

    def _tell_lag(self) -> None:
        """Never fails: it is told also while the log is away, which others report."""
        with suppress(PenstockError, OSError):
            for partition in self._partitions:
                partition.tell_lag()

    def finish(self) -> None:
        """Store what the log holds, as far as that goes in time, and leave the rest to others."""
        try:
            # Half of the time, because the last flush begun in it has to end in time too.
            for partition in self._partitions:
                partition.wanted = partition.claimed
            self.drain(self._parts.settings.shutdown_seconds_max / 2)
            if self._sharing is not None:
                self._sharing.leave()
        except Exception as error:  # noqa: BLE001 whatever it is, the events are in the log
            log_line.warning("the last events stay in the log until the next start", why=str(error))


def _sentence(error: Exception) -> str:
    """What /readyz shows: an unexpected error's own text may be empty, or a mere number."""
    if isinstance(error, PenstockError):
        return str(error)
    return f"The writer failed and tries again: {type(error).__name__}: {error}"
