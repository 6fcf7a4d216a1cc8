"""A real service where very many tenants wait: what it holds, and how long it takes to be ready.

`make tenants TENANTS=100000`: one event of each tenant lies in the log, then the service starts."""

import argparse
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from penstock.access.keys import create_key
from penstock.backends.terminal.output import say
from penstock.core.settings import load_settings
from penstock.ingest.gateway import Acceptor
from penstock.lake.lake import open_or_make
from penstock.lake.tables import segment
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.lakes import body_of, make_event

_AT_ONCE = 500
_TEXT = "x" * 1_000
#: How long the service is looked at once it is ready.
_WATCHED_SECONDS = 60
_LOOK_SECONDS = 5
_ASKED = b'{"sql": "select count(*) as n from events"}'


def fill_log(data: Path, tenants: int) -> str:
    """An event of each tenant in the log; the key of one of them."""
    with open_or_make(load_settings(data, environment={})) as lake:
        for start in range(0, tenants, _AT_ONCE):
            values: defaultdict[int, list[bytes]] = defaultdict(list)
            for number in range(start, min(start + _AT_ONCE, tenants)):
                acceptor = Acceptor(f"t{number}", lake.settings, lake.log, lake.redactor)
                body = body_of([make_event(f"s-{number}", number % 60, payload={"text": _TEXT})])
                for piece in acceptor.accept([body], time.time_ns() // 1_000):
                    for partition, frames in piece.values.items():
                        values[partition] += frames
            lake.log.append(values)
        return create_key(lake.database, "read", f"t{tenants - 1}")[1]


def lines_of(server: Server, key: str, started_s: float) -> Iterator[str]:
    ready_s = time.perf_counter()
    yield f"time to start: {ready_s - started_s:.1f} s"
    with server.client(key) as client:
        asked_s = time.perf_counter()
        reply = client.post("/v1/query", _ASKED)
        seconds = time.perf_counter() - asked_s
        yield f"the first query of one of them: {seconds * 1000:.0f} ms, {reply.body[:80]!r}"
        while (watched_s := time.perf_counter() - ready_s) < _WATCHED_SECONDS:
            time.sleep(_LOOK_SECONDS)
            say(f"after {watched_s:.0f} s the service has {memory_mib(server):.0f} MiB")
        asked_s = time.perf_counter()
        client.post("/v1/query", _ASKED)
        yield f"a query a minute later: {(time.perf_counter() - asked_s) * 1000:.0f} ms"
    most = memory_mib(server, "VmHWM")
    yield f"memory of the service: {memory_mib(server):.0f} MiB, {most:.0f} at most"


def memory_mib(server: Server, kind: str = "VmRSS") -> float:
    text = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    match = re.search(rf"{kind}:\s+(\d+) kB", text)
    return int(match[1]) / 1024 if match else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=100_000)
    tenants = parser.parse_args().tenants
    data = Path(tempfile.mkdtemp(prefix="penstock-tenants-"))
    try:
        began_s = time.perf_counter()
        key = fill_log(data, tenants)
        say(f"{tenants:,} tenants sent an event each, in {time.perf_counter() - began_s:.0f} s")
        started_s = time.perf_counter()
        with running_server(data) as server:
            for line in lines_of(server, key, started_s):
                say(line)
        with (
            open_or_make(load_settings(data, environment={})) as lake,
            lake.database.read() as connection,
        ):
            files = connection.scalar(sa.select(sa.func.count()).select_from(segment))
        size = (data / "penstock.db").stat().st_size
        say(f"segments: {files:,}; the metadata database: {size / 2**20:.1f} MiB")
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
