"""Two hostile tenants beside an honest one: what that one notices, and what the service needs.

`python -m bench.hostile_soak --seconds 600`, or `make soak-hostile SECONDS=600`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, at_most, show
from bench.hostile_tenant import INGEST_KEY, READ_KEY
from bench.measure import bytes_below, percentile, usage_of_all
from bench.servers import quiet_server
from penstock.access.keys import create_key
from penstock.backends.terminal.output import say
from penstock.core.settings import Settings, load_settings
from penstock.ingest.ledger import read_ledger
from penstock.ingest.settings import IngestSettings
from penstock.lake import LakeSettings
from penstock.lake.lake import open_existing, open_or_make
from penstock_jobs.simulator.demo.server import Server
from tests.support.servers.parts import pids_of

_MIB = 1024 * 1024
_HONEST, _HOSTILE = "honest", ("hostile-0", "hostile-1")
_SENDERS = 2
_BATCH = 50
#: Of each sender: together 1,000 events a second, of 1 KiB.
_PAUSE_SECONDS = 0.1
_TEXT = "x" * 850
_SESSION_EVENTS = 500
_ASK_SECONDS = 1.0
#: Before the attack, to compare with.
_QUIET_SECONDS_MAX = 20.0
_ACK_MS_MAX = 100.0
_PATIENCE_SECONDS = 60.0
_RETRY_SECONDS = 0.1
_MEMORY_SECONDS = 0.2
#: The program with its libraries, as docs/deploy.md has it.
_PROGRAM_BYTES = 200 * _MIB


Work = Callable[[int, threading.Event], None]


@dataclass
class HonestTenant:
    """Sends on a schedule, each body until it is acknowledged, and asks for its newest event."""

    server: Server
    key: str
    #: From when a body was due until it was acknowledged, and when that was.
    acks: list[tuple[float, float]] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)
    sent: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        done = threading.Event()
        threads = [
            threading.Thread(target=self._watched, args=(self._send, number, done))
            for number in range(_SENDERS)
        ]
        threads.append(threading.Thread(target=self._watched, args=(self._ask, 0, done)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()

    def _watched(self, work: Work, number: int, done: threading.Event) -> None:
        try:
            work(number, done)
        except Exception as error:  # noqa: BLE001  # a figure says so
            self.problems.append(f"{type(error).__name__}: {error}")

    def _send(self, number: int, done: threading.Event) -> None:
        client = self.server.client(self.key)
        due_s = time.perf_counter() + number * _PAUSE_SECONDS / _SENDERS
        for first in range(0, sys.maxsize, _BATCH):
            if done.wait(max(0.0, due_s - time.perf_counter())):
                return
            body = _body(number, first)
            give_up_s = time.perf_counter() + _PATIENCE_SECONDS
            while (reply := client.post("/v1/events", body)).status != 200:
                self.refused += 1
                if time.perf_counter() > give_up_s:
                    raise TimeoutError(f"not acknowledged: {reply.status} {reply.body[:200]!r}")
                time.sleep(_RETRY_SECONDS)
            now_s = time.perf_counter()
            assert reply.json() == {"accepted": _BATCH, "rejected": []}, reply.body
            self.acks.append((now_s, now_s - due_s))
            self.sent += _BATCH
            due_s += _PAUSE_SECONDS

    def _ask(self, _number: int, done: threading.Event) -> None:
        client = self.server.client(self.key)
        sql = "select event_id from events where source = 'sender-0' order by ts desc limit 1"
        body = json.dumps({"sql": sql}).encode()
        while not done.wait(_ASK_SECONDS):
            started_s = time.perf_counter()
            reply = client.post("/v1/query", body)
            assert reply.status == 200, reply.body
            now_s = time.perf_counter()
            self.answers.append((now_s, now_s - started_s))


def _body(sender: int, first: int) -> bytes:
    started_us = 1_795_219_200_000_000
    return "".join(
        f'{{"session_id":"{sender}-{number // _SESSION_EVENTS}","event_id":"{sender}-{number}",'
        f'"source":"sender-{sender}","ts":{started_us + number},"type":"user_message",'
        f'"payload":{{"text":"{number} {_TEXT}"}}}}\n'
        for number in range(first, first + _BATCH)
    ).encode()


@contextmanager
def _attack(server: Server, keys: Mapping[str, str]) -> Iterator[Counter[str]]:
    """What was answered to a hostile tenant is there when the block has ended."""
    statuses: Counter[str] = Counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hostile_tenant", server.url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | dict(keys),
    )  # fmt: skip
    try:
        yield statuses
        assert process.poll() is None, "a hostile tenant ended by itself"
        statuses.update(json.loads(process.communicate()[0]))
    finally:
        process.kill()
        process.wait()


@dataclass
class StatementMemory:
    """The most that all processes of statements held at a time, as often as it was looked."""

    server: Server
    peak_bytes: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_MEMORY_SECONDS):
                self.peak_bytes = max(self.peak_bytes, bytes_below(pids_of(self.server)["gateway"]))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def memory_limit(settings: Settings) -> int:
    """Of a process with all roles, as docs/deploy.md adds it up."""
    ingest, lake = settings.room(IngestSettings), settings.room(LakeSettings)
    taking_in = ingest.inflight_bytes_max + ingest.flush_bytes_max
    storing = lake.known_bytes_max + lake.compaction_memory_bytes_max
    answers = lake.queries_max * lake.query_answer_bytes_max
    return _PROGRAM_BYTES + taking_in + storing + answers


def soak(data: Path, seconds: float) -> Iterator[Figure]:
    settings = load_settings(data)
    with open_or_make(settings) as lake:
        honest = create_key(lake.database, "admin", _HONEST)[1]
        keys = [
            {
                INGEST_KEY: create_key(lake.database, "ingest", tenant)[1],
                READ_KEY: create_key(lake.database, "read", tenant)[1],
            }
            for tenant in _HOSTILE
        ]
    with quiet_server(data) as server:
        tenant = HonestTenant(server, honest)
        with tenant.at_work():
            time.sleep(min(_QUIET_SECONDS_MAX, seconds))
            begun_s = time.perf_counter()
            say(f"attacking for {seconds:g} s")
            memory = StatementMemory(server)
            with ExitStack() as attacks, memory.watched():
                statuses = [attacks.enter_context(_attack(server, each)) for each in keys]
                time.sleep(seconds)
            ended_s = time.perf_counter()
        usage = usage_of_all(server.process.pid)
        yield from _waits("alone", tenant, 0, begun_s, goals=False)
        yield from _waits("beside two hostile", tenant, begun_s, ended_s, goals=True)
        yield from _counts(server, tenant)
    yield at_most(
        "peak memory of the service", usage.peak_bytes / _MIB, memory_limit(settings) / _MIB, " MiB"
    )
    room = settings.room(LakeSettings)
    yield at_most(
        "peak memory of all statements",
        memory.peak_bytes / _MIB,
        room.queries_max * room.query_memory_bytes_max / _MIB,
        " MiB",
    )
    with open_existing(data) as lake:
        discrepancies = read_ledger(lake).discrepancies
    yield at_most("hours of the ledger that do not add up", len(discrepancies), 0)
    for what, count in sorted(sum(statuses, Counter[str]()).items()):
        yield Figure(f"hostile: {what}", str(count))


def _waits(
    when: str, tenant: HonestTenant, begun_s: float, ended_s: float, *, goals: bool
) -> Iterator[Figure]:
    acks = [took for at_s, took in tenant.acks if begun_s <= at_s < ended_s]
    answers = [took for at_s, took in tenant.answers if begun_s <= at_s < ended_s]
    yield Figure(f"{when}: bodies acknowledged", str(len(acks)))
    yield Figure("  median", f"{1000 * percentile(acks, 0.5):.1f} ms")
    p99 = 1000 * percentile(acks, 0.99)
    goal = at_most("  p99", p99, _ACK_MS_MAX, " ms")
    yield goal if goals else Figure("  p99", f"{p99:.1f} ms")
    yield Figure("  longest", f"{1000 * max(acks):.0f} ms")
    if answers:
        yield Figure("  a query, median", f"{1000 * percentile(answers, 0.5):.0f} ms")
        yield Figure("  a query, p99", f"{1000 * percentile(answers, 0.99):.0f} ms")


def _counts(server: Server, tenant: HonestTenant) -> Iterator[Figure]:
    with server.client(tenant.key) as client:
        sql = "select count(*) as n, count(distinct event_id) as different from events"
        reply = client.post("/v1/query", json.dumps({"sql": sql}).encode())
    assert reply.status == 200, reply.body
    [row] = reply.json()["rows"]
    yield Figure("events of the honest tenant", str(tenant.sent))
    yield Figure("  refused, and sent again", str(tenant.refused))
    yield at_most("  lost", tenant.sent - row["different"], 0)
    yield at_most("  twice", row["n"] - row["different"], 0)
    yield at_most("  failures of its client", len(tenant.problems), 0)
    for problem in tenant.problems:
        say(problem)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile_soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="of the attack")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as directory:
        figures = list(soak(Path(directory), options.seconds))
    sys.exit(0 if show(figures) else 1)


if __name__ == "__main__":
    main()
