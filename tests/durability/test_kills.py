"""Producers that retry, a server that is killed again and again: every event is there once."""

import os
import random
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.ingest.ledger import read_ledger
from penstock.lake.catalog import current
from penstock.lake.collection import collect
from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.verification import verify
from penstock.settings import load_settings
from penstock.testing.client import Client
from penstock.testing.lakes import HandLake, body_of, make_event
from penstock.testing.server import Server, start_server

SETTINGS = {
    "PENSTOCK_FLUSH_SECONDS_MAX": "0.1",
    "PENSTOCK_LOG_FILE_BYTES_MAX": "60000",
    "PENSTOCK_LOG_BLOCK_BYTES_MAX": "20000",
    "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
    "PENSTOCK_COMPACTION_BYTES_TARGET": "400000",
    "PENSTOCK_UPKEEP_SECONDS": "0.2",
    "PENSTOCK_COLLECTION_GRACE_SECONDS": "1",
    "PENSTOCK_KNOWN_BYTES_MAX": "200000",
    "PENSTOCK_SHUTDOWN_SECONDS_MAX": "60",
    "PENSTOCK_ROW_GROUP_ROWS_MAX": "200",
}
CLIENTS = 4
BATCH = 20


class Producer:
    """Sends batches one after another, each until it is acknowledged; some again on purpose."""

    def __init__(self, number: int, server: Server, seed: int) -> None:
        self.acknowledged: set[tuple[str, str]] = set()
        self.failure: BaseException | None = None
        self._name = f"p{number}"
        self._server = server
        self._dice = random.Random(f"{seed}-{number}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with closing(self._server.client()) as client:
                self._send_all(client)
        except BaseException as failure:  # noqa: BLE001 the test raises it in its own thread
            self.failure = failure

    def _send_all(self, client: Client) -> None:
        bodies: list[bytes] = []
        number = 0
        while not self._stopping.wait(0.01):  # kills are the test, not the load
            if bodies and self._dice.random() < 0.2:
                answer = client.send_events(self._dice.choice(bodies))
                assert answer["accepted"] == BATCH
                continue
            # A few sessions go on for long; most are short and never come back.
            batch = []
            for _ in range(BATCH):
                session = f"{self._name}-{self._dice.choice(['long', number // 200])}"
                batch.append(make_event(session, number, source=self._name))
                number += 1
            bodies.append(body_of(batch))
            answer = client.send_events(bodies[-1])
            assert answer == {"accepted": BATCH, "rejected": []}
            self.acknowledged |= {(event["session_id"], event["event_id"]) for event in batch}


def kill_and_restart(data: Path, partitions: int, kills: int, seed: int) -> list[Producer]:
    settings = SETTINGS | {"PENSTOCK_LOG_PARTITIONS": str(partitions)}
    dice = random.Random(seed)
    with (data.parent / "server.log").open("ab") as log:
        server = start_server(data, settings=settings, log=log)
        port = int(server.url.rpartition(":")[2])
        producers = [Producer(number, server, seed) for number in range(CLIENTS)]
        try:
            for _ in range(kills):
                time.sleep(dice.uniform(0.0, 0.6))  # the moment of the kill: any will do
                server.kill()
                assert server.process.stdout is not None
                server.process.stdout.close()
                key = server.key
                server = start_server(data, settings=settings, port=port, log=log)
                server.key = server.key or key
        finally:
            for producer in producers:
                producer.stop()
            status = server.stop()
            assert server.process.stdout is not None
            server.process.stdout.close()
    assert status == 0
    return producers


def holds_exactly(lake: Lake, acknowledged: set[tuple[str, str]]) -> None:
    [totals] = HandLake(lake).rows(
        "select count(*) as events, count(distinct (session_id, event_id)) as different from events"
    )
    assert totals["events"] == totals["different"], "an event is there twice"
    rows = HandLake(lake).rows("select session_id, event_id from events")
    found = {(row["session_id"], row["event_id"]) for row in rows}
    assert acknowledged - found == set(), "an acknowledged event is lost"
    assert found - acknowledged == set(), "an event was never sent"


def is_whole(lake: Lake) -> None:
    assert verify(lake).findings == []
    assert read_ledger(lake).discrepancies == []
    for _ in range(2):
        collect(lake, grace_s=0)
    segments = [one.name for one in current(lake.database).segments]
    files = {found.name for found in lake.store.list("events")}
    assert files == {*segments, *map(sessions_name, segments)}
    assert verify(lake).findings == []


def check(data: Path, partitions: int, kills: int, seed: int) -> None:
    producers = kill_and_restart(data, partitions, kills, seed)
    acknowledged = {one for producer in producers for one in producer.acknowledged}
    assert len(acknowledged) >= kills * BATCH
    settings = load_settings(data, SETTINGS | {"PENSTOCK_LOG_PARTITIONS": str(partitions)})
    with Lake(settings) as lake:
        HandLake(lake).writer().drain()  # an end in the middle of a flush is for the next start
        holds_exactly(lake, acknowledged)
        assert sum(HandLake(lake).stored().values()) == len(acknowledged)
        is_whole(lake)


@pytest.mark.parametrize(("partitions", "kills"), [(1, 6), (3, 4)])
def test_ten_kills(tmp_path: Path, partitions: int, kills: int) -> None:
    check(tmp_path / "data", partitions, kills, seed=7 + partitions)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_hundred_kills(tmp_path: Path, partitions: int) -> None:
    """Another seed each time; the failure names it."""
    seed = int.from_bytes(os.urandom(4))
    try:
        check(tmp_path / "data", partitions, 100, seed)
    except AssertionError as error:
        error.add_note(f"the seed was {seed}")
        raise
