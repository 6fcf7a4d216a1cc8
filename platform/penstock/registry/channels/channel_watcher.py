"""Waiting for changes of channels.

One thread polls for all waiting requests of a process. Whoever has the database follows it there;
everybody else asks a service."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
import structlog

from penstock.backends.database.engine import Database, portions
from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient, Tell
from penstock.core.errors import PenstockError
from penstock.core.fairness import Holdings
from penstock.registry.channels.change import ChannelNews, ChannelState, ChannelUnknown
from penstock.registry.channels.channel import channel_state, channel_state_in
from penstock.registry.channels.history import notices_after
from penstock.registry.channels.tables import channel

POLL_SECONDS = 0.02
#: The longest wait of a request: proxies close connections that are silent longer.
_WAIT_SECONDS_MAX = 60.0
_SERVICE_WAIT_SECONDS = 30.0
#: Pauses before an unreachable service is asked again; the last one repeats.
_PAUSES_SECONDS = (0.2, 1.0, 5.0)
_RETRY_SECONDS = 0.5
_JOIN_SECONDS_MAX = 10.0

ChannelKey = tuple[str, str]

log_line = structlog.get_logger()


#: The answer to a waiter: the channel, an error, or None when the watcher ends.
WatchOutcome = ChannelNews | ChannelUnknown | None


@dataclass(frozen=True, eq=False)
class _Waiter:
    key: ChannelKey
    after: int
    tell: Callable[[WatchOutcome], None]


class ChannelWatcher:
    """Answers waiters from one thread, which polls the database only while somebody waits.
    Thread-safe."""

    def __init__(self, database: Database, *, waiters_max: int) -> None:
        self._database = database
        self._places = Holdings("requests wait for changes of channels", waiters_max)
        self._waiters: set[_Waiter] = set()
        self._changed = threading.Condition()
        self._closed = False
        #: A plain flag, so a signal handler may set it at any time.
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """Answer all waiters at the next poll, and accept no new ones."""
        self._ending = True

    def stop(self) -> bool:
        """Stop the thread once the database has answered. True if it ended."""
        self.end_soon()
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS_MAX)
        return not self._thread.is_alive()

    async def channel(self, key: ChannelKey) -> ChannelState:
        return await asyncio.to_thread(channel_state, self._database, *key)

    async def change(
        self, key: ChannelKey, after: int, wait_s: float, disconnect: Awaitable[None]
    ) -> ChannelNews:
        """Wait for the changes after a version, or until the time is over."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[WatchOutcome] = loop.create_future()

        def tell(result: WatchOutcome) -> None:
            with suppress(RuntimeError):  # the loop has ended, so nobody waits
                loop.call_soon_threadsafe(outcome.set_result, result)

        leaving = asyncio.ensure_future(disconnect)
        either: set[asyncio.Future[Any]] = {outcome, leaving}
        within_s = min(wait_s, _WAIT_SECONDS_MAX)
        try:
            with self.telling(key, after, tell):
                await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
        news = outcome.result() if outcome.done() else None
        if news is None:
            news = await asyncio.to_thread(self._news, key, after)
        if isinstance(news, ChannelUnknown):
            raise news
        return news

    @contextmanager
    def telling(
        self, key: ChannelKey, after: int, tell: Callable[[WatchOutcome], None]
    ) -> Iterator[None]:
        """Register a waiter for the block. Another thread calls `tell` at most once. Raises
        TooManyRequests, Backlogged."""
        waiter = _Waiter(key, after, tell)
        with self._changed:
            self._places.take(key[0])
            self._waiters.add(waiter)
            self._changed.notify()
        try:
            yield
        finally:
            self._forget(waiter)

    def _forget(self, waiter: _Waiter) -> bool:
        with self._changed:
            if known := waiter in self._waiters:
                self._waiters.discard(waiter)
                self._places.give_back(waiter.key[0])
            return known

    def _run(self) -> None:
        pause_s = POLL_SECONDS
        while self._wait_for_work(pause_s):
            try:
                self._look()
                pause_s = POLL_SECONDS
            except Exception as error:  # they wait on
                unexpected = not isinstance(error, PenstockError)
                log_line.warning("channels were not seen", why=str(error), exc_info=unexpected)
                pause_s = _RETRY_SECONDS
            if self._ending:
                self._end_all()
        self._end_all()

    def _wait_for_work(self, pause_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, pause_s)
            self._changed.wait_for(lambda: self._waiters or self._closed)
            return not self._closed

    def _look(self) -> None:
        waiting: defaultdict[tuple[ChannelKey, int], list[_Waiter]] = defaultdict(list)
        with self._changed:
            for waiter in self._waiters:
                waiting[waiter.key, waiter.after].append(waiter)
        place = sa.tuple_(channel.c.tenant, channel.c.name)
        query = sa.select(channel.c.tenant, channel.c.name, channel.c.version)
        versions: dict[ChannelKey, int] = {}
        with self._database.read() as connection:
            for keys in portions(sorted({key for key, _ in waiting})):
                for tenant, name, version in connection.execute(query.where(place.in_(keys))):
                    versions[tenant, name] = version
        for (key, after), waiters in waiting.items():
            if after != versions.get(key):
                news = self._news(key, after)
                for waiter in waiters:
                    self._tell(waiter, news)

    def _news(self, key: ChannelKey, after: int) -> ChannelNews | ChannelUnknown:
        with self._database.read() as connection:
            try:
                state = channel_state_in(connection, *key)
            except ChannelUnknown as error:
                return error
            changes = notices_after(connection, *key, after)
        last = changes[-1].version if changes else state.version
        return ChannelNews(**vars(state), changes=changes, next=last)

    def _end_all(self) -> None:
        with self._changed:
            waiters = list(self._waiters)
        for waiter in waiters:
            self._tell(waiter, None)

    def _tell(self, waiter: _Waiter, outcome: WatchOutcome) -> None:
        if self._forget(waiter):
            waiter.tell(outcome)


def channel_path(name: str) -> str:
    """The path of a channel below /v1."""
    return f"channels/{quote(name, safe='')}"


def channel_answers(
    service: ServiceClient, name: str, after: int | None, tell: Tell, ended: threading.Event
) -> Iterator[dict[str, Any]]:
    """Yield a service's answers about a channel with new changes, until `ended`. Without `after`
    the first answer is the present state."""
    failures = 0
    while not ended.is_set():
        query = f"?after={after}&wait={_SERVICE_WAIT_SECONDS:g}" if after is not None else ""
        try:
            answer = service.ask(channel_path(name) + query, "version")
        except ServerUnreachable as error:
            if ended.is_set():
                return
            pause_s = _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]
            tell(f"{error} Retrying in {pause_s:g} s.")
            ended.wait(pause_s)
            failures += 1
            continue
        failures = 0
        yield answer
        after = answer.get("next") or answer["version"]
