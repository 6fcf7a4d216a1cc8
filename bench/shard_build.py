"""What it costs to build a shard, against copying the same rows unchanged."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import duckdb

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.catalog import current
from penstock_jobs.shards.build import ShardBuild, build_shard
from penstock_jobs.shards.recipe import load_recipe
from tests.support.lakes import Event, HandLake, body_of, hand_lake, make_event

_SESSIONS = 300
_CALLS = 8
#: What a turn adds: tools and the user say most of it.
_READ_TOKENS, _WRITTEN_TOKENS = 1_400, 250
_VOCABULARY = 150_000
_TRIES = 3
_COPY = Goal(
    what="building a shard, against DuckDB's copy of the events that it is built from", at_least=0.5
)
_RECIPE = """
name = "bench"
query = "all.sql"
[tokens]
source = "engine"
max_length = 262144
[exclude]
consent = "not_denied"
"""


def _measure(size: Size, directory: Path) -> Iterator[Figure]:
    with hand_lake(directory / "sharded") as lake:
        for number in range(size.of(_SESSIONS, 2)):
            lake.send(body_of(_session(number)))
        lake.writer().drain()
        before = getrusage(RUSAGE_SELF).ru_maxrss / 1024
        built: list[ShardBuild] = []
        built_s = _best(lambda number: built.append(build(lake, directory, number)))
        peak = getrusage(RUSAGE_SELF).ru_maxrss / 1024
        events = [one.name for one in current(lake.lake.database).segments]
        events_s = _best(lambda _number: _copy(lake, events, directory / "copy.parquet"))
        stored = built[-1].stored
        parts = [stored.path(one) for one in stored.manifest.files]
        parts_s = _best(lambda _number: _copy(lake, parts, directory / "copy.parquet"))
    tokens = built[-1].manifest.counts.tokens
    yield _COPY.figure(events_s / built_s)
    yield Figure("  against DuckDB's copy of the shard's own rows", f"{parts_s / built_s:.2f}")
    yield Figure("  tokens of an engine per CPU second", f"{tokens / built_s / 1e6:.1f} million")
    yield Figure("  memory that it took", f"{peak - before:.0f} MiB")


def _session(number: int) -> list[Event]:
    """Each prompt is what was there before, and what came since."""
    dice = random.Random(number)
    name, context = f"s-{number:06d}", list[int]()
    events = []
    for call in range(_CALLS):
        context += dice.choices(range(_VOCABULARY), k=_READ_TOKENS)
        written = dice.choices(range(_VOCABULARY), k=_WRITTEN_TOKENS)
        logprobs = [round(-dice.expovariate(2.0), 4) for _ in written]
        tokens: dict[str, Any] = {"prompt_ids": list(context), "completion_ids": written}
        tokens |= {"logprobs": logprobs, "tokenizer": "t", "policy_version_runs": [[0, 1]]}
        payload = {"call_id": f"c{call}", "text": "Done.", "tokens": tokens}
        events += [
            make_event(name, 2 * call),
            make_event(name, 2 * call + 1, "model_call", payload=payload),
        ]
        context += written
    return events


def _best(work: Callable[[int], object]) -> float:
    costs = []
    for number in range(_TRIES):
        started = time.process_time()
        work(number)
        costs.append(time.process_time() - started)
    return min(costs)


def _copy(lake: HandLake, names: list[str], to: Path) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        rows = connection.read_parquet([lake.lake.store.address(name) for name in names])
        rows.write_parquet(str(to), compression="zstd")


def build(lake: HandLake, directory: Path, number: int) -> ShardBuild:
    """Of another seed each time: the same one would be there already."""
    folder = directory / f"recipe-{number}"
    folder.mkdir(exist_ok=True)
    (folder / "all.sql").write_text("select session_id from sessions", encoding="utf-8")
    (folder / "bench.toml").write_text(f"seed = {number}\n{_RECIPE}", encoding="utf-8")
    recipe = load_recipe(folder / "bench.toml")
    return build_shard(lake.lake, InlineExecutor(), recipe, tenant="default")


MEASUREMENT = Measurement(
    name="shard-build",
    title="Building from long sessions",
    about="""
Sessions of eight calls with histories that grow to 13,000 tokens of an engine: a whole build, by
its CPU time, beside DuckDB's plain copy of the same rows with one thread. The best of three.
""",
    goals=(_COPY,),
    run=_measure,
)
