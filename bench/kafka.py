"""The path over Kafka and PostgreSQL: what its processes use, and what a second writer adds."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from bench.cluster_size import Cost, table
from bench.commits import commits_per_second, seconds_to_pin
from bench.figures import Figure, Goal
from bench.ingest_run import NO_UPKEEP, admin_key, ingest_at_full_speed, post_all, shares_of
from bench.measure import cpu_seconds, usage_of
from bench.measurement import Measurement, NotMeasured, Size
from bench.servers import quiet_server
from bench.traffic import make_traffic
from penstock.backends.terminal.output import say
from penstock.lake.catalog import current
from penstock.lake.lake import Lake, open_existing, read_statistics
from penstock.lake.tables import log_partition
from penstock.lake.upkeep.merges import merge
from penstock_jobs.simulator.demo.server import Server
from tests.support.servers.broker import Broker
from tests.support.servers.postgres import PostgresServer, running_postgres
from tests.support.waiting import eventually

_EVENTS = 200_000
_SEGMENTS = 50_000
_EMBEDDED = Goal(what="events per CPU second, against the embedded server", at_least=0.6)
_SECOND_WRITER = Goal(what="  a second writer on a second partition", at_least=1.1, unit=" ×")
_STORED_SECONDS_MAX = 300.0
#: Writers sleep while the log is filled, and keep their partitions meanwhile.
_LEASE_SECONDS = 60
_HEAP_MB = 1024
#: Compaction begins with so many.
_MERGED_TOGETHER = 8


@dataclass(frozen=True)
class OverKafka:
    """What the processes used, of which the servers' is not ours."""

    gateway_cpu_s: float
    writer_cpu_s: float
    broker_cpu_s: float
    #: To merge each event once, as compaction does it when several flushes have come together.
    merge_cpu_s: float
    log_bytes: int
    lake_bytes: float

    @property
    def cpu_s(self) -> float:
        return self.gateway_cpu_s + self.writer_cpu_s


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    traffic = make_traffic(size.of(_EVENTS, 1_000))
    try:
        with running_servers(here) as servers:
            embedded = ingest_at_full_speed(here / "embedded", traffic.packed)
            whole = ingest_over_kafka(servers, traffic.packed, traffic.events)
            seconds = [store_with_writers(servers, traffic.packed, count) for count in (1, 2)]
            commits = commits_per_second(servers.postgres, writers=4)
            segments = size.of(_SEGMENTS, 100)
            pin_s = seconds_to_pin(servers.postgres, segments)
    except pytest.skip.Exception as error:
        raise NotMeasured(str(error)) from None
    thousands = traffic.events / 1000
    yield Figure("gateway, CPU per 1,000 events", f"{whole.gateway_cpu_s / thousands:.4f} s")
    yield Figure("  writer", f"{whole.writer_cpu_s / thousands:.4f} s")
    yield Figure("  each merged once", f"{whole.merge_cpu_s / thousands:.4f} s")
    yield Figure("  the broker's own", f"{whole.broker_cpu_s / thousands:.4f} s")
    yield Figure("bytes in the log per event", f"{whole.log_bytes / traffic.events:.0f}")
    yield _EMBEDDED.figure(embedded.cpu_s / whole.cpu_s)
    one, two = (traffic.events / taken for taken in seconds)
    yield Figure("events per second that one writer stores", f"{one:,.0f}")
    yield _SECOND_WRITER.figure(two / one)
    yield Figure("commits per second of four writers", f"{commits:.0f}")
    yield Figure(f"finding the lake among {segments:,} segments", f"{1000 * pin_s:.0f} ms")
    say("What rates of events need, as in bench/pages/sizing.md:")
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


class Servers:
    """Kafka and PostgreSQL on loopback, as durable as they are by default."""

    def __init__(self, here: Path, broker: Broker, postgres: PostgresServer) -> None:
        self.broker = broker
        self._here = here
        self.postgres = postgres

    @contextmanager
    def lake(self, name: str, partitions: int) -> Iterator[list[Path]]:
        """Data directories of one lake, one for each process that may work on it."""
        with self.postgres.database() as url:
            directories = [self._here / f"{name}-{number}" for number in range(3)]
            settings = {
                "database_url": url,
                "log_url": f"kafka://{self.broker.address}/{name}",
                "log_partitions": partitions,
                "store_url": f"file://{self._here}/{name}-store",
                "lease_seconds": _LEASE_SECONDS,
            }
            text = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
            for directory in directories:
                directory.mkdir()
                (directory / "penstock.toml").write_text(text)
            yield directories

    def topic_bytes(self, topic: str) -> int:
        files = self.broker.data.glob(f"{topic}-*/*.log")
        return sum(file.stat().st_size for file in files)


@contextmanager
def running_servers(here: Path) -> Iterator[Servers]:
    """Skips, as a test does, where Java, Maven or PostgreSQL are missing."""
    with ExitStack() as stack:
        broker = Broker(here / "broker", heap_mb=_HEAP_MB)
        stack.callback(broker.stop)
        broker.start()
        yield Servers(here, broker, stack.enter_context(running_postgres(durable=True)))


def ingest_over_kafka(servers: Servers, bodies: Sequence[bytes], events: int) -> OverKafka:
    """Clients post to a gateway as fast as they are answered, and a writer stores it."""
    with servers.lake("whole", 1) as (data, writer_data, _), ExitStack() as stack:
        gateway = stack.enter_context(_serving(data, "gateway"))
        writer = stack.enter_context(_serving(writer_data, "writer"))
        pids = [gateway.process.pid, writer.process.pid, servers.broker.pid]
        before = [usage_of(pid).cpu_s for pid in pids]
        post_all(gateway, shares_of(bodies))
        _wait_until_stored(data)
        used = [usage_of(pid).cpu_s - was for pid, was in zip(pids, before, strict=True)]
        with open_existing(data) as lake:
            merge_cpu_s = cpu_seconds(lambda: _merge_all(lake))
            held = read_statistics(lake)
        log_bytes = servers.topic_bytes("whole")
    assert held["events"] == events
    return OverKafka(
        gateway_cpu_s=used[0],
        writer_cpu_s=used[1],
        broker_cpu_s=used[2],
        merge_cpu_s=merge_cpu_s,
        log_bytes=log_bytes,
        lake_bytes=held["bytes_per_event"] * events,
    )


def _merge_all(lake: Lake) -> None:
    segments = current(lake.database).segments
    for first in range(0, len(segments), _MERGED_TOGETHER):
        merge(lake, segments[first : first + _MERGED_TOGETHER])


def store_with_writers(servers: Servers, bodies: Sequence[bytes], writers: int) -> float:
    """Seconds that so many writers take for what two partitions of the log hold."""
    with servers.lake(f"writers{writers}", 2) as (data, *others), ExitStack() as stack:
        gateway = stack.enter_context(_serving(data, "gateway"))
        running = [stack.enter_context(_serving(other, "writer")) for other in others[:writers]]
        _wait_until_divided(data, writers)
        for one in running:
            os.kill(one.process.pid, signal.SIGSTOP)
        post_all(gateway, shares_of(bodies))
        gateway.stop()
        for one in running:
            os.kill(one.process.pid, signal.SIGCONT)
        started = time.perf_counter()
        _wait_until_stored(data)
        return time.perf_counter() - started


@contextmanager
def _serving(data: Path, role: str) -> Iterator[Server]:
    key = admin_key(data)
    with quiet_server(data, "--role", role, settings=NO_UPKEEP) as server:
        server.key = key
        yield server


def _wait_until_divided(data: Path, writers: int) -> None:
    holders = sa.select(sa.func.count(log_partition.c.owner.distinct()), sa.func.count())
    with open_existing(data) as lake:

        def divided() -> bool:
            with lake.database.read() as connection:
                owners, partitions = connection.execute(holders).one()
            return bool(owners == writers and partitions == lake.log.partitions)

        eventually(divided, 2 * _LEASE_SECONDS)


def _wait_until_stored(data: Path) -> None:
    with open_existing(data) as lake:
        eventually(lambda: _waiting(lake) == 0, _STORED_SECONDS_MAX)


def _waiting(lake: Lake) -> int:
    """Values that only the log holds."""
    with lake.database.read() as connection:
        rows = connection.execute(sa.select(log_partition.c.partition, log_partition.c.next_offset))
        stored = {row.partition: row.next_offset for row in rows}
    return sum(end - stored.get(partition, 0) for partition, end in enumerate(lake.log.ends()))


MEASUREMENT = Measurement(
    name="kafka",
    title="Over Kafka and PostgreSQL",
    about="""
The same traffic to a gateway and a writer over Kafka and PostgreSQL on loopback, beside
the embedded server. Two writers share two cores with a broker and a database, so what a second
writer adds here is the least. Needs Java, Maven and PostgreSQL.
""",
    goals=(_EMBEDDED, _SECOND_WRITER),
    run=_measure,
    quick=False,
)
