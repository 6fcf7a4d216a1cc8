"""Chat completions through the proxy: what the client gets, and what is recorded of it."""

import re
from typing import Any

import pytest

from tests.support.proxy.conversations import TOOLS, Setting, chat
from tests.support.recording_proxy import ask

_ID = re.compile(rb"chatcmpl-\d+")


def _request(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": 'say "token_ids":[1]'}]
    return {"model": "m", "messages": messages, "tools": TOOLS} | more


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"logprobs": True},
        {"logprobs": False},
        {"logprobs": True, "stream": True},
        {"return_token_ids": True},
        {"return_token_ids": None, "logprobs": None, "stream": True},
        {"return_token_ids": True, "stream": True},
    ],
)
def test_a_client_gets_what_the_engine_would_say_to_it_alone(
    setting: Setting, more: dict[str, Any]
) -> None:
    request = _request(**more)
    there = ask(setting.engine.url, "/v1/chat/completions", request)
    here = ask(setting.proxy.url, "/s/bytes/v1/chat/completions", request)
    assert _ID.sub(b"", here[2]) == _ID.sub(b"", there[2])
    for name in ("transfer-encoding", "content-type"):
        assert here[1].get(name) == there[1].get(name)
    assert ("content-length" in here[1]) == ("content-length" in there[1])


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_is_a_session(setting: Setting, stream: bool) -> None:
    session, before = f"told-{stream}", len(setting.engine.sampled)
    path = f"/s/{session}/c/ckpt-9/v1/chat/completions"
    messages = chat(setting.proxy.url, path, stream=stream)
    events = setting.proxy.until(session, "model_call", 4)
    assert [each["type"] for each in events] == [
        "session_start", "user_message", "model_call", "tool_result", "model_call",
        "user_message", "model_call", "tool_result", "tool_result", "model_call",
    ]  # fmt: skip
    payloads = [each["payload"] for each in events]
    assert payloads[0] == {"system": "Be careful.", "tools": TOOLS}
    assert [p["text"] for p in payloads if set(p) == {"text"}] == [
        "the streaming is broken",
        "and now 0",
    ]
    calls = [each["payload"] for each in events if each["type"] == "model_call"]
    assert calls[0]["thinking"] == "I look first."
    assert calls[0]["tool_calls"][0]["name"] == "read"
    assert calls[0]["finish_reason"] == "tool_calls"
    assert calls[0]["sampling"]["temperature"] == 1.0
    assert calls[1]["text"] == messages[4]["content"]
    assert all(call["latency_ms"] >= call["ttft_ms"] > 0 for call in calls)
    results = [each["payload"] for each in events if each["type"] == "tool_result"]
    assert results[0] == {
        "call_id": calls[0]["tool_calls"][0]["id"],
        "tool": "read",
        "output": "what read said",
    }
    assert {each["checkpoint"] for each in events} == {"ckpt-9"}
    for call, sampled in zip(calls, setting.engine.sampled[before:], strict=True):
        tokens = call["tokens"]
        assert tokens["prompt_ids"] == sampled.prompt_ids
        ids = tokens["completion_ids"] + tokens.get("unscored_ids", [])
        assert ids == sampled.ids
        assert tokens["logprobs"] == sampled.logprobs[: len(tokens["completion_ids"])]
        assert tokens["policy_version_runs"] == [[0, 7]]
        assert call["usage"] == {"prompt": len(sampled.prompt_ids), "completion": len(sampled.ids)}


def test_saying_it_again_adds_nothing(setting: Setting) -> None:
    path = "/s/again/v1/chat/completions"
    chat(setting.proxy.url, path, stream=True)
    chat(setting.proxy.url, path, stream=True)
    events = setting.proxy.until("again", "model_call", 8)
    once = {each["event_id"] for each in events}
    assert len(once) == 10
    assert [each["type"] for each in events].count("user_message") == 2


def test_a_session_that_nobody_names_is_told_by_what_it_goes_on_from(setting: Setting) -> None:
    chat(setting.proxy.url, "/v1/chat/completions", stream=False)
    ask(setting.proxy.url, "/s/after/v1/chat/completions", _request())
    setting.proxy.until("after", "model_call")
    sessions = {each["session_id"] for each in setting.proxy.recorded()}
    [session] = {name for name in sessions if name.startswith("proxy-")}
    assert len(setting.proxy.recorded(session)) == 10


def test_headers_name_a_session_too(setting: Setting) -> None:
    headers = {
        "X-Penstock-Session": "by-header",
        "X-Penstock-Checkpoint": "ckpt-h",
        "X-Penstock-User": "u-1",
        "X-Penstock-Project": "shop/web",
        "X-Penstock-Consent": "train",
        "User-Agent": "agent/1",
    }
    ask(setting.proxy.url, "/v1/chat/completions", _request(), headers)
    start, *rest = setting.proxy.until("by-header", "model_call")
    assert start["payload"]["client"] == "agent/1"
    assert start["payload"]["consent"] == "train"
    for event in (start, *rest):
        named = {name: event[name] for name in ("checkpoint", "user", "project")}
        assert named == {"checkpoint": "ckpt-h", "user": "u-1", "project": "shop/web"}
    asked = setting.engine.asked[-1].headers if setting.engine.asked else {}
    assert not [name for name in asked if name.startswith("x-penstock")]


def test_the_last_token_is_apart_where_nobody_says_how_likely_it_was(setting: Setting) -> None:
    setting.engine.has_parser = False
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "1"}] * 3
    request = {"model": "m", "messages": [*messages, messages[0]], "stream": True}
    ask(setting.proxy.url, "/s/unscored/v1/chat/completions", request)
    call = setting.proxy.until("unscored", "model_call", 4)[-1]
    setting.engine.has_parser = True
    tokens, sampled = call["payload"]["tokens"], setting.engine.sampled[-1]
    count = len(sampled.ids) - (setting.engine.kind == "sglang")
    assert tokens["completion_ids"] == sampled.ids[:count]
    assert tokens.get("unscored_ids", []) == sampled.ids[count:]
    assert tokens["logprobs"] == sampled.logprobs[:count]
