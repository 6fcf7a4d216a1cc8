"""Long values that an exporter sent in parts."""

import json
from typing import Any

from tests.support.spans import Row, events_of, logs, span, story, traces
from tests.unit.otlp.test_claude_code import RESOURCE, SAID, batch, event, kinds, payload, told

BODY = json.dumps({"content": SAID, "model": "claude-opus-5"})


def parts(number: int, text: str, count: int = 3) -> list[Row]:
    size = -(-len(text) // count)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [
        event("api_response_body", number, request_id="r-1", chunkContextId="x", chunkKey="body",
              chunkIndex=place, totalChunks=count, chunk=piece)
        for place, piece in enumerate(pieces, 1)
    ]  # fmt: skip


def test_a_body_in_several_records_is_read_whole_in_any_order() -> None:
    first, second, third = parts(2, BODY)
    for records in ([first, second, third], [third, first, second]):
        events = told(batch(*records))
        assert kinds(events) == ["model_call"]
        assert payload(events, "model_call")["text"] == "I run it."


def test_a_body_with_parts_missing_is_marked() -> None:
    events = told(batch(*parts(2, BODY)[:2]))
    assert kinds(events) == ["x_claude_code_api_response_body"]


def test_a_value_in_events_of_its_span_is_read_whole() -> None:
    said = json.dumps([{"role": "assistant", "content": "hello " * 50}])
    pieces: list[tuple[str, Any]] = [
        ("chunk", {"chunkKey": "gen_ai.output.messages", "chunkIndex": place, "totalChunks": 2,
                   "chunk": piece})
        for place, piece in ((2, said[100:]), (1, said[:100]))
    ]  # fmt: skip
    values = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said[:100]}
    document = traces([span(1, values, events=pieces)])
    assert story(document) == [("model_call", "hello " * 50)]
    assert "cut" not in events_of(document)[0]["payload"]


def test_parts_of_no_agent_are_not_stored() -> None:
    line = event("x", 1) | {"attributes": []}
    assert story(logs([line], RESOURCE)) == []
