"""One cycle of the loop, from events to a shard that is verified and read, stage by stage."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from bench.figures import Figure, Goal
from bench.ingest_run import NO_UPKEEP, PLAIN, admin_key, post_all, shares_of, wait_until_stored
from bench.measure import cpu_seconds, usage_of_all
from bench.measurement import Measurement, Size
from bench.servers import quiet_server
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.lake import open_existing
from penstock.shards.reader import read_shard
from penstock.shards.validation import verify_shard
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import ShardBuild, build_shard
from penstock_jobs.shards.recipe import load_recipe
from penstock_jobs.simulator.production import Production

#: Of a cycle: five billion tokens.
_CYCLE_EVENTS = 12_400_000
_EVENTS = _CYCLE_EVENTS // 10
_CORES = 2
_BATCH = 100
#: Made, then sent, so that making them is not measured and they need no more memory than so many.
_AT_ONCE = 500
_BATCH_TOKENS = 262_144
#: Long after the events: no reward is pending.
_AS_OF_US = 2_000_000_000_000_000
_QUERY = "select session_id from sessions"
_RECIPE = """
name = "cycle"
query = "all.sql"
[tokens]
source = "engine"
[reward]
definition = "default"
pending = "drop"
[exclude]
consent = "train"
"""
_MINUTES = Goal(
    what=f"a cycle of {_CYCLE_EVENTS:,} events, by that, on {_CORES} cores",
    at_most=25,
    unit=" minutes",
)


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    data = here / "lake"
    costs: dict[str, float] = {}
    events, plain_bytes, costs["gateway and writer"] = _taken_in(data, size.of(_EVENTS, 2_000))
    with open_existing(data) as lake:
        request = RunRequest(find_definition())
        costs["rewards"] = cpu_seconds(
            lambda: run(lake, InlineExecutor(), request, now_us=_AS_OF_US)
        )
        (here / "all.sql").write_text(_QUERY, encoding="utf-8")
        (here / "cycle.toml").write_text(_RECIPE, encoding="utf-8")
        recipe = load_recipe(here / "cycle.toml")
        built: list[ShardBuild] = []
        costs["planning and building a shard"] = cpu_seconds(
            lambda: built.append(build_shard(lake, InlineExecutor(), recipe, tenant="default"))
        )
        [shard] = built
        costs["verifying it"] = cpu_seconds(lambda: verify_shard(shard.stored))
    costs["loading it once"] = cpu_seconds(lambda: _load(data, shard.manifest.id))
    counts = shard.manifest.counts
    yield Figure("mean size of an event", f"{plain_bytes / events:,.0f} bytes")
    made = f"{events:,}; {counts.sessions:,} and {counts.tokens:,}"
    yield Figure("events; sessions and tokens of the shard", made)
    for stage, cpu_s in costs.items():
        yield Figure(f"{stage}, CPU per million events", f"{1e6 * cpu_s / events:,.0f} s")
    total = sum(costs.values()) / events
    yield Figure("all of it, CPU per million events", f"{1e6 * total:,.0f} s")
    yield _MINUTES.figure(total * _CYCLE_EVENTS / _CORES / 60)


def _taken_in(data: Path, wanted: int) -> tuple[int, int, float]:
    """How many events of how many bytes, and what the server took until all were in Parquet."""
    sessions = chain.from_iterable(Production(1).session(index) for index in range(wanted))
    key, sent, size = admin_key(data), 0, 0
    with quiet_server(data, settings=NO_UPKEEP) as server:
        server.key = key
        before = usage_of_all(server.process.pid).cpu_s
        while sent < wanted:
            some = islice(sessions, _AT_ONCE if wanted - sent > _AT_ONCE * 20 else 20)
            lines = [line for session in some for _, _, line in session.lines]
            bodies = [
                b"\n".join(lines[first : first + _BATCH]) for first in range(0, len(lines), _BATCH)
            ]
            post_all(server, shares_of(bodies), form=PLAIN)
            sent += len(lines)
            size += sum(map(len, lines))
        return sent, size, wait_until_stored(server, data).cpu_s - before


def _load(data: Path, shard_id: str) -> None:
    with read_shard(data, shard_id, batch_tokens=_BATCH_TOKENS) as reader:
        for batch in reader:
            _ = batch["input_ids"].values


MEASUREMENT = Measurement(
    name="cycle",
    title="One cycle, from events to a shard",
    about="""
A tenth of the events of a cycle of five billion tokens, made by the simulator: sent
to a real server in plain bodies of 100 until all are in Parquet, rewarded, built into
a shard of engine tokens, verified, and read once by the loader. CPU
seconds of the server and of the process that does the rest. The simulator's sessions have short
prompts: what long ones add to building is in `shard-build`.
""",
    goals=(_MINUTES,),
    run=_measure,
)
