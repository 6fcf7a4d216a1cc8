"""How long queries take over a large lake, and what a large lake costs the writer."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.ceiling import measure_ceiling
from bench.figures import Figure, at_most
from bench.ingest import ingest_at_full_speed
from bench.large_lake import large_lake
from penstock.lake.lake import Lake

_TRIES = 9
_NEWEST = "select * from sessions where project = 'p7' order by last_ts desc limit 50"
_QUERIES = {
    "one session's events": "select * from events where session_id = 's-000001234'",
    "count of all events": "select count(*) from events",
    "newest 50 of all sessions": "select * from sessions order by last_ts desc limit 50",
}


def measure_queries(data: Path, events: int) -> Iterator[Figure]:
    with large_lake(data, events) as lake:
        millions = f"{events / 1e6:g} million events"
        newest = 1000 * _median_seconds(lake, _NEWEST)
        yield at_most(f"newest sessions of a project, {millions}", newest, 200, " ms")
        for name, sql in _QUERIES.items():
            yield Figure(f"{name}, {millions}", f"{1000 * _median_seconds(lake, sql):.0f} ms")


def measure_growth(
    small: Path, large: Path, bodies: Sequence[bytes], plain: Sequence[bytes], events: int
) -> Iterator[Figure]:
    """The same traffic into an empty lake and into the one that `measure_queries` made."""
    empty = ingest_at_full_speed(small, bodies).cpu_s
    full = ingest_at_full_speed(large, bodies).cpu_s
    ceiling = measure_ceiling(plain).cpu_s
    what = f"cost of an event in a lake of {events / 1e6:g} million, against an empty one"
    yield at_most(what, full / empty, 1.15)
    yield Figure("  the same in ceilings", f"{full / ceiling:.2f} against {empty / ceiling:.2f}")


def _median_seconds(lake: Lake, sql: str) -> float:
    seconds = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        lake.query(sql).arrow()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[_TRIES // 2]
