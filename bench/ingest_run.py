"""A real server that takes in bodies over HTTP, until all of them are queryable segments: what it
used, and how long its clients waited."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import Usage, percentile, usage_of_all
from bench.servers import quiet_server
from penstock.access.keys import create_key
from penstock.core.settings import load_settings
from penstock.ingest.ledger import read_ledger
from penstock.lake.lake import open_existing, open_or_make, read_statistics
from penstock_jobs.simulator.demo.server import Server

_LOOK_SECONDS = 0.05
#: To add up the pages of a process takes 5 to 10 ms, in which it cannot ask for more.
_MEMORY_LOOK_SECONDS = 0.5
_LOOKS_MAX = 2000
CLIENTS = 8
#: A merge in the middle of a run would be counted or not, as it happens.
NOTHING_SET: Mapping[str, str] = {}
NO_UPKEEP = {"PENSTOCK_UPKEEP_SECONDS": "3600"}


@dataclass(frozen=True)
class Ingested:
    """What the server used, how long clients waited for acknowledgement, and what it wrote."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    #: Resident memory, looked at every so often at full speed.
    resident_bytes: list[int]
    acks_s: list[float]
    #: 99 % of events were in Parquet after so long, and of requests answered, by the server's own
    #: histograms.
    queryable_s: float
    answered_s: float
    #: From an acknowledgement until a query of the latest had seen the event.
    visible_s: float
    stored: int
    bytes_per_event: float

    def ack_ms(self, share: float) -> float:
        return 1000 * percentile(self.acks_s, share)

    def resident_at(self, share: float) -> int:
        """The most that was resident up to this share of the time."""
        return max(self.resident_bytes[: max(1, int(share * len(self.resident_bytes)))])


@dataclass(frozen=True)
class Form:
    """Where bodies go, and as what."""

    path: str = "/v1/events"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content_Encoding": "zstd"})


EVENTS = Form()
PLAIN = Form(headers={"Content_Type": "application/x-ndjson"})


def ingest_at_full_speed(
    data: Path,
    bodies: Sequence[bytes],
    form: Form = EVENTS,
    settings: Mapping[str, str] = NOTHING_SET,
) -> Ingested:
    """Clients post as fast as they are answered. Counts until all is in segments."""
    return _ingest(data, shares_of(bodies), 0, {**NO_UPKEEP, **settings}, form)


def ingest_at_rate(
    data: Path, bodies: Sequence[bytes], events_per_s: float, batch: int
) -> Ingested:
    """Clients post on a schedule; a late answer does not make the next request later."""
    pause_s = CLIENTS * batch / events_per_s
    return _ingest(data, shares_of(bodies), pause_s, {}, EVENTS)


def _ingest(
    data: Path,
    shares: Sequence[Sequence[bytes]],
    pause_s: float,
    settings: dict[str, str],
    form: Form,
) -> Ingested:
    key = admin_key(data)
    with quiet_server(data, settings=settings) as server:
        server.key = key
        # To look at memory holds every process up: only where nobody asks how long answers took.
        with _watching(server.process.pid, often=not pause_s) as resident:
            before = usage_of_all(server.process.pid)
            started = time.perf_counter()
            acks = post_all(server, shares, pause_s, form)
            after = wait_until_stored(server, data)
            wall_s = time.perf_counter() - started
        queryable_s = _p99_seconds(server, "queryable_seconds")
        answered_s = _p99_seconds(server, "request_seconds")
        visible_s = _visible_seconds(server, data)
    with open_existing(data) as lake:
        held = read_statistics(lake)
    return Ingested(
        cpu_s=after.cpu_s - before.cpu_s,
        wall_s=wall_s,
        peak_bytes=max(resident),
        resident_bytes=resident,
        acks_s=acks,
        queryable_s=queryable_s,
        answered_s=answered_s,
        visible_s=visible_s,
        stored=held["events"],
        bytes_per_event=held["bytes_per_event"],
    )


def admin_key(data: Path) -> str:
    """Of the lake there, which is made if there is none."""
    with open_or_make(load_settings(data)) as lake:
        return create_key(lake.database, "admin", "default")[1]


@contextmanager
def _watching(pid: int, *, often: bool) -> Iterator[list[int]]:
    """Looks at the memory of processes when the block begins, and `often` until it ends."""
    seen = [usage_of_all(pid).resident_bytes]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_MEMORY_LOOK_SECONDS):
            seen.append(usage_of_all(pid).resident_bytes)

    thread = threading.Thread(target=watch)
    if often:
        thread.start()
    try:
        yield seen
    finally:
        done.set()
        if often:
            thread.join()


def _p99_seconds(server: Server, metric: str) -> float:
    """The upper end of the bucket that holds the 99th percentile."""
    with server.client() as client:
        lines = client.get("/metrics").body.decode().splitlines()
    buckets = [
        (float(line.split('"')[1]), float(line.rsplit(" ", 1)[1]))
        for line in lines
        if line.startswith(f"penstock_{metric}_bucket")
    ]
    total = buckets[-1][1]
    return next(limit for limit, count in buckets if count >= 0.99 * total)


def _visible_seconds(server: Server, data: Path) -> float:
    """Post an event; ask for it as soon as it is acknowledged; how long until it was seen."""
    event = (
        '{"session_id":"bench-visible","ts":"2026-11-21T10:00:00Z","type":"x_bench","payload":{}}'
    )
    with server.client() as client, open_existing(data) as lake:
        client.send_events(event.encode())
        started = time.perf_counter()
        seen = lake.query("select 1 from events where session_id = 'bench-visible'").arrow()
        assert seen.num_rows == 1
        return time.perf_counter() - started


def shares_of(bodies: Sequence[bytes], clients: int = CLIENTS) -> list[Sequence[bytes]]:
    return [bodies[number::clients] for number in range(clients)]


def post_all(
    server: Server, shares: Sequence[Sequence[bytes]], pause_s: float = 0, form: Form = EVENTS
) -> list[float]:
    """Each share by a client of its own, a body every `pause_s`; how long each was waited for."""
    acks: list[float] = []

    def post(share: Sequence[bytes], delay_s: float) -> None:
        client = server.client()
        due = time.perf_counter() + delay_s
        for body in share:
            if pause_s:
                time.sleep(max(0.0, due - time.perf_counter()))
                begun, due = due, due + pause_s
            else:
                begun = time.perf_counter()
            reply = client.post(form.path, body, **form.headers)
            assert reply.status == 200, reply.body
            acks.append(time.perf_counter() - begun)
        client.close()

    threads = [
        threading.Thread(target=post, args=(share, pause_s * number / len(shares)))
        for number, share in enumerate(shares)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return acks


def wait_until_stored(server: Server, data: Path) -> Usage:
    """The server's usage once nothing waits in the log."""
    with open_existing(data) as lake:
        for _ in range(_LOOKS_MAX):
            if not any(row.waiting for row in read_ledger(lake).rows):
                return usage_of_all(server.process.pid)
            time.sleep(_LOOK_SECONDS)
    raise AssertionError("the server did not store what it acknowledged")
