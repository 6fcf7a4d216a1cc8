"""Cycles whose runners are killed: at every boundary of a stage, or at random moments.

Run by itself: the process that kills forks, and has no threads. Each runner opens everything anew,
as one on another machine does.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.channels.channel import channel_state
from penstock.channels.tables import channel_change
from penstock.checkpoints.tables import benchmark_attempt, checkpoint, checkpoint_shard
from penstock.clock import SystemClock
from penstock.execution.calls import InlineExecutor
from penstock.shards.tables import shard
from penstock_jobs.canary import watch
from penstock_jobs.loop.cycles import cycles_of
from penstock_jobs.loop.runner import STAGES
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest as Rewards
from penstock_jobs.rewards.runs import run as rewards
from tests.support.loop_world import (
    CHANNEL,
    TENANT,
    TRAINER,
    World,
    expire_leases,
    open_world,
    talk,
)
from tests.support.repository import ROOT
from tests.support.servers.ports import free_port
from tests.support.waiting import eventually

#: One session of either arm is enough for a step, and each step lasts no time.
LIMITS: dict[str, Any] = {"canary_look_seconds": 0.05}
STEPS = '[canary]\nsteps = [0.5]\nmin_age = "0s"\n'
MORE = '[canary]\nshare = 0.5\n[watch]\nfor = "0s"\n'
POINTS = [
    "opened",
    *(f"{stage.name}:{at}" for stage in STAGES for at in ("claimed", "worked", "kept")),
    "ending",
]
SERVER = ROOT / "examples" / "trainers" / "http_trainer.py"
_SECONDS_MAX = 300


def main(folder: Path, kills: int, asked: int) -> None:
    """So many random kills with a trainer that is a command, and so many with one that is asked by
    HTTP, if any."""
    watch.SESSIONS_MIN = 1  # of this process alone: tests import this module
    began = time.monotonic()
    wanted = undisturbed(folder / "undisturbed")
    took = time.monotonic() - began
    found: dict[str, list[Any]] = {"points": [at_each_point(folder / "points")], "random": []}
    dice = random.Random(kills)
    commanded = Moments(folder / "random", dice, took / 3)
    killed = commanded.kill(kills, found["random"])
    if asked:
        with trainer_at(folder) as url:
            found["points"].append(at_each_point(folder / "asked-points", url))
            over_http = Moments(folder / "asked", dice, took / 3, url)
            killed += over_http.kill(asked, found["random"])
    sys.stdout.write(json.dumps({"wanted": wanted, "killed": killed, **found}))


@dataclass(frozen=True)
class Moments:
    """World after world below the folder, whose runners are killed within so many seconds."""

    folder: Path
    dice: random.Random
    within_s: float
    url: str | None = None

    def kill(self, kills: int, found: list[Any]) -> int:
        """Until there were so many."""
        self.folder.mkdir()
        killed = 0
        while killed < kills:
            facts, more = self._world(self.folder / f"after-{killed}", min(kills - killed, 10))
            found.append(facts)
            killed += more
        return killed

    def _world(self, folder: Path, most: int) -> tuple[Any, int]:
        """What was seen in the end, and how often it was killed before."""
        make(folder, self.url)
        killed = 0
        while killed < most and in_a_child(
            lambda: run(folder), self.dice.uniform(0, self.within_s)
        ):
            killed += 1
        if killed == most:
            assert not in_a_child(lambda: run(folder))
        return seen(folder), killed


@contextmanager
def trainer_at(folder: Path) -> Iterator[str]:
    """A server that trains as the command does, and is never killed."""
    (folder / "trainer.sh").write_text(TRAINER)
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, str(SERVER), str(port), str(folder / "jobs")]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, f"sh {folder}/trainer.sh"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"RETRY_AFTER_S": "0"},
        )
    try:
        eventually(lambda: b"listening" in log.read_bytes())
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.kill()
        server.wait()


def make(folder: Path, url: str | None = None) -> None:
    def work() -> None:
        with open_world(folder, **LIMITS) as world:
            with (world.folder / "policy.toml").open("a") as policy:
                policy.write(STEPS)
            trainer = 'command = "sh trainer.sh"'
            world.loop((trainer, f'url = "{url}"' if url else trainer), more=MORE)

    assert not in_a_child(work)


def undisturbed(folder: Path) -> Any:
    make(folder)
    assert not in_a_child(lambda: run(folder))
    return seen(folder)


def at_each_point(folder: Path, url: str | None = None) -> Any:
    make(folder, url)
    for point in POINTS:
        assert in_a_child(partial(run, folder, point)), f"it never came to {point}"
    assert not in_a_child(lambda: run(folder))
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
    if state.canary is None or state.changed_at + 50_000 > SystemClock().now_us():
        return
    for number, arm in enumerate((state.checkpoint, state.canary)):
        assert arm is not None
        events = talk(f"live-{arm}", 50 + number, arm)
        world.hand.send([one | {"ts": state.changed_at + at} for at, one in enumerate(events, 1)])
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
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
