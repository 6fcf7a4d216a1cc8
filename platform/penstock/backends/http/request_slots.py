"""Work of requests on threads: so much at the same time and waiting, in all and for each tenant."""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.backends.http.errors import CutOff
from penstock.core.errors import TooManyRequests

T = TypeVar("T")


@dataclass(frozen=True)
class _Work:
    tenant: str
    function: Callable[[], Any]
    #: So that log lines of the work carry the id of its request.
    context: Context = field(default_factory=copy_context)
    result: "Future[Any]" = field(default_factory=Future)


class RequestSlots:
    """Threads for slow work, which must not hold those of the event loop."""

    def __init__(
        self, name: str, *, running_max: int, waiting_max: int, retry_after_s: int = 1
    ) -> None:
        """`name` is the plural of what runs here, as in: 4 queries."""
        self._name = name
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._retry_after_s = retry_after_s
        self._threads = ThreadPoolExecutor(running_max, name)
        self._lock = threading.Lock()
        #: By tenant; some go on when nobody waits for the answer any more.
        self._running: Counter[str] = Counter()
        #: By tenant: the one whose turn is next comes first.
        self._waiting: dict[str, deque[_Work]] = {}

    @property
    def under_way(self) -> int:
        with self._lock:
            return self._running.total() + self._waiting_count()

    async def run(self, function: Callable[[], T], *, tenant: str) -> T:
        """Wait for the result of a function. Raises TooManyRequests; CutOff where the request is
        cancelled, as it is when the service ends."""
        work = _Work(tenant, function)
        with self._lock:
            self._refuse_when_full(tenant)
            self._waiting.setdefault(tenant, deque()).append(work)
            self._start_those_who_can()
        with cut_off_when_cancelled():
            result: T = await asyncio.wrap_future(work.result)
            return result

    def stop(self) -> bool:
        """Start nothing more. False while something goes on."""
        with self._lock:
            waiting = [work for queue in self._waiting.values() for work in queue]
            self._waiting.clear()
            self._threads.shutdown(wait=False)
            ended = not self._running
        for work in waiting:
            work.result.cancel()
        return ended

    def _refuse_when_full(self, tenant: str) -> None:
        if self._has_slot(tenant):
            return
        own, all_waiting = len(self._waiting.get(tenant, ())), self._waiting_count()
        if own >= max(1, self._waiting_max // 2):
            why = f"{self._running[tenant] + own} {self._name} of yours run or wait already"
        elif all_waiting >= self._waiting_max:
            why = f"{self._running.total() + all_waiting} {self._name} run or wait already"
        else:
            return
        raise TooManyRequests(why=why, retry_after_s=self._retry_after_s)

    def _waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _has_slot(self, tenant: str) -> bool:
        return self._running.total() < self._running_max and self._running[tenant] < max(
            1, self._running_max // 2
        )

    def _start_those_who_can(self) -> None:
        for tenant in list(self._waiting):
            queue = self._waiting[tenant]
            while queue and self._has_slot(tenant):
                self._running[tenant] += 1
                self._threads.submit(self._run, queue.popleft())
                del self._waiting[tenant]  # its next turn comes after those of the others
                self._waiting[tenant] = queue
            if not queue:
                del self._waiting[tenant]

    def _run(self, work: _Work) -> None:
        result = error = None
        wanted = work.result.set_running_or_notify_cancel()
        try:
            if wanted:
                result = work.context.run(work.function)
        except BaseException as raised:  # noqa: BLE001  # the request gets it, whatever it is
            error = raised
        with self._lock:
            self._running[work.tenant] -= 1
            self._running += Counter()  # forget tenants that run nothing
            self._start_those_who_can()
        if wanted:
            work.result.set_exception(error) if error else work.result.set_result(result)


@contextlib.contextmanager
def cut_off_when_cancelled() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        raise CutOff from None
