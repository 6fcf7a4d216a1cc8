"""Work of requests on threads: so much at the same time, so much that waits, and no more."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.errors import TooManyRequests
from penstock.http.errors import CutOff

T = TypeVar("T")


class RequestSlots:
    """Threads of their own, since slow work must not hold those of the event loop."""

    def __init__(
        self, name: str, *, running_max: int, waiting_max: int, retry_after_s: int = 1
    ) -> None:
        """`name` is the plural of what runs here, as in: 4 queries."""
        self._name = name
        self._all_max = running_max + waiting_max
        self._retry_after_s = retry_after_s
        self._threads = ThreadPoolExecutor(running_max, name)
        #: Some go on when nobody waits for the answer any more.
        self._futures: set[Future[Any]] = set()

    @property
    def under_way(self) -> int:
        """How many run or wait."""
        return len(self._futures)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, once it had its turn. Raises TooManyRequests; CutOff where the
        request is cancelled, as it is when the service ends."""
        if self.under_way >= self._all_max:
            why = f"{self.under_way} {self._name} run or wait already"
            raise TooManyRequests(why=why, retry_after_s=self._retry_after_s)
        future = self._threads.submit(work)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        with cut_off_when_cancelled():
            return await asyncio.wrap_future(future)

    def stop(self) -> bool:
        """Start nothing more; whether nothing goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not self._futures


@contextlib.contextmanager
def cut_off_when_cancelled() -> Iterator[None]:
    """Raises CutOff when the request is cancelled: its time at the end of the service is over."""
    try:
        yield
    except asyncio.CancelledError:
        raise CutOff from None
