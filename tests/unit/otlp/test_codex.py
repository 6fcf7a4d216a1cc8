"""What Codex sends, and the records of the GenAI conventions."""

import json
from typing import Any

from tests.support.spans import TRACE, Row, events_of, logs, record, span, story, traces

SPAN = "00f067aa0ba902b7"


def event(name: str, number: int, **values: Any) -> Row:
    told = {"event.name": f"codex.{name}", "conversation.id": "cx-1", "app.version": "0.153.3",
            "user.account_id": "u-1", "model": "gpt-5", "slug": "gpt-5-codex"}  # fmt: skip
    named = {key.replace("__", "."): value for key, value in values.items()}
    place = "event otel/src/events/session_telemetry.rs:1089"
    return record(told | named, at_ms=100 * number, eventName=place)


def sent() -> list[Row]:
    return [
        event("conversation_starts", 1, approval_policy="never", reasoning_effort="high"),
        event("user_prompt", 2, prompt="fix it", prompt_length="6"),
        event("api_request", 3, attempt=0, duration_ms="100", http__response__status_code=200),
        event("sse_event", 4, event__kind="response.output_item.done", duration_ms="5"),
        event("sse_event", 5, event__kind="response.completed", input_token_count="90",
              output_token_count="7", cached_token_count=60, reasoning_token_count=3),
        event("tool_decision", 6, tool_name="shell", call_id="c-1", decision="approved",
              source="config"),
        event("tool_result", 7, tool_name="shell", call_id="c-1", arguments='{"cmd": "ls"}',
              duration_ms="12", success="true", output="a.py"),
        event("sse_event", 8, event__kind="response.completed", input_token_count="100",
              output_token_count="9"),
        event("agent_response", 9, agent__type="main", item__id="i-1", response="fixed"),
        event("websocket_event", 9, event__kind="x"),
    ]  # fmt: skip


def test_a_session_of_codex() -> None:
    document = logs(sent(), {"service.name": "codex_cli_rs"})
    assert story(document) == [
        ("user_message", "fix it"),
        ("model_call", None),
        ("x_tool_decision", None),
        ("tool_result", "a.py"),
        ("model_call", "fixed"),
    ]
    events = events_of(document)
    assert {made["session_id"] for made in events} == {"cx-1"}
    assert events[1]["checkpoint"] == "gpt-5-codex"
    assert events[1]["payload"]["usage"] == {
        "prompt": 90, "completion": 7, "cached": 60, "thinking": 3,
    }  # fmt: skip
    assert events[4]["payload"]["usage"]["completion"] == 9
    result = events[3]["payload"]
    assert (result["ok"], result["duration_ms"]) == (True, 12)
    assert result["arguments"] == {"cmd": "ls"}


def test_a_last_answer_in_another_batch_is_told_by_itself() -> None:
    records = sent()
    document = [logs(records[:8]), logs(records[8:])]
    assert [said for kind, said in story(*document) if kind == "model_call"] == [
        None, None, "fixed",
    ]  # fmt: skip


def test_what_fails_is_an_error_and_a_person_who_refuses_is_heard() -> None:
    records = [
        event("api_request", 1, error__message="429", http__response__status_code=429, attempt=3),
        event("sse_event", 2, event__kind="response.failed", error__message="cut off"),
        event("tool_decision", 3, tool_name="shell", call_id="c-1", decision="denied",
              source="User"),
    ]  # fmt: skip
    assert [kind for kind, _ in story(logs(records))] == ["error", "error", "feedback"]


def test_one_record_with_all_of_a_call() -> None:
    """The span has the rest: it is a step."""
    told = {
        "event.name": "gen_ai.client.inference.operation.details",
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}],
        "gen_ai.output.messages": [
            {"role": "assistant", "parts": [{"type": "text", "content": "hello"}]}
        ],
    }
    ids = {"traceId": TRACE, "spanId": f"{1:016x}"}
    values = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5}
    scope = "opentelemetry.instrumentation.openai_v2"
    records = logs([record(told, at_ms=100) | ids], scope=scope)
    documents = [traces([span(1, values)], scope=scope), records]
    expected = [("user_message", "hi"), ("model_call", "hello"), ("x_span", "llm")]
    assert sorted(story(*documents)) == sorted(story(*reversed(documents)))
    assert sorted(map(str, story(*documents))) == sorted(map(str, expected))


def test_a_record_for_each_message() -> None:
    ids = {"traceId": TRACE, "spanId": SPAN}

    def message(name: str, at_ms: int, **body: Any) -> Row:
        return record({"gen_ai.system": "openai"}, at_ms=at_ms, body=body,
                      eventName=f"gen_ai.{name}") | ids  # fmt: skip

    records = [
        message("system.message", 1, content="Be brief."),
        message("user.message", 2, content="what is here?"),
        message("assistant.message", 3, tool_calls=[{
            "id": "c-1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]),
        message("tool.message", 4, content="a.py", id="c-1"),
        message("choice", 5, index=0, finish_reason="stop",
                message={"role": "assistant", "content": "one file"}),
    ]  # fmt: skip
    document = logs(records, scope="opentelemetry.instrumentation.openai_v2")
    assert story(document, document) == [
        ("user_message", "what is here?"),
        ("tool_result", "a.py"),
        ("model_call", "one file"),
    ]
    assert events_of(document)[-1]["payload"]["finish_reason"] == "stop"


def test_calls_below_one_span_are_apart_and_a_request_is_none() -> None:
    name = "gen_ai.client.inference.operation.details"
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])
    common = {"event.name": name, "session.id": "g-1", "gen_ai.input.messages": asked}

    def gave(number: int, said: str) -> Row:
        part = {"type": "text", "content": said}
        told = {"gen_ai.response.id": f"r-{number}", "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [part], "finish_reason": "stop"}])}  # fmt: skip
        return record(common | told, at_ms=100 * number)

    records = [record(common), gave(1, "hello"), gave(2, "again")]
    document = logs([each | {"traceId": TRACE, "spanId": SPAN} for each in records])
    assert story(document) == [
        ("user_message", "hi"), ("model_call", "hello"), ("model_call", "again"),
    ]  # fmt: skip


def test_lines_of_other_logs_are_not_stored() -> None:
    lines = [record({"http.route": "/"}, body="GET /"), record({}, body="x", traceId=TRACE)]
    assert story(logs(lines)) == []
