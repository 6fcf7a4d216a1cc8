"""How soon those who watch a channel know of a promotion: from its commit to the last byte of the
answer to each long poll."""

import asyncio
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from bench.figures import Figure, Goal
from bench.measure import percentile
from bench.measurement import Measurement, Size
from bench.servers import quiet_server
from penstock.backends.database.engine import Database
from penstock.core.settings import load_settings
from penstock.registry.channels import promotion
from penstock.registry.channels.promotion import Promotion
from penstock.registry.checkpoints.registration import register
from penstock.registry.gate.verdict import Verdict
from penstock_jobs.simulator.demo.server import Server
from tests.support.waiting import eventually

_WATCHERS = 50
_PROMOTIONS = 200
_PAUSE_SECONDS = 0.05
_CHECKPOINTS = ("ckpt-a", "ckpt-b")
_P99 = Goal(what="  p99", at_most=100, unit=" ms")


def _measure(size: Size, data: Path) -> Iterator[Figure]:
    with quiet_server(data) as server:
        settings = load_settings(data, {})
        database = Database.of(settings)
        try:
            for name in _CHECKPOINTS:
                digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
                register(
                    database, settings, tenant="default", name=name, digest=digest, actor="bench",
                    uri=f"https://models.example.com/{name}",
                )  # fmt: skip
            delays = asyncio.run(_promoted(server, database, size.of(_PROMOTIONS, 4)))
        finally:
            database.close()
    each = [1000 * one for some in delays for one in some]
    last = [1000 * max(some) for some in delays]
    yield Figure(
        f"a promotion, to each of {_WATCHERS} watchers: median", f"{percentile(each, 0.5):.0f} ms"
    )
    yield _P99.figure(percentile(each, 0.99))
    yield Figure("  to the last of them, p99", f"{percentile(last, 0.99):.0f} ms")


async def _promoted(server: Server, database: Database, promotions: int) -> list[list[float]]:
    """For each promotion how long it took to each watcher."""
    committed: list[float] = []
    heard: list[dict[int, float]] = [{} for _ in range(_WATCHERS)]
    sa.event.listen(database.engine, "commit", lambda _: committed.append(time.perf_counter()))
    await asyncio.to_thread(_promote, database, 0)
    watchers = [asyncio.create_task(_watch(server, one, promotions)) for one in heard]
    await asyncio.to_thread(eventually, lambda: _waiting(server) == _WATCHERS)
    for number in range(1, promotions + 1):
        await asyncio.sleep(_PAUSE_SECONDS)
        await asyncio.to_thread(_promote, database, number)
    await asyncio.gather(*watchers)
    return [
        [one[version] - committed[version - 1] for one in heard]
        for version in range(2, promotions + 2)
    ]


def _waiting(server: Server) -> float:
    with server.client() as client:
        lines = client.get("/metrics").body.decode().splitlines()
    [found] = [line for line in lines if line.startswith("penstock_channel_waiters ")]
    return float(found.split()[1])


def _promote(database: Database, number: int) -> None:
    wanted = Promotion(
        tenant="default", channel="production", checkpoint=_CHECKPOINTS[number % 2],
        reason="to be measured", actor="bench",
    )  # fmt: skip
    promotion.promote(database, wanted, _passing)


def _passing(channel: str, checkpoint: str) -> Verdict:
    return Verdict("PASS", channel, checkpoint, {"channel": channel, "checkpoint": checkpoint})


async def _watch(server: Server, heard: dict[int, float], promotions: int) -> None:
    """One watcher, which asks again as soon as it was told."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    after = 1
    while after <= promotions:
        writer.write(
            f"GET /v1/channels/production?after={after}&wait=30 HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {server.key}\r\n\r\n".encode()
        )
        answer = await _answer(reader)
        now = time.perf_counter()
        heard.update({one["version"]: now for one in answer["changes"]})
        after = answer["next"]
    writer.close()
    await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    [length] = [line for line in head.splitlines() if line.startswith("content-length:")]
    body = await reader.readexactly(int(length.split(":")[1]))
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


MEASUREMENT = Measurement(
    name="promotion-notice",
    title="A promotion, to its watchers",
    about="""
From a promotion's commit to the last byte of the answer to each long poll of fifty
watchers.
""",
    goals=(_P99,),
    run=_measure,
)
