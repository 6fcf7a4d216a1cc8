"""Turns of the event loop: one tenant's large bodies never delay another's."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from penstock.core.fairness import RecentUse, TenantQueue

#: The longest time that others wait for one body, unless a single step takes longer.
TURN_SECONDS = 0.002
#: Ends a body's turn if it is over, and waits for the next one.
GiveTurn = Callable[[], Awaitable[None]]


class WorkTurns:
    """The turns of all bodies: one works at a time. Next is whose tenant worked least in the last
    two seconds, by the CPU time of the loop's thread."""

    def __init__(self) -> None:
        self._worked = RecentUse()
        self._waiting: TenantQueue[tuple[object, asyncio.Future[None]]] = TenantQueue()
        self._is_free = True
        #: The body whose turn it is; None also between two turns.
        self._holder: object = None
        self._begun_s = 0.0

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[GiveTurn]:
        """Wait for the first turn of a body, and end its last one with the block."""
        body = object()

        async def give() -> None:
            if time.thread_time() - self._begun_s >= TURN_SECONDS:
                self._end(tenant, body)
                await self._take(tenant, body)

        try:
            await self._take(tenant, body)
            yield give
        finally:
            self._end(tenant, body)

    async def _take(self, tenant: str, body: object) -> None:
        if self._is_free:
            self._is_free, self._holder = False, body
        else:
            begun = asyncio.get_running_loop().create_future()
            self._waiting.append(tenant, (body, begun))
            await begun
        self._begun_s = time.thread_time()

    def _end(self, tenant: str, body: object) -> None:
        if self._holder is body:  # else it waited when its client went
            self._holder = None
            self._worked.add(tenant, time.thread_time() - self._begun_s, time.monotonic())
            # The loop looks at all connections before the next turn.
            asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        while (tenant := self._waiting.next_tenant(self._worked.of)) is not None:
            body, begun = self._waiting.pop(tenant)
            if not begun.done():  # else its client is gone
                self._holder = body
                begun.set_result(None)
                return
        self._is_free = True
