"""What a server process holds: the lake, keys, the gateway's and the writer's threads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import structlog

from penstock.access.errors import KeyRefused
from penstock.access.keys import Grant, KeyRing, Role, may_be_key
from penstock.access.settings import AccessSettings
from penstock.channels.delivery import Deliverer
from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError, TooManyRequests
from penstock.eventlog.settings import EventLogSettings
from penstock.fleet.gauges import FleetGauges
from penstock.fleet.settings import FleetSettings
from penstock.http.errors import CutOff
from penstock.ingest.acceptance import Acceptor
from penstock.ingest.group_commit import GroupCommit, Inflight
from penstock.ingest.partition_writer import Parts
from penstock.ingest.settings import IngestSettings
from penstock.ingest.writer import Writer
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.lake.upkeep import Upkeep
from penstock.metrics import Metrics
from penstock.server.registry_calls import RegistryCalls
from penstock.settings import Settings

#: A writer without progress for so long is not ready.
_STUCK_SECONDS_MAX = 30.0

#: `gateway` takes events in, `writer` takes them into the lake and does upkeep, `console` only
#: answers queries, as all of them do.
ServerRole = Literal["all", "gateway", "writer", "console"]

#: Queries that wait for their turn, beside those that run.
_QUERIES_WAITING_MAX = 64

T = TypeVar("T")

log_line = structlog.get_logger()


@contextlib.contextmanager
def telling_cut_off() -> Iterator[None]:
    """Raises CutOff: a request is cancelled when the time is over that it has at the end."""
    try:
        yield
    except asyncio.CancelledError:
        raise CutOff from None


@dataclass
class Service:
    """Built once, before the server listens."""

    settings: Settings
    role: ServerRole = "all"
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.lake = Lake(self.settings)
        self.keys = KeyRing(self.lake.database, self.clock)
        self._looking = asyncio.Lock()
        self.inflight = Inflight(
            self.settings.room(IngestSettings).inflight_bytes_max,
            self.settings.room(IngestSettings).tenant_inflight_bytes_max,
            self.metrics,
        )
        # Not the threads of the event loop: slow queries must not keep keys from being refreshed.
        self._query_threads = ThreadPoolExecutor(
            self.settings.room(LakeSettings).queries_max, "query"
        )
        #: Some go on when nobody waits for the answer any more.
        self._asked: set[Future[Any]] = set()
        self._started = False
        #: False when a thread did not end in time: it uses the lake still.
        self.ended = True
        self.commits: GroupCommit | None = None
        self.writer: Writer | None = None
        self.upkeep: Upkeep | None = None
        self.registry = RegistryCalls(self.lake.database, self.settings)
        self.deliverer: Deliverer | None = None

    def start(self) -> None:
        """Open everything, if that was not done before. Raises what makes starting pointless;
        then nothing is left open."""
        if self._started:
            return
        self._started = True
        try:
            self._open()
        except BaseException:
            self.stop()
            raise

    def _open(self) -> None:
        self.keys.refresh()
        if self.role in ("all", "gateway"):
            self.commits = GroupCommit(
                self.lake.log, self.settings.room(EventLogSettings).block_bytes_max, self.metrics
            )
        if self.role in ("all", "writer"):
            self.deliverer = Deliverer(self.lake.database, self.settings, self.metrics)
            self.writer = Writer(self._parts())
            self.upkeep = Upkeep(self.lake, self.metrics)
            self.writer.start()
            self.upkeep.start()
            self.deliverer.start()
        self.registry.start()

    def end_soon(self) -> None:
        """The process has been asked to end, and nobody is to wait for anything; may be called
        from a signal."""
        self.registry.end_soon()

    def stop(self) -> None:
        """Finish what was begun: acknowledge what is on disk, store what is in the log."""
        if self.commits is not None:
            self.commits.close()
        found = (self.deliverer, self.upkeep, self.writer, self.registry)
        parts = [one for one in found if one is not None]
        for one in parts:
            one.end_soon()
        stopped = [one.stop() for one in parts]
        self._query_threads.shutdown(wait=False, cancel_futures=True)
        self.ended = all(stopped) and not self._asked
        if self.ended:
            self.lake.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stops also what was started before a start that fails."""
        refreshing: list[asyncio.Task[None]] = []
        try:
            await asyncio.to_thread(self.start)
            refreshing.append(asyncio.create_task(self._keep_keys_fresh()))
            if self.role in ("all", "writer"):
                refreshing.append(asyncio.create_task(self._keep_fleets_fresh()))
            yield
        finally:
            for one in refreshing:
                one.cancel()
            await asyncio.to_thread(self.stop)

    async def authorize(self, authorization: str | None, *roles: Role) -> Grant:
        """A key with one of the roles. Raises KeyRefused, RoleMissing."""
        try:
            grant = self.keys.grant(authorization)
        except KeyRefused:
            if not may_be_key(authorization):
                raise
            await self._look_for_new_keys()
            grant = self.keys.grant(authorization)
        grant.require(*roles)
        return grant

    async def _look_for_new_keys(self) -> None:
        """One look serves all that wait for it: whoever guesses keys waits, and costs little."""
        asked_s = self.clock.elapsed_s()
        async with self._looking:
            if not self.keys.looked_since(asked_s):
                await asyncio.sleep(self.keys.pause_s())
                await asyncio.to_thread(self.keys.refresh)

    async def run_query(self, ask: Callable[[], T]) -> T:
        """What it returns, from a thread, when its turn has come. Raises TooManyRequests."""
        if len(self._asked) >= self.settings.room(LakeSettings).queries_max + _QUERIES_WAITING_MAX:
            raise TooManyRequests(
                why=f"{len(self._asked)} queries run or wait already", retry_after_s=5
            )
        asked = self._query_threads.submit(ask)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        return await asyncio.wrap_future(asked)

    def acceptor(self, tenant: str) -> Acceptor:
        return Acceptor.of(tenant, self.settings, self.lake.log)

    def problems(self) -> Iterator[str]:
        """What keeps this process from making progress; nothing when it is ready."""
        if self.commits is not None and (problem := self.commits.problem()):
            yield problem
        if self.writer is None:
            return
        state = self.writer.state()
        if state.problem:
            yield state.problem
        elif state.progress_age_s > _STUCK_SECONDS_MAX:
            yield f"the writer has made no progress for {state.progress_age_s:.0f} s"

    def exposition(self) -> bytes:
        """For Prometheus."""
        self.metrics.set("queries_running", len(self._asked))
        self.metrics.set("channel_waiters", self.registry.watcher.waiting)
        return self.metrics.exposition()

    def warnings(self) -> list[str]:
        """What a person should see to, while events are taken in and stored all the same."""
        found = (self.upkeep, self.deliverer)
        return [said for one in found if one is not None for said in one.problems()]

    def _parts(self) -> Parts:
        return Parts(
            settings=self.settings,
            database=self.lake.database,
            store=self.lake.store,
            log=self.lake.log,
            clock=self.clock,
            metrics=self.metrics,
            summariser=self.lake.summariser,
        )

    async def _keep_keys_fresh(self) -> None:
        while True:
            await asyncio.sleep(self.settings.room(AccessSettings).keys_refresh_seconds)
            try:
                await asyncio.to_thread(self.keys.refresh)
            except PenstockError as error:
                log_line.warning("keys could not be refreshed", why=str(error))

    async def _keep_fleets_fresh(self) -> None:
        gauges = FleetGauges(self.lake.database, self.settings, self.metrics)
        while True:
            await asyncio.sleep(self.settings.room(FleetSettings).replica_report_seconds)
            try:
                await asyncio.to_thread(gauges.refresh)
            except PenstockError as error:
                log_line.warning("fleets could not be looked at", why=str(error))
