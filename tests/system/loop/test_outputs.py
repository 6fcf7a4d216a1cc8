"""What a trainer left behind is removed in time, and nothing that anybody needs."""

import os
from hashlib import sha256
from pathlib import Path

import sqlalchemy as sa

from penstock.registry.checkpoints.registration import find, register
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.loop.tables import loop_cycle
from penstock_jobs.loop.trainers import remove_outputs
from tests.support.checkpoint_factory import digest_of
from tests.support.loop_world import TENANT, TRAINER, World

HOUR_US = 3_600_000_000
KEEP = ('limit = "60s"', 'limit = "60s"\nkeep = "2h"')
#: The first try of each cycle leaves something behind, and fails.
FAILS_ONCE = f"""\
test -e "$PENSTOCK_WORK/once" || {{
    touch "$PENSTOCK_WORK/once"; echo half > "$PENSTOCK_OUTPUT/half"; exit 1
}}
{TRAINER}"""
NEVER = "echo 41 > answer\n"


def age(world: World, hours: float) -> None:
    """As if all cycles had ended so much earlier."""
    ended = loop_cycle.c.ended_at
    with world.database.write() as connection:
        connection.execute(sa.update(loop_cycle).values(ended_at=ended - round(hours * HOUR_US)))


def folders(world: World) -> set[str]:
    root = world.hand.lake.settings.data / "loops" / "mini"
    return {
        str(path.relative_to(root))
        for path in root.glob("cycle-*/**/*")
        if path.name in ("checkpoint", "work")
    }


def start(world: World) -> list[str]:
    """What a runner says that only starts."""
    told: list[str] = []
    world.runner(wait=lambda _seconds: True, tell=told.append).run()
    return told


def remove(world: World) -> int:
    loop, settings = load_loop(world.folder / "loop.toml"), world.hand.lake.settings
    return remove_outputs(world.database, settings, loop, TENANT)


def test_failed_tries_go_and_what_was_promoted_stays(world: World) -> None:
    world.write("trainer.sh", FAILS_ONCE)
    world.loop(KEEP)
    assert world.run_once().outcome == "promoted"
    tries = {"cycle-0001/try-001/checkpoint", "cycle-0001/try-002/checkpoint"}
    assert folders(world) == {*tries, "cycle-0001/work"}
    age(world, 1.9)
    start(world)
    assert folders(world) == {*tries, "cycle-0001/work"}
    age(world, 0.2)
    assert "1 old outputs of the trainer were removed" in start(world)
    assert folders(world) == {"cycle-0001/try-002/checkpoint", "cycle-0001/work"}
    left = world.hand.lake.settings.data / "loops/mini/cycle-0001/try-001"
    assert (left / "trainer.log").is_file()
    assert start(world)[-1].startswith("mini waits")


def test_a_refused_checkpoint_is_withdrawn_and_its_files_go(world: World) -> None:
    world.write("agent.sh", NEVER)
    world.loop(KEEP)
    assert world.run_once().outcome == "refused"
    age(world, 3)
    assert find(world.database, TENANT, "mini-0001").state == "registered"
    remove(world)
    known = find(world.database, TENANT, "mini-0001")
    assert known.state == "withdrawn"
    assert folders(world) == set()
    assert remove(world) == 0


def test_nothing_goes_that_somebody_registered_or_builds_on(world: World) -> None:
    world.write("trainer.sh", FAILS_ONCE)
    world.write("agent.sh", NEVER)
    world.loop(KEEP)
    assert world.run_once().outcome == "refused"
    data = world.hand.lake.settings.data
    taken = data / "loops/mini/cycle-0001/try-001/checkpoint"
    database, settings = world.database, world.hand.lake.settings
    uri, digest = f"file://{taken}/half", _digest(taken / "half")
    register(database, settings, tenant=TENANT, name="mine", uri=uri, digest=digest, actor="ann")
    register(
        database,
        settings,
        tenant=TENANT,
        name="on-it",
        uri="https://models.test/on-it",
        digest=digest_of("on-it"),
        parent="mini-0001",
        form="delta",
        actor="ann",
    )
    before = folders(world)
    age(world, 3)
    remove(world)
    assert find(world.database, TENANT, "mini-0001").state == "registered"
    assert before - folders(world) == {"cycle-0001/work"}


def _digest(path: Path) -> str:
    return f"sha256:{sha256(path.read_bytes()).hexdigest()}"


def test_links_lead_to_nothing_that_is_removed(world: World, tmp_path: Path) -> None:
    """A trainer that failed left links: one in the place of its output, one in that of a try."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "checkpoint").mkdir(parents=True)
    (elsewhere / "checkpoint" / "weights").touch()
    world.write(
        "trainer.sh", f'rmdir "$PENSTOCK_OUTPUT"; ln -s {elsewhere} "$PENSTOCK_OUTPUT"; exit 1\n'
    )
    world.loop(KEEP)
    assert world.run_once().outcome == "failed"
    cycle = world.hand.lake.settings.data / "loops/mini/cycle-0001"
    (cycle / "try-009").symlink_to(elsewhere)
    age(world, 3)
    remove(world)
    assert not os.path.lexists(cycle / "try-001" / "checkpoint")
    assert (elsewhere / "checkpoint" / "weights").exists()
