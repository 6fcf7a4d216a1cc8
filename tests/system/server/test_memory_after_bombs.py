"""What bombs and huge answers made the service take, it gives back."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from penstock.core.settings import MIB
from tests.support.lakes import make_event

#: Python's own small objects keep some of it.
KEPT_BYTES_MAX = 48 * MIB


def test_memory_goes_back_after_bombs_and_huge_answers(start: Callable[..., Any]) -> None:
    packed = [
        pa.Codec("zstd").compress(content * (60 * MIB // len(content)), asbytes=True)
        for content in (b"[", b"[1,", b"x\n")
    ]
    large = json.dumps({"sql": f"select repeat('x', {57 * MIB}) as a"}).encode()
    with start() as service:
        events = [json.dumps(make_event("s", number)) for number in range(1_000)]
        service.post("/v1/events", "\n".join(events).encode())
        service.wait_for(lambda: service.metric("events_stored_total") == 1_000)
        assert service.query("select count(*) as n from events") == [{"n": 1_000}]
        before = service.resident_bytes()

        with ThreadPoolExecutor(8) as senders:
            bombs = [
                senders.submit(service.post, "/v1/events", body, key, Content_Encoding="zstd")
                for body in packed
                for key in ("admin", "bolt")
            ]
            answers = [
                senders.submit(service.post, "/v1/query", large, key)
                for key in ("admin", "bolt", "admin", "bolt")
            ]
        assert {bomb.result().status for bomb in bombs} <= {400, 413, 429}
        assert {answer.result().status for answer in answers} <= {200, 429}
        assert service.peak_bytes() - before > 2 * KEPT_BYTES_MAX, "or it shows nothing"
        service.wait_for(lambda: service.resident_bytes() - before < KEPT_BYTES_MAX)
