"""Two runners of a loop on one database never do a stage twice."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from penstock.registry.channels.history import channel_changes
from penstock_jobs.loop.cycles import LoopCycles, cycles_of
from tests.support.loop_world import AGENT, CHANNEL, TENANT, World, expire_leases, open_world
from tests.support.repository import ROOT

pytestmark = pytest.mark.usefixtures("each_database")


def race(folder: Path) -> None:
    """A runner in a process of its own, which begins when it is told. It says which stages it did,
    and how often it found another one at work."""
    did: list[str] = []
    met: list[str] = []

    def look(point: str) -> None:
        stage, _, at = point.partition(":")
        if at == "worked":
            did.append(stage)

    def tell(text: str) -> None:
        if " runs " in text:
            met.append(text)

    def pause(seconds: float) -> bool:
        time.sleep(min(seconds, 0.05))
        return False

    with open_world(folder, make=False) as world:
        runner = world.runner(wait=pause, crash_point=look, tell=tell)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        cycle = runner.run_once()
    found = {"cycle": cycle.number, "outcome": cycle.outcome, "did": did, "met": len(met)}
    sys.stdout.write(json.dumps(found))


def test_two_at_once_do_each_stage_once(world: World, tmp_path: Path) -> None:
    trainer = (world.folder / "trainer.sh").read_text()
    world.write("trainer.sh", f'echo run >> "{world.folder}/trained"\n{trainer}')
    world.write("agent.sh", f'echo run >> "{world.folder}/attempted"\n{AGENT}')
    command = [sys.executable, "-m", "tests.system.loop.test_two_runners", str(tmp_path)]
    runners = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for one in runners:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in runners:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    found = [json.loads(one.communicate(timeout=300)[0]) for one in runners]
    assert [(one["cycle"], one["outcome"]) for one in found] == [(1, "promoted")] * 2
    [cycle] = cycles_of(world.database, TENANT)
    did = [*found[0]["did"], *found[1]["did"]]
    assert sorted(did) == sorted(one.stage for one in cycle.stages)
    assert found[0]["met"] + found[1]["met"] > 0  # there was somebody to be kept away
    assert {one.stage: one.epoch for one in cycle.stages} == {one.stage: 1 for one in cycle.stages}
    assert (world.folder / "trained").read_text() == "run\n"
    assert (world.folder / "attempted").read_text() == "run\n" * 20
    changes = channel_changes(world.database, TENANT, CHANNEL)
    assert [one.checkpoint for one in changes if one.action == "promote"] == ["first", "mini-0001"]


def test_what_a_fenced_runner_finishes_late_is_not_taken(world: World) -> None:
    told: list[str] = []

    def overtaken(point: str) -> None:
        """Silent for so long, with its work done, that another one does the rest."""
        if point == "train:worked":
            expire_leases(world.database)
            assert world.run_once().outcome == "promoted"

    late = world.run_once(crash_point=overtaken, tell=told.append)
    assert (late.number, late.outcome) == (1, "promoted")
    assert [one for one in told if "Its result is dropped" in one]
    stages = {one.stage: one for one in late.stages}
    assert stages["train"].epoch == 2
    assert (stages["train"].result or {})["uri"].endswith("try-002/checkpoint/weights")
    assert {one.epoch for name, one in stages.items() if name != "train"} == {1}


def test_of_many_that_claim_at_once_one_has_it(world: World) -> None:
    database, claimers = world.database, 6
    cycles = LoopCycles(database, TENANT, "by-hand")
    facts = {"channel": CHANNEL, "file_digest": "x", "budget_s": 1, "stages": ["rewards"]}
    assert cycles.open(1, **facts)  # type: ignore[arg-type]
    at_once = Barrier(claimers)

    def claim(_number: int) -> int | None:
        [cycle] = cycles_of(database, TENANT, "by-hand")
        at_once.wait()
        stage = cycle.stage("rewards")
        with cycles.claimed(1, stage, owner="me", lease_s=60, until_us=None) as held:
            at_once.wait()
            return None if held is None else held.epoch

    with ThreadPoolExecutor(claimers) as pool:
        for number in range(1, 11):
            held = [one for one in pool.map(claim, range(claimers)) if one is not None]
            assert held == [number]


if __name__ == "__main__":
    race(Path(sys.argv[1]))
