"""Messages, responses and completions through the proxy: a vendor's as they are, and answered by a
self-served engine's chat."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.proxy.conversations import Setting, events_of, setting_of
from tests.support.proxy.harnesses import said_in_messages, said_in_responses
from tests.support.recording_proxy import ask

_NUMBER = re.compile(rb"(cmpl-|msg_|resp_|rs_|m_|fc_|t-)\d+")
_TOOLS = [{"name": "read", "description": "reads", "input_schema": {"type": "object"}}]
_ALL = [
    ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
    ("/v1/responses", {"input": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "def f():", "max_tokens": 9}),
]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with setting_of("vllm", tmp_path_factory.mktemp("spool")) as made:
        yield made


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with setting_of("plain", tmp_path_factory.mktemp("spool")) as made:
        yield made


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "request_"), _ALL, ids=[path for path, _ in _ALL])
def test_a_client_gets_what_the_vendor_would_say_to_it_alone(
    vendor: Setting, path: str, request_: dict[str, Any], stream: bool
) -> None:
    body = {"model": "m"} | request_ | ({"stream": True} if stream else {})
    there, here = ask(vendor.engine.url, path, body), ask(vendor.proxy.url, path, body)
    assert _NUMBER.sub(b"", here[2]) == _NUMBER.sub(b"", there[2])


@pytest.mark.parametrize("stream", [False, True])
def test_messages_of_an_agent_with_tools(vllm: Setting, stream: bool) -> None:
    session = f"messages-{stream}"
    reminder = {"type": "text", "text": "<system-reminder>be brief</system-reminder>"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [reminder]},
        {"role": "user", "content": [{"type": "text", "text": "it is broken"}]},
    ]
    system = [{"type": "text", "text": "Be careful.", "cache_control": {"type": "ephemeral"}}]
    for _ in range(2):
        body = {"model": "m", "max_tokens": 99, "system": system, "messages": messages}
        body |= {"tools": _TOOLS, "stream": stream}
        answer = ask(vllm.proxy.url, f"/s/{session}/v1/messages?beta=true", body)[2]
        content = said_in_messages(answer, stream=stream)
        messages = [*messages, {"role": "assistant", "content": content}]
        results = [
            {"type": "tool_result", "tool_use_id": part["id"], "content": "its text",
             "is_error": False}
            for part in content
            if part["type"] == "tool_use"
        ]  # fmt: skip
        messages.append({"role": "user", "content": results})
    events = vllm.proxy.until(session, "model_call", 2)
    assert [each["type"] for each in events] == [
        "session_start", "user_message", "user_message", "model_call", "tool_result", "model_call",
    ]  # fmt: skip
    start, synthetic, said, first, result, second = [each["payload"] for each in events]
    assert start["system"] == "Be careful."
    assert start["tools"] == _TOOLS
    assert synthetic["synthetic"] is True
    assert said == {"text": "it is broken"}
    assert first["thinking"] == "I look first."
    [call] = first["tool_calls"]
    assert json.loads(call["arguments"]) == {"path": "src/app.py"}
    assert first["finish_reason"] == "tool_calls"
    named = {"call_id": call["id"], "tool": "read", "ok": True, "output": "its text"}
    assert result == named
    assert second["text"] == "It streams again, ünd well."
    for call, told in zip((first, second), vllm.engine.sampled[-2:], strict=True):
        assert call["tokens"]["prompt_ids"] == told.prompt_ids
        assert call["tokens"]["completion_ids"] == told.ids
        assert call["tokens"]["logprobs"] == told.logprobs


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_responses_of_an_agent_with_tools(vllm: Setting, stream: bool, keeps: bool) -> None:
    """As Codex sends them; where the server keeps what was said, only what is new."""
    session = f"responses-{stream}-{keeps}"
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "broken"}]}
    ]
    previous, sampled = None, len(vllm.engine.sampled)
    for _ in range(2):
        body: dict[str, Any] = {"model": "m", "instructions": "Be careful.", "input": items}
        body |= {"stream": stream, "tools": [{"type": "function", "name": "read"}]}
        body |= {"previous_response_id": previous} if previous else {}
        answer = ask(vllm.proxy.url, f"/s/{session}/v1/responses", body)[2]
        whole = said_in_responses(answer, stream=stream)
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "its text"}
            for item in whole["output"]
            if item["type"] == "function_call"
        ]
        previous = whole["id"] if keeps else None
        items = results if keeps else [*items, *whole["output"], *results]
    events = vllm.proxy.until(session, "model_call", 2)
    kinds = ["session_start", "user_message", "model_call", "tool_result", "model_call"]
    assert [each["type"] for each in events] == kinds
    first, result, second = [each["payload"] for each in events[2:]]
    assert first["thinking"] == "I look first."
    assert first["tool_calls"][0]["arguments"] == '{"path": "src/app.py"}'
    assert result["call_id"] == first["tool_calls"][0]["id"]
    for call, told in zip((first, second), vllm.engine.sampled[sampled:], strict=True):
        assert call["tokens"]["prompt_ids"] == told.prompt_ids
        assert call["tokens"]["completion_ids"] == told.ids
        assert call["usage"]["completion"] == len(told.ids)


@pytest.mark.parametrize("stream", [False, True])
def test_completions_of_an_agent_that_makes_its_prompts(setting: Setting, stream: bool) -> None:
    session, prompt, sampled = f"completions-{stream}", "user: hi\n", len(setting.engine.sampled)
    for turn in range(2):
        body = {"model": "m", "prompt": prompt, "stream": stream}
        answer = ask(setting.proxy.url, f"/s/{session}/v1/completions", body)[2]
        documents = events_of(answer) if stream else [json.loads(answer)]
        prompt += "".join(each["choices"][0]["text"] for each in documents)
        prompt += f"\nuser: again {turn}\n"
    events = setting.proxy.until(session, "model_call", 2)
    payloads = [each["payload"] for each in events if each["type"] == "user_message"]
    assert payloads == [{"text": "user: hi\n"}, {"text": "\nuser: again 0\n"}]
    calls = [each["payload"] for each in events if each["type"] == "model_call"]
    for call, told in zip(calls, setting.engine.sampled[sampled:], strict=True):
        assert call["text"] == "It streams again, ünd well."
        assert call["tokens"]["prompt_ids"] == told.prompt_ids
        assert call["tokens"]["completion_ids"] == told.ids
        assert call["tokens"]["logprobs"] == told.logprobs


def test_a_subagent_is_a_session_of_its_own(vllm: Setting) -> None:
    def said(text: str, *tools: str) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 9}
        named = [{"name": name, "input_schema": {}} for name in tools]
        ask(vllm.proxy.url, "/s/whole/v1/messages", body | {"tools": named})

    said("work", "read", "task")
    said("look around", "read")
    said("what was done so far: much", "read", "task")
    events = vllm.proxy.until("whole", "model_call", 3)
    own = [each["type"] for each in events if each["session_id"] == "whole"]
    assert own == [
        "session_start", "user_message", "model_call", "compaction", "user_message", "model_call",
    ]  # fmt: skip
    [start] = [e for e in events if e["type"] == "session_start" and e["session_id"] != "whole"]
    assert start["session_id"].startswith("whole/")
    assert start["payload"]["parent_session"] == "whole"
    assert start["payload"]["link"] == "subagent"
