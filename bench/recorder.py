"""The recorder: what importing it takes, and what an event costs the agent."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from bench.traffic import make_traffic
from penstock.ingest.recorder.recorder import Recorder

_EVENTS = 10_000
_ROUNDS = 5
_NOBODY = "http://127.0.0.1:9"
_STARTS = 7
_MIB = 1024 * 1024
_IMPORT = Goal(what="CPU time of its import", at_most=30, unit=" ms")


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    """Into the spool, as while the service is away: of the other way the agent notices no more."""
    starts = [
        (_start_ms("pass"), _start_ms("import penstock; penstock.Recorder")) for _ in range(_STARTS)
    ]
    took_ms = statistics.median(loaded - bare for bare, loaded in starts)
    yield _IMPORT.figure(took_ms)
    bodies = make_traffic(size.of(_EVENTS, 100)).plain
    events = [json.loads(line) for body in bodies for line in body.splitlines()]
    alone, called, whole = [], [], []
    for number in range(_ROUNDS):
        alone.append(_cpu_us(len(events), partial(_write, events), time.thread_time))
        recorder = Recorder(
            _NOBODY, spool=here / str(number), memory_bytes_max=256 * _MIB, mask=False
        )
        started = time.process_time()
        called.append(_cpu_us(len(events), partial(_record, recorder, events), time.thread_time))
        recorder.close(60)
        whole.append(1e6 * (time.process_time() - started) / len(events))
        assert not recorder.counts().dropped
    yield Figure("  an event as JSON, by json.dumps alone", f"{statistics.median(alone):.1f} µs")
    yield Figure("  the agent's call that records it", f"{statistics.median(called):.1f} µs")
    yield Figure(
        "  with packing and the spool, by other threads", f"{statistics.median(whole):.1f} µs"
    )


def _cpu_us(events: int, work: Callable[[], None], clock: Callable[[], float]) -> float:
    started = clock()
    work()
    return 1e6 * (clock() - started) / events


def _write(events: list[dict[str, Any]]) -> None:
    for event in events:
        json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _record(recorder: Recorder, events: list[dict[str, Any]]) -> None:
    for event in events:
        recorder.record(event["session_id"], event["type"], event["payload"])


def _start_ms(program: str) -> float:
    script = f"import time; {program}; print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return 1000 * float(done.stdout)


MEASUREMENT = Measurement(
    name="recorder",
    title="The recorder",
    about="""
What `penstock.Recorder` takes of an agent: to import it, and to record an event while the service
is away, so that all goes into the spool.
""",
    goals=(_IMPORT,),
    run=_measure,
)
