"""How long queries take over a large lake, and what a large lake costs the writer."""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.ceiling import measure_ceiling
from bench.figures import Figure, Goal
from bench.ingest_run import ingest_at_full_speed
from bench.large_lake import large_lake
from bench.measurement import Measurement, Size
from bench.traffic import make_traffic
from penstock.lake.lake import Lake

_TRIES = 9
_EVENTS = 10_000_000
_SENT = 50_000
_NEWEST_50 = Goal(what="newest sessions of a project", at_most=200, unit=" ms")
_GROWN = Goal(what="cost of an event in this lake, against an empty one", at_most=1.15)
_NEWEST = "select * from sessions where project = 'p7' order by last_ts desc limit 50"
_QUERIES = {
    "one session's events": "select * from events where session_id = 's-000001234'",
    "count of all events": "select count(*) from events",
    "newest 50 of all sessions": "select * from sessions order by last_ts desc limit 50",
}


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    events = size.of(_EVENTS, 500_000)
    yield from _asked(here / "large", events)
    yield from _growth(here, size.of(_SENT, 500))


def _asked(data: Path, events: int) -> Iterator[Figure]:
    with large_lake(data, events) as lake:
        millions = f"{events / 1e6:g} million events"
        newest = 1000 * _median_seconds(lake, _NEWEST)
        yield _NEWEST_50.figure(newest, millions)
        for name, sql in _QUERIES.items():
            yield Figure(f"{name}, {millions}", f"{1000 * _median_seconds(lake, sql):.0f} ms")


def _growth(here: Path, events: int) -> Iterator[Figure]:
    """The same traffic into an empty lake and into the large one."""
    traffic = make_traffic(events)
    empty = ingest_at_full_speed(here / "small", traffic.packed).cpu_s
    full = ingest_at_full_speed(here / "large", traffic.packed).cpu_s
    ceiling = measure_ceiling(traffic.plain).cpu_s
    yield _GROWN.figure(full / empty)
    yield Figure("  the same in ceilings", f"{full / ceiling:.2f} against {empty / ceiling:.2f}")


def _median_seconds(lake: Lake, sql: str) -> float:
    seconds = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        lake.query(sql).arrow()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[_TRIES // 2]


MEASUREMENT = Measurement(
    name="queries",
    title="Queries of a large lake",
    about="""
Small made-up events; each session is spread over several segments. Medians of nine. The cost of an
event is the server's CPU time.
""",
    goals=(_NEWEST_50, _GROWN),
    run=_measure,
    quick=False,
)
