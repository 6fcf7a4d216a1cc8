"""Erasing one user of a large lake, while a server beside it takes events in."""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from bench.figures import Figure, Goal, show
from bench.ingest_run import CLIENTS, admin_key, post_all, shares_of
from bench.large_lake import large_lake
from bench.measure import percentile, usage_of
from bench.measurement import Measurement, Size
from bench.servers import quiet_server
from bench.traffic import make_traffic
from penstock.backends.terminal.output import say
from penstock.ingest.ledger import read_ledger
from penstock.lake.lake import open_existing
from penstock.lake.tables import segment
from penstock_jobs.simulator.demo.server import Server

_USER = "u-77"
_BATCH = 100
_MIB = 1024 * 1024
#: Beside the erasure, about a tenth of what a server takes in at full speed.
_EVENTS_PER_SECOND = 2_000
_EVENTS = 1_000_000
_TIME = Goal(what="erasing a user", at_most=10, unit=" minutes")
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class _Outcome:
    """Of the erasing process, and of those that posted beside it."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    report: dict[str, dict[str, int]]
    acks_s: Sequence[float]


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    yield from measure_erasure(here / "large", size.of(_EVENTS, 500_000))


def measure_erasure(data: Path, events: int) -> Iterator[Figure]:
    with large_lake(data, events) as lake:
        before = lake.query(f"select count(*) as n from events where \"user\" = '{_USER}'").arrow()
        size = _live_bytes(data)
    key = admin_key(data)
    with quiet_server(data) as server:
        server.key = key
        quiet = _post_for(server, 5.0)
        outcome = _erase(data, server)
    millions = f"{events / 1e6:g} million events"
    erased = outcome.report["removed"]["events"]
    yield _TIME.figure(outcome.wall_s / 60, millions)
    yield Figure("  events of the user's sessions", f"{erased}")
    yield Figure("  CPU of the erasing process", f"{outcome.cpu_s:.0f} s")
    yield Figure("  its peak memory", f"{outcome.peak_bytes / _MIB:.0f} MiB")
    rewritten = outcome.report["removed"]["segments rewritten"]
    yield Figure("  segments rewritten", f"{rewritten}, of a lake of {size / _MIB:.0f} MiB")
    ack, ack_before = (1000 * percentile(each, 0.99) for each in (outcome.acks_s, quiet))
    beside = f"acknowledged beside it at {_EVENTS_PER_SECOND} events/s, p99"
    yield Figure(f"  {beside}", f"{ack:.0f} ms; before it {ack_before:.0f} ms")
    assert before["n"][0].as_py() > 0
    _check(data)


def _live_bytes(data: Path) -> int:
    with open_existing(data) as lake, lake.database.read() as connection:
        live = sa.select(sa.func.sum(segment.c.bytes)).where(segment.c.removed_snap.is_(None))
        return int(connection.scalar(live) or 0)


def _post_for(server: Server, seconds: float) -> list[float]:
    """Post on a schedule for so long; how long each body was waited for."""
    traffic = make_traffic(round(seconds * _EVENTS_PER_SECOND), _BATCH, seed=round(seconds))
    pause_s = CLIENTS * _BATCH / _EVENTS_PER_SECOND
    return post_all(server, shares_of(traffic.packed), pause_s)


def _erase(data: Path, server: Server) -> _Outcome:
    acks: list[float] = []
    ended = threading.Event()

    def post() -> None:
        seed = 100
        while not ended.is_set():
            seed += 1
            traffic = make_traffic(5 * _EVENTS_PER_SECOND, _BATCH, seed=seed)
            pause_s = CLIENTS * _BATCH / _EVENTS_PER_SECOND
            acks.extend(post_all(server, shares_of(traffic.packed), pause_s))

    posting = threading.Thread(target=post)
    posting.start()
    command = [sys.executable, "-m", "penstock", "erase", "--user", _USER, "--yes", "--json"]
    started = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*command, "--data", str(data)], stdout=output)
        used = usage_of(process.pid)
        while process.poll() is None:
            with suppress(OSError, KeyError):  # it ends meanwhile
                used = usage_of(process.pid)
            time.sleep(_LOOK_SECONDS)
        wall_s = time.perf_counter() - started
        ended.set()
        posting.join()
        assert process.returncode == 0
        output.seek(0)
        report = json.loads(output.read())
    return _Outcome(wall_s, used.cpu_s, used.peak_bytes, report, acks)


def _check(data: Path) -> None:
    """Nobody finds the user any more, and all that was accepted is accounted for."""
    with open_existing(data) as lake:
        left = lake.query(f"select count(*) as n from events where \"user\" = '{_USER}'").arrow()
        assert left["n"][0].as_py() == 0
        assert read_ledger(lake).discrepancies == []


MEASUREMENT = Measurement(
    name="erasure",
    title="Erasing a user",
    about="""
`penstock erase` of one of 997 users, each with sessions in all segments, while a
server on the same cores takes in 2,000 events a second. `make erasure-bench` does so in ten
million events.
""",
    goals=(_TIME,),
    run=_measure,
    quick=False,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.erasure", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="in the lake")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        say(f"making a lake of {options.events} events, and erasing a user of it")
        figures = list(measure_erasure(Path(directory) / "large", options.events))
    sys.exit(0 if show(figures) else 1)


if __name__ == "__main__":
    main()
