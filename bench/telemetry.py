"""OTLP beside events that say the same: spans of conversations, and what becomes of them.

`make phoenix` measures the same beside Phoenix."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure, Goal
from bench.ingest_run import Form, ingest_at_full_speed
from bench.measurement import Measurement, Size
from penstock.ingest.otlp.conversion import TelemetryBatch
from penstock.ingest.otlp.protobuf import read_spans
from tests.support.spans import as_protobuf, span, traces

_SESSIONS = 400
_TURNS = 12
_SPANS_PER_BODY = 100
#: The price of OTLP: what is told is decoded, read by its dialect, and written as lines.
_TIMES = Goal(what="  times the CPU of the same as events", at_most=4)
#: Of 1,000 of these spans, measured by `make phoenix`.
_COST = Goal(what="CPU of 1,000 spans, durable and in Parquet", at_most=3.5, unit=" s")
_TEXT = "The function reads the whole file before it looks at the first line. " * 6


AS_SPANS = Form("/v1/traces", {
    "Content_Encoding": "gzip", "Content_Type": "application/x-protobuf",
})  # fmt: skip
_AS_EVENTS = Form(headers={"Content_Encoding": "gzip", "Content_Type": "application/x-ndjson"})


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    spans, bodies = span_bodies(size.of(_SESSIONS))
    lines = [_lines(body) for body in bodies]
    by_spans = ingest_at_full_speed(here / "spans", [gzip.compress(b, 6) for b in bodies], AS_SPANS)
    by_events = ingest_at_full_speed(
        here / "events", [gzip.compress(b, 6) for b in lines], _AS_EVENTS
    )
    per_span = 1000 * by_spans.cpu_s / spans
    yield _COST.figure(per_span)
    yield Figure("  spans a second", f"{spans / by_spans.wall_s:,.0f}")
    yield Figure("  bytes of a span", f"{sum(map(len, bodies)) / spans:,.0f}")
    times = by_spans.cpu_s / by_events.cpu_s
    yield _TIMES.figure(times)


def span_bodies(sessions: int, first: int = 0) -> tuple[int, list[bytes]]:
    """How many spans, and bodies of them; other sessions than those before `first`."""
    spans = [each for session in range(first, first + sessions) for each in _conversation(session)]
    return len(spans), [
        as_protobuf(traces(spans[at : at + _SPANS_PER_BODY]))
        for at in range(0, len(spans), _SPANS_PER_BODY)
    ]


def _conversation(session: int) -> Iterator[dict[str, Any]]:
    """Calls of a model that repeat all that was said before, each with a run of a tool."""
    messages: list[dict[str, Any]] = [_message("user", f"{session}: {_TEXT}")]
    for turn in range(_TURNS):
        call = {"type": "tool_call", "id": f"c-{turn}", "name": "read", "arguments": {"n": turn}}
        answer = {"role": "assistant", "parts": [{"type": "text", "content": _TEXT}, call]}
        common = {"gen_ai.conversation.id": f"s-{session}", "gen_ai.request.model": "coder"}
        chat = common | {
            "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 900,
            "gen_ai.usage.output_tokens": 90, "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps([answer]),
        }  # fmt: skip
        tool = common | {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "read",
            "gen_ai.tool.call.id": f"c-{turn}", "gen_ai.tool.call.result": _TEXT,
        }  # fmt: skip
        number = (session * _TURNS + turn) * 2 + 1
        yield span(number, chat, at_ms=turn * 1000)
        yield span(number + 1, tool, at_ms=turn * 1000 + 500)
        result = {"type": "tool_call_response", "id": f"c-{turn}", "response": _TEXT}
        messages = [*messages, answer, {"role": "tool", "parts": [result]}]


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _lines(body: bytes) -> bytes:
    converted = TelemetryBatch(0).spans(read_spans(body))
    return b"\n".join(msgspec.json.encode(event) for each in converted for event in each.events)


MEASUREMENT = Measurement(
    name="telemetry",
    title="OTLP",
    about="""
Spans of conversations that repeat all that was said before, and the same as events, each into a
server of its own at full speed. `make phoenix` measures the same spans beside Phoenix.
""",
    goals=(_COST, _TIMES),
    run=_measure,
    quick=False,
)
