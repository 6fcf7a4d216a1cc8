"""What a server depends on goes away and comes back: nothing acknowledged is lost, /readyz says in
a sentence what is wrong, and nobody has to help."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir

import pytest

from penstock.backends.http import ServerUnreachable
from penstock.ingest.ledger import read_ledger
from penstock.lake.upkeep.verification import verify
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.lakes import body_of, hand_lake, make_event
from tests.support.servers.parts import pids_of
from tests.support.servers.postgres import PostgresServer, running_postgres
from tests.support.waiting import eventually

SETTINGS = {
    "PENSTOCK_FLUSH_SECONDS_MAX": "0.05",
    "PENSTOCK_UPKEEP_SECONDS": "0.2",
    "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
    "PENSTOCK_COLLECTION_GRACE_SECONDS": "1",
    "PENSTOCK_DISK_RESERVE_BYTES": "0",
    "PENSTOCK_SHUTDOWN_SECONDS_MAX": "5",
}
_SENTENCE = re.compile(r"^[A-Z].*\S", re.DOTALL)


class Traffic:
    """One producer that sends small batches all the time, as a good one does."""

    def __init__(self, server: Server) -> None:
        self.acknowledged: set[str] = set()
        self.refused: list[str] = []
        self._client = server.client()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()

    def goes_on(self) -> None:
        """Waits until more is acknowledged than now."""
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) >= before + 5)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.01):
            events = [make_event(f"s{number % 7}", number + i) for i in range(5)]
            try:
                reply = self._client.post("/v1/events", body_of(events))
            except ServerUnreachable:
                continue
            if reply.status == 200:
                assert reply.json()["accepted"] == 5
                self.acknowledged |= {event["event_id"] for event in events}
                number += 5
            else:
                assert reply.status == 503, reply
                assert float(reply.headers["retry-after"]) > 0
                self.refused.append(reply.json()["detail"])


class Watched:
    """A server under traffic, and what it says of itself."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.traffic = Traffic(server)
        self._client = server.client()

    def problems(self) -> list[str]:
        reply = self._client.get("/readyz")
        problems: list[str] = reply.json()["problems"]
        assert reply.status == (503 if problems else 200)
        assert gettempdir() not in str(problems)  # whoever has no key reads of no path
        return problems

    def warnings(self) -> str:
        return str(self._client.get("/readyz").json()["warnings"])

    def says(self, text: str) -> None:
        """/readyz comes to say this, in a sentence."""
        eventually(lambda: any(text in problem for problem in self.problems()))
        assert all(_SENTENCE.match(problem) for problem in self.problems())

    def recovers(self) -> None:
        """By itself, and to where what is acknowledged reaches segments."""
        eventually(lambda: not self.problems())
        self.traffic.goes_on()
        before = self.metric("penstock_segments_written_total")
        eventually(lambda: self.metric("penstock_segments_written_total") > before)

    def metric(self, name: str) -> float:
        text = self._client.get("/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def close(self) -> None:
        self.traffic.stop()
        self._client.close()


@contextmanager
def watched(data: Path, **settings: str) -> Iterator[Watched]:
    """At the end all that was acknowledged has to be in the lake once, and no more."""
    with running_server(data, settings=SETTINGS | settings) as server:
        under_test = Watched(server)
        try:
            under_test.traffic.goes_on()
            yield under_test
        finally:
            under_test.close()
    limits = {
        name.removeprefix("PENSTOCK_").lower(): value
        for name, value in (SETTINGS | settings).items()
    }
    with hand_lake(data, **limits) as lake:
        lake.store()
        stored = {event_id: n for (_, _, event_id), n in lake.stored().items()}
        assert set(stored.values()) == {1}
        assert under_test.traffic.acknowledged - stored.keys() == set()
        assert verify(lake.lake).findings == []
        assert read_ledger(lake.lake).discrepancies == []


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_the_database_is_locked_by_another_process(tmp_path: Path, how: str) -> None:
    """Events are acknowledged all the while: the log does not need the database."""
    with watched(tmp_path) as server:
        with closing(sqlite3.connect(tmp_path / "penstock.db", isolation_level=None)) as other:
            other.execute(f"BEGIN {how}")
            server.says("The metadata database cannot be used")
            server.traffic.goes_on()
            other.execute("ROLLBACK")
        server.recovers()


def test_the_database_file_is_moved_away_and_back(tmp_path: Path) -> None:
    """Nothing may be made in its place: an empty database would take the lake's as lost."""
    with watched(tmp_path) as server:
        database, aside = tmp_path / "penstock.db", tmp_path / "aside.db"
        database.rename(aside)
        server.says("The metadata database cannot be used")
        for _ in range(5):
            server.traffic.goes_on()
        assert not database.exists(), "an empty database took its place"
        aside.rename(database)
        server.recovers()


def test_the_server_is_paused_for_a_moment_and_its_writer_killed(tmp_path: Path) -> None:
    with watched(tmp_path, PENSTOCK_LEASE_SECONDS="1") as server:
        with stopped(server):
            time.sleep(1.5)  # longer than its lease: that is what is tested
        server.recovers()
        os.kill(pids_of(server.server)["writer"], signal.SIGKILL)
        eventually(lambda: "The writer ended by SIGKILL" in server.warnings())
        assert server.metric("penstock_process_restarts") == 1
        server.recovers()


def test_a_file_stands_where_segments_are_written(tmp_path: Path) -> None:
    """Stands for any store that cannot be written, also for root."""
    with watched(tmp_path) as server:
        lake = tmp_path / "lake" / "events"
        eventually(lambda: any(lake.glob("*/*/*.parquet")))  # not in the middle of making folders
        with stopped(server):
            lake.rename(tmp_path / "aside")
            lake.write_text("in the way")
        server.says("Not a directory")
        server.traffic.goes_on()
        lake.unlink()
        (tmp_path / "aside").rename(lake)
        server.recovers()


@contextmanager
def stopped(server: Watched) -> Iterator[None]:
    """Two changes to the disk are one to the server."""
    pids = pids_of(server.server).values()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_an_unknown_error_keeps_neither_thread_from_going_on(tmp_path: Path) -> None:
    """A table that is gone is nothing that the code expects."""
    with watched(tmp_path) as server:
        with closing(sqlite3.connect(tmp_path / "penstock.db", timeout=20)) as other:
            other.execute("ALTER TABLE segment RENAME TO aside")
            other.commit()
            server.says("segment")
            server.traffic.goes_on()
            other.execute("ALTER TABLE aside RENAME TO segment")
            other.commit()
        server.recovers()


# Disks: small ones that are mounted for the test


@cache
def _why_not_mount() -> str | None:
    """Mounting takes root, or a name space where one is root."""
    if sys.platform != "linux":
        return "mounts a tmpfs, which takes Linux"
    if os.geteuid() != 0:
        return "mounts a tmpfs, which takes root; `unshare -rm` makes one"
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    with suppress(FileNotFoundError):
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else f"mounts a tmpfs: {done.stderr.strip()}"
    return "mounts a tmpfs, which takes `unshare`"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if why := _why_not_mount():
        pytest.skip(why)
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> Path:
    """A file that takes what room there is."""
    ballast = path / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def test_the_disk_of_the_log_is_full(tmp_path: Path, small_disk: Path) -> None:
    """503 until there is room; what was acknowledged before goes on into the lake."""
    with watched(tmp_path / "data", PENSTOCK_LOG_URL=f"local:{small_disk}/log") as server:
        ballast = fill(small_disk)
        eventually(lambda: server.traffic.refused)
        assert "on the disk of" in server.traffic.refused[0]
        server.says("on the disk of")
        ballast.unlink()
        server.recovers()


def test_the_reserve_for_the_writer_is_kept(tmp_path: Path, small_disk: Path) -> None:
    """Well before the disk is full, so that the writer can make room by itself."""
    reserve = {"PENSTOCK_DISK_RESERVE_BYTES": "2000000"}
    with watched(
        tmp_path / "data", PENSTOCK_LOG_URL=f"local:{small_disk}/log", **reserve
    ) as server:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(2_500_000))
        eventually(lambda: server.traffic.refused)
        assert "are kept for the writer" in server.traffic.refused[0]
        ballast.unlink()
        server.recovers()


def test_the_disk_of_the_lake_is_full(tmp_path: Path, small_disk: Path) -> None:
    with watched(tmp_path / "data", PENSTOCK_STORE_URL=f"file://{small_disk}/lake") as server:
        ballast = fill(small_disk)
        server.says("No space left on device")
        server.traffic.goes_on()
        ballast.unlink()
        server.recovers()


def test_it_ends_in_time_with_the_database_locked_and_loses_nothing(tmp_path: Path) -> None:
    """A signal to stop in the middle of an outage: the last events wait in the log."""
    settings = SETTINGS | {"PENSTOCK_FLUSH_SECONDS_MAX": "20", "PENSTOCK_SHUTDOWN_SECONDS_MAX": "2"}
    with closing(sqlite3.connect(tmp_path / "penstock.db", isolation_level=None)) as other:
        with running_server(tmp_path, settings=settings) as server:
            with closing(server.client()) as client:
                client.send_events(body_of([make_event("s", 1)]))
            other.execute("BEGIN EXCLUSIVE")
            started = time.monotonic()
            server.stop()
            assert time.monotonic() - started < 10
        other.execute("ROLLBACK")
    with hand_lake(tmp_path) as lake:
        lake.store()
        assert lake.stored() == {("default", "s", "e1"): 1}


# PostgreSQL


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One of this file's own, since its tests stop it."""
    with running_postgres() as server:
        yield server


@contextmanager
def on_postgres(data: Path, postgres: PostgresServer) -> Iterator[tuple[Watched, str]]:
    with postgres.database() as url:
        data.mkdir()
        (data / "penstock.toml").write_text(f'database_url = "{url}"\n')
        with watched(data) as server:
            yield server, url.rpartition("/")[2]


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_postgresql_ends_in_the_middle_and_comes_back(
    tmp_path: Path, postgres: PostgresServer, end: Callable[[PostgresServer], None]
) -> None:
    with on_postgres(tmp_path / "data", postgres) as (server, _):
        for _ in range(3):
            end(postgres)
            server.traffic.goes_on()  # the log does not need the database
            server.says("The metadata database cannot be used")
            postgres.start()
            server.recovers()


def test_all_sessions_are_ended_again_and_again(tmp_path: Path, postgres: PostgresServer) -> None:
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'penstock'"
    with on_postgres(tmp_path / "data", postgres) as (server, _):
        for _ in range(5):
            postgres.execute(end_all)
            server.traffic.goes_on()
        server.recovers()


def test_a_lock_is_held_for_too_long(tmp_path: Path, postgres: PostgresServer) -> None:
    with on_postgres(tmp_path / "data", postgres) as (server, name):
        with postgres.connect(name) as other, other.transaction():
            other.execute("LOCK TABLE lake_head")
            server.says("held a lock for over 5 s")
            server.traffic.goes_on()
        server.recovers()
