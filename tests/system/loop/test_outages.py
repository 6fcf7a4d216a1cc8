"""The database goes away in a cycle and comes back: nothing is lost, and nothing is done twice that
counts."""

from collections.abc import Iterator

import pytest

from penstock.registry.channels.history import channel_changes
from penstock_jobs.loop.cycles import cycles_of
from tests.support.loop_world import CHANNEL, TENANT, World, expire_leases, outcomes
from tests.support.servers.postgres import PostgresServer, running_postgres

pytestmark = pytest.mark.usefixtures("in_postgresql")

STAGES = ("rewards", "shard", "train", "register", "bench", "gate", "promote")
#: While a stage does its work, after it, and when it was written down.
POINTS = [
    "opened",
    *(f"{stage}:{at}" for stage in STAGES for at in ("claimed", "worked", "kept")),
    "ending",
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One of this file's own, since its tests stop it."""
    with running_postgres() as server:
        yield server


def is_as_ever(world: World) -> None:
    [cycle] = [one for one in cycles_of(world.database, TENANT) if one.number == 1]
    assert (cycle.outcome, set(outcomes(cycle).values())) == ("promoted", {"done"})
    assert {one.failures for one in cycle.stages} == {0}
    changes = channel_changes(world.database, TENANT, CHANNEL)
    assert [one.checkpoint for one in changes if one.action == "promote"] == ["first", "mini-0001"]


def test_a_server_that_stops_at_every_point_is_waited_for(
    world: World, postgres: PostgresServer
) -> None:
    left, told, away = list(POINTS), list[str](), list[bool]()

    def stop(point: str) -> None:
        if point in left:
            left.remove(point)
            postgres.stop()
            away.append(True)

    def wait(_seconds: float) -> bool:
        if not away:
            return True  # the next cycle waits for its sessions
        postgres.start()
        away.clear()
        expire_leases(world.database)  # as if the runner had been silent for so long
        return False

    try:
        world.runner(wait=wait, crash_point=stop, tell=told.append).run()
    finally:
        if away:
            postgres.start()
    assert left == []
    assert any("The metadata database cannot be used" in one for one in told)
    is_as_ever(world)


def test_connections_that_are_cut_at_every_point_are_made_again(
    world: World, postgres: PostgresServer
) -> None:
    left = list(POINTS)

    def cut(point: str) -> None:
        if point in left:
            left.remove(point)
            postgres.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'penstock'"
            )

    assert world.run_once(crash_point=cut).outcome == "promoted"
    assert left == []
    is_as_ever(world)
