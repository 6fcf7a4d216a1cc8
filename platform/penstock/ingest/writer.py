"""The writer: takes every partition that it can get into the lake, and survives outages."""

import math
import threading
import uuid
from dataclasses import dataclass

import structlog

from penstock.errors import (
    FencedOff,
    LogCorrupt,
    LogTruncated,
    PenstockError,
    RejectedLimitReached,
)
from penstock.ingest.partition_writer import PartitionWriter, Parts
from penstock.ingest.rejection_limit import RejectionLimit
from penstock.lake.known import KnownEvents

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
        owner = uuid.uuid4().hex
        # Shared by the partitions, so that both limits hold for the process.
        known = KnownEvents(parts.database, parts.store, bytes_max=settings.known_bytes_max)
        rejections = RejectionLimit(settings.rejected_ratio_max, settings.rejected_window_lines)
        self._partitions = [
            PartitionWriter(parts, number, owner, known, rejections)
            for number in range(parts.log.partitions)
        ]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._progress_s = parts.clock.elapsed_s()
        self._problem: str | None = None
        self._stopped = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Store what the log holds, as far as that goes in time, and end. Whether it ended: if
        not, the lake is in use still, and the process had better just go."""
        self._stopping.set()
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
            for partition in self._partitions:
                while self._parts.clock.elapsed_s() < until_s and partition.step(0, drain=True):
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
                self._round()
                self._went_well()
                # Not for each append: what comes within a pause costs one look at the log.
                behind = any(partition.behind for partition in self._partitions)
                pause_s = 0.0 if behind else self._parts.settings.poll_seconds
            except _NEEDS_A_PERSON as error:
                self._stop_for_a_person(error)
                while not self._stopping.wait(_LOOK_SECONDS):
                    self._tell_lag()
                return
            except Exception as error:  # noqa: BLE001 the thread lives, and says what is wrong
                pause_s = self._failed(error, pause_s)
        self._finish()

    def _round(self) -> None:
        for partition in self._partitions:
            partition.step(0)
        self._tell_lag()

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
        longest = self._parts.settings.retry_seconds_max
        return min(max(_RETRY_SECONDS_MIN, pause_s * 2), longest)

    def _stop_for_a_person(self, error: Exception) -> None:
        log_line.error("writer stopped", why=str(error))
        self._problem, self._stopped = str(error), True
        self._parts.metrics.set("writer_stopped", 1)

    def _start_over(self) -> None:
        for partition in self._partitions:
            partition.start_over()

    def _tell_lag(self) -> None:
        for partition in self._partitions:
            partition.tell_lag()

    def _finish(self) -> None:
        try:
            # Half of the time, because the last flush begun in it has to end in time too.
            self.drain(self._parts.settings.shutdown_seconds_max / 2)
        except Exception as error:  # noqa: BLE001 whatever it is, the events are in the log
            log_line.warning("the last events stay in the log until the next start", why=str(error))


def _sentence(error: Exception) -> str:
    """What /readyz shows: an unexpected error's own text may be empty, or a mere number."""
    if isinstance(error, PenstockError):
        return str(error)
    return f"The writer failed and tries again: {type(error).__name__}: {error}"
