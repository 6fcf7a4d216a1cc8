"""Ingest over HTTP beside its ceiling, at full speed and at half load."""

from collections.abc import Iterator
from pathlib import Path

from bench.ceiling import Ceiling, by_type, measure_ceiling
from bench.figures import Figure, Goal
from bench.ingest_run import Ingested, ingest_at_full_speed, ingest_at_rate
from bench.measure import percentile, sync_seconds
from bench.measurement import Measurement, Size
from bench.traffic import Traffic, make_traffic

_MIB = 1024 * 1024
_EVENTS = 200_000
_BATCH = 100
_SHARE = Goal(what="share of the ceiling", at_least=0.48)
_BYTES = Goal(what="  against plain zstd-3 Parquet", at_most=1.15)
_PEAK = Goal(what="peak memory of all processes at full speed", at_most=400, unit=" MiB")
_FLAT = Goal(what="  at the end against half-way", at_most=1.15)
#: Asked for where the disk syncs in 5 ms.
_ACKNOWLEDGED = Goal(what="  acknowledged, p99", at_most=15, unit=" ms")
_SYNCS = 400
_QUERYABLE = Goal(what="  in Parquet, p99", at_most=5, unit=" s")


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    traffic = make_traffic(size.of(_EVENTS, 1_000), _BATCH)
    mean = sum(map(len, traffic.plain)) / traffic.events
    yield Figure("mean size of an event", f"{mean:,.0f} bytes")
    ceiling = measure_ceiling(traffic.plain)
    full = ingest_at_full_speed(here / "full", traffic.packed)
    yield from _full_speed(traffic, ceiling, full)
    lean = measure_ceiling(traffic.plain, by_type)
    share = lean.cpu_s / full.cpu_s
    yield Figure("  share of the ceiling with a typed decode alone", f"{share:.2f}")
    rate = traffic.events / full.wall_s / 2
    disk_ms = 1000 * percentile(sync_seconds(here, traffic.packed[0], _SYNCS), 0.99)
    half = ingest_at_rate(here / "half", traffic.packed, rate, _BATCH)
    yield from _half_load(half, rate, disk_ms)


def _full_speed(traffic: Traffic, ceiling: Ceiling, full: Ingested) -> Iterator[Figure]:
    thousands = traffic.events / 1000
    yield Figure("ceiling, CPU per 1,000 events", f"{ceiling.cpu_s / thousands:.4f} s")
    yield Figure("server, CPU per 1,000 events", f"{full.cpu_s / thousands:.4f} s")
    yield _SHARE.figure(ceiling.cpu_s / full.cpu_s)
    yield Figure("events per second, all in", f"{traffic.events / full.wall_s:,.0f}")
    plain = ceiling.plain_bytes / traffic.events
    yield Figure("bytes on disk per event", f"{full.bytes_per_event:.0f}")
    yield _BYTES.figure(full.bytes_per_event / plain)
    yield _PEAK.figure(full.peak_bytes / _MIB)
    yield _FLAT.figure(full.resident_at(1) / full.resident_at(0.5))


def _half_load(half: Ingested, rate: float, disk_ms: float) -> Iterator[Figure]:
    yield Figure("half load", f"{rate:,.0f} events/s")
    yield Figure("  acknowledged, median", f"{half.ack_ms(0.5):.1f} ms")
    yield _ACKNOWLEDGED.figure(half.ack_ms(0.99))
    yield Figure("  in the server, p99 at most", f"{1000 * half.answered_s:.0f} ms")
    yield Figure("  a sync of the disk alone, p99", f"{disk_ms:.1f} ms")
    yield Figure("  acknowledged, p99.9", f"{half.ack_ms(0.999):.1f} ms")
    yield _QUERYABLE.figure(half.queryable_s)
    yield Figure("  seen by a query of the latest", f"{1000 * half.visible_s:.0f} ms")


MEASUREMENT = Measurement(
    name="ingest",
    title="Ingest",
    about="""
Generated sessions in zstd bodies of 100 events by eight clients that share the machine with the
server, until all is in Parquet. The ceiling decodes, validates, sorts and writes the same events in
process: what the gateway owes a producer (broken JSON and UTF-8, lone surrogates, numbers out of
range, keys that stand twice, nesting, unknown types), without HTTP, syncs and the search for
duplicates. Its program is frozen, and calls nothing of the product. A typed decode alone lets
repeated keys, and broken text in unknown fields, pass. The goal of an acknowledgement counts where
a sync of the disk alone takes 5 ms at most, both p99.
""",
    goals=(_SHARE, _BYTES, _PEAK, _FLAT, _ACKNOWLEDGED, _QUERYABLE),
    run=_measure,
)
