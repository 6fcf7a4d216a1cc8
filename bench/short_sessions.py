"""What it costs to build a shard from ever more short sessions with tokens of an engine: 16 events,
seven calls of the model and six of tools."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from penstock.core.settings import GIB, MIB
from tests.support.lakes import START_US, Event, body_of, hand_lake, make_event

#: The slope between the larger two tells of ten million: smaller ones differ by less memory than
#: the allocator's noise.
_SIZES = (1_600, 16_000, 160_000)
_AT_ONCE = 200
_FLUSHED = 4_000
_CALLS = 7
_VOCABULARY = range(150_000)
_SESSIONS_MAX = 10_000_000
#: Of a tiny size all may be within one tick of the clock.
_LEAST_S = 1e-9
_SPEED = Goal(what="  sessions per CPU second of the most", at_least=2_500)
_LINEAR = Goal(
    what="  CPU of one more session, when there are ten times as many", at_most=1.25, unit=" ×"
)
_MEMORY = Goal(what="  memory of ten million, by that", at_most=2, unit=" GiB")
_FACTS = {"user": "u", "repo": "r", "project": "p", "checkpoint": "ckpt-1", "consent": "train"}
_BUILD = """
import json, sys, time
from pathlib import Path
import os
from bench.shard_build import build
from bench.measure import usage_of
from tests.support.lakes import hand_lake
with hand_lake(Path(sys.argv[1])) as lake:
    before = usage_of(os.getpid())
    built = build(lake, Path(sys.argv[2]), 1)
    after = usage_of(os.getpid())
cost = {"cpu_s": after.cpu_s - before.cpu_s, "bytes": after.peak_bytes - before.peak_bytes}
print(json.dumps(cost | {"sessions": built.manifest.counts.sessions}))
"""


def _measure(size: Size, directory: Path) -> Iterator[Figure]:
    """Each size in a process of its own, for its memory."""
    costs, sizes = [], [size.of(sessions) for sessions in _SIZES]
    for sessions in sizes:
        lake = directory / f"short-{sessions}"
        make_lake(lake, sessions)
        command = [sys.executable, "-c", _BUILD, str(lake), str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        cost = json.loads(done.stdout.splitlines()[-1])
        assert cost["sessions"] == sessions
        costs.append(cost)
        yield Figure(
            f"building {sessions:,} sessions of 16 events, CPU for each",
            f"{1e6 * cost['cpu_s'] / sessions:.0f} µs",
        )
        yield Figure("  memory that it took", f"{cost['bytes'] / MIB:.0f} MiB")
    small, middle, large = costs
    yield _SPEED.figure(sizes[2] / large["cpu_s"])
    # What a build takes whatever it builds is in the first.
    marginal = (large["cpu_s"] - middle["cpu_s"]) / (sizes[2] - sizes[1])
    before = (middle["cpu_s"] - small["cpu_s"]) / (sizes[1] - sizes[0])
    yield _LINEAR.figure(marginal / max(before, _LEAST_S))
    grown = (large["bytes"] - middle["bytes"]) / (sizes[2] - sizes[1])
    yield Figure("  memory of one more session", f"{grown / 1024:.1f} KiB")
    yield _MEMORY.figure(grown * _SESSIONS_MAX / GIB)


def make_lake(directory: Path, sessions: int) -> None:
    with hand_lake(directory) as lake:
        for first in range(0, sessions, _AT_ONCE):
            numbers = range(first, min(sessions, first + _AT_ONCE))
            lake.send(b"".join(body_of(make_session(number)) for number in numbers))
            if first % _FLUSHED == 0:
                lake.writer().drain()
        lake.writer().drain()


def make_session(number: int) -> list[Event]:
    dice = random.Random(number)
    told: list[tuple[str, dict[str, Any]]] = [
        ("session_start", {"system": "You are an agent.", "tools": [{"name": "bash"}]}),
        ("user_message", {"text": f"Please fix the failing test of module {number}."}),
    ]
    context = dice.choices(_VOCABULARY, k=200)
    for call in range(_CALLS):
        written = dice.choices(_VOCABULARY, k=40)
        tokens = {
            "prompt_ids": [*context],
            "completion_ids": written,
            "logprobs": [round(-dice.expovariate(2.0), 4) for _ in written],
            "tokenizer": "t",
            "policy_version_runs": [[0, 1]],
        }
        payload: dict[str, Any] = {"call_id": f"c{call}", "model": "m", "finish_reason": "stop"}
        payload |= {"text": f"I look at file {call}.\n", "sampling": {"temperature": 1.0}}
        asks = call < _CALLS - 1
        if asks:
            arguments = {"command": f"pytest -x {call}"}
            payload["tool_calls"] = [{"id": f"t{call}", "name": "bash", "arguments": arguments}]
        told.append(("model_call", payload | {"tokens": tokens}))
        context += written
        if asks:
            output = "1 failed, 3 passed\n" * 4
            told.append(("tool_result", {"call_id": f"t{call}", "tool": "bash", "output": output}))
            context += dice.choices(_VOCABULARY, k=60)
    told.append(("session_end", {"reason": "completed"}))
    name = f"s-{number:07d}"
    facts = _FACTS | {"user": f"u{number % 997}", "repo": f"r{number % 97}"}
    return [
        make_event(
            name, at, kind, payload=payload, event_id=f"{name}-{at}",
            ts=START_US + 1_000 * number + 1_000_000 * at, **facts,
        )
        for at, (kind, payload) in enumerate(told)
    ]  # fmt: skip


MEASUREMENT = Measurement(
    name="short-sessions",
    title="Building from short sessions",
    about="""
Sessions of 16 events with tokens of an engine, seven calls of the model and six of tools, 840
tokens each: a whole build of a shard, of sizes that grow tenfold twice, each in a
process of its own.
""",
    goals=(_SPEED, _LINEAR, _MEMORY),
    run=_measure,
)
