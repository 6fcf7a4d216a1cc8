"""Many tenants: what files they write and what these cost, by the time of a made-up clock."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from bench.figures import Figure
from bench.measurement import Measurement, Size
from penstock.ingest.gateway import Acceptor
from penstock.lake.catalog import current
from penstock.lake.upkeep.merges import compact
from tests.support.lakes import HandLake, body_of, hand_lake, make_event

#: The same events, whatever the number of tenants that send them.
_TENANTS = (10, 1_000, 100_000)
_EVENTS_EACH_SECOND = 5
_SECONDS = 1_200
_TEXT = "x" * 1_000
_QUERIES = 5


@dataclass(frozen=True)
class TenantCosts:
    tenants: int
    #: While events came; what waited then was stored at the end.
    files_per_hour: float
    cpu_s_per_1000: float
    query_ms: float
    database_bytes: int
    upkeep_s: float


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    for tenants in _TENANTS:
        yield from _figures_of(_costs(here / str(tenants), tenants, size.of(_SECONDS, 10)))


def _costs(folder: Path, tenants: int, seconds: int) -> TenantCosts:
    random = Random(tenants)
    events = _EVENTS_EACH_SECOND * seconds
    senders = [f"t{random.randrange(tenants)}" for _ in range(events)]
    with hand_lake(folder) as lake:
        writer = lake.writer()
        started = time.process_time()
        for second in range(seconds):
            some = range(second * _EVENTS_EACH_SECOND, (second + 1) * _EVENTS_EACH_SECOND)
            _send(lake, [(senders[number], number) for number in some])
            lake.clock.advance(1)
            writer.round()
        files = len(current(lake.lake.database).segments)
        writer.drain()
        cpu_s = time.process_time() - started
        sql = "select count(*) as n from events"
        query_s = median(
            _seconds(lambda: lake.rows(sql, tenant=senders[-1])) for _ in range(_QUERIES)
        )
        upkeep_s = _seconds(lambda: compact(lake.lake, lake.metrics))
    return TenantCosts(
        tenants,
        files * 3_600 / seconds,
        cpu_s * 1_000 / events,
        query_s * 1_000,
        (folder / "penstock.db").stat().st_size,
        upkeep_s,
    )


def _figures_of(costs: TenantCosts) -> list[Figure]:
    name = f"{costs.tenants:,} tenants"
    return [
        Figure(f"{name}: new segments an hour", f"{costs.files_per_hour:,.0f}"),
        Figure("  CPU for 1,000 events", f"{costs.cpu_s_per_1000:.2f} s"),
        Figure("  a query of one of them", f"{costs.query_ms:.0f} ms"),
        Figure("  the metadata database", f"{costs.database_bytes / 2**20:.1f} MiB"),
        Figure("  a round of merges", f"{costs.upkeep_s:.1f} s"),
    ]


def _send(lake: HandLake, sent: list[tuple[str, int]]) -> None:
    """One append, as the gateway's requests share one."""
    values: defaultdict[int, list[bytes]] = defaultdict(list)
    for tenant, number in sent:
        event = make_event(f"s-{number % 7}", number, payload={"text": _TEXT})
        acceptor = Acceptor(tenant, lake.lake.settings, lake.lake.log, lake.lake.redactor)
        for piece in acceptor.accept([body_of([event])], lake.clock.now_us()):
            for partition, frames in piece.values.items():
                values[partition] += frames
    lake.lake.log.append(values)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


MEASUREMENT = Measurement(
    name="tenants",
    title="Many tenants",
    about="""
Five events of 1.2 KB a second in twenty minutes of a made-up clock, by tenants at random, with the
same gateway and writer as in a service. At that rate most of the CPU is what a request and a flush
cost however little they hold.
""",
    goals=(),
    run=_measure,
    quick=False,
)
