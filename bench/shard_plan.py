"""What it costs to plan a shard of ever more sessions, without building it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from penstock.core.settings import GIB, MIB
from tests.support.lakes import START_US, body_of, hand_lake, make_event

_SIZES = (5_000, 50_000, 500_000)
_AT_ONCE = 1_000
_FLUSHED = 20_000
_SESSIONS_MAX = 10_000_000
#: Of a tiny size all may be within one tick of the clock.
_LEAST_S = 1e-9
_LINEAR = Goal(
    what="  CPU of one more session, when there are ten times as many", at_most=1.25, unit=" ×"
)
_MEMORY = Goal(what="  memory of ten million, by that", at_most=2, unit=" GiB")
#: Names alone, so that what the recipe's own query takes is not measured.
_QUERY = "select printf('s-%07d', n) as session_id from range({sessions}) as numbers(n)"
_RECIPE = """
name = "plan"
query = "named.sql"
[tokens]
source = "engine"
[exclude]
consent = "not_denied"
max_per_user = 1000000
"""
_PLAN = """
import json, os, sys
from pathlib import Path
from bench.measure import usage_of
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.catalog import pinned
from penstock_jobs.shards.build import slice_bounds, slice_tasks
from penstock_jobs.shards.selection.plan import plan_shard
from penstock_jobs.shards.recipe import load_recipe
from penstock_jobs.shards.selection.session_facts import PinnedSessions
from tests.support.lakes import hand_lake
recipe = load_recipe(Path(sys.argv[2]))
with hand_lake(Path(sys.argv[1])) as lake, pinned(lake.lake.database, "latest") as pin:
    sessions = PinnedSessions(lake.lake, InlineExecutor(), pin, "default")
    before = usage_of(os.getpid())
    plan = plan_shard(sessions, recipe)
    planned = 0
    for task in slice_tasks(sessions, recipe, plan, "bench", slice_bounds(plan)):
        planned += task.chosen.num_rows
    after = usage_of(os.getpid())
cost = {"cpu_s": after.cpu_s - before.cpu_s, "bytes": after.peak_bytes - before.peak_bytes}
print(json.dumps(cost | {"sessions": planned}))
"""


def _measure(size: Size, directory: Path) -> Iterator[Figure]:
    """Each size in a process of its own, for its memory."""
    costs, sizes = [], [size.of(sessions) for sessions in _SIZES]
    for sessions in sizes:
        folder = directory / f"planned-{sessions}"
        _make_lake(folder / "lake", sessions)
        (folder / "named.sql").write_text(_QUERY.format(sessions=sessions), encoding="utf-8")
        recipe = folder / "plan.toml"
        recipe.write_text(_RECIPE, encoding="utf-8")
        command = [sys.executable, "-c", _PLAN, str(folder / "lake"), str(recipe)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        cost = json.loads(done.stdout.splitlines()[-1])
        assert cost["sessions"] == sessions
        costs.append(cost)
        cpu_us = 1e6 * cost["cpu_s"] / sessions
        yield Figure(f"planning {sessions:,} sessions, CPU for each", f"{cpu_us:.0f} µs")
        yield Figure("  memory that it took", f"{cost['bytes'] / MIB:.0f} MiB")
    small, middle, large = costs
    # What a plan takes whatever it plans is in the first.
    marginal = (large["cpu_s"] - middle["cpu_s"]) / (sizes[2] - sizes[1])
    before = (middle["cpu_s"] - small["cpu_s"]) / (sizes[1] - sizes[0])
    yield _LINEAR.figure(marginal / max(before, _LEAST_S))
    grown = (large["bytes"] - middle["bytes"]) / (sizes[2] - sizes[1])
    yield Figure("  memory of one more session", f"{grown:.0f} bytes")
    yield _MEMORY.figure((middle["bytes"] + grown * _SESSIONS_MAX) / GIB)


def _make_lake(directory: Path, sessions: int) -> None:
    with hand_lake(directory) as lake:
        for first in range(0, sessions, _AT_ONCE):
            numbers = range(first, min(sessions, first + _AT_ONCE))
            lake.send(b"".join(map(_make_session, numbers)))
            if first % _FLUSHED == 0:
                lake.writer().drain()
        lake.writer().drain()


def _make_session(number: int) -> bytes:
    name = f"s-{number:07d}"
    tokens = {"prompt_ids": [1, 2, 3], "completion_ids": [4, 5], "tokenizer": "t"}
    facts = {"user": f"u{number % 997}", "repo": f"r{number % 97}", "checkpoint": "ckpt-1"}
    event = make_event(
        name, 0, "model_call", payload={"text": "Done.", "tokens": tokens},
        event_id=f"{name}-0", ts=START_US + 1_000 * number, **facts,
    )  # fmt: skip
    return body_of([event])


MEASUREMENT = Measurement(
    name="shard-plan",
    title="Planning a shard",
    about="""
Which of many sessions a shard takes, with consents, copies and caps, and the tasks of
its slices, without building it: of sizes that grow tenfold twice, each in a process of its own. The
recipe's own query is not counted: it runs in the memory of
a query.
""",
    goals=(_LINEAR, _MEMORY),
    run=_measure,
    quick=False,  # a small lake says nothing about memory
)
