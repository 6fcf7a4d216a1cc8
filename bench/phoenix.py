"""OTLP beside Arize Phoenix: the same bodies sent to both, one after the other, and what a span
costs until it is stored. `make phoenix` runs it; Phoenix is in an environment of its own.

Phoenix answers before it stores, so what it stored in the end is counted in its database.
Langfuse has no server on PyPI: it needs ClickHouse, Redis, PostgreSQL and an object store."""

import argparse
import gzip
import http.client
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from bench.figures import Figure, at_most, show
from bench.ingest_run import ingest_at_full_speed
from bench.measure import usage_of
from bench.telemetry import AS_SPANS, span_bodies

_SESSIONS, _ROUNDS = 20, 3
_START_SECONDS_MAX, _STORE_SECONDS_MAX = 300.0, 600.0
_POLL_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="make phoenix", description=__doc__)
    parser.add_argument("--phoenix", default=os.environ.get("PHOENIX"), help="its program")
    program = parser.parse_args().phoenix
    if program is None:
        sys.exit("name the program: PHOENIX=.venv-phoenix/bin/phoenix")
    with tempfile.TemporaryDirectory() as folder:
        show(list(measure_beside_phoenix(Path(folder), program)))


def measure_beside_phoenix(here: Path, program: str) -> Iterator[Figure]:
    """The median of pairs: both have the machine's other work alike."""
    ours, theirs = [], []
    for number in range(_ROUNDS):
        spans, bodies = span_bodies(_SESSIONS, first=number * _SESSIONS)
        packed = [gzip.compress(body, 6) for body in bodies]
        ingested = ingest_at_full_speed(here / f"own-{number}", packed, AS_SPANS)
        ours.append(1000 * ingested.cpu_s / spans)
        with _running_phoenix(here / f"phoenix-{number}", program) as phoenix:
            theirs.append(1000 * phoenix.cpu_of(packed, spans) / spans)
    own, other = sorted(ours)[_ROUNDS // 2], sorted(theirs)[_ROUNDS // 2]
    yield Figure("Penstock: CPU of 1,000 spans", f"{own:.2f} s")
    yield Figure("Phoenix: CPU of 1,000 spans", f"{other:.2f} s")
    yield at_most("Penstock's share of Phoenix's", own / other, 0.25)


class _Phoenix:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int, database: Path) -> None:
        self._process, self._port, self._database = process, port, database

    def answers(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            with closing(connection):
                connection.request("GET", "/healthz")
                return connection.getresponse().status == 200
        assert self._process.poll() is None, "Phoenix ended"
        return False

    def cpu_of(self, bodies: Sequence[bytes], spans: int) -> float:
        """Until all are in its database."""
        before = usage_of(self._process.pid)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        with closing(connection):
            for body in bodies:
                while True:
                    connection.request("POST", "/v1/traces", body, headers)
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status == 200:
                        break
                    assert answer.status in (429, 503), answer.status  # its queue is full
                    time.sleep(_POLL_SECONDS)
        _wait(lambda: self._stored() >= spans, _STORE_SECONDS_MAX)
        return usage_of(self._process.pid).cpu_s - before.cpu_s

    def _stored(self) -> int:
        with suppress(sqlite3.Error), closing(sqlite3.connect(self._database)) as connection:
            return int(connection.execute("select count(*) from spans").fetchone()[0])
        return 0


def _wait(is_so: Callable[[], bool], seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(_POLL_SECONDS)


@contextmanager
def _running_phoenix(folder: Path, program: str) -> Iterator[_Phoenix]:
    """As it comes: SQLite in a folder, no sign-in."""
    folder.mkdir()
    port, grpc_port = _free_port(), _free_port()
    variables = {
        "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port), "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false", "HOME": str(folder),
    }  # fmt: skip
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [program, "serve"], env=os.environ | variables, stdout=output, stderr=output
        )
    try:
        phoenix = _Phoenix(process, port, folder / "phoenix.db")
        _wait(phoenix.answers, _START_SECONDS_MAX)
        yield phoenix
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
