"""What Claude Code sends, by each of its variables: each call, result and prompt once."""

import json
from typing import Any

from penstock.ingest.otlp.conversion import TelemetryBatch
from penstock.ingest.otlp.log_batch import SessionNotes
from tests.support.spans import BEGAN_US, TRACE, Row, converted, logs, record, span, traces

RESOURCE = {"service.name": "claude-code", "service.version": "2.1.214"}
SCOPE = "com.anthropic.claude_code.events"


def event(name: str, number: int, **values: Any) -> Row:
    told = {"session.id": "cc-1", "user.id": "u-1", "user.email": "a@b.example",
            "event.name": name, "event.sequence": number, "prompt.id": "p-1"}  # fmt: skip
    named = {key.replace("__", "."): value for key, value in values.items()}
    return record(told | named, at_ms=100 * number, body=f"claude_code.{name}")


def prompt(number: int = 1) -> Row:
    return event("user_prompt", number, prompt="fix the test", prompt_length="12")


def request(number: int, request_id: str) -> Row:
    return event("api_request", number, model="claude-opus-5", cost_usd=0.02, duration_ms="900",
                 input_tokens="10", output_tokens="7", cache_read_tokens="80",
                 cache_creation_tokens="5", request_id=request_id)  # fmt: skip


def response(number: int, request_id: str, said: str) -> Row:
    return event("assistant_response", number, model="claude-opus-5", response=said,
                 request_id=request_id)  # fmt: skip


def ran(number: int) -> Row:
    return event("tool_result", number, tool_name="Bash", tool_use_id="t-1", success="false",
                 duration_ms="31", error_type="ShellError",
                 tool_input='{"command": "make test"}')  # fmt: skip


ASKED = {"role": "user", "content": "fix the test"}
SAID: list[Row] = [
    {"type": "text", "text": "I run it."},
    {"type": "tool_use", "id": "t-1", "name": "Bash", "input": {"command": "make test"}},
]
CALLED = {"role": "assistant", "content": SAID}
TOLD = {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "t-1", "content": "1 failed", "is_error": True},
    {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
]}  # fmt: skip


def asked_body(number: int, *messages: Row) -> Row:
    body = {"model": "claude-opus-5", "messages": list(messages),
            "system": [{"type": "text", "text": "You are a coder."}],
            "tools": [{"name": "Bash", "input_schema": {}}]}  # fmt: skip
    return event("api_request_body", number, body=json.dumps(body), model="claude-opus-5")


def gave_body(number: int, request_id: str, *content: Row) -> Row:
    body = {"id": "msg-1", "model": "claude-opus-5", "content": list(content),
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 7, "cache_read_input_tokens": 80,
                      "cache_creation_input_tokens": 5}}  # fmt: skip
    return event("api_response_body", number, body=json.dumps(body), request_id=request_id)


def told(*batches: Row, full: SessionNotes | None = None) -> list[Row]:
    full = full or SessionNotes()
    events: dict[str, Row] = {}
    for document in batches:
        for each in converted(document, TelemetryBatch(BEGAN_US, "acme", full)):
            assert each.why is None
            for made in each.events:
                events.setdefault(made["event_id"], made)
    return sorted(events.values(), key=lambda made: made["ts"])


def kinds(events: list[Row]) -> list[str]:
    return [made["type"] for made in events if made["type"] != "session_start"]


def payload(events: list[Row], kind: str) -> Row:
    [found] = [made["payload"] for made in events if made["type"] == kind]
    return dict(found)


def batch(*records: Row) -> Row:
    return logs(records, RESOURCE, SCOPE)


def test_what_it_sends_by_default() -> None:
    events = told(batch(prompt(), request(2, "r-1"), ran(3), request(4, "r-2")))
    assert kinds(events) == ["user_message", "model_call", "tool_result", "model_call"]
    assert {made["session_id"] for made in events} == {"cc-1"}
    assert {made["user"] for made in events} == {"u-1"}
    start = events[0]["payload"]
    assert (start["client"], start["client_version"]) == ("claude-code", "2.1.214")
    first = events[2]["payload"]
    assert first["usage"] == {"prompt": 95, "completion": 7, "cached": 80}
    assert (first["latency_ms"], first["cost_usd"]) == (900, 0.02)
    assert events[2]["checkpoint"] == "claude-opus-5"
    result = payload(events, "tool_result")
    assert (result["ok"], result["call_id"], result["output"]) == (False, "t-1", "ShellError")
    assert result["arguments"] == {"command": "make test"}
    assert "a@b.example" not in str(events)


def test_texts_of_answers_join_what_the_request_cost() -> None:
    events = told(batch(prompt(), request(2, "r-1"), response(2, "r-1", "done")))
    assert kinds(events) == ["user_message", "model_call"]
    call = payload(events, "model_call")
    assert (call["text"], call["usage"]["completion"], call["call_id"]) == ("done", 7, "r-1")


def test_a_text_that_comes_in_another_batch_is_not_lost() -> None:
    events = told(batch(request(2, "r-1")), batch(response(2, "r-1", "done")))
    assert [made["payload"].get("text") for made in events[1:]] == [None, "done"]


def test_bodies_tell_calls_and_results_in_full() -> None:
    done = {"type": "text", "text": "It fails."}
    events = told(
        batch(prompt(), asked_body(2, ASKED), gave_body(3, "r-1", *SAID),
              request(3, "r-1"), response(3, "r-1", "I run it.")),
        batch(ran(4)),
        batch(asked_body(5, ASKED, CALLED, TOLD), gave_body(6, "r-2", done), request(6, "r-2")),
    )  # fmt: skip
    calls = [made["payload"] for made in events if made["type"] == "model_call"]
    assert [call["text"] for call in calls] == ["I run it.", "It fails."]
    assert calls[0]["tool_calls"][0]["arguments"] == {"command": "make test"}
    assert calls[0]["usage"] == {"prompt": 95, "completion": 7, "cached": 80}
    result = payload(events, "tool_result")
    assert (result["call_id"], result["output"], result["ok"]) == ("t-1", "1 failed", False)
    assert kinds(events).count("user_message") == 1
    assert [call["latency_ms"] for call in calls] == [900, 900]
    assert [kind for kind in kinds(events) if kind.startswith("x_")] == [
        "x_claude_code_tool_result"
    ]
    systems = [made["payload"] for made in events if made["payload"].get("system")]
    assert [(each["system"], len(each["tools"])) for each in systems] == [("You are a coder.", 1)]


def test_a_body_that_was_cut_or_lies_elsewhere_is_no_call() -> None:
    cut = event("api_response_body", 3, body='{"content": [{"ty', body_truncated="true",
                body_length="70000", request_id="r-1")  # fmt: skip
    filed = event("api_response_body", 4, body_ref="/tmp/x.json", request_id="r-2")
    events = told(batch(cut, request(3, "r-1"), filed))
    [call] = [made for made in events if made["type"] == "model_call"]
    assert call["event_id"] == "request:r-1:usage"
    marked = [
        made["payload"] for made in events if made["type"] == "x_claude_code_api_response_body"
    ]
    assert [each["cut"] for each in marked] == [True, False]


def test_what_a_request_cost_is_the_lesser_where_its_body_comes_in_another_batch() -> None:
    done = {"type": "text", "text": "done"}
    events = told(batch(gave_body(3, "r-1", done)), batch(request(3, "r-1"),
                                                          response(3, "r-1", "done")))  # fmt: skip
    assert kinds(events) == ["model_call", "x_claude_code_assistant_response"]


def test_a_request_that_was_cut_behind_its_messages_tells_what_tools_gave() -> None:
    whole = json.dumps({"model": "claude-opus-5", "messages": [ASKED, CALLED, TOLD],
                        "system": "x" * 1000}, separators=(",", ":"))  # fmt: skip
    cut = whole[:-500] + " [TRUNCATED - Content exceeds 60KB limit]"
    body = event("api_request_body", 5, body=cut, body_truncated="true", body_length="70000")
    events = told(batch(body), batch(ran(6)))
    assert kinds(events) == ["tool_result", "x_claude_code_tool_result"]
    assert payload(events, "tool_result")["output"] == "1 failed"
    within = event("api_request_body", 5, body=whole[:200], body_truncated="true")
    assert kinds(told(batch(within), batch(ran(6)))) == [
        "x_claude_code_api_request_body", "tool_result",
    ]  # fmt: skip


def test_a_call_without_a_text_is_a_call_beside_one_whose_text_is_not_told() -> None:
    events = told(batch(request(2, "r-1"), request(4, "r-2"), response(4, "r-2", "<REDACTED>")))
    calls = [made["payload"] for made in events if made["type"] == "model_call"]
    assert [(call["call_id"], call.get("text")) for call in calls] == [("r-1", None), ("r-2", None)]
    assert kinds(events) == ["model_call", "model_call"]


def test_errors_refusals_and_compactions() -> None:
    failed = event("api_error", 2, model="claude-opus-5", error="overloaded", status_code="529",
                   attempt="11", request_id="r-9")  # fmt: skip
    no = event("tool_decision", 3, tool_name="Bash", tool_use_id="t-1", decision="reject",
               source="user_reject")  # fmt: skip
    yes = event("tool_decision", 4, tool_name="Read", tool_use_id="t-2", decision="accept",
                source="config")  # fmt: skip
    small = event("compaction", 5, trigger="auto", success="true", pre_tokens="180000",
                  post_tokens="9000")  # fmt: skip
    events = told(batch(failed, no, yes, small))
    assert kinds(events) == ["error", "feedback", "x_tool_decision", "compaction"]
    assert payload(events, "error")["message"] == "overloaded"
    refused = payload(events, "feedback")
    assert (refused["kind"], refused["target"]) == ("reject", "t-1")
    assert payload(events, "compaction")["tokens_before"] == 180_000


def test_prompts_that_are_not_told_are_counted() -> None:
    events = told(batch(event("user_prompt", 1, prompt_length="12")))
    assert payload(events, "user_message") == {
        "text": "<REDACTED>", "prompt_length": 12, "otel": {"scope": SCOPE},
    }  # fmt: skip


def test_other_events_keep_their_names_and_noise_is_left_out() -> None:
    events = told(batch(event("skill_activated", 1, skill__name="review"),
                        event("auth", 2, action="login")))  # fmt: skip
    assert kinds(events) == ["x_claude_code_skill_activated"]
    assert events[-1]["payload"]["skill.name"] == "review"
    assert "session.id" not in events[-1]["payload"]


def test_its_traces_add_steps_and_what_records_do_not_tell() -> None:
    own = {"session.id": "cc-1"}
    spans = [
        span(1, own | {"user_prompt": "fix the test"}, name="claude_code.interaction"),
        span(2, own | {"request_id": "r-1", "input_tokens": 3}, name="claude_code.llm_request",
             at_ms=10),
        span(3, own | {"tool_name": "Bash", "tool_use_id": "t-1"}, name="claude_code.tool",
             events=[("tool.output", {"output": "1 failed"})], at_ms=20),
        span(4, own | {"tool_name": "Bash"}, name="claude_code.tool.execution", at_ms=30),
    ]  # fmt: skip
    document = traces(spans, RESOURCE, "com.anthropic.claude_code.tracing")
    alone = told(document)
    assert sorted(kinds(alone)) == ["tool_result", "user_message", "x_span", "x_span", "x_span"]
    full = SessionNotes()
    of_the_span = prompt() | {"traceId": TRACE, "spanId": f"{1:016x}"}
    both = told(document, batch(of_the_span, request(2, "r-1"), ran(3)), full=full)
    for kind in ("user_message", "model_call", "tool_result"):
        assert kinds(both).count(kind) == 1


def test_memory_of_sessions_is_bounded() -> None:
    full = SessionNotes(2)
    for number in range(5):
        full.note("acme", str(number), "calls")
    assert [full.tells("acme", str(number), "calls") for number in range(5)] == [
        False, False, False, True, True,
    ]  # fmt: skip
    assert not full.tells("bolt", "4", "calls")
