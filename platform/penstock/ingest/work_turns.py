"""Who works on the event loop, and when: one tenant's large bodies never keep another's waiting."""

import asyncio
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

#: Others wait this long at most for one body, but for a single step that takes longer.
TURN_SECONDS = 0.002
#: A tenant whose bodies took more than this of the last second or so works much.
_MUCH_SECONDS = 0.25
_RECENT_SECONDS = 1.0
#: How often in a row a body of such a tenant stands back for others.
_STEPS_BACK_MAX = 20


@dataclass
class _TenantWork:
    recent_s: float = 0.0
    changed_s: float = 0.0
    #: Its bodies that others stand back for.
    under_way: int = 0
    #: Held by the one body that is worked on while the tenant works much.
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, worked_s: float, now_s: float) -> None:
        passed = math.exp((self.changed_s - now_s) / _RECENT_SECONDS)
        self.recent_s = self.recent_s * passed + worked_s
        self.changed_s = now_s


class WorkTurns:
    """The turns of all bodies: one body at a time of a tenant that works much.

    Others get as much time as that takes, and whatever of theirs is under way goes first."""

    def __init__(self) -> None:
        self._tenants: defaultdict[str, _TenantWork] = defaultdict(_TenantWork)

    def of(self, tenant: str) -> "BodyTurns":
        return BodyTurns(self._tenants[tenant], self)

    def others(self, own: _TenantWork) -> list[_TenantWork]:
        return [work for work in self._tenants.values() if work is not own]


class BodyTurns:
    """The turns of one body, measured by what its thread computes, however busy the machine is."""

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
        """Let others have a turn when it is time for one."""
        worked_s = time.thread_time() - self._begun_s
        if worked_s < TURN_SECONDS:
            return
        now_s = time.monotonic()
        self._tenant.add(worked_s, now_s)
        self._begun_s += worked_s  # nothing is counted twice if waiting is cancelled
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


#: How long the writer lets requests go first at one place, and in one flush.
_BREAK_SECONDS_MAX = 0.03
_FLUSH_BREAKS_SECONDS_MAX = 0.25
#: A writer with little rest between flushes must not fall behind by its breaks.
_SHARE_OF_REST = 0.5


class RightOfWay:
    """Who works in this process: requests, or one flush at a time on the writer's thread."""

    def __init__(self) -> None:
        self._requests = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self._flushed_s = time.perf_counter()

    @contextmanager
    def of_request(self) -> Iterator[None]:
        """While the block runs, a flush takes breaks."""
        self._requests += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._requests -= 1
            if not self._requests:
                self._nobody.set()

    @contextmanager
    def breaks_of_flush(self) -> Iterator["Breaks"]:
        rest_s = time.perf_counter() - self._flushed_s
        try:
            yield Breaks(self._nobody, min(_FLUSH_BREAKS_SECONDS_MAX, rest_s * _SHARE_OF_REST))
        finally:
            self._flushed_s = time.perf_counter()


class Breaks:
    def __init__(self, nobody: threading.Event, seconds_max: float) -> None:
        self._nobody = nobody
        self.left_s = seconds_max

    def take(self) -> None:
        """Wait until no request is worked on; where there is always one, take no more breaks."""
        if self.left_s <= 0 or self._nobody.is_set():
            return
        begun_s = time.perf_counter()
        alone = self._nobody.wait(min(self.left_s, _BREAK_SECONDS_MAX))
        self.left_s = self.left_s - (time.perf_counter() - begun_s) if alone else 0.0
