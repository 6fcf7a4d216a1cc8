"""The recording proxy: what it adds to the first token of an answer and to each piece of a stream,
beside the same chat with the engine itself, and its memory under many streams.

Requests take turns, one here and one there, so that a noisy machine slows both. What is added is
the difference of the same percentile.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from tests.support.recording_proxy import RecordingProxy, recording_proxy

_ROUNDS = 200
_TOKENS = 60
_PACE_S = 0.002
_STREAMS = 1_000
_STREAM_TOKENS = 20
_STREAM_PACE_S = 2.0
#: A long history: in the scripted engine each byte is a token.
_HISTORY_BYTES = 50_000
_FIRST = Goal(what="  added at p99", at_most=5, unit=" ms")
_TRANSLATED = Goal(what="  added to the first token, at p99", at_most=10, unit=" ms")
_PIECE = Goal(what="  added from piece to piece, at p99", at_most=1, unit=" ms")
_MEMORY = Goal(what="  with many streams at once", at_most=500, unit=" MiB")


class Times(NamedTuple):
    first_ms: float
    #: From one piece to the next.
    pieces_ms: list[float]
    bytes: int


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    yield from _added(here, size.of(_ROUNDS, 4))
    yield from _held(here, size.of(_STREAMS, 20))


class Protocol(NamedTuple):
    """A way to ask: where, by which names, and how the first token of an answer looks."""

    path: str
    tokens: str
    messages: str
    mark: bytes


_CHAT = Protocol("/v1/chat/completions", "max_tokens", "messages", b'"content":"x')
_MESSAGES = Protocol("/v1/messages", "max_tokens", "messages", b'"text_delta"')
_RESPONSES = Protocol(
    "/v1/responses", "max_output_tokens", "input", b'"response.output_text.delta"'
)


def _added(here: Path, rounds: int) -> Iterator[Figure]:
    for name, kind, protocol in (
        ("asked for tokens", "vllm", _CHAT),
        ("Claude Code's protocol", "vllm", _MESSAGES),
        ("Codex's protocol", "vllm", _RESPONSES),
        ("passed on as it is", "plain", _CHAT),
    ):
        asks = b'"return_token_ids":true,"logprobs":true,' if kind == "vllm" else b""
        with _engine(kind) as url, recording_proxy(url, here / name[:5]) as proxy:
            yield Figure(f"proxy, {name}", "")
            yield from _latency(url, proxy, protocol, rounds, asks)


def _held(here: Path, streams: int) -> Iterator[Figure]:
    with _engine("vllm") as url, recording_proxy(url, here / "many") as proxy:
        yield from _memory(proxy, streams)


def _latency(
    url: str, proxy: RecordingProxy, protocol: Protocol, rounds: int, asks: bytes
) -> Iterator[Figure]:
    """Measure. `asks` is for the direct calls: what it costs an engine to say tokens is not the
    proxy's."""
    started_s = _cpu_s(proxy.process.pid)
    direct, passed = asyncio.run(_paired(url, proxy.url, protocol, rounds, asks))
    cpu_s = _cpu_s(proxy.process.pid) - started_s
    yield Figure("  first token, direct, median", _ms([t.first_ms for t in direct]))
    added = [p.first_ms - d.first_ms for d, p in zip(direct, passed, strict=True)]
    yield Figure("  added, median of pairs", f"{statistics.median(added):.2f} ms")
    first = _percentile([t.first_ms for t in passed], 99) - _percentile(
        [t.first_ms for t in direct], 99
    )
    yield (_FIRST if protocol is _CHAT else _TRANSLATED).figure(first)
    here = [ms for times in passed for ms in times.pieces_ms]
    there = [ms for times in direct for ms in times.pieces_ms]
    piece = _percentile(here, 99) - _percentile(there, 99)
    yield _PIECE.figure(piece)
    pieces = sum(len(times.pieces_ms) + 1 for times in passed)
    cpu = 1e6 * cpu_s / pieces
    yield Figure("  CPU of what passes them on, for each piece", f"{cpu:.0f} µs")


async def _paired(
    engine: str, proxy: str, protocol: Protocol, rounds: int, asks: bytes
) -> tuple[list[Times], list[Times]]:
    # What the measured calls go on from.
    await _stream(proxy, "/s/s-0", protocol, _body(protocol, _TOKENS, goes_on=False))
    direct: list[Times] = []
    passed: list[Times] = []
    for number in range(rounds):
        chat = _body(_CHAT, _TOKENS)
        pair = [
            (engine, "", _CHAT, b"{" + asks + chat[1:], direct),
            (proxy, f"/s/s-{number % 20}", protocol, _body(protocol, _TOKENS), passed),
        ]
        for url, prefix, asked, content, times in pair if number % 2 else reversed(pair):
            times.append(await _stream(url, prefix, asked, content))
    return direct, passed


def _memory(proxy: RecordingProxy, streams: int) -> Iterator[Figure]:
    bare = _resident_mib(proxy.process.pid)
    yield Figure("proxy: memory at rest", f"{bare:.0f} MiB")
    yield _MEMORY.figure(asyncio.run(_many(proxy, streams)), f"{streams:,} of them")


async def _many(proxy: RecordingProxy, count: int) -> float:
    body = _body(_CHAT, _STREAM_TOKENS, pace_s=_STREAM_PACE_S, goes_on=False)
    streams = [
        asyncio.create_task(_stream(proxy.url, f"/s/m-{number}", _CHAT, body, wait_s=900))
        for number in range(count)
    ]
    highest, most = 0.0, 0
    while not all(stream.done() for stream in streams):
        highest = max(highest, _resident_mib(proxy.process.pid))
        most = max(most, (await asyncio.to_thread(proxy.status))["open"])
        await asyncio.sleep(0.5)
    for stream in streams:
        stream.result()
    assert most >= count * 0.95, f"only {most} at once"
    return highest


def _body(
    protocol: Protocol, tokens: int, *, pace_s: float = _PACE_S, goes_on: bool = True
) -> bytes:
    """Ask for so many tokens, behind a long history or a short one."""
    text = "x" * (_HISTORY_BYTES if tokens == _TOKENS else 2_000)
    messages = [{"role": "user", "content": text}]
    if goes_on:
        messages.append({"role": "assistant", "content": "x" * tokens})
        messages.append({"role": "user", "content": "go on"})
    body = {"model": "m", "stream": True, "pace_s": pace_s, protocol.tokens: tokens}
    return json.dumps(body | {protocol.messages: messages}).encode()


async def _stream(
    url: str, prefix: str, protocol: Protocol, body: bytes, wait_s: float = 300
) -> Times:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {prefix}{protocol.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    began_s = time.perf_counter()
    writer.write(head.encode() + body)
    async with asyncio.timeout(wait_s):
        begin = b""
        while protocol.mark not in begin and (piece := await reader.read(65_536)):
            begin += piece
        size = len(begin)
        last_s = time.perf_counter()
        first_ms, pieces = 1e3 * (last_s - began_s), []
        while not (piece := await reader.read(65_536)).endswith(b"0\r\n\r\n") and piece:
            now_s = time.perf_counter()
            pieces.append(1e3 * (now_s - last_s))
            last_s, size = now_s, size + len(piece)
    writer.close()
    return Times(first_ms, pieces, size)


@contextmanager
def _engine(kind: str) -> Iterator[str]:
    module = "tests.support.servers.scripted_engine"
    command = [sys.executable, "-m", module, kind, str(_PACE_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def _ms(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ms"


def _processes(pid: int) -> list[int]:
    """The proxy, and the process that records."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _resident_mib(pid: int) -> float:
    """Of all its processes; what they share counts once for each."""
    kib = 0
    for each in _processes(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return kib / 1024


def _cpu_s(pid: int) -> float:
    """Of the process that passes streams on."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


MEASUREMENT = Measurement(
    name="proxy",
    title="The recording proxy",
    about="""
Requests to the proxy and to a scripted engine itself take turns; each has a history
of 50,000 tokens, and an answer of 60 pieces. What is added is the difference of the same
percentile; Claude Code's and Codex's protocols stand beside the engine's own chat. Then a thousand
streams at once.
""",
    goals=(_FIRST, _TRANSLATED, _PIECE, _MEMORY),
    run=_measure,
    quick=False,
)
