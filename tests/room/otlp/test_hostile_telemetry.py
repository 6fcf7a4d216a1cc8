"""Whatever stands under names that dialects read: events, or a reason, and never an error."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock.ingest.otlp
from penstock.ingest.otlp import json_form
from penstock.ingest.otlp.conversion import TelemetryBatch
from tests.support.spans import Row, converted, logs, metric, metrics, record, span, traces

SOURCES = Path(penstock.ingest.otlp.__file__).parent
#: All texts of the sources that may be names of attributes or of fields.
NAMES = sorted({
    name
    for file in SOURCES.rglob("*.py")
    for name in re.findall(r'"([\w.]+)"', file.read_text())
})  # fmt: skip
WORDS = ["chat", "execute_tool", "LLM", "TOOL", "llm", "tool", "generation", "ai.toolCall",
         "ai.x.doGenerate", '"LLM"', '"TOOL"', "true", "reject", "response.completed", "assistant",
         "user", "system", "tool_call", "text", "reasoning"]  # fmt: skip
KINDS = ["gen_ai.operation.name", "openinference.span.kind", "langsmith.span.kind",
         "langfuse.observation.type", "mlflow.spanType", "ai.operationId",
         "traceloop.span.kind"]  # fmt: skip
TREES = ["llm.input_messages.", "llm.output_messages.", "gen_ai.prompt.", "gen_ai.completion.",
         "llm.tools.", "llm.request.functions."]  # fmt: skip
STEPS = ["0", "1", "message", "role", "content", "tool_calls", "tool_call", "contents",
         "message_content", "tool", "json_schema", "function", "name", "text", ""]  # fmt: skip
EVENTS = [name for name in NAMES if name.startswith("gen_ai.")] + ["exception", "tool.output"]
RECORDS = [
    *(f"claude_code.{name}" for name in NAMES if "." not in name),
    *(f"codex.{name}" for name in NAMES if "." not in name),
    *(name for name in NAMES if name.startswith("gen_ai.")),
]
METRICS = [name for name in NAMES if name.startswith(("copilot_chat.", "claude_code.", "cursor."))]


class Junk:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        chance = self._chance
        makers: list[Callable[[], Any]] = [
            lambda: chance.choice([True, False, 0, -1, 2**63 - 1, 1.5, -2.5, 1e308, "", "[", "\0"]),
            lambda: chance.choice(WORDS),
            lambda: chance.choice(NAMES),
            lambda: "[" * 150 + "]" * 150,
        ]
        if depth < 4:
            makers += [
                lambda: [self.value(depth + 1) for _ in range(chance.randrange(4))],
                lambda: {
                    chance.choice(NAMES): self.value(depth + 1) for _ in range(chance.randrange(6))
                },
                lambda: json.dumps(self.value(depth + 1)),
                lambda: json.dumps(self.value(depth + 1))[: chance.randrange(1, 30)],
            ]
        return chance.choice(makers)()

    def attributes(self) -> Row:
        chance = self._chance
        held = {chance.choice(NAMES): self.value() for _ in range(chance.randrange(12))}
        held |= {kind: chance.choice(WORDS) for kind in KINDS if chance.random() < 0.3}
        for tree in TREES:
            for _ in range(chance.randrange(3)):
                path = ".".join(chance.choice(STEPS) for _ in range(chance.randrange(1, 5)))
                held[tree + path] = self.value()
        return held

    def span(self) -> Row:
        chance = self._chance
        events = [(chance.choice(EVENTS), self.attributes()) for _ in range(chance.randrange(3))]
        name = chance.choice(["claude_code.tool", "claude_code.llm_request", "chat", "x"])
        return span(chance.randrange(1, 9), self.attributes(), events=events, name=name,
                    at_ms=chance.choice([-10**15, 0, 5, 10**15]),
                    status={"code": chance.choice([0, 2])})  # fmt: skip

    def record(self) -> Row:
        held = self.attributes() | {"session.id": "s"}
        return record(held, body=self.value(), eventName=self._chance.choice(RECORDS))


@pytest.mark.parametrize("seed", range(2))
def test_no_value_breaks_a_dialect(seed: int) -> None:
    junk = Junk(seed)
    for number in range(200):
        spans = traces([junk.span() for _ in range(3)], junk.attributes())
        scope = "cursor.telemetry" if number % 3 else "scope"
        document = logs([junk.record() for _ in range(4)], scope=scope)
        points = [(junk.attributes(), {"asDouble": junk.value()}) for _ in range(4)]
        measured = metrics([metric(METRICS[number % len(METRICS)], *points)], junk.attributes())
        batch = TelemetryBatch(5)
        told = [
            *batch.spans(json_form.spans_of(spans)),
            *batch.logs(json_form.logs_of(document)),
            *batch.metrics(json_form.metrics_of(measured)),
        ]
        assert {each.place for each in told} == {1, 2, 3, 4}
        for each in told:
            for event in each.events:
                msgspec.json.encode(event)


@pytest.mark.parametrize("depth", [300, 900, 5_000, 200_000])
def test_json_in_a_text_may_nest_as_deep_as_it_likes(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"content":' * depth + "1" + "}" * depth):
        values = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": text,
                  "gen_ai.output.messages": text}  # fmt: skip
        [each] = converted(traces([span(1, values)]))
        assert each.events or each.why == "it is nested too deep"
