"""The parts of a server process: the lake, keys, and the threads of gateway and writer."""

import asyncio
import contextlib
import platform
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import numpy.ma  # noqa: F401  # Arrow loads it at the first array: the first flush would wait
import pyarrow as pa
import structlog

import penstock
from penstock.access import AccessSettings
from penstock.access.endpoint_routes import EndpointRoutes
from penstock.access.keys import Authorizer, KeyRing
from penstock.access.quotas import Quotas
from penstock.backends.audit.chain import heads_of, note_settings
from penstock.backends.audit.entry import UNSIGNED
from penstock.backends.eventlog.log import EventLogSettings
from penstock.backends.http.request_limits import RequestBounds, RequestSlots
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError
from penstock.core.fairness import Holdings
from penstock.core.lake_keys import SigningKey
from penstock.core.metrics import Metrics
from penstock.core.settings import Settings
from penstock.doors.console.console import Console
from penstock.doors.server.processes import Processes, WriterReport
from penstock.doors.settings import ServerRole
from penstock.ingest.gateway import GroupCommit
from penstock.ingest.partition_writer import WriterParts, refuse_truncated_log
from penstock.ingest.rejected_lines import fuse_warnings
from penstock.ingest.routes import Gateway
from penstock.ingest.settings import IngestSettings
from penstock.ingest.writer import Writer
from penstock.lake import LakeSettings
from penstock.lake.lake import Lake
from penstock.lake.query.spill import remove_left_spill
from penstock.lake.query.statement_processes import StatementProcesses
from penstock.lake.upkeep.rounds import Upkeep
from penstock.registry.channels import ChannelSettings
from penstock.registry.channels.channel_watcher import ChannelWatcher
from penstock.registry.channels.notice_delivery import Deliverer
from penstock.registry.channels.routes import Registry
from penstock.registry.fleet import FleetSettings
from penstock.registry.fleet.replicas import FleetGauges

#: A writer that makes no progress for longer counts as stuck.
_STUCK_SECONDS_MAX = 30.0

_QUERIES_WAITING_MAX = 64
_AUDIT_SECONDS = 60.0
#: How long memory is kept for the next body or flush once it is free.
_MEMORY_SECONDS = 10.0
#: Each running call has a connection to the database.
_CALLS_RUNNING_MAX = 4
_CALLS_WAITING_MAX = 64

log_line = structlog.get_logger()


@dataclass
class Service:
    """The parts of a server process. They are built before it listens."""

    settings: Settings
    role: ServerRole = "all"
    #: The processes of `penstock serve`, if this is the gateway or the writer among them.
    processes: Processes | None = None
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        #: False for the writer beside a gateway, which answers for both.
        self.listens = self.processes is None or self.role == "gateway"
        self.name = self.role if self.processes is None else "all"
        release = {"version": penstock.__version__, "python": platform.python_version()}
        if self.listens:
            self.metrics.set("build_info", 1, role=self.name, **release)
        if self.processes is not None:
            self.metrics.set("process_restarts", self.processes.own_restarts, part=self.role)
        self.lake = Lake(self.settings)
        self.keys = KeyRing(self.lake.database, self.clock)
        self.authorizer = Authorizer(self.keys, self.clock, self.metrics)
        self.quotas = Quotas(self.lake.database, self.settings, self.clock)
        limits = self.settings.room(IngestSettings)
        self.gateway = Gateway(
            settings=self.settings,
            authorizer=self.authorizer,
            lake=self.lake,
            inflight=Holdings(
                "bytes are not on disk yet",
                limits.inflight_bytes_max,
                limits.tenant_inflight_bytes_max,
            ),
            metrics=self.metrics,
            clock=self.clock,
            quotas=self.quotas,
        )
        self.statements = self.lake.statements = StatementProcesses(
            distant_files=not self.lake.store.local, log_format=self.settings.log_format
        )
        lake_limits = self.settings.room(LakeSettings)
        self.answers = Holdings(
            "bytes of answers were not fetched yet",
            lake_limits.queries_max * lake_limits.query_answer_bytes_max,
        )
        self.queries = RequestSlots(
            "queries",
            running_max=lake_limits.queries_max,
            waiting_max=_QUERIES_WAITING_MAX,
            retry_after_s=5,
        )
        self.calls = RequestSlots(
            "calls", running_max=_CALLS_RUNNING_MAX, waiting_max=_CALLS_WAITING_MAX
        )
        bounds = RequestBounds(self.calls, self.queries, self.gateway.inflight, self.answers)
        self.endpoint_routes = EndpointRoutes(self.authorizer, self.quotas, self.lake, bounds)
        self.console = Console(self.authorizer, self.quotas, self.lake, bounds, self.clock)
        self._known_warnings: list[str] = []
        self._audited_us = self.clock.now_us()
        self._started = False
        #: False if a thread did not end in time and still uses the lake.
        self.ended = True
        self.writer: Writer | None = None
        self.upkeep: Upkeep | None = None
        self.registry = Registry(self.lake.database, self.settings, self.authorizer)
        waiters_max = self.settings.room(ChannelSettings).channel_waiters_max
        self.watcher = ChannelWatcher(self.lake.database, waiters_max=waiters_max)
        self.deliverer: Deliverer | None = None

    def start(self) -> None:
        """Open everything, once. Closes all parts again if one fails, and raises its error."""
        if self._started:
            return
        self._started = True
        try:
            self._open()
        except BaseException:
            self.stop()
            raise

    def _open(self) -> None:
        remove_left_spill(self.settings.data)
        self.keys.refresh()
        self.quotas.refresh()
        self.lake.redaction_modes.refresh()
        self.lake.redaction_modes.is_kept = True
        if self.listens:
            note_settings(self.lake.database, self.settings, f"serve {self.name}")
            self.watcher.start()
        if self.lake.database.signs:
            _ = SigningKey.of(self.settings).public  # an unfit key fails the start
        else:
            log_line.warning("evidence is not signed", why=UNSIGNED)
        if self.role in ("all", "gateway"):
            _ = self.lake.redactor  # invalid rules fail the start, not the first request
            refuse_truncated_log(self.lake)
            self.gateway.commits = GroupCommit(
                self.lake.log, self.settings.room(EventLogSettings).block_bytes_max, self.metrics
            )
        if self.role in ("all", "writer"):
            self.deliverer = Deliverer(self.lake.database, self.settings, self.metrics)
            self.writer = Writer(WriterParts(self.lake, self.clock, self.metrics))
            self.upkeep = Upkeep(self.lake, self.metrics)
            self.writer.start()
            self.upkeep.start()
            self.deliverer.start()

    def end_soon(self) -> None:
        """Wake everything that waits, because the process ends. Safe in a signal handler."""
        self.watcher.end_soon()

    def stop(self) -> None:
        """Finish started work: acknowledge what is on disk, store what is in the log."""
        if self.gateway.commits is not None:
            self.gateway.commits.close()
        workers = (self.deliverer, self.upkeep, self.writer, self.watcher)
        running = [worker for worker in workers if worker is not None]
        for worker in running:
            worker.end_soon()
        stopped = [worker.stop() for worker in running]
        stopped += [each.stop() for each in (self.registry.registrations, self.queries, self.calls)]
        self.ended = all(stopped)
        if self.ended:
            self.lake.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run within the block. A start that fails stops what it started."""
        tasks = []
        try:
            await asyncio.to_thread(self.start)
            every_s = self.settings.room(AccessSettings).keys_refresh_seconds
            # What bodies and answers took, and nobody uses any more, goes back to the system.
            release = pa.default_memory_pool().release_unused
            repeated = [
                _repeat(every_s, self.keys.refresh, "keys could not be read"),
                _repeat(
                    every_s, self.lake.redaction_modes.refresh, "redaction modes could not be read"
                ),
                _repeat(every_s, self._refresh_warnings, "warnings could not be read"),
                _repeat(every_s, self.quotas.refresh, "quotas could not be read"),
                _repeat(_AUDIT_SECONDS, self._note_tally, "the audit could not be written"),
                _repeat(_MEMORY_SECONDS, release, "memory was not given back"),
            ]
            if self.role in ("all", "writer"):
                every_s = self.settings.room(FleetSettings).replica_report_seconds
                gauges = FleetGauges(self.lake.database, self.settings, self.metrics)
                repeated.append(_repeat(every_s, gauges.refresh, "fleets could not be read"))
            tasks = [asyncio.create_task(work) for work in repeated]
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.to_thread(self.stop)

    def problems(self) -> Iterator[str]:
        """Reasons why this process makes no progress."""
        if self.gateway.commits is not None and (problem := self.gateway.commits.problem()):
            yield problem
        problem, age_s = None, 0.0
        if self.writer is not None:
            problem, age_s = self.writer.problem, self.writer.progress_age_s()
        elif self.processes is not None:
            report = self.processes.writer_report
            problem, age_s = report.problem, time.monotonic() - report.progress_s
        if problem:
            yield problem
        elif age_s > _STUCK_SECONDS_MAX:
            yield f"the writer has made no progress for {age_s:.0f} s"

    def report(self, writer: Writer) -> WriterReport:
        progress_s = time.monotonic() - writer.progress_age_s()
        return WriterReport(progress_s, writer.problem, self.warnings(), self.metrics.samples())

    def exposition(self, tenant: str | None) -> bytes:
        self.metrics.set("inflight_bytes", self.gateway.inflight.total)
        self.metrics.set("queries_running", self.queries.under_way)
        self.metrics.set("channel_waiters", self.watcher.waiting)
        others = self.processes.writer_report.samples if self.processes is not None else None
        return self.metrics.exposition(tenant, others)

    def _note_tally(self) -> None:
        """Write the tallies to the audit, and the head of each audit chain to the log.

        The log is kept elsewhere: whoever truncates a chain cannot change it there."""
        self.lake.flush_tallies()
        if self.role not in ("all", "writer"):
            return
        now_us = self.clock.now_us()
        with self.lake.database.read() as connection:
            heads = heads_of(connection, since=self._audited_us)
        for tenant, head in heads:
            log_line.info("audit", tenant=tenant, number=head.number, hash=head.hash)
        self._audited_us = now_us

    def _refresh_warnings(self) -> None:
        self._known_warnings = fuse_warnings(self.lake.database)
        if self.role == "console":  # it opens the log for a query that needs it, if ever
            return
        if damage := self.lake.log.damage():
            size = sum(part.bytes for part in damage)
            self._known_warnings.append(
                f"{size} bytes of the event log were damaged and set aside:"
                " `penstock lake verify` says where"
            )

    def warnings(self) -> list[str]:
        """Problems that a person should solve, though events are still taken in."""
        upkeep = self.upkeep.problems() if self.upkeep is not None else []
        delivery = self.deliverer.warnings() if self.deliverer is not None else []
        unsigned = [] if self.lake.database.signs else [f"Evidence is {UNSIGNED}."]
        found = [*upkeep, *delivery, *unsigned, *self._known_warnings]
        if self.processes is not None:
            found += self.processes.warnings(self.listens)
        return [*dict.fromkeys(found)]


async def _repeat(every_s: float, work: Callable[[], object], failure: str) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await asyncio.to_thread(work)
        except PenstockError as error:
            log_line.warning(failure, why=str(error))
