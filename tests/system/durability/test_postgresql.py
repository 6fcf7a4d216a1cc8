"""PostgreSQL under a running server is killed, stopped and held up: nothing acknowledged is lost,
nothing is stored twice, and nobody has to help."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.http.errors import ServerUnreachable
from penstock.ingest.ledger import read_ledger
from penstock.lake.verification import verify
from penstock_jobs.demo.server import Server, running_server
from tests.support.lakes import body_of, hand_lake, make_event
from tests.support.servers.postgres import PostgresServer, running_postgres
from tests.support.waiting import eventually

SETTINGS = {
    "PENSTOCK_FLUSH_SECONDS_MAX": "0.02",
    "PENSTOCK_UPKEEP_SECONDS": "0.1",
    "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
    "PENSTOCK_COLLECTION_GRACE_SECONDS": "1",
    "PENSTOCK_DISK_RESERVE_BYTES": "0",
}


class Producer:
    """Sends one event after the other, and keeps in mind which were acknowledged."""

    def __init__(self, server: Server) -> None:
        self.acknowledged: set[str] = set()
        self._client = server.client()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            event = make_event(f"s{number % 5}", number)
            with suppress(ServerUnreachable):
                if self._client.post("/v1/events", body_of([event])).status == 200:
                    self.acknowledged.add(event["event_id"])
                    number += 1

    def sends_more(self) -> None:
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) >= before + 20)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


class Watcher:
    """What the server says of itself."""

    def __init__(self, server: Server) -> None:
        self._client = server.client()

    def problems(self) -> str:
        return " ".join(self._client.get("/readyz").json()["problems"])

    def commits_more(self) -> None:
        before = self._segments()
        eventually(lambda: self._segments() > before)
        eventually(lambda: not self.problems())

    def _segments(self) -> float:
        lines = self._client.get("/metrics").body.decode().splitlines()
        name = "penstock_segments_written_total"
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@contextmanager
def under_traffic(
    data: Path, own_server: PostgresServer
) -> Iterator[tuple[Producer, Watcher, str]]:
    """At the end all that was acknowledged is in the lake, once."""
    with own_server.database() as url:
        data.mkdir()
        (data / "penstock.toml").write_text(f'database_url = "{url}"\n')
        with running_server(data, settings=SETTINGS) as server:
            producer, watcher = Producer(server), Watcher(server)
            try:
                watcher.commits_more()
                yield producer, watcher, url.rpartition("/")[2]
            finally:
                producer.stop()
                watcher.close()
        with hand_lake(data) as lake:
            lake.store()
            stored = lake.stored()
            assert set(stored.values()) == {1}
            assert producer.acknowledged <= {event_id for _, _, event_id in stored}
            assert verify(lake.lake).findings == []
            assert read_ledger(lake.lake).discrepancies == []


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_the_server_under_it_ends_in_the_middle_and_comes_back(
    tmp_path: Path, own_server: PostgresServer, end: Callable[[PostgresServer], None]
) -> None:
    with under_traffic(tmp_path / "data", own_server) as (producer, watcher, _):
        for _ in range(3):
            end(own_server)
            producer.sends_more()  # the log does not need the database
            eventually(lambda: "The metadata database cannot be used" in watcher.problems())
            own_server.start()
            watcher.commits_more()


def test_all_its_sessions_are_ended_again_and_again(
    tmp_path: Path, own_server: PostgresServer
) -> None:
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'penstock'"
    with under_traffic(tmp_path / "data", own_server) as (producer, watcher, _):
        for _ in range(5):
            own_server.execute(end_all)
            producer.sends_more()
        watcher.commits_more()


def test_a_lock_is_held_for_too_long(tmp_path: Path, own_server: PostgresServer) -> None:
    with under_traffic(tmp_path / "data", own_server) as (producer, watcher, name):
        with own_server.connect(name) as other, other.transaction():
            other.execute("LOCK TABLE lake_head")
            eventually(lambda: "held a lock for over 5 s" in watcher.problems())
            producer.sends_more()
        watcher.commits_more()
