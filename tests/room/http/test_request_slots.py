"""Whose work runs, whose waits, and whose is turned away."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from penstock.backends.http import CutOff
from penstock.backends.http.request_limits import RequestSlots
from penstock.core.errors import Backlogged, TooManyRequests
from penstock.core.fairness import crowded


def _run(scene: Callable[[RequestSlots, threading.Event], Coroutine[Any, Any, None]]) -> None:
    """A scene with four slots and four places to wait; at its end all work may go on."""
    slots, go = (
        RequestSlots("queries", running_max=4, waiting_max=4, retry_after_s=3),
        threading.Event(),
    )

    async def play() -> None:
        try:
            await scene(slots, go)
        finally:
            go.set()

    asyncio.run(play())
    assert slots.under_way == 0
    assert slots.stop()


def _blocked(slots: RequestSlots, go: threading.Event, tenants: str) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(slots.run(go.wait, tenant=tenant)) for tenant in tenants]


def test_work_is_done_and_errors_come_through() -> None:
    async def scene(slots: RequestSlots, _go: threading.Event) -> None:
        assert await slots.run(lambda: 7, tenant="a") == 7
        with pytest.raises(ZeroDivisionError):
            await slots.run(lambda: 1 // 0, tenant="a")

    _run(scene)


def test_one_tenant_leaves_slots_to_the_others() -> None:
    async def scene(slots: RequestSlots, go: threading.Event) -> None:
        tasks = _blocked(slots, go, "aaaa")
        await asyncio.sleep(0)
        assert await slots.run(lambda: "at once", tenant="b") == "at once"
        go.set()
        assert await asyncio.gather(*tasks) == [True] * 4

    _run(scene)


def test_whoever_runs_nothing_is_started_at_once_and_knows_that_it_is_crowded() -> None:
    async def scene(slots: RequestSlots, go: threading.Event) -> None:
        tasks = _blocked(slots, go, "aabb")
        await asyncio.sleep(0)
        for tenant in "cdefghijklmn":
            assert await slots.run(crowded.get, tenant=tenant)
            tasks += _blocked(slots, go, tenant)
            await asyncio.sleep(0)
        late = slots.run(crowded.get, tenant="o")
        waiting = asyncio.create_task(late)
        await asyncio.sleep(0)
        assert slots.under_way == 17
        go.set()
        assert await asyncio.gather(*tasks) == [True] * 16
        await waiting
        assert not await slots.run(crowded.get, tenant="c")

    _run(scene)


def test_one_tenant_leaves_places_to_wait_to_the_others() -> None:
    async def scene(slots: RequestSlots, go: threading.Event) -> None:
        tasks = _blocked(slots, go, "aaaabb")
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="2 of its queries wait already") as refused:
            await slots.run(go.wait, tenant="a")
        assert refused.value.http_headers == {"Retry-After": "3"}
        tasks += _blocked(slots, go, "bbc")
        await asyncio.sleep(0)
        with pytest.raises(Backlogged, match="room for more now: 4 queries wait"):
            await slots.run(go.wait, tenant="c")
        go.set()
        await asyncio.gather(*tasks)

    _run(scene)


def _note(order: list[str], name: str) -> bool:
    order.append(name)
    return True


def test_tenants_take_turns() -> None:
    order: list[str] = []

    async def scene(slots: RequestSlots, go: threading.Event) -> None:
        tasks = _blocked(slots, go, "aabb")
        await asyncio.sleep(0)
        for name in ("a1", "a2", "c1", "c2"):
            work = slots.run(partial(_note, order, name), tenant=name[0])
            tasks.append(asyncio.create_task(work))
            await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks)

    _run(scene)
    assert {order.index("a1"), order.index("c1")} <= {0, 1, 2}
    assert sorted(order) == ["a1", "a2", "c1", "c2"]


def test_who_gives_up_leaves_the_queue() -> None:
    async def scene(slots: RequestSlots, go: threading.Event) -> None:
        tasks = _blocked(slots, go, "aaaa")
        await asyncio.sleep(0)
        tasks[-1].cancel()
        with pytest.raises(CutOff):
            await tasks[-1]
        go.set()
        assert await asyncio.gather(*tasks[:-1]) == [True] * 3
        assert await slots.run(lambda: 1, tenant="a") == 1

    _run(scene)


def test_nothing_starts_after_the_end() -> None:
    async def scene() -> None:
        slots, go = RequestSlots("queries", running_max=1, waiting_max=1), threading.Event()
        tasks = _blocked(slots, go, "aa")
        await asyncio.sleep(0)
        assert not slots.stop()
        with pytest.raises(CutOff):
            await tasks[1]
        go.set()
        assert await tasks[0]

    asyncio.run(scene())
