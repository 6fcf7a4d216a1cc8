"""Anthropic's Messages, from a chat's point of view: requests, answers, errors."""

import json
from typing import Any

import pytest

from penstock.doors.proxy.chat_completions import AnswerNotKept, NotOfTheEngine, RequestUnreadable
from penstock.doors.proxy.dialogue import ModelApi
from penstock.doors.proxy.messages_protocol import chat_of_messages
from penstock.doors.proxy.translation import KeptResponses, Translation, refusal
from tests.support.proxy.conversations import events_of

_USER = {"role": "user", "content": "hi"}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return chat_of_messages({"model": "m", "max_tokens": 9, "messages": list(messages)} | more)


def translation(**more: Any) -> Translation:
    request = {"model": "m", "max_tokens": 9, "messages": [_USER]} | more
    return Translation(ModelApi.MESSAGES, json.dumps(request).encode(), KeptResponses())


def test_a_turn_of_a_harness_is_a_chat() -> None:
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
              {"type": "text", "text": "Be careful.", "cache_control": {"type": "x"}}]  # fmt: skip
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "ü"}}
    thought = {"type": "thinking", "thinking": "I look.", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "text", "is_error": True}
    made = chat(
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "system", "content": "The date."},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "So."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "go on"}]},
        {"role": "system", "content": [{"type": "text", "text": "Note."}]},
        system=system,
    )
    function = {"name": "read", "arguments": '{"path": "ü"}'}
    assert made["messages"] == [
        {"role": "system", "content": "Be careful."},
        {"role": "user",
         "content": "a\nb\n\n<system-reminder>\nThe date.\n</system-reminder>"},
        {"role": "assistant", "content": "So.", "reasoning_content": "I look.",
         "tool_calls": [{"id": "t1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "t1", "content": "text"},
        {"role": "user", "content": "go on\n\n<system-reminder>\nNote.\n</system-reminder>"},
    ]  # fmt: skip


def test_hints_change_nothing_and_settings_are_the_engine_s() -> None:
    made = chat(
        _USER, stop_sequences=["x"], top_k=3, temperature=0.5, stream=True, metadata={},
        service_tier="auto", context_management={"edits": []}, thinking={"type": "adaptive"},
        output_config={"effort": "low"}, speed="fast",
    )  # fmt: skip
    assert made == {
        "model": "m", "max_tokens": 9, "messages": [_USER], "stop": ["x"], "top_k": 3,
        "temperature": 0.5, "stream": True, "stream_options": {"include_usage": True},
        "reasoning_effort": "low",
    }  # fmt: skip
    off = chat(_USER, thinking={"type": "disabled"})["chat_template_kwargs"]
    assert off["enable_thinking"] is False


def test_tools_that_wait_are_shown_once_the_conversation_brings_them() -> None:
    tools = [{"name": "read", "input_schema": {}}, {"name": "later", "defer_loading": True}]
    assert [t["function"]["name"] for t in chat(_USER, tools=tools)["tools"]] == ["read"]
    brought = {"type": "tool_result", "tool_use_id": "t",
               "content": [{"type": "tool_reference", "tool_name": "later"}]}  # fmt: skip
    made = chat(_USER, {"role": "user", "content": [brought]}, tools=tools)
    assert [t["function"]["name"] for t in made["tools"]] == ["read", "later"]
    new = {"type": "tool_addition", "tool": {"definition": {"name": "new", "input_schema": {}}}}
    made = chat(_USER, {"role": "system", "content": [new]}, tools=tools)
    assert [t["function"]["name"] for t in made["tools"]] == ["read", "new"]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "read"}, {"type": "function", "function": {"name": "read"}}),
    ],
)
def test_a_choice_of_tools(choice: dict[str, Any], told: object) -> None:
    tools = [{"name": "read", "input_schema": {}}, {"type": "web_search_20250305", "name": "web"}]
    made = chat(_USER, tools=tools, tool_choice=choice | {"disable_parallel_tool_use": True})
    assert (made["tool_choice"], made["parallel_tool_calls"]) == (told, False)
    assert len(made["tools"]) == 1


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "document"),
        ({"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]}, "server"),
        ({"messages": [{"role": "nobody", "content": "a"}]}, "nobody"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"tools": [{"type": "web_search_20250305", "name": "web"}]}, "web_search_20250305"),
        ({"tools": [{"type": "web_search_20250305", "name": "web"}, {"name": "read"}],
          "tool_choice": {"type": "tool", "name": "web"}}, "web_search_20250305"),
    ],
)  # fmt: skip
def test_what_the_engine_has_not_is_refused_by_name(request_: dict[str, Any], named: str) -> None:
    with pytest.raises(NotOfTheEngine, match=named) as caught:
        translation(**request_)
    status, body = refusal(ModelApi.MESSAGES, caught.value)
    told = json.loads(body)
    assert (status, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
    assert named in told["error"]["message"]


@pytest.mark.parametrize("request_", [{"messages": 3}, {"messages": [{"role": "user"}]}])
def test_a_malformed_request_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(RequestUnreadable, match="/v1/messages"):
        translation(**request_)


def _chunk(delta: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta} | more
    return json.dumps({"id": "c1", "model": "ours", "choices": [choice]}).encode()


def test_a_stream_is_the_protocol_s_events() -> None:
    call = {"index": 0, "id": "t1", "function": {"name": "read", "arguments": '{"a'}}
    more = {"index": 0, "function": {"arguments": '": 1}'}}
    usage = {"prompt_tokens": 10, "completion_tokens": 4,
             "prompt_tokens_details": {"cached_tokens": 8}}  # fmt: skip
    started = {"id": "c1", "model": "ours", "prompt_token_ids": [1, 2, 3], "choices": []}
    said = translation(stream=True)
    text = b"".join(
        [said.event(each) for each in (
            json.dumps(started).encode(), _chunk({"role": "assistant", "content": ""}),
            _chunk({"reasoning": "Hm"}), _chunk({"content": "\n\n"}), _chunk({"content": "So."}),
            _chunk({"content": "\n"}), _chunk({"tool_calls": [call]}),
            _chunk({"tool_calls": [more]}),
            _chunk({}, finish_reason="tool_calls"), b"no json",
            json.dumps({"choices": [], "usage": usage}).encode())] + [said.end()]
    )  # fmt: skip
    events = events_of(text)
    assert b"event: message_start\ndata: " in text
    assert events[0]["message"]["usage"]["input_tokens"] == 3
    assert [(e["type"], e.get("index")) for e in events] == [
        ("message_start", None),
        ("content_block_start", 0), ("content_block_delta", 0), ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1), ("content_block_delta", 1), ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2), ("content_block_delta", 2), ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("message_delta", None), ("message_stop", None),
    ]  # fmt: skip
    assert [e["delta"] for e in events if e["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "signature_delta", "signature": "penstock"},
        {"type": "text_delta", "text": "So."},
        {"type": "text_delta", "text": "\n"},
        {"type": "input_json_delta", "partial_json": '{"a'},
        {"type": "input_json_delta", "partial_json": '": 1}'},
    ]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"] == {
        "input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8,
        "output_tokens": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "stop", "stop_reason": 7}, "end_turn", None),
        ({"finish_reason": "stop", "stop_reason": "x"}, "stop_sequence", "x"),
        ({"finish_reason": "stop", "matched_stop": "x"}, "stop_sequence", "x"),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "content_filter"}, "refusal", None),
    ],
)
def test_why_an_answer_ends(choice: dict[str, Any], reason: str, sequence: str | None) -> None:
    whole = {"id": "c1", "choices": [choice | {"message": {"content": "So."}}]}
    told = json.loads(translation().whole(json.dumps(whole).encode()))
    assert (told["stop_reason"], told["stop_sequence"]) == (reason, sequence)
    assert told["content"] == [{"type": "text", "text": "So."}]


def test_arguments_that_are_no_json_come_as_they_are() -> None:
    call = {"id": "t1", "function": {"name": "read", "arguments": '{"a": '}}
    whole = {"id": "c1", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "stop"}]}
    told = json.loads(translation().whole(json.dumps(whole).encode()))
    assert told["content"][0]["input"] == {"arguments": '{"a": '}
    assert told["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("status", "message", "told", "kind"),
    [
        (503, "full", 529, "overloaded_error"),
        (429, "slow down", 429, "rate_limit_error"),
        (404, "no model", 404, "not_found_error"),
        (500, "broken", 500, "api_error"),
        (400, "maximum context length is 9", 400, "invalid_request_error"),
    ],
)
def test_an_engine_s_error_is_the_protocol_s(
    status: int, message: str, told: int, kind: str
) -> None:
    for body in ({"error": {"message": message}}, {"object": "error", "message": message}):
        found, text = translation().failure(status, json.dumps(body).encode())
        error = json.loads(text)["error"]
        assert (found, error["type"]) == (told, kind)
        assert error["message"].endswith(message)
        # The words by which Claude Code knows that it has to compact.
        assert error["message"].startswith("prompt is too long") is ("context" in message)


def test_an_error_within_a_stream_is_an_event() -> None:
    said = translation(stream=True)
    text = said.event(_chunk({"content": "So"})) + said.event(b'{"error": {"message": "gone"}}')
    assert events_of(text + said.end())[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "gone"},
    }


def test_an_answer_that_is_not_kept_is_said_as_openai_says_it() -> None:
    status, body = refusal(ModelApi.RESPONSES, AnswerNotKept(id="r"))
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (400, "previous_response_not_found")
    assert error["param"] == "previous_response_id"
