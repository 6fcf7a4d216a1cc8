"""Of a tenant that works much one body is worked on at a time, and others go first."""

import asyncio
from collections.abc import Awaitable

import pytest

from penstock.ingest import work_turns
from penstock.ingest.work_turns import WorkTurns


@pytest.fixture
def _each_step_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_turns, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(work_turns, "_MUCH_SECONDS", 0.0)


def steps_of(*bodies: tuple[str, str, int]) -> list[str]:
    """The order in which bodies, each a name, a tenant and its steps, were worked on."""
    order: list[str] = []
    turns = WorkTurns()

    async def work(name: str, tenant: str, steps: int) -> None:
        async with turns.of(tenant) as own:
            for _ in range(steps):
                order.append(name)
                await own.give()

    async def all_of(*work: Awaitable[None]) -> None:
        await asyncio.gather(*work)

    asyncio.run(all_of(*(work(*body) for body in bodies)))
    return order


@pytest.mark.usefixtures("_each_step_is_much")
def test_bodies_of_one_tenant_come_one_after_another() -> None:
    order = steps_of(("a", "t", 20), ("b", "t", 20))
    # Each does its first step before anybody knows how much it is.
    assert order[:2] == ["a", "b"]
    assert order[2:] == ["a"] * 19 + ["b"] * 19


@pytest.mark.usefixtures("_each_step_is_much")
def test_a_body_of_another_tenant_does_not_wait_for_them() -> None:
    order = steps_of(("a", "t", 100), ("b", "t", 100), ("c", "other", 2))
    assert [position for position, name in enumerate(order) if name == "c"][-1] < 10


@pytest.mark.usefixtures("_each_step_is_much")
def test_a_body_that_fails_lets_the_next_one_work() -> None:
    turns = WorkTurns()

    async def fail() -> None:
        async with turns.of("t") as own:
            await own.give()
            raise ValueError("it is broken")

    async def twice() -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                await asyncio.wait_for(fail(), 60)

    asyncio.run(twice())
