"""Waiting for changes of channels: one thread looks for all requests that wait in a process; who
has the database follows it there, and everybody else asks a service."""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
import structlog
from sqlalchemy import Connection

from penstock.channels.change import ChangeAnswer, ChannelNews, ChannelState, ChannelUnknown
from penstock.channels.channel import channel_state, channel_state_in
from penstock.channels.notices import notices_after, notices_in
from penstock.channels.tables import channel
from penstock.database.engine import Database
from penstock.errors import PenstockError, TooManyRequests
from penstock.http.client import ServiceClient, Tell
from penstock.http.errors import CutOff, ServerUnreachable

#: How often the database is asked.
POLL_SECONDS = 0.02
#: The longest wait of a request for a change: proxies give up a connection that is silent longer.
_WAIT_SECONDS_MAX = 60.0
#: A service is asked for the next change with such a wait.
_SERVICE_WAIT_SECONDS = 30.0
#: Pauses before a service that is away is asked again; the last one from then on.
_PAUSES_SECONDS = (0.2, 1.0, 5.0)
#: How many channels one statement asks for: databases bound a statement's parameters.
_CHANNELS_A_STATEMENT = 200
_RETRY_SECONDS = 0.5
_JOIN_SECONDS_MAX = 10.0

#: Tenant and name.
ChannelKey = tuple[str, str]

log_line = structlog.get_logger()


#: The answer to a waiter: the channel, an error, or None when nobody looks any more.
WatchOutcome = ChannelState | Exception | None


@dataclass(frozen=True, eq=False)
class _Waiter:
    key: ChannelKey
    #: The version that it knows; None asks for the channel as it is.
    after: int | None
    tell: Callable[[WatchOutcome], None]


class ChannelWatcher:
    """Answers waiters from a thread of its own, which asks the database only while somebody
    waits. Safe to share between threads."""

    def __init__(
        self, database: Database, *, waiters_max: int, poll_s: float = POLL_SECONDS
    ) -> None:
        self._database = database
        self._poll_s = poll_s
        self._waiters_max = waiters_max
        self._waiters: set[_Waiter] = set()
        #: How many wait for a change, by tenant.
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition()
        #: Somebody asks for a channel as it is, and need not wait for the next look.
        self._urgent = False
        self._closed = False
        #: No more than a flag, so that a signal may set it whatever the threads do.
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    @property
    def waiting(self) -> int:
        """How many wait for a change."""
        return self._waiting.total()

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """Let nobody wait from now on: who waits is answered at the next look."""
        self._ending = True

    def stop(self) -> bool:
        """True if it ended; it ends as soon as the database has answered."""
        self.end_soon()
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS_MAX)
        return not self._thread.is_alive()

    async def channel(self, key: ChannelKey) -> ChannelState:
        """A channel as it is now. Raises ChannelUnknown, DatabaseUnreachable, CutOff."""
        outcome = await self._outcome(key, None, None, None)
        if isinstance(outcome, ChannelState):
            return outcome
        raise outcome if outcome is not None else CutOff

    async def change(
        self, key: ChannelKey, after: int, wait_s: float, disconnect: Awaitable[None]
    ) -> ChannelNews:
        """A channel as soon as it is at another version than `after`; as it is when the time is
        over, when this process ends, or when the client is gone."""
        leaving = asyncio.ensure_future(disconnect)
        try:
            outcome = await self._outcome(key, after, min(wait_s, _WAIT_SECONDS_MAX), leaving)
        finally:
            leaving.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, ChannelNews) else _news(await self.channel(key), [])

    async def _outcome(
        self,
        key: ChannelKey,
        after: int | None,
        within_s: float | None,
        leaving: "asyncio.Future[None] | None",
    ) -> WatchOutcome:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[WatchOutcome] = loop.create_future()

        def tell(result: WatchOutcome) -> None:  # once at most
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(outcome.set_result, result)

        either: set[asyncio.Future[Any]] = {outcome} if leaving is None else {outcome, leaving}
        with self.telling(key, after, tell):
            await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return outcome.result() if outcome.done() else None

    @contextmanager
    def telling(
        self, key: ChannelKey, after: int | None, tell: Callable[[WatchOutcome], None]
    ) -> Iterator[None]:
        """Within the block `tell` is called, once at most and from another thread: as soon as the
        channel is at another version than `after`, or at once where that is None."""
        waiter = _Waiter(key, after, tell)
        with self._changed:
            if after is not None:
                self._refuse_when_full(key[0])
                self._waiting[key[0]] += 1
            self._waiters.add(waiter)
            self._urgent = self._urgent or after is None
            self._changed.notify()
        try:
            yield
        finally:
            self._forget(waiter)

    def _refuse_when_full(self, tenant: str) -> None:
        own = self._waiting[tenant]
        if own >= max(1, self._waiters_max // 2):
            why = f"{own} requests of yours wait for changes of channels already"
        elif self.waiting >= self._waiters_max:
            why = f"{self.waiting} requests wait for changes of channels already"
        else:
            return
        raise TooManyRequests(why=why)

    def _forget(self, waiter: _Waiter) -> bool:
        """False when it was told already, or has given up."""
        with self._changed:
            known = waiter in self._waiters
            self._waiters.discard(waiter)
            if known and waiter.after is not None:
                self._waiting[waiter.key[0]] -= 1
                self._waiting += Counter()  # forget tenants that wait for nothing
            return known

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                self._look()
            except Exception as error:
                # Requests for a change wait on; those for the present state get the error.
                unexpected = not isinstance(error, PenstockError)
                log_line.warning("channels were not seen", why=str(error), exc_info=unexpected)
                self._tell_all(error, lambda waiter: waiter.after is None)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _RETRY_SECONDS)
            if self._ending:
                self._tell_all(None, lambda waiter: waiter.after is not None)
        self._tell_all(None, lambda _waiter: True)

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._urgent or self._closed, self._poll_s)
            self._changed.wait_for(lambda: self._waiters or self._closed)
            self._urgent = False
            return not self._closed

    def _look(self) -> None:
        by_key: defaultdict[ChannelKey, defaultdict[int | None, list[_Waiter]]]
        by_key = defaultdict(lambda: defaultdict(list))
        with self._changed:
            for waiter in self._waiters:
                by_key[waiter.key][waiter.after].append(waiter)
        place = sa.tuple_(channel.c.tenant, channel.c.name)
        query = sa.select(channel.c.tenant, channel.c.name, channel.c.version)
        with self._database.read() as connection:
            versions: dict[ChannelKey, int] = {}
            keys = list(by_key)
            for start in range(0, len(keys), _CHANNELS_A_STATEMENT):
                some = query.where(place.in_(keys[start : start + _CHANNELS_A_STATEMENT]))
                for tenant, name, version in connection.execute(some):
                    versions[tenant, name] = version
            for key, by_version in by_key.items():
                for after, waiters in by_version.items():
                    if after is not None and after == versions.get(key):
                        continue
                    outcome = _seen(connection, key, after)
                    for waiter in waiters:
                        self._tell(waiter, outcome)

    def _tell_all(self, outcome: WatchOutcome, which: Callable[[_Waiter], bool]) -> None:
        with self._changed:
            waiters = [waiter for waiter in self._waiters if which(waiter)]
        for waiter in waiters:
            self._tell(waiter, outcome)

    def _tell(self, waiter: _Waiter, outcome: WatchOutcome) -> None:
        if self._forget(waiter):
            waiter.tell(outcome)


def _seen(connection: Connection, key: ChannelKey, after: int | None) -> WatchOutcome:
    try:
        state = channel_state_in(connection, *key)
    except ChannelUnknown as error:
        return error
    if after is None:
        return state
    return _news(state, notices_in(connection, *key, after, up_to=state.version))


def _news(state: ChannelState, changes: list[ChangeAnswer]) -> ChannelNews:
    last = changes[-1].version if changes else state.version
    return ChannelNews(**vars(state), changes=changes, next=last)


def follow(
    database: Database, tenant: str, name: str, after: int, *, poll_s: float = POLL_SECONDS
) -> Iterator[ChangeAnswer]:
    """Each change after a version, for ever, as it comes. Raises ChannelUnknown,
    DatabaseUnreachable."""
    channel_state(database, tenant, name)
    while True:
        for notice in notices_after(database, tenant, name, after):
            after = notice.version
            yield notice
        time.sleep(poll_s)


def channel_path(name: str) -> str:
    """Below /v1."""
    return f"channels/{quote(name, safe='')}"


def channel_answers(
    service: ServiceClient, name: str, after: int | None, tell: Tell, ended: threading.Event
) -> Iterator[dict[str, Any]]:
    """The answers of a service about a channel: with the changes after a version, whenever there
    are new ones, until `ended`; without a version the first is the channel as it is."""
    failures = 0
    while not ended.is_set():
        query = f"?after={after}&wait={_SERVICE_WAIT_SECONDS:g}" if after is not None else ""
        try:
            answer = service.ask(channel_path(name) + query, "version")
        except ServerUnreachable as error:
            if ended.is_set():
                return
            pause_s = _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]
            tell(f"{error} It is tried again in {pause_s:g} s.")
            ended.wait(pause_s)
            failures += 1
            continue
        failures = 0
        yield answer
        after = answer.get("next", answer["version"])
