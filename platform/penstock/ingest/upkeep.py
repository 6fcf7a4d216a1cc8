"""Upkeep while serving: what `penstock_jobs` registers runs every few seconds, one by one."""

import threading
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points

import structlog

from penstock.errors import CompactionConflict, PenstockError
from penstock.lake.lake import Lake
from penstock.telemetry.metrics import Metrics

#: A job: takes the lake, gives back a line for the log, or nothing when there was nothing to do.
Job = Callable[[Lake, Metrics], str | None]
_GROUP = "penstock.upkeep"

log_line = structlog.get_logger()


def upkeep_jobs() -> dict[str, Job]:
    """The jobs by name. They are found, not imported: the platform does not know them."""
    return {entry.name: entry.load() for entry in entry_points(group=_GROUP)}


class Upkeep:
    """Runs on a thread of its own."""

    def __init__(
        self, lake: Lake, metrics: Metrics, find_jobs: Callable[[], dict[str, Job]] = upkeep_jobs
    ) -> None:
        self._lake = lake
        self._metrics = metrics
        self._find_jobs = find_jobs
        self._problems: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Ends after the job that is running, or gives up waiting for it: a merge that is cut
        off leaves an intent, and collection clears it away. Whether it ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._lake.settings.shutdown_seconds_max)
        return not self._thread.is_alive()

    def problems(self) -> list[str]:
        """A sentence for each job whose last round failed."""
        return list(self._problems.values())

    def _run(self) -> None:
        while not self._stopping.wait(self._lake.settings.upkeep_seconds):
            self._try("looking for jobs", self._round)

    def _round(self) -> None:
        for name, job in self._find_jobs().items():
            if not self._stopping.is_set():
                self._try(name, partial(self._run_job, job))

    def _run_job(self, job: Job) -> None:
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
