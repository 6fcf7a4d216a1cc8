"""Building records from short sessions: Penstock, Hugging Face datasets and DuckDB."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal, spread
from bench.measurement import Measurement, Size
from bench.rivals.contest import Contender, ratios, running_contest
from bench.shard_build import build
from bench.short_sessions import make_lake
from penstock.lake.catalog import current
from tests.support.lakes import hand_lake

_SESSIONS = 16_000
_OURS = "Penstock"
_DATASETS = "Hugging Face datasets"
_AGAINST_DATASETS = Goal(what=f"{_OURS} against {_DATASETS}", at_least=2, unit=" ×")
#: A seed that no round has.
_COUNTED = 1_000


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    sessions, data = size.of(_SESSIONS, 20), here / "lake"
    make_lake(data, sessions)
    with hand_lake(data) as lake:
        tokens = build(lake, here, _COUNTED).manifest.counts.tokens
        names = [one.name for one in current(lake.lake.database).segments]
        segments = [lake.lake.store.address(name) for name in names]
    events: dict[str, Any] = {"segments": segments, "folder": str(here)}
    ours = {"lake": str(data), "folder": str(here), "tokens": tokens}
    contenders = [
        Contender(_OURS, "bench.rivals.penstock_records", ours),
        Contender(
            _DATASETS, "bench.rivals.datasets_records", events | {"tokens": tokens}, "datasets"
        ),
        *(
            Contender(
                name, "bench.rivals.duckdb_records",
                events | {"sessions": sessions, "grouped": grouped}, "duckdb",
            )
            for name, grouped in (("DuckDB, grouping", True), ("DuckDB, plain copy", False))
        ),
    ]  # fmt: skip
    with running_contest(contenders) as contest:
        rounds = contest.take_turns(size.rounds)
    for name, spent in rounds.items():
        yield Figure(f"{name}: sessions per CPU second, of {sessions:,}", spread(spent.per_cpu_s))
    for name, spent in rounds.items():
        against = ratios(rounds[_OURS].per_cpu_s, spent.per_cpu_s)
        if name == _DATASETS:
            yield _AGAINST_DATASETS.figure_of_rounds(against)
        elif name != _OURS:
            yield Figure(f"{_OURS} against {name}", spread(against, " ×"))
    yield from contest.absent()


MEASUREMENT = Measurement(
    name="rivals-records",
    title="Beside others: records from short sessions",
    about="""
The sessions of `short-sessions`, built by Penstock, and turned into ids, masks and
log-probabilities by [Hugging Face datasets](https://github.com/huggingface/datasets), which keeps
no lineage, consent, rewards or versions; both must count the same tokens. DuckDB groups the events
or copies them, and parses nothing. CPU seconds of all threads, in processes that have done it once
before. Rounds in turns: the median, and from the least to the most.
""",
    goals=(_AGAINST_DATASETS,),
    run=_measure,
)
