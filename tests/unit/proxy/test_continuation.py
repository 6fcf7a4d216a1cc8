"""Prompts that continue the tokens of the answer before them, and why some do not."""

import asyncio
import json
from typing import Any

import pytest

from penstock.doors.proxy.chat_completions import ChatDraft, chat_answer
from penstock.doors.proxy.continuation import Continuations
from tests.support.servers.scripted_answers import END, ROLES, tokens_of
from tests.support.servers.scripted_engine import ScriptedEngine

_SYSTEM = {"role": "system", "content": "Be careful."}
_USER = {"role": "user", "content": "hi"}
_FUNCTION = {"name": "read", "arguments": '{"a": 1}'}
_CALL = {"id": "t1", "type": "function", "function": _FUNCTION}
_CALLED = {"role": "assistant", "content": "So.", "reasoning_content": "Hm", "tool_calls": [_CALL]}
_RESULT = {"role": "tool", "tool_call_id": "t1", "content": "text"}
_SAID = {"role": "assistant", "content": "Done."}
_SAMPLED = [1001, 1002, END]


def _chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "tools": ["read"], "messages": [_SYSTEM, _USER, *messages]} | more


def _draft(message: dict[str, Any], ids: list[int], **choice: Any) -> ChatDraft:
    draft = ChatDraft()
    told = {"message": message, "token_ids": ids, "finish_reason": "stop"} | choice
    draft.take(chat_answer(json.dumps({"prompt_token_ids": [7, 8], "choices": [told]}).encode()))
    return draft


def _prompt(known: Continuations, chat: dict[str, Any]) -> tuple[list[int] | None, str | None]:
    engine = ScriptedEngine(writes_anew=True)

    async def ask(_path: bytes, body: bytes) -> bytes:
        request = json.loads(body)
        ids = engine.prompt_of(request["messages"])
        is_open = request.get("add_generation_prompt", True)
        return json.dumps({"tokens": ids if is_open else ids[:-1]}).encode()

    prompt = asyncio.run(known.prompt(chat, ask))
    return None if prompt.ids is None else json.loads(bytes(prompt.ids)), prompt.reason


@pytest.fixture
def known() -> Continuations:
    known = Continuations()
    known.add(_chat(), _draft(_CALLED, _SAMPLED))
    return known


def _turn(role: str, text: str) -> list[int]:
    return [ROLES[role], *tokens_of(text), END]


def test_a_prompt_is_what_was_sampled_and_what_is_new(known: Continuations) -> None:
    expected = [7, 8, *_SAMPLED, *_turn("tool", "text"), ROLES["assistant"]]
    assert _prompt(known, _chat(_CALLED, _RESULT)) == (expected, None)
    # As a harness writes it: without thoughts, and with arguments that it completed.
    call = _CALL | {"function": {"name": "read", "arguments": '{"b": 2, "a": 1}'}}
    rewritten = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert _prompt(known, _chat(rewritten, _RESULT))[0] == expected
    reminder = {"role": "user", "content": "<system-reminder>"}
    more = [*expected[:-1], *_turn("user", "<system-reminder>"), ROLES["assistant"]]
    assert _prompt(known, _chat(rewritten, _RESULT, reminder))[0] == more
    assert not known.reasons


def test_the_longest_conversation_is_continued(known: Continuations) -> None:
    known.add(_chat(_CALLED, _RESULT), _draft(_SAID, [5, END]))
    said = _SAID | {"content": " Done.\n"}
    prompt = _prompt(known, _chat(_CALLED, _RESULT, said, _USER))[0]
    assert prompt == [7, 8, 5, END, *_turn("user", "hi"), ROLES["assistant"]]
    # An answer that is not of this proxy is part of what is new.
    other = {"role": "assistant", "content": "Or not."}
    prompt = _prompt(known, _chat(_CALLED, _RESULT, other, _USER))[0]
    assert prompt is not None
    assert prompt[:5] == [7, 8, *_SAMPLED]


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        (_chat(), None),
        (_chat(_CALLED, _RESULT, tools=[]), "tools_changed"),
        (_chat(_CALLED, _RESULT, model="n"), "settings_changed"),
        (_chat() | {"messages": [_USER, _CALLED, _RESULT]}, "system_changed"),
        (_chat(_USER, _CALLED, _RESULT), "history_rewritten"),
        (_chat(_SAID, _USER), "answer_unknown"),
    ],
)
def test_why_a_branch_begins(
    known: Continuations, chat: dict[str, Any], reason: str | None
) -> None:
    assert _prompt(known, chat) == (None, reason)
    assert known.reasons == ({reason: 1} if reason else {})


@pytest.mark.parametrize("choice", [{"finish_reason": "length"}, {"stop_reason": "x"}])
def test_an_answer_that_was_cut_off_is_not_continued(choice: dict[str, Any]) -> None:
    known = Continuations()
    known.add(_chat(), _draft(_CALLED, _SAMPLED, **choice))
    assert _prompt(known, _chat(_CALLED, _RESULT)) == (None, "answer_cut")


def test_a_template_that_ends_turns_otherwise_begins_a_branch(known: Continuations) -> None:
    known.add(_chat(), _draft(_CALLED, [1001, 1002]))
    assert _prompt(known, _chat(_CALLED, _RESULT)) == (None, "template")


def test_an_engine_without_ids_hears_its_own_words(known: Continuations) -> None:
    call = _CALL | {"function": {"name": "read", "arguments": '{"b":2,"a":1}'}}
    chat = _chat({"role": "assistant", "content": None, "tool_calls": [call]}, _RESULT)
    assert asyncio.run(known.prompt(chat, None)) == (None, None)
    assert chat["messages"][2] == _CALLED


def test_an_engine_that_does_not_render_is_asked_as_ever(known: Continuations) -> None:
    async def ask(_path: bytes, _body: bytes) -> bytes | None:
        return None

    assert asyncio.run(known.prompt(_chat(_CALLED, _RESULT), ask)) == (None, "template")
