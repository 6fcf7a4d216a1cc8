"""Erasures that are killed at any moment, beside a server that takes in events of the erased."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.access.privacy.erasure import list_erasures, open_erasures
from penstock.core.settings import load_settings
from penstock.ingest.ledger import read_ledger
from penstock.lake.lake import Lake, open_existing
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.lakes import Event, HandLake, body_of, make_event
from tests.support.marker_search import places_with
from tests.support.producers import Looping, Producer, holds_exactly, is_whole
from tests.support.waiting import eventually

MARKER = "planted-marker-7f3a"
USER = f"user-{MARKER}"
SETTINGS = {
    "PENSTOCK_FLUSH_SECONDS_MAX": "0.1",
    "PENSTOCK_LOG_BYTES_MAX": "160000",
    "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
    "PENSTOCK_COMPACTION_BYTES_TARGET": "400000",
    "PENSTOCK_UPKEEP_SECONDS": "0.2",
    "PENSTOCK_COLLECTION_GRACE_SECONDS": "1",
    "PENSTOCK_LEASE_SECONDS": "2",
    "PENSTOCK_DISK_RESERVE_BYTES": "0",
}
_BATCH = 10
_PAUSE_SECONDS = 0.02
#: From before its first import to after its last transaction.
_KILL_SECONDS = (0.4, 3.0)
_ERASE_SECONDS_MAX = 300


class ErasedAgent(Looping):
    """Sends what the erased user wrote, long ago, and does not hear that it was erased."""

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__("erased agent")
        self.sent = 0
        self._client = server.client()
        self._dice = random.Random(seed)

    def loop(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._client.close)
            while self.going_on(_PAUSE_SECONDS):
                answer = self._client.send_events(body_of(self._batch()))
                assert answer == {"accepted": _BATCH, "rejected": []}
                self.sent += _BATCH

    def _batch(self) -> list[Event]:
        """Of a session that is new, that goes on, or that was sent before."""
        session = self._dice.randrange(1 + self.sent // 50)
        first = self._dice.randrange(30)
        return [marked(f"{MARKER}-{session}", n) for n in range(first, first + _BATCH)]


def marked(session: str, number: int) -> Event:
    ts = f"2024-05-01T10:{number:02d}:00Z"
    return make_event(session, number, ts=ts, user=USER, payload={"text": f"{MARKER} {number}"})


def begin_erasing(data: Path) -> subprocess.Popen[bytes]:
    """Orders it, or goes on with it where an order is kept."""
    with open_existing(data) as lake:
        goes_on = open_erasures(lake) or list_erasures(lake)
    what = ["--resume"] if goes_on else ["--user", USER, "--yes"]
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "erase", *what, "--json", "--data", str(data)],
        env=os.environ | SETTINGS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def kill_once_ordered(data: Path) -> None:
    """The order is kept, and most of the work is still to be done."""
    process = begin_erasing(data)
    with open_existing(data) as lake:
        eventually(lambda: open_erasures(lake) or process.poll() is not None)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def kill_after(data: Path, seconds: float) -> None:
    process = begin_erasing(data)
    time.sleep(seconds)  # the moment of the kill: any will do
    process.kill()
    process.communicate()


def end_of(process: subprocess.Popen[bytes]) -> str:
    """What it said on its way; one that takes too long is killed."""
    try:
        _, said = process.communicate(timeout=_ERASE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    return said.decode()


@contextmanager
def sending(server: Server, seed: int) -> Iterator[tuple[Producer, ErasedAgent]]:
    """Others, and the erased, send events until the block ends."""
    senders = Producer("p", [server.url], server.key, seed), ErasedAgent(server, seed)
    try:
        for sender in senders:
            sender.start()
        yield senders
    finally:
        for each in senders:
            each.end()
    for each in senders:
        each.stop()


def count(server: Server, where: str) -> int:
    with server.client() as client:
        asked = json.dumps({"sql": f"select count(*) as n from events where {where}"})
        reply = client.post("/v1/query", asked.encode(), Content_Type="application/json")
        assert reply.status == 200, reply.body
        return int(reply.json()["rows"][0]["n"])


def check(data: Path, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    of_user = f"\"user\" = '{USER}'"
    with (data.parent / "server.log").open("ab") as log:
        with running_server(data, settings=SETTINGS, log=log) as server:
            with sending(server, seed) as (producer, agent):
                eventually(lambda: agent.sent > 300 and len(producer.acknowledged) > 300)
                assert count(server, of_user) > 0
                kill_once_ordered(data)
                for _ in range(kills - 1):
                    kill_after(data, dice.uniform(*_KILL_SECONDS))
                last = begin_erasing(data)
                said = end_of(last)
                assert last.returncode == 0, said
                assert count(server, of_user) == 0
                sent = agent.sent
                eventually(lambda: agent.sent > sent + 100)
                assert count(server, of_user) == 0
            key = server.key
        # Its tombstones are in the database, not in the memory of a process.
        with running_server(data, settings=SETTINGS, log=log) as server:
            server.key = key
            with server.client() as client:
                client.send_events(body_of(marked(f"{MARKER}-{at}", 1) for at in range(20)))
            assert count(server, of_user) == 0
    with Lake(load_settings(data, SETTINGS)) as lake:
        HandLake(lake).writer().drain()
        holds_exactly(lake, producer.acknowledged)
        is_whole(lake)
        assert [each.state for each in list_erasures(lake)] == ["done"]
        assert sum(row.erased for row in read_ledger(lake).rows) > 0
        assert places_with(lake, MARKER) == []


def test_erasures_that_are_killed_beside_a_server(tmp_path: Path) -> None:
    check(tmp_path / "data", kills=3, seed=5)
