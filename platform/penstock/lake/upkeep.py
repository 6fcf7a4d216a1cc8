"""Upkeep while serving: the jobs of the entry point group `penstock.upkeep` run in rounds, one
after another, and in one process at a time."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points

import structlog

from penstock.database.leases import leased
from penstock.errors import PenstockError
from penstock.lake.errors import CompactionConflict, UpkeepBusy
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.metrics import Metrics

#: A job: takes the lake, gives back a line for the log, or nothing when there was nothing to do.
UpkeepJob = Callable[[Lake, Metrics], str | None]
_GROUP = "penstock.upkeep"
_LEASE = "upkeep"
_LOOK_SECONDS = 0.1
#: How long a person waits for the round of another process.
_WAIT_SECONDS_MAX = 60

log_line = structlog.get_logger()


def upkeep_jobs() -> dict[str, UpkeepJob]:
    """The jobs by name: merging, collecting, and what rooms above the lake add."""
    return {entry.name: entry.load() for entry in entry_points(group=_GROUP)}


@contextmanager
def upkeep_lease(lake: Lake, wait_s: float = 0) -> Iterator[bool]:
    """Gives True if no other process does upkeep on this lake until the block ends. Waits so long
    for another to finish its round."""
    owner = uuid.uuid4().hex
    deadline = time.monotonic() + wait_s
    while True:
        with leased(
            lake.database, _LEASE, owner, lake.settings.room(LakeSettings).lease_seconds
        ) as mine:
            if mine or time.monotonic() >= deadline:
                yield mine
                return
        time.sleep(_LOOK_SECONDS)


@contextmanager
def upkeep_by_hand(lake: Lake) -> Iterator[None]:
    """For a person who asks for upkeep by hand. Raises UpkeepBusy."""
    with upkeep_lease(lake, _WAIT_SECONDS_MAX) as mine:
        if not mine:
            raise UpkeepBusy(seconds=_WAIT_SECONDS_MAX)
        yield


class Upkeep:
    """Runs the jobs on a thread of its own."""

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
        """Begin no other job."""
        self._stopping.set()

    def stop(self) -> bool:
        """Ends after the job that is running, or gives up waiting for it: a merge that is cut
        off leaves an intent, and collection clears it away. Whether it ended."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(self._lake.settings.shutdown_seconds_max)
        return not self._thread.is_alive()

    def problems(self) -> list[str]:
        """A sentence for each job whose last round failed."""
        return list(self._problems.values())

    def _run(self) -> None:
        while not self._stopping.wait(self._lake.settings.room(LakeSettings).upkeep_seconds):
            self._try("looking for jobs", self._round)

    def _round(self) -> None:
        with upkeep_lease(self._lake) as mine:
            for name, job in self._find_jobs().items() if mine else ():
                if not self._stopping.is_set():
                    self._try(name, partial(self._run_job, job))

    def _run_job(self, job: UpkeepJob) -> None:
        try:
            report = job(self._lake, self._metrics)
        except CompactionConflict:
            return
        if report:
            log_line.info("upkeep", did=report)

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
            self._problems.pop(name, None)
        except Exception as error:
            self._metrics.add("upkeep_failures_total")
            problem = f"Upkeep ({name}) failed and is tried again: {error}"
            unexpected = not isinstance(error, (PenstockError, OSError))
            news = unexpected and problem != self._problems.get(name)  # a traceback once is enough
            log_line.warning("upkeep failed", job=name, why=str(error), exc_info=news)
            self._problems[name] = problem
