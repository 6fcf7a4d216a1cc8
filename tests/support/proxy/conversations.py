"""Agents that talk to a model through the proxy, as their libraries do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.recording_proxy import RecordingProxy, ask, recording_proxy
from tests.support.servers.scripted_answers import Document, ScriptedAnswer
from tests.support.servers.scripted_engine import Kind, ScriptedEngine, scripted_engine

#: By how many answers there were before.
ANSWERS = (
    ScriptedAnswer("", "I look first.", (("read", '{"path": "src/app.py"}'),)),
    ScriptedAnswer("It streams again, ünd well."),
    ScriptedAnswer("Both.", "", (("edit", '{"path": "a"}'), ("test", "{}"))),
    ScriptedAnswer("Done."),
)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("read", "edit", "test")
]


def script(request: Document) -> ScriptedAnswer:
    messages = request.get("messages") or request.get("input") or []
    if isinstance(messages, str) or "prompt" in request:
        return ANSWERS[1]
    given = [each for each in messages if each.get("type") != "reasoning"]
    turns, was_answer = 0, False
    for each in given:
        is_answer = each.get("role") == "assistant" or each.get("type") == "function_call"
        turns += is_answer and not was_answer
        was_answer = is_answer
    return ANSWERS[turns % len(ANSWERS)]


@dataclass
class Setting:
    engine: ScriptedEngine
    proxy: RecordingProxy


@contextmanager
def setting_of(kind: Kind, spool: Path, *flags: str, **service: str) -> Iterator[Setting]:
    with (
        scripted_engine(kind, script) as engine,
        recording_proxy(engine.url, spool, *flags, **service) as proxy,
    ):
        yield Setting(engine, proxy)


def events_of(body: bytes) -> list[Document]:
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def chat_message(body: bytes, *, stream: bool) -> Document:
    if not stream:
        message: Document = json.loads(body)["choices"][0]["message"]
        return message
    message = {"role": "assistant", "content": None}
    calls: dict[int, Document] = {}
    for event in events_of(body):
        for choice in event["choices"]:
            for name in ("content", "reasoning_content"):
                if text := choice["delta"].get(name):
                    message[name] = (message.get(name) or "") + text
            for part in choice["delta"].get("tool_calls") or ():
                calls[part.pop("index")] = part
    return message | ({"tool_calls": list(calls.values())} if calls else {})


def chat(url: str, path: str, *, stream: bool, turns: int = 2) -> list[Document]:
    """A conversation whose model asks for tools; its messages."""
    messages: list[Document] = [
        {"role": "system", "content": "Be careful."},
        {"role": "user", "content": "the streaming is broken"},
    ]
    for turn in range(turns):
        for _ in range(2):
            request: dict[str, Any] = {"model": "m", "messages": messages, "tools": TOOLS}
            request |= {"temperature": 1.0} | ({"stream": True} if stream else {})
            status, _, body = ask(url, path, request)
            assert status == 200
            message = chat_message(body, stream=stream)
            messages = [*messages, message]
            for call in message.get("tool_calls") or ():
                output = f"what {call['function']['name']} said"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        messages.append({"role": "user", "content": f"and now {turn}"})
    return messages[:-1]
