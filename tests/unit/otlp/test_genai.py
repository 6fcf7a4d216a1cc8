"""Spans by the GenAI conventions, new and old, as the events of a session."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ingest.otlp import conversion
from penstock.ingest.otlp.conversion import TelemetryBatch
from penstock.ingest.otlp.log_batch import SessionNotes
from tests.support.spans import (
    BEGAN_US,
    TRACE,
    Row,
    as_protobuf,
    converted,
    events_of,
    logs,
    record,
    span,
    story,
    traces,
)

SYSTEM = [{"type": "text", "content": "You are careful."}]
TOOLS = [{"type": "function", "name": "ls", "parameters": {"type": "object"}}]


def says(role: str, *parts: Row, **more: Any) -> Row:
    return {"role": role, "parts": list(parts), **more}


def text(content: str) -> Row:
    return {"type": "text", "content": content}


def chat(number: int, messages: list[Row], answer: Row, at_ms: int, **more: Any) -> Row:
    values = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.request.model": "coder",
        "gen_ai.response.model": "coder-2026",
        "gen_ai.response.id": f"resp-{number}",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.system_instructions": json.dumps(SYSTEM),
        "gen_ai.tool.definitions": json.dumps(TOOLS),
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([answer]),
    }
    return span(number, values | more, at_ms=at_ms)


def tool(number: int, at_ms: int) -> Row:
    values = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.tool.name": "ls",
        "gen_ai.tool.call.id": "c-1",
        "gen_ai.tool.call.arguments": '{"path": "."}',
        "gen_ai.tool.call.result": "a.py",
    }
    return span(number, values, at_ms=at_ms, name="execute_tool ls")


ASKED = says("user", text("what is here?"))
CALLED = says("assistant", {"type": "tool_call", "id": "c-1", "name": "ls",
                            "arguments": {"path": "."}}, finish_reason="tool_calls")  # fmt: skip
TOLD = says("tool", {"type": "tool_call_response", "id": "c-1", "response": "a.py"})
DONE = says("assistant", {"type": "reasoning", "content": "one file"}, text("one file: a.py"),
            finish_reason="stop")  # fmt: skip
AGAIN = says("user", text("thanks"))
BYE = says("assistant", text("you are welcome"), finish_reason="stop")


def conversation() -> list[Row]:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lister",
             "gen_ai.conversation.id": "s-1"}  # fmt: skip
    return [
        span(1, agent, lasts_ms=900, name="invoke_agent lister"),
        chat(2, [ASKED], CALLED, 10),
        tool(3, 200),
        chat(4, [ASKED, CALLED, TOLD], DONE, 400),
        chat(5, [ASKED, CALLED, TOLD, DONE, AGAIN], BYE, 1_000),
        span(6, {"http.request.method": "GET"}, name="GET", at_ms=20),
    ]


def test_a_conversation_is_told_once_whatever_each_call_repeats() -> None:
    assert story(traces(conversation())) == [
        ("user_message", "what is here?"),
        ("model_call", None),
        ("tool_result", "a.py"),
        ("model_call", "one file: a.py"),
        ("x_span", "invoke_agent"),
        ("user_message", "thanks"),
        ("model_call", "you are welcome"),
    ]


def test_what_a_call_says_is_where_events_have_it() -> None:
    events = events_of(traces(conversation()))
    first, second = (e["payload"] for e in events if e["type"] == "model_call"
                     and e["payload"]["call_id"] in ("resp-2", "resp-4"))  # fmt: skip
    assert first["tool_calls"] == [{"id": "c-1", "name": "ls", "arguments": {"path": "."}}]
    assert first["usage"] == {"prompt": 100, "completion": 7, "cached": 60}
    assert (first["model"], first["finish_reason"]) == ("coder-2026", "tool_calls")
    assert (first["sampling"], first["latency_ms"]) == ({"temperature": 0.5}, 100.0)
    assert (first["system"], first["tools"]) == ("You are careful.", TOOLS)
    assert second["thinking"] == "one file"
    assert "system" not in second
    assert {e["session_id"] for e in events} == {"s-1"}
    assert {e["checkpoint"] for e in events if e["type"] == "model_call"} == {"coder-2026"}
    [ran] = [e["payload"] for e in events if e["type"] == "tool_result"]
    assert (ran["call_id"], ran["tool"], ran["duration_ms"]) == ("c-1", "ls", 100.0)
    assert ran["arguments"] == {"path": "."}


def test_each_span_of_an_agent_is_one_event_and_no_other_is_any() -> None:
    own = {"tool:c-1"} | {f"{TRACE}:{number:016x}" for number in (1, 2, 4, 5)}
    events = events_of(traces(conversation()))
    assert {e["event_id"] for e in events if not e["event_id"].startswith("user:")} == own
    assert [len(each.events) for each in converted(traces(conversation()))][-1] == 0


@settings(max_examples=30)
@given(st.permutations(range(6)), st.sets(st.integers(1, 5)), st.randoms(use_true_random=False))
def test_neither_order_nor_batches_nor_retries_change_what_is_told(
    order: list[int], cuts: set[int], chance: random.Random
) -> None:
    spans = conversation()
    shuffled = [spans[place] for place in order]
    edges = [0, *sorted(cuts), 6]
    batches = [traces(shuffled[a:b]) for a, b in pairwise(edges)]
    repeated = batches + chance.sample(batches, len(batches) // 2)
    assert _essence(*repeated) == _essence(traces(spans))


def _essence(*documents: Row) -> list[Any]:
    events = {event["event_id"]: event for event in events_of(*documents)}
    told = events["tool:c-1"]["payload"]
    return [told["output"], sorted(events), events | {"tool:c-1": None}]


def test_the_start_says_who_and_whether_it_may_be_trained_on() -> None:
    resource = {
        "service.name": "my-agent", "service.version": "1.2", "user.id": "u-1",
        "penstock.project": "shop/web", "penstock.checkpoint": "ckpt-7",
        "penstock.consent": "no_train",
    }  # fmt: skip
    [one] = converted(traces([chat(2, [ASKED], BYE, 0)], resource))
    start, said, called = one.events
    assert start["type"] == "session_start"
    assert start["payload"] == {
        "client": "my-agent", "client_version": "1.2", "consent": "no_train",
    }  # fmt: skip
    for event in (start, said, called):
        assert (event["user"], event["project"]) == ("u-1", "shop/web")
        assert (event["checkpoint"], event["source"]) == ("ckpt-7", "otlp:my-agent")


def test_a_batch_starts_a_session_once() -> None:
    spans = [chat(number, [ASKED], BYE, number) for number in range(2, 6)]
    batch = TelemetryBatch(BEGAN_US)
    kinds = [e["type"] for each in converted(traces(spans), batch) for e in each.events]
    assert kinds.count("session_start") == 1


def test_without_a_conversation_the_trace_is_the_session() -> None:
    values = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([BYE])}
    [event] = events_of(traces([span(1, values)]))
    assert event["session_id"] == TRACE


def rooted() -> list[Row]:
    """The spans of a trace in the order of their ends. Only the root, which is last, names the
    session; one in the middle names another."""
    spans = conversation()[1:5]
    for each in spans:
        each["attributes"] = [one for one in each["attributes"] if "conversation" not in one["key"]]
        each["parentSpanId"] = f"{1:016x}"
    other = span(7, {"gen_ai.operation.name": "embed", "session.id": "s-2"}, parent=1)
    return [*spans, other, span(1, {"session.id": "s-1"}, lasts_ms=900, name="POST /chat")]


def sessions(*documents: Row, notes: SessionNotes | None = None) -> dict[str, set[str]]:
    """By session the ends of the ids of its events; each document is a request."""
    notes = notes or SessionNotes()
    found: dict[str, set[str]] = {}
    for document in documents:
        for each in converted(document, TelemetryBatch(BEGAN_US, "acme", notes)):
            for event in each.events:
                if event["type"] not in ("session_start", "user_message"):
                    found.setdefault(event["session_id"], set()).add(event["event_id"][-1])
    return found


def test_the_session_of_a_root_span_holds_for_its_trace() -> None:
    spans = rooted()
    whole = {"s-1": {"2", "1", "4", "5"}, "s-2": {"7"}}
    for order in (spans, spans[::-1]):
        assert sessions(traces(order)) == whole
    # Also for what comes later, by other requests and as records of a log.
    assert sessions(traces(spans[3:]), traces(spans[:3])) == whole
    notes = SessionNotes()
    sessions(traces(spans[5:]), notes=notes)
    said = record({"event.name": "gen_ai.choice", "message": "hi"}, traceId=TRACE)
    assert list(sessions(logs([said]), notes=notes)) == ["s-1"]
    assert list(sessions(logs([said | {"traceId": "e" * 32}]), notes=notes)) == ["e" * 32]
    # Another tenant's trace with the same id is another trace.
    batch = TelemetryBatch(BEGAN_US, "other", notes)
    [alone] = converted(traces(spans[:1]), batch)
    assert {event["session_id"] for event in alone.events} == {TRACE}


def test_what_came_before_the_root_goes_on_as_a_session_of_its_chain() -> None:
    """A request that is sent again finds its events where they are: none is told twice."""
    spans, notes = rooted(), SessionNotes()
    for _ in range(2):
        early = sessions(traces(spans[:2]), notes=notes)
        assert early == {TRACE: {"2", "1"}}
        late = converted(traces(spans[2:]), TelemetryBatch(BEGAN_US, "acme", notes))
        starts = [
            event["payload"]
            for each in late
            for event in each.events
            if event["type"] == "session_start" and "link" in event["payload"]
        ]
        assert starts == [{"client": "my-agent", "parent_session": "s-1", "link": "compaction"}]
        found = {event["session_id"] for each in late for event in each.events}
        assert found == {TRACE, "s-2"}
    # Without a session, and with one on every span, there is nothing to link.
    assert sessions(traces(conversation())) == {"s-1": {"1", "2", "4", "5"}}


def test_spans_that_wait_for_their_root_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "WAITING_MAX", 2)
    assert sessions(traces(rooted())) == {TRACE: {"2", "1", "4", "5"}, "s-2": {"7"}}


def test_the_same_words_in_another_trace_are_said_again() -> None:
    """A client that sends no history may say the same twice; a retry within a trace does not."""
    other = "f" * 32
    spans = [chat(2, [ASKED], BYE, 0), chat(3, [ASKED], BYE, 50)]
    spans.append(chat(4, [ASKED], BYE, 100) | {"traceId": other})
    said = [event for event in events_of(traces(spans)) if event["type"] == "user_message"]
    assert len(said) == 2


def test_a_failed_call_is_an_error() -> None:
    values = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "coder",
              "gen_ai.input.messages": json.dumps([ASKED])}  # fmt: skip
    failed = span(1, values, status={"code": 2, "message": "429"})
    assert story(traces([failed])) == [("user_message", "what is here?"), ("error", "429")]
    raised = span(1, values, status={"code": 2},
                  events=[("exception", {"exception.type": "Timeout",
                                         "exception.message": "late"})])  # fmt: skip
    assert story(traces([raised]))[1] == ("error", "Timeout: late")


def test_a_failed_tool_is_a_result_that_says_so() -> None:
    failed = tool(3, 0) | {"status": {"code": 2, "message": "no such folder"}}
    failed["attributes"] = failed["attributes"][:-1]
    [event] = events_of(traces([failed]))
    assert event["payload"]["ok"] is False
    assert event["payload"]["output"] == "no such folder"


def test_a_cut_value_is_marked_and_costs_nothing_else() -> None:
    whole = json.dumps([says("user", text("x" * 100))])
    cut = chat(2, [], BYE, 0, **{"gen_ai.input.messages": whole[:50]})
    [event] = events_of(traces([cut]))
    assert event["payload"]["cut"] == ["input"]
    assert event["payload"]["text"] == "you are welcome"


def test_messages_in_events_of_the_span() -> None:
    values = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"}
    told = [
        ("gen_ai.system.message", {"content": "Be brief."}),
        ("gen_ai.user.message", {"content": "hi"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop",
                           "message": json.dumps({"role": "assistant", "content": "hello"})}),
    ]  # fmt: skip
    document = traces([span(1, values, events=told)])
    assert story(document) == [("user_message", "hi"), ("model_call", "hello")]
    payload = events_of(document)[1]["payload"]
    assert (payload["system"], payload["finish_reason"]) == ("Be brief.", "stop")


def test_messages_in_numbered_attributes() -> None:
    values = {
        "gen_ai.system": "anthropic", "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "hi",
        "gen_ai.prompt.2.role": "assistant",
        "gen_ai.prompt.2.tool_calls.0.id": "c-9", "gen_ai.prompt.2.tool_calls.0.name": "ls",
        "gen_ai.prompt.2.tool_calls.0.arguments": "{}",
        "gen_ai.prompt.3.role": "tool", "gen_ai.prompt.3.tool_call_id": "c-9",
        "gen_ai.prompt.3.content": "a.py",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "one file",
        "gen_ai.completion.0.finish_reason": "stop",
        "llm.request.functions.0.name": "ls", "llm.request.functions.0.parameters": "{}",
        "gen_ai.usage.prompt_tokens": 9, "gen_ai.usage.completion_tokens": 3,
    }  # fmt: skip
    document = traces([span(1, values)])
    assert story(document) == [("tool_result", "a.py"), ("model_call", "one file")]
    payload = events_of(document)[1]["payload"]
    assert payload["usage"] == {"prompt": 9, "completion": 3}
    assert payload["finish_reason"] == "stop"


@pytest.mark.parametrize("wrong", [{"traceId": ""}, {"spanId": ""}, {"spanId": "0" * 16}])
def test_a_span_without_an_id_is_refused(wrong: Row) -> None:
    [one] = converted(traces([chat(2, [ASKED], BYE, 0) | wrong]))
    assert not one.events
    assert "no trace id or no span id" in (one.why or "")


def test_times_that_no_event_can_have_are_those_of_the_request() -> None:
    spans = [chat(2, [ASKED], BYE, 0) | {"startTimeUnixNano": "0", "endTimeUnixNano": "5"}]
    assert {event["ts"] for event in events_of(traces(spans))} == {BEGAN_US}
    assert as_protobuf(traces(spans))
