"""Bodies take turns: whose tenant worked least is next, however many others wait."""

import asyncio
from collections.abc import Awaitable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from penstock.ingest import work_turns
from penstock.ingest.work_turns import TURN_SECONDS, WorkTurns


class Bodies:
    """The order in which steps of bodies were done, by a clock that they alone move on."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.now_s = 100.0
        self.turns = WorkTurns()

    async def work(self, tenant: str, steps: int, step_s: float = TURN_SECONDS) -> None:
        async with self.turns.of(tenant) as give_turn:
            for _ in range(steps):
                self.order.append(tenant)
                self.now_s += step_s
                await give_turn()

    async def work_after(self, steps_of_others: int, tenant: str, steps: int) -> None:
        while len(self.order) < steps_of_others:  # noqa: ASYNC110  # it counts each pass
            await asyncio.sleep(0)
        await self.work(tenant, steps)

    def waits(self, tenant: str, since: int) -> int:
        """The most steps of others in a row before a step of the tenant's."""
        own = [since - 1, *(n for n, name in enumerate(self.order) if name == tenant)]
        return max(later - earlier - 1 for earlier, later in pairwise(own))


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    made = Bodies()
    clock = SimpleNamespace(thread_time=lambda: made.now_s, monotonic=lambda: made.now_s)
    monkeypatch.setattr(work_turns, "time", clock)
    return made


def run(*works: Awaitable[None]) -> list[BaseException | None]:
    async def all_of_them() -> list[BaseException | None]:
        return await asyncio.gather(*works, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_tenants_get_the_same_time_however_many_bodies_they_send(bodies: Bodies) -> None:
    run(*(bodies.work("many", 50) for _ in range(10)), bodies.work("one", 50))
    last = len(bodies.order) - bodies.order[::-1].index("one")
    assert bodies.order[:last].count("many") <= 51


def test_a_newcomer_waits_for_one_turn_of_many_that_collude(bodies: Bodies) -> None:
    attacks = (bodies.work(f"hostile-{number % 20}", 20) for number in range(60))
    run(*attacks, bodies.work_after(200, "honest", 5))
    assert bodies.waits("honest", since=200) <= 1


def test_a_newcomer_goes_before_a_crowd_of_small_bodies(bodies: Bodies) -> None:
    crowd = (bodies.work(f"hostile-{number % 2}", 1, TURN_SECONDS / 10) for number in range(200))
    run(*crowd, bodies.work("honest", 1))
    assert bodies.waits("honest", since=0) <= 2


def test_whoever_worked_much_still_has_its_part(bodies: Bodies) -> None:
    """Small bodies that come all the time keep no large one waiting for ever."""

    async def small() -> None:
        for _ in range(300):
            await bodies.work("small", 1)

    run(bodies.work("large", 100), *(small() for _ in range(3)))
    last = len(bodies.order) - bodies.order[::-1].index("large")
    assert bodies.order[:last].count("small") <= 101


def test_whoever_gives_up_or_fails_lets_others_work(bodies: Bodies) -> None:
    async def fail() -> None:
        async with bodies.turns.of("broken"):
            raise ValueError

    async def scene() -> list[BaseException | None]:
        working = asyncio.create_task(bodies.work("a", 50))
        gone = [asyncio.create_task(bodies.work("gone", 50)) for _ in range(3)]
        await asyncio.sleep(0)
        for number, task in enumerate(gone):
            for _ in range(number * 5):
                await asyncio.sleep(0)
            task.cancel()
        return await asyncio.gather(working, *gone, fail(), return_exceptions=True)

    ends = asyncio.run(scene())
    assert [type(end) for end in ends[1:]] == [asyncio.CancelledError] * 3 + [ValueError]
    run(bodies.work("a", 3))
    assert bodies.order.count("a") == 53
