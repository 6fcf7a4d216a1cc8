"""A small world around a loop: a lake with sessions, a checkpoint, a suite, a trainer in shell."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock_jobs.loop.cycles import Cycle
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.loop.runner import Runner
from penstock_jobs.loop.tables import loop_stage
from tests.support.checkpoint_factory import add, promote, set_policy
from tests.support.engine_lake import DAY_US, otherwise
from tests.support.lakes import Event, HandLake, hand_lake
from tests.support.suite_factory import make_suite

TENANT, CHANNEL = "default", "production"
SESSIONS = 6
#: Each session has two calls with so many completion tokens.
TOKENS = 50
POLICY = """
[[require]]
suite = "mini"
minimum = 0.3
min_tasks = 10
"""
RECIPE = """
name = "engine"
query = "all.sql"
seed = 3
[tokens]
source = "engine"
[reward]
pending = "drop"
[staleness]
channel = "production"
max_versions = 0
[exclude]
suites = ["mini"]
consent = "not_denied"
"""
QUERY = "select session_id, project as stratum from sessions order by session_id"
#: The weights are what all shards were, in their order; the same for the same parent and samples.
TRAINER = """\
set -e
{
    echo "$PENSTOCK_PARENT_DIGEST"
    ls "$PENSTOCK_SHARD_FOLDER" | grep -v manifest
    cd "$PENSTOCK_SHARD_FOLDER" && cat $(ls | grep parquet) | sha256sum
} > "$PENSTOCK_OUTPUT/weights"
digest=$(sha256sum < "$PENSTOCK_OUTPUT/weights" | cut -c1-64)
echo "{\\"uri\\": \\"file://$PENSTOCK_OUTPUT/weights\\", \\"digest\\": \\"sha256:$digest\\"}" \\
    > "$PENSTOCK_ANSWER"
"""
LOOP = """
name = "mini"
channel = "production"
[start]
tokens = 400
[shard]
recipe = "recipe.toml"
[trainer]
command = "sh trainer.sh"
limit = "60s"
[[bench]]
suite = "suite"
agent = "sh {here}/agent.sh"
attempts = 1
isolation = false
[gate]
policy = "policy.toml"
[retry]
tries = 2
pause = "0s"
longest = "0s"
"""
#: Solves everything with every checkpoint.
AGENT = "echo 42 > answer\n"


@dataclass
class World:
    hand: HandLake
    folder: Path

    @property
    def database(self) -> Database:
        return self.hand.lake.database

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(dedent(text), encoding="utf-8")

    def loop(self, *replaced: tuple[str, str], more: str = "") -> Path:
        """The loop file with something put in the place of something else."""
        text = LOOP
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        self.write("loop.toml", text + more)
        return self.folder / "loop.toml"

    def runner(self, **facts: Any) -> Runner:
        facts = {"wait": lambda _seconds: False, **facts}
        loop = load_loop(self.folder / "loop.toml")
        return Runner(lake=self.hand.lake, loop=loop, tenant=TENANT, **facts)

    def run_once(self, **facts: Any) -> Cycle:
        return self.runner(**facts).run_once()

    def talk(self, checkpoint: str, first: int = 0, count: int = SESSIONS) -> None:
        for number in range(first, first + count):
            self.hand.send(talk(f"s{number:03d}", number, checkpoint))
        self.hand.writer().drain()


def talk(session: str, number: int, checkpoint: str) -> list[Event]:
    """A talk with the tokens of an engine, a month ago: everything has matured."""
    events = otherwise(session, number, checkpoint, prompt=10, completion=TOKENS)
    return [one | {"ts": one["ts"] - 30 * DAY_US} for one in events]


@contextmanager
def open_world(folder: Path, *, make: bool = True, **limits: object) -> Iterator[World]:
    """A channel at `first`, sessions that it wrote, and all files beside the loop file."""
    settings = {"loop_poll_seconds": 0.05, "canary_settle_seconds": 0, **limits}
    with hand_lake(folder, **settings) as hand:
        world = World(hand, folder / "files")
        if make:
            fill(world)
        yield world


def fill(world: World) -> None:
    world.folder.mkdir()
    make_suite(world.folder / "suite", 10, "[check]\ncommand = ['sh', 'check.sh']\n")
    for task in (world.folder / "suite" / "tasks").iterdir():
        (task / "check" / "check.py").rename(task / "check" / "check.sh")
        (task / "check" / "check.sh").write_text('test "$(cat answer)" = 42\n')
    files = {
        "trainer.sh": TRAINER, "agent.sh": AGENT, "policy.toml": POLICY, "recipe.toml": RECIPE,
        "all.sql": QUERY, "loop.toml": LOOP,
    }  # fmt: skip
    for name, text in files.items():
        (world.folder / name).write_text(text, encoding="utf-8")
    add(world.database, "first")
    set_policy(world.database, POLICY)
    promote(world.database, "first")
    world.talk("first")


def expire_leases(database: Database) -> None:
    """As if as much time had passed since the runner was killed."""
    with database.write() as connection:
        connection.execute(sa.update(loop_stage).values(lease_until=0))


def outcomes(cycle: Cycle) -> dict[str, str]:
    return {one.stage: one.state for one in cycle.stages}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
