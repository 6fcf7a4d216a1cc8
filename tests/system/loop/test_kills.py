"""Killed anywhere in a cycle, the loop finishes with the same result as without."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.clock import SystemClock
from penstock.registry.channels.channel import channel_state
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.tables import benchmark_attempt, checkpoint, checkpoint_shard
from penstock.shards.tables import shard
from penstock_jobs.loop.canary import watch
from penstock_jobs.loop.cycles import cycles_of
from penstock_jobs.loop.runner import STAGES
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest as Rewards
from penstock_jobs.rewards.runs import run as rewards
from tests.support.channels.channels_seen import changed_us
from tests.support.loop_world import CHANNEL, TENANT, World, expire_leases, open_world, talk
from tests.support.repository import ROOT

#: One session of either arm is enough for a step, and each step lasts no time.
LIMITS: dict[str, Any] = {"canary_look_seconds": 0.05}
STEPS = '[canary]\nsteps = [0.5]\nmin_age = "0s"\n'
MORE = '[canary]\nshare = 0.5\n[watch]\nfor = "0s"\n'
POINTS = [
    "opened",
    *(f"{stage.name}:{at}" for stage in STAGES for at in ("claimed", "worked", "kept")),
    "ending",
]
_SECONDS_MAX = 300


@pytest.mark.long
def test_killed_at_every_boundary_of_a_stage_and_at_random_moments(tmp_path: Path) -> None:
    kills_change_nothing(tmp_path, 4)


def kills_change_nothing(folder: Path, kills: int) -> None:
    command = [sys.executable, "-m", "tests.system.loop.test_kills", str(folder), str(kills)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout)
    [cycle] = found["wanted"]["cycles"]
    assert cycle[1] == "promoted"
    assert len(POINTS) == 29
    assert found["random"]
    assert all(one == found["wanted"] for one in (found["points"], *found["random"]))


def kill(folder: Path, kills: int) -> None:
    """At each point, and so many at random. Of a process of its own: it forks, so it has no
    threads. Each runner opens everything anew, as one on another machine does."""
    watch.SESSIONS_MIN = 1
    began = time.monotonic()
    wanted = undisturbed(folder / "undisturbed")
    within_s = (time.monotonic() - began) / 3
    points = at_each_point(folder / "points")
    random_kills = at_random(folder / "random", kills, within_s)
    sys.stdout.write(json.dumps({"wanted": wanted, "points": points, "random": random_kills}))


def at_random(folder: Path, kills: int, within_s: float) -> list[Any]:
    """World after world, whose runners are killed within so many seconds, ten times at most."""
    folder.mkdir()
    dice, killed, found = random.Random(kills), 0, []
    while killed < kills:
        place = folder / f"after-{killed}"
        make(place)
        most = min(kills - killed, 10)
        while most and in_a_child(partial(run, place), dice.uniform(0, within_s)):
            most, killed = most - 1, killed + 1
        if not most:
            assert not in_a_child(partial(run, place))
        found.append(seen(place))
    return found


def make(folder: Path) -> None:
    def work() -> None:
        with open_world(folder, **LIMITS) as world:
            with (world.folder / "policy.toml").open("a") as policy:
                policy.write(STEPS)
            world.loop(more=MORE)

    assert not in_a_child(work)


def undisturbed(folder: Path) -> Any:
    make(folder)
    assert not in_a_child(partial(run, folder))
    return seen(folder)


def at_each_point(folder: Path) -> Any:
    make(folder)
    for point in POINTS:
        assert in_a_child(partial(run, folder, point)), f"it never came to {point}"
    assert not in_a_child(partial(run, folder))
    return seen(folder)


def run(folder: Path, point: str | None = None) -> None:
    """To the end of the cycle, or to this point. A runner before it is long silent."""

    def look(at: str) -> None:
        if at == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_world(folder, make=False, **LIMITS) as world:
        expire_leases(world.database)

        def wait(_seconds: float) -> bool:
            serve(world)
            time.sleep(0.01)
            return False

        serve(world)
        cycle = world.run_once(wait=wait, crash_point=look)
        assert cycle.outcome == "promoted", (cycle.outcome, cycle.why)


def serve(world: World) -> None:
    """Once a cycle has begun another session comes and is scored, which it must not see. While a
    canary is tried both arms have one. Sent twice they are there once."""
    if any(one.began_at is not None for one in cycles_of(world.database, TENANT)):
        world.hand.store(talk("late", 90, "first"))
        rewards(world.hand.lake, InlineExecutor(), Rewards(find_definition()))
    state = channel_state(world.database, TENANT, CHANNEL)
    if state.canary is None or changed_us(state) + 50_000 > SystemClock().now_us():
        return
    for number, arm in enumerate((state.checkpoint, state.canary)):
        assert arm is not None
        events = talk(f"live-{arm}", 50 + number, arm)
        world.hand.send([one | {"ts": changed_us(state) + at} for at, one in enumerate(events, 1)])
    world.hand.writer().drain()


def seen(folder: Path) -> Any:
    """All that must not hang on kills. Times, epochs and folders do."""

    def work() -> None:
        with open_world(folder, make=False) as world, world.database.read() as connection:
            found: dict[str, Any] = {
                "cycles": [
                    [one.number, one.outcome, one.why, one.parent, one.checkpoint]
                    for one in cycles_of(world.database, TENANT)
                ]
            }
            found["stages"] = [
                [one.stage, one.state, one.failures]
                for one in cycles_of(world.database, TENANT)[0].stages
            ]
            for table, names in _SEEN:
                rows = connection.execute(sa.select(*(table.c[name] for name in names)))
                found[table.name] = sorted(map(list, rows), key=str)
        (folder / "seen.json").write_text(json.dumps(found))

    assert not in_a_child(work)
    return json.loads((folder / "seen.json").read_text())


_SEEN = (
    (benchmark_attempt, ("suite", "checkpoint", "task", "attempt", "status", "score")),
    (channel_change, ("version", "action", "checkpoint", "previous", "canary", "actor")),
    (checkpoint, ("name", "digest", "parent", "state", "checked")),
    (checkpoint_shard, ("checkpoint",)),
    (shard, ("name", "samples", "tokens", "trainable")),
)


def in_a_child(work: Callable[[], None], after_s: float | None = None) -> bool:
    """Whether it was killed on its way, by itself or after so long."""
    child = os.fork()
    if child == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    until = time.monotonic() + (_SECONDS_MAX if after_s is None else after_s)
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert after_s is not None, "it hangs"
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


if __name__ == "__main__":
    kill(Path(sys.argv[1]), int(sys.argv[2]))
