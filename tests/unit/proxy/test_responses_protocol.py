"""OpenAI's Responses, from a chat's point of view: requests, answers, what is kept."""

import json
from typing import Any

import pytest

from penstock.doors.proxy.chat_completions import AnswerNotKept, NotOfTheEngine
from penstock.doors.proxy.dialogue import ModelApi
from penstock.doors.proxy.translation import KeptResponses, Translation
from tests.support.proxy.conversations import events_of

_PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches.",
          "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}}  # fmt: skip
_SPACE = {"type": "namespace", "name": "agents",
          "tools": [{"type": "function", "name": "close", "parameters": {}}]}  # fmt: skip
_READ = {"type": "function", "name": "read", "parameters": {}, "strict": False}


def translation(input_: Any, kept: KeptResponses | None = None, **more: Any) -> Translation:
    request = {"model": "m", "input": input_} | more
    return Translation(ModelApi.RESPONSES, json.dumps(request).encode(), kept or KeptResponses())


def chat(input_: Any, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = translation(input_, **more).chat
    return made


def _text(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return {"type": "message", "role": role, "content": content}


def test_a_turn_of_a_harness_is_a_chat() -> None:
    made = chat(
        [
            _text("developer", "Be careful."), _text("developer", "Skills."), _text("user", "env"),
            _text("user", "fix it"),
            {"type": "reasoning", "summary": [],
             "content": [{"type": "reasoning_text", "text": "Hm"}]},
            _text("assistant", "So."),
            {"type": "function_call", "call_id": "t1", "name": "close", "namespace": "agents",
             "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "t2", "name": "apply_patch", "input": "*** ü"},
            {"type": "function_call_output", "call_id": "t1", "output": "closed"},
            {"type": "custom_tool_call_output", "call_id": "t2",
             "output": [{"type": "input_text", "text": "done"}]},
            _text("developer", "Note."),
        ],
        instructions="You are a coder.", max_output_tokens=9, store=False, include=["x"],
        reasoning={"effort": "low", "summary": "auto"}, client_metadata={}, prompt_cache_key="k",
        parallel_tool_calls=True, tools=[_READ], tool_choice="auto",
    )  # fmt: skip
    calls = [
        {"id": "t1", "type": "function", "function": {"name": "agents__close", "arguments": "{}"}},
        {"id": "t2", "type": "function",
         "function": {"name": "apply_patch", "arguments": '{"input":"*** ü"}'}},
    ]  # fmt: skip
    assert made == {
        "model": "m", "max_tokens": 9, "reasoning_effort": "low", "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {}}}],
        "messages": [
            {"role": "system", "content": "You are a coder.\n\nBe careful.\n\nSkills."},
            {"role": "user", "content": "env\n\nfix it"},
            {"role": "assistant", "content": "So.", "reasoning_content": "Hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "t1", "content": "closed"},
            {"role": "tool", "tool_call_id": "t2", "content": "done"},
            {"role": "user", "content": "<system-reminder>\nNote.\n</system-reminder>"},
        ],
    }  # fmt: skip


def test_tools_with_free_text_and_names_within_names() -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [_SPACE]}
    made = chat([brought, _text("user", "hi")], tools=[_PATCH, {"type": "web_search"}])["tools"]
    patch, close = [each["function"] for each in made]
    assert patch["description"] == "Patches.\n\nstart: x"
    assert patch["parameters"]["required"] == ["input"]
    assert close["name"] == "agents__close"


@pytest.mark.parametrize(
    ("input_", "more", "named"),
    [
        ([{"role": "user", "content": [{"type": "input_image"}]}], {}, "input_image"),
        ([{"type": "item_reference", "id": "x"}], {}, "item_reference"),
        ([{"type": "compaction", "encrypted_content": "x"}], {}, "compaction"),
        ("hi", {"background": True}, "background"),
        ("hi", {"tools": [{"type": "web_search"}]}, "web_search"),
        ("hi", {"tools": [{"type": "web_search"}, _READ], "tool_choice": {"type": "web_search"}},
         "web_search"),
    ],
)  # fmt: skip
def test_what_the_engine_has_not_is_refused_by_name(
    input_: Any, more: dict[str, Any], named: str
) -> None:
    with pytest.raises(NotOfTheEngine, match=named):
        translation(input_, **more)


def _chunk(delta: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta} | more
    return json.dumps({"id": "c1", "model": "ours", "choices": [choice]}).encode()


def _call(index: int, name: str, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": f"t{index}",
                            "function": {"name": name, "arguments": arguments}}]}  # fmt: skip


def test_a_stream_is_the_protocol_s_events() -> None:
    said = translation("hi", stream=True, tools=[_PATCH, _SPACE])
    usage = {"prompt_tokens": 10, "completion_tokens": 4}
    text = b"".join(
        [said.event(each) for each in (
            _chunk({"reasoning_content": "Hm"}), _chunk({"content": "\n\n"}),
            _chunk({"content": "So"}), _chunk({"content": "."}),
            _chunk(_call(0, "agents__close", "{}")), _chunk(_call(1, "apply_patch", '{"input": ')),
            _chunk({"tool_calls": [{"index": 1, "function": {"arguments": '"***"}'}}]}),
            _chunk({}, finish_reason="tool_calls"),
            json.dumps({"choices": [], "usage": usage}).encode())] + [said.end()]
    )  # fmt: skip
    events = events_of(text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    part = ["output_item.added", "content_part.added"]
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        *part, "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        *part, "output_text.delta", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]  # fmt: skip
    thought, message, close, patch = events[-1]["response"]["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm"}]
    assert message["content"][0]["text"] == "So."
    assert (close["name"], close["namespace"], close["arguments"]) == ("close", "agents", "{}")
    assert (patch["type"], patch["input"]) == ("custom_tool_call", "***")
    assert [each["status"] for each in (thought, message, close, patch)] == ["completed"] * 4
    assert events[-1]["response"]["usage"]["total_tokens"] == 14


@pytest.mark.parametrize(
    ("told", "status", "reason"),
    [
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, "completed", None),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "length"}]},
         "incomplete", "max_output_tokens"),
        ({"choices": [], "error": {"message": "gone"}}, "failed", None),
    ],
)  # fmt: skip
def test_how_an_answer_ends(told: dict[str, Any], status: str, reason: str | None) -> None:
    whole = json.loads(translation("hi").whole(json.dumps(told | {"id": "c1"}).encode()))
    assert whole["status"] == status
    assert (whole["incomplete_details"] or {}).get("reason") == reason


def test_a_conversation_goes_on_from_an_answer_that_is_kept() -> None:
    kept = KeptResponses()
    answer = {"id": "c1", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}
    translation("hi", kept, instructions="First.").whole(json.dumps(answer).encode())
    more = {"previous_response_id": "c1", "instructions": "Then."}
    assert translation("on", kept, **more).chat["messages"] == [
        {"role": "system", "content": "Then."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "on"},
    ]
    secret = translation("hi", kept, store=False)
    secret.whole(json.dumps(answer | {"id": "c2"}).encode())
    with pytest.raises(AnswerNotKept):
        translation("on", kept, previous_response_id="c2")


def test_a_prompt_that_is_too_long_has_the_code_that_clients_know() -> None:
    body = json.dumps({"error": {"message": "maximum context length is 9"}}).encode()
    status, told = translation("hi").failure(400, body)
    assert (status, json.loads(told)["error"]["code"]) == (400, "context_length_exceeded")
