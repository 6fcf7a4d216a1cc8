"""Fair turns on the event loop: one tenant's large bodies never delay another's."""

import asyncio
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

#: The longest time that others wait for one body, unless a single step takes longer.
TURN_SECONDS = 0.002
#: A tenant is busy if its bodies took more than this of about the last second.
_MUCH_SECONDS = 0.25
_RECENT_SECONDS = 1.0
#: How often in a row a busy tenant's body yields to others.
_STEPS_BACK_MAX = 20


@dataclass
class _TenantWork:
    recent_s: float = 0.0
    changed_s: float = 0.0
    #: Its bodies that others yield to.
    under_way: int = 0
    #: Held by the one body in progress while the tenant is busy.
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, worked_s: float, now_s: float) -> None:
        passed = math.exp((self.changed_s - now_s) / _RECENT_SECONDS)
        self.recent_s = self.recent_s * passed + worked_s
        self.changed_s = now_s


class WorkTurns:
    """The turns of all bodies: a busy tenant has only one body in progress.

    Others get as much time as that takes, and their bodies go first."""

    def __init__(self) -> None:
        self._tenants: defaultdict[str, _TenantWork] = defaultdict(_TenantWork)

    def of(self, tenant: str) -> "BodyTurns":
        return BodyTurns(self._tenants[tenant], self)

    def others(self, own: _TenantWork) -> list[_TenantWork]:
        return [work for work in self._tenants.values() if work is not own]


class BodyTurns:
    """The turns of one body, measured by the CPU time of its thread."""

    def __init__(self, tenant: _TenantWork, turns: WorkTurns) -> None:
        self._tenant = tenant
        self._turns = turns
        self._goes_first = True
        self._alone = False
        self._begun_s = 0.0

    async def __aenter__(self) -> Self:
        self._tenant.under_way += 1
        self._begun_s = time.thread_time()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tenant.add(time.thread_time() - self._begun_s, time.monotonic())
        if self._alone:
            self._tenant.alone.release()
        if self._goes_first:
            self._tenant.under_way -= 1

    async def give(self) -> None:
        """Yield to others if the turn is over."""
        worked_s = time.thread_time() - self._begun_s
        if worked_s < TURN_SECONDS:
            return
        now_s = time.monotonic()
        self._tenant.add(worked_s, now_s)
        self._begun_s += worked_s  # so that nothing counts twice if waiting is cancelled
        if self._tenant.recent_s > _MUCH_SECONDS:
            await self._stand_back(worked_s, now_s)
        else:
            await asyncio.sleep(0)
        self._begun_s = time.thread_time()

    async def _stand_back(self, worked_s: float, now_s: float) -> None:
        if self._goes_first:
            self._goes_first = False
            self._tenant.under_way -= 1
            await self._tenant.alone.acquire()
            self._alone = True
        others = self._turns.others(self._tenant)
        sent = any(other.under_way or now_s - other.changed_s < _RECENT_SECONDS for other in others)
        await asyncio.sleep(worked_s if sent else 0)
        for _ in range(_STEPS_BACK_MAX):
            if not any(other.under_way for other in self._turns.others(self._tenant)):
                break
            await asyncio.sleep(worked_s)


#: How long a flush pauses for requests at one point, and in total.
_PAUSE_SECONDS_MAX = 0.03
_FLUSH_PAUSES_SECONDS_MAX = 0.25
#: The share of the rest between flushes that pauses may use, so a busy writer does not fall behind.
_SHARE_OF_REST = 0.5


class RequestPriority:
    """Gives requests precedence over the flush on the writer's thread."""

    def __init__(self) -> None:
        self._requests = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self._flushed_s = time.perf_counter()

    @contextmanager
    def of_request(self) -> Iterator[None]:
        """Let flushes pause while the block runs."""
        self._requests += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._nobody.set()

    @contextmanager
    def pauses_of_flush(self) -> Iterator["FlushPauses"]:
        rest_s = time.perf_counter() - self._flushed_s
        try:
            yield FlushPauses(self._nobody, min(_FLUSH_PAUSES_SECONDS_MAX, rest_s * _SHARE_OF_REST))
        finally:
            self._flushed_s = time.perf_counter()


class FlushPauses:
    def __init__(self, nobody: threading.Event, seconds_max: float) -> None:
        self._nobody = nobody
        self.left_s = seconds_max

    def take(self) -> None:
        """Wait until no request is in progress. If there is always one, pause no more."""
        if self.left_s <= 0 or self._nobody.is_set():
            return
        begun_s = time.perf_counter()
        alone = self._nobody.wait(min(self.left_s, _PAUSE_SECONDS_MAX))
        self.left_s = self.left_s - (time.perf_counter() - begun_s) if alone else 0.0
