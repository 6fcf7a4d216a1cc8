"""An erasure beside a service for which so many tenants wait that their turn comes in hours."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.core.clock import SystemClock
from penstock.core.metrics import Metrics
from penstock.ingest.partition_writer import WriterParts
from penstock.ingest.writer import Writer
from penstock.lake.lake import Lake
from tests.support.lakes import START_US, HandLake, hand_lake, make_event

TENANTS = 300


@contextmanager
def served(lake: HandLake) -> Iterator[Writer]:
    writer = Writer(WriterParts(lake.lake, SystemClock(), Metrics()))
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


def test_the_writer_stores_all_that_waits_when_an_erasure_asks(tmp_path: Path) -> None:
    # One file in 100 s: the last tenant would wait for more than eight hours.
    with hand_lake(tmp_path, flush_files_per_second_max=0.01) as lake, served(lake):
        for number in range(TENANTS):
            lake.send([make_event(f"s{number}", 1, user="u-77")], tenant=f"t{number}")
        scope = ErasureScope("t7", "user", "u-77", START_US + 10**12)
        with Lake(lake.lake.settings) as beside:
            id_ = order_erasure(beside, scope, reason="", by="tester")
            sending = threading.Event()
            more = threading.Thread(target=_go_on, args=(lake, sending))
            more.start()  # ingest goes on, and never leaves a moment without events
            try:
                report = carry_out(beside, id_)
            finally:
                sending.set()
                more.join()
        assert report["removed"]["log partitions emptied"] > 0
        stored = {tenant for tenant, _, _ in lake.stored()}
        assert {f"t{number}" for number in range(TENANTS)} - stored == {"t7"}


def _go_on(lake: HandLake, sending: threading.Event) -> None:
    number = 0
    while not sending.wait(0.02):
        number += 1
        lake.send([make_event("more", number)], tenant="busy")
