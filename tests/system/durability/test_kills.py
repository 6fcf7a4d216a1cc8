"""Producers that retry, a server that is killed again and again: every event is there once."""

import os
import random
import signal
import time
from itertools import chain, islice
from pathlib import Path

import pytest

from penstock.core.settings import load_settings
from penstock.lake.lake import Lake
from penstock_jobs.simulator.demo.server import start_server
from tests.support.lakes import HandLake
from tests.support.producers import BATCH, Producer, holds_exactly, is_whole
from tests.support.servers.parts import pids_of

SETTINGS = {
    "PENSTOCK_FLUSH_SECONDS_MAX": "0.1",
    "PENSTOCK_LOG_BYTES_MAX": "160000",
    "PENSTOCK_COMPACTION_SEGMENTS_MIN": "2",
    "PENSTOCK_COMPACTION_BYTES_TARGET": "400000",
    "PENSTOCK_UPKEEP_SECONDS": "0.2",
    "PENSTOCK_COLLECTION_GRACE_SECONDS": "1",
    "PENSTOCK_KNOWN_BYTES_MAX": "200000",
    "PENSTOCK_SHUTDOWN_SECONDS_MAX": "60",
}
CLIENTS = 4
VICTIMS = ("gateway", "writer", "all")


def kill_and_restart(data: Path, partitions: int, kills: int, seed: int) -> list[Producer]:
    settings = SETTINGS | {"PENSTOCK_LOG_PARTITIONS": str(partitions)}
    dice = random.Random(seed)
    with (data.parent / "server.log").open("ab") as log:
        server = start_server(data, settings=settings, log=log)
        port = int(server.url.rpartition(":")[2])
        producers = [
            Producer(f"p{number}", [server.url], server.key, seed) for number in range(CLIENTS)
        ]
        for producer in producers:
            producer.start()
        try:
            rounds = (dice.sample(VICTIMS, len(VICTIMS)) for _ in range(kills))
            for victim in islice(chain.from_iterable(rounds), kills):
                time.sleep(dice.uniform(0.0, 0.6))  # the moment of the kill: any will do
                if victim in (pids := pids_of(server)):
                    os.kill(pids[victim], signal.SIGKILL)  # it is started again
                    continue
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


@pytest.mark.long
@pytest.mark.parametrize(("partitions", "kills"), [(1, 3), (3, 2)])
def test_five_kills(tmp_path: Path, partitions: int, kills: int) -> None:
    check(tmp_path / "data", partitions, kills, seed=7 + partitions)
