"""What it costs that users' queries run in processes of their own: time beside the same query in
the process that asks, and memory beside a server without queries."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from bench.figures import Figure, Goal
from bench.ingest_run import ingest_at_full_speed
from bench.measure import percentile
from bench.measurement import Measurement, Size
from bench.servers import quiet_server
from bench.traffic import make_traffic
from penstock.access.keys import create_key
from penstock.lake.lake import Lake, open_existing
from penstock.lake.query.statement_processes import StatementProcesses
from penstock.lake.query.statements import EndSignal
from penstock_jobs.simulator.demo.server import Server

_TRIES = 60
_EVENTS = 20_000
_APART = Goal(what="more for a process of its own", at_most=30, unit=" ms")
_MEMORY = Goal(
    what="memory of the processes of queries, one under way, beside shared libraries",
    at_most=60,
    unit=" MiB",
)
_QUERIES = {
    "`SELECT 1`": "select 1 as a",
    "counts by type of a small lake": "select type, count(*) as n from events group by all",
}
#: Long enough to look at the memory of its process, and needs none itself.
_LONG = "select sum(hash(range)) as n from range(100000000)"
_MIB = 1024 * 1024


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    data = here / "lake"
    ingest_at_full_speed(data, make_traffic(size.of(_EVENTS, 200)).packed)
    with open_existing(data) as lake:
        key = create_key(lake.database, "read", "default")[1]
        for name, sql in _QUERIES.items():
            alone, apart = _medians_ms(lake, sql)
            yield _APART.figure(apart - alone, name)
            yield Figure("  in process", f"{alone:.1f} ms")
    with quiet_server(data) as server:
        server.key = key
        for name, sql in _QUERIES.items():
            yield Figure(f"  over HTTP: {name}", f"{_http_median_ms(server, sql):.1f} ms")
        memory = _extra_bytes(server) / _MIB
    yield _MEMORY.figure(memory)


def _medians_ms(lake: Lake, sql: str) -> tuple[float, float]:
    """In this process and in one of its own, by turns."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    processes = StatementProcesses()
    try:
        for number in range(2 * _TRIES):
            apart = number % 2 == 1
            lake.statements = processes if apart else None
            started = time.perf_counter()
            lake.query(sql).write("members", io.BytesIO(), EndSignal())
            seconds[apart].append(time.perf_counter() - started)
    finally:
        lake.statements = None
        processes.close()
    return 1000 * percentile(seconds[False], 0.5), 1000 * percentile(seconds[True], 0.5)


def _http_median_ms(server: Server, sql: str) -> float:
    client = server.client()
    body = json.dumps({"sql": sql}).encode()
    seconds = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        client.post("/v1/query", body)
        seconds.append(time.perf_counter() - started)
    client.close()
    return 1000 * percentile(seconds, 0.5)


def _extra_bytes(server: Server) -> int:
    """What the fork server and a process have in memory, pages that several have shared out."""
    body = json.dumps({"sql": _LONG}).encode()
    asking = Thread(target=lambda: server.client().post("/v1/query", body))
    asking.start()
    most = 0
    while asking.is_alive():
        most = max(most, sum(map(_proportional_bytes, _below(server.process.pid))))
        time.sleep(0.02)
    asking.join()
    return most


def _below(pid: int) -> list[int]:
    """The processes that this one and its children started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text("ascii").split()]
    return children + [grandchild for child in children for grandchild in _below(child)]


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))


MEASUREMENT = Measurement(
    name="query-processes",
    title="Queries in processes of their own",
    about="""
The same query in the process that asks and in one of its own, by turns;
medians. Memory is beside a server without queries.
""",
    goals=(_APART, _MEMORY),
    run=_measure,
    quick=False,
)
