"""Taking events in over HTTP: Penstock, and FastAPI with SQLite."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, Goal, spread
from bench.ingest_run import PLAIN, ingest_at_full_speed, post_all, shares_of
from bench.measure import usage_of_all
from bench.measurement import Measurement, Size
from bench.rivals.contest import PYTHON, ROOT, ratios, why_absent
from bench.traffic import Traffic, make_traffic
from penstock_jobs.simulator.demo.server import Server

_EVENTS = 100_000
_CHEAPER = Goal(what="CPU of FastAPI with SQLite against Penstock's", at_least=1, unit=" ×")


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    absent = why_absent("fastapi")
    traffic = make_traffic(size.of(_EVENTS, 1_000))
    ours, theirs = [], []
    for number in range(size.rounds):
        done = ingest_at_full_speed(here / f"penstock-{number}", traffic.plain, PLAIN)
        ours.append(1000 * done.cpu_s / traffic.events)
        if not absent:
            theirs.append(_cpu_s_of_rival(here / f"fastapi-{number}.db", traffic))
    yield Figure("Penstock: CPU per 1,000 events, all in Parquet", spread(ours, " s"))
    if absent:
        yield Figure("FastAPI with SQLite", absent)
        return
    yield Figure("FastAPI with SQLite: CPU per 1,000 events", spread(theirs, " s"))
    yield _CHEAPER.figure_of_rounds(ratios(theirs, ours))


def _cpu_s_of_rival(database: Path, traffic: Traffic) -> float:
    """Per 1,000 events."""
    with _running(database) as server:
        before = usage_of_all(server.process.pid).cpu_s
        post_all(server, shares_of(traffic.plain), form=PLAIN)
        spent = usage_of_all(server.process.pid).cpu_s - before
        with server.client() as client:
            assert json.loads(client.get("/stored").body)["stored"] == traffic.events
    return 1000 * spent / traffic.events


@contextmanager
def _running(database: Path) -> Iterator[Server]:
    command = [str(PYTHON), "-m", "bench.rivals.fastapi_service", str(database)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Server(f"http://127.0.0.1:{port}", None, process)
        finally:
            process.terminate()


MEASUREMENT = Measurement(
    name="rivals-ingest",
    title="Beside others: ingest over HTTP",
    about="""
The same plain bodies of 100 events by eight clients to Penstock as it is by default (each event
once, secrets masked, all in Parquet at the end) and to [FastAPI](https://fastapi.tiangolo.com) on
uvicorn, which checks types and commits each body to SQLite with full syncs: no search for
duplicates, no redaction, no keys, no Parquet. CPU seconds of the server per 1,000 events; rounds in
turns: the median, and from the least to the most.
""",
    goals=(_CHEAPER,),
    run=_measure,
)
