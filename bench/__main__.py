"""Runs the benchmarks and prints their figures beside what is to be reached."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.building import measure_building
from bench.ceiling import Ceiling, by_type, measure_ceiling
from bench.commits import commits_per_second, seconds_to_pin
from bench.console import measure_console
from bench.demonstration import measure_demonstration
from bench.erasure import measure_erasure
from bench.figures import Figure, at_least, at_most, show
from bench.gate_decision import measure_gate_decision
from bench.importing import measure_importing
from bench.increments import measure_increments
from bench.ingest import Ingested, ingest_at_full_speed, ingest_at_rate
from bench.installation import measure_installation
from bench.kafka import OverKafka, ingest_over_kafka, running_servers, store_with_writers
from bench.loading import measure_loading
from bench.promotion_notice import measure_promotion_notice
from bench.proxying import measure_proxying
from bench.queries import measure_growth, measure_queries
from bench.query_processes import measure_query_processes
from bench.recording import measure_recording
from bench.redaction import measure_redacting_server, measure_redaction
from bench.rewards import measure_rewards
from bench.short_sessions import measure_short_sessions
from bench.simulator_truth import measure_simulator
from bench.sizing import Cost, table
from bench.telemetry import measure_telemetry
from bench.tenants import figures_of, measure_tenants
from bench.traffic import Traffic, make_traffic
from penstock.terminal.output import say

_MIB = 1024 * 1024
_BATCH = 100
_SEGMENTS = 50_000
_SMALL_LAKE_BODIES = 200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="sent over HTTP")
    parser.add_argument("--lake-events", type=int, default=10_000_000, help="in the large lake")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        figures = list(_measure(Path(directory), options.events, options.lake_events))
    sys.exit(0 if show(figures) else 1)


def _measure(here: Path, events: int, lake_events: int) -> Iterator[Figure]:
    say(f"making {events} events")
    traffic = make_traffic(events, _BATCH)
    mean = sum(map(len, traffic.plain)) / traffic.events
    yield Figure("mean size of an event", f"{mean:.0f} bytes")

    yield from _ingest(here, traffic)

    say("taking spans in")
    yield from measure_telemetry(here / "telemetry")

    say("recording a live agent")
    yield from measure_recording(traffic, here / "recording")

    say("passing streams on and recording them")
    yield from measure_proxying(here / "proxying")

    say("storing what many tenants send")
    for tenants in (10, 1_000, 100_000):
        yield from figures_of(measure_tenants(here / f"tenants-{tenants}", tenants))

    say("importing sessions")
    yield from measure_importing(here / "importing")

    say("computing rewards")
    yield from measure_rewards(make_traffic(20_000, _BATCH))
    yield from measure_increments(here)

    say("simulating sessions, and comparing their rewards with the truth")
    yield from measure_simulator()

    say("building shards and reading them")
    yield from measure_building(here)
    yield from measure_short_sessions(here / "short")
    yield from measure_loading(here / "loading")

    say("installing the wheel, and starting its commands")
    yield from measure_installation(here / "installation")

    say("deciding at the gate")
    yield from measure_gate_decision(here / "gate")

    say("promoting checkpoints before watchers")
    yield from measure_promotion_notice(here / "promotions")

    say("watching the demonstration")
    yield from measure_demonstration(here / "demo")

    say("running queries in processes of their own")
    yield from measure_query_processes(here / "processes", traffic.packed[:_SMALL_LAKE_BODIES])

    say(f"making a lake of {lake_events} events, and querying it")
    yield from measure_queries(here / "large", lake_events)
    few = traffic.packed[: len(traffic.packed) // 4], traffic.plain[: len(traffic.plain) // 4]
    yield from measure_growth(here / "small", here / "large", *few, lake_events)

    say("visiting the pages of the console")
    yield from measure_console(here / "console", lake_events // 10)

    say("erasing a user beside a server that takes events in")
    yield from measure_erasure(here / "erasure", lake_events // 10)


def _ingest(here: Path, traffic: Traffic) -> Iterator[Figure]:
    say("measuring the ceiling, and the server at full speed")
    ceiling = measure_ceiling(traffic.plain)
    full = ingest_at_full_speed(here / "full", traffic.packed)
    yield from _full_speed(traffic, ceiling, full)
    lean = measure_ceiling(traffic.plain, by_type)
    share = lean.cpu_s / full.cpu_s
    yield Figure("  share of the ceiling with a typed decode alone", f"{share:.2f}")

    say("measuring redaction")
    yield from measure_redaction(traffic, 1e6 * full.cpu_s / traffic.events)
    yield from measure_redacting_server(here / "redaction", traffic)

    say("measuring the server at half load")
    rate = traffic.events / full.wall_s / 2
    half = ingest_at_rate(here / "half", traffic.packed, rate, _BATCH)
    yield from _half_load(half, rate)

    yield from _over_kafka(here / "kafka", traffic, full)


def _full_speed(traffic: Traffic, ceiling: Ceiling, full: Ingested) -> Iterator[Figure]:
    thousands = traffic.events / 1000
    yield Figure("ceiling, CPU per 1,000 events", f"{ceiling.cpu_s / thousands:.4f} s")
    yield Figure("server, CPU per 1,000 events", f"{full.cpu_s / thousands:.4f} s")
    yield at_least("share of the ceiling", ceiling.cpu_s / full.cpu_s, 0.5)
    yield Figure("events per second, all in", f"{traffic.events / full.wall_s:.0f}")
    plain = ceiling.plain_bytes / traffic.events
    yield Figure("bytes on disk per event", f"{full.bytes_per_event:.0f}")
    yield at_most("  against plain zstd-3 Parquet", full.bytes_per_event / plain, 1.15)
    yield Figure("peak memory at full speed", f"{full.peak_bytes / _MIB:.0f} MiB")
    first, second = full.resident_at(0.5) / _MIB, full.resident_at(1) / _MIB
    yield at_most("  at the end against half-way", second / first, 1.15)


def _half_load(half: Ingested, rate: float) -> Iterator[Figure]:
    yield Figure("half load", f"{rate:.0f} events/s")
    yield Figure("  acknowledged, median", f"{half.ack_ms(0.5):.1f} ms")
    yield at_most("  acknowledged, p99", half.ack_ms(0.99), 25, " ms")
    yield Figure("  acknowledged, p99.9", f"{half.ack_ms(0.999):.1f} ms")
    yield at_most("  in Parquet, p99", half.queryable_s, 5, " s")
    yield Figure("  seen by a query of the latest", f"{1000 * half.visible_s:.0f} ms")


def _over_kafka(here: Path, traffic: Traffic, embedded: Ingested) -> Iterator[Figure]:
    say("measuring the same over Kafka and PostgreSQL")
    here.mkdir()
    try:
        with running_servers(here) as servers:
            whole = ingest_over_kafka(servers, traffic.packed, traffic.events)
            seconds = [store_with_writers(servers, traffic.packed, count) for count in (1, 2)]
            commits = commits_per_second(servers.postgres, writers=4)
            pin_s = seconds_to_pin(servers.postgres, _SEGMENTS)
    except pytest.skip.Exception as error:
        say(f"not measured: {error}")
        return
    thousands = traffic.events / 1000
    yield Figure(
        "over Kafka, CPU per 1,000 events: gateway", f"{whole.gateway_cpu_s / thousands:.4f} s"
    )
    yield Figure("  writer", f"{whole.writer_cpu_s / thousands:.4f} s")
    yield Figure("  each merged once", f"{whole.merge_cpu_s / thousands:.4f} s")
    yield Figure("  the broker's own", f"{whole.broker_cpu_s / thousands:.4f} s")
    yield Figure("  bytes in the log per event", f"{whole.log_bytes / traffic.events:.0f}")
    yield at_least("  events per CPU second, against embedded", embedded.cpu_s / whole.cpu_s, 0.6)
    one, two = (traffic.events / taken for taken in seconds)
    yield Figure("  events per second that one writer stores", f"{one:.0f}")
    yield at_least("  a second writer on a second partition", two / one, 1.1, " ×")
    yield Figure("commits per second of four writers", f"{commits:.0f}")
    yield Figure(f"finding the lake among {_SEGMENTS} segments", f"{1000 * pin_s:.0f} ms")
    say("what rates of events need, as in docs/scale.md:")
    say(table(_cost_of(whole, traffic.events)))


def _cost_of(whole: OverKafka, events: int) -> Cost:
    return Cost(
        gateway_cpu_s=whole.gateway_cpu_s / events,
        writer_cpu_s=whole.writer_cpu_s / events,
        merge_cpu_s=whole.merge_cpu_s / events,
        broker_cpu_s=whole.broker_cpu_s / events,
        log_bytes=whole.log_bytes / events,
        lake_bytes=whole.lake_bytes / events,
    )


if __name__ == "__main__":
    main()
