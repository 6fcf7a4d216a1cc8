"""What the routes of the registry need beside the lake: threads, and somebody who watches."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.channels.settings import ChannelSettings
from penstock.channels.watchers import POLL_SECONDS, ChannelKey, ChannelNews, Watcher, WatchOutcome
from penstock.database.engine import Database
from penstock.http.errors import CutOff
from penstock.http.request_slots import Turns
from penstock.settings import Settings

#: Calls that go on at the same time: each holds a connection to the database.
_CALLS_MAX = 4
_CALLS_WAITING_MAX = 64
#: Registrations read the files of checkpoints, for minutes: promotions do not wait behind them.
_REGISTRATIONS_MAX = 2
_REGISTRATIONS_WAITING_MAX = 16
#: The longest wait of a request for a change: proxies give up a connection that is silent longer.
_CHANNEL_WAIT_SECONDS_MAX = 60.0

T = TypeVar("T")


class RegistryCalls:
    def __init__(self, database: Database, settings: Settings) -> None:
        self.watcher = Watcher(
            database,
            poll_s=POLL_SECONDS,
            waiters_max=settings.room(ChannelSettings).channel_waiters_max,
        )
        self._calls = Turns("such requests", running_max=_CALLS_MAX, waiting_max=_CALLS_WAITING_MAX)
        self._registrations = Turns(
            "registrations",
            running_max=_REGISTRATIONS_MAX,
            waiting_max=_REGISTRATIONS_WAITING_MAX,
        )

    def start(self) -> None:
        self.watcher.start()

    def end_soon(self) -> None:
        self.watcher.end_soon()

    def stop(self) -> bool:
        """Whether nothing goes on."""
        stopped = [self.watcher.stop(), self._calls.stop(), self._registrations.stop()]
        return all(stopped)

    async def call(self, work: Callable[[], T]) -> T:
        """What it returns, from a thread, when its turn has come. Raises TooManyRequests."""
        return await self._calls.run(work)

    async def register(self, work: Callable[[], T]) -> T:
        """The same for what may take minutes."""
        return await self._registrations.run(work)

    async def channel(self, key: ChannelKey) -> ChannelNews:
        """A channel as it is now. Raises ChannelUnknown, DatabaseUnreachable."""
        return _seen(await self._ask(key, None, None, None))

    async def change(
        self, key: ChannelKey, after: int, wait_s: float, gone: Awaitable[None]
    ) -> ChannelNews:
        """A channel as soon as it is at another version than `after`; as it is when the time is
        over, when this process ends, or when whoever asked is gone. Raises TooManyRequests and as
        `channel` does."""
        leaving = asyncio.ensure_future(gone)
        try:
            outcome = await self._ask(key, after, min(wait_s, _CHANNEL_WAIT_SECONDS_MAX), leaving)
        finally:
            leaving.cancel()
        return _seen(outcome) if outcome is not None else await self.channel(key)

    async def _ask(
        self,
        key: ChannelKey,
        after: int | None,
        within_s: float | None,
        leaving: "asyncio.Future[None] | None",
    ) -> WatchOutcome:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[WatchOutcome] = loop.create_future()

        def settle(outcome: WatchOutcome) -> None:
            if not told.done():
                told.set_result(outcome)

        def tell(outcome: WatchOutcome) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(settle, outcome)

        first: set[asyncio.Future[Any]] = {told} if leaving is None else {told, leaving}
        with self.watcher.telling(key, after, tell):
            await asyncio.wait(first, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return told.result() if told.done() else None


def _seen(outcome: WatchOutcome) -> ChannelNews:
    if isinstance(outcome, ChannelNews):
        return outcome
    raise outcome if outcome is not None else CutOff
