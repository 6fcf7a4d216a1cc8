"""Harnesses as they speak to a model: Claude Code by Messages, Codex by Responses. Both resend the
whole history at each call, and write it anew as the real ones do."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException

from tests.support.proxy.conversations import events_of
from tests.support.recording_proxy import ask
from tests.support.servers.scripted_answers import Document

_TRIES_MAX = 600


def said_in_messages(body: bytes, *, stream: bool) -> list[Document]:
    """The blocks of an answer."""
    if not stream:
        found: list[Document] = json.loads(body)["content"]
        return found
    blocks: list[Document] = []
    given = ""
    for event in events_of(body):
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            given = ""
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[-1]
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    block[name] += delta[name]
            given += delta.get("partial_json", "")
        elif event["type"] == "content_block_stop" and given:
            blocks[-1]["input"] = json.loads(given)
    return blocks


def said_in_responses(body: bytes, *, stream: bool) -> Document:
    """The whole answer."""
    whole: Document = events_of(body)[-1]["response"] if stream else json.loads(body)
    return whole


@dataclass
class Harness:
    url: str
    session: str
    stream: bool
    calls: int = 0
    history: list[Document] = field(default_factory=list)

    def turn(self, text: str) -> None:
        """The user says something, and the model works until it asks for no tool."""
        self.say(text)
        while self.call():
            pass

    def compact(self, kept: str) -> None:
        """The model sums up, and a new history begins with what it said."""
        self.say(f"Sum up: {kept}")
        self.call()
        self.history = []
        self.say(f"This session is continued. {kept}")
        self.call()

    def say(self, text: str) -> None:
        raise NotImplementedError

    def call(self) -> bool:
        raise NotImplementedError

    def _ask(self, path: str, body: Document) -> bytes:
        """As harnesses do, again where the engine is away."""
        for _ in range(_TRIES_MAX):
            with suppress(OSError, HTTPException):
                status, _, answer = ask(self.url, f"/s/{self.session}{path}", body)
                if status == 200:
                    self.calls += 1
                    return answer
                assert status in (502, 529), answer
            time.sleep(0.05)
        raise AssertionError("no answer")


class ClaudeCode(Harness):
    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def call(self) -> bool:
        *before, last = self.history
        content = last["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        marked = [*parts[:-1], parts[-1] | {"cache_control": {"type": "ephemeral"}}]
        tools: list[Document] = [
            {"name": name, "input_schema": {}} for name in ("read", "edit", "test")
        ]
        body = {
            "model": "m", "max_tokens": 99, "stream": self.stream, "tools": tools,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                       {"type": "text", "text": "Be careful."}],
            "messages": [*before, last | {"content": marked}], "metadata": {"user_id": "u"},
            "thinking": {"type": "adaptive", "display": "omitted"},
        }  # fmt: skip
        answer = self._ask("/v1/messages?beta=true", body)
        blocks = said_in_messages(answer, stream=self.stream)
        if len(parts) == 1 and parts[0]["type"] == "text":
            self.history[-1] = last | {"content": parts[0]["text"]}
        results: list[Document] = []
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = {"replace_all": False} | block["input"]
                told = {"content": f"what {block['name']} said", "is_error": False}
                results.append({"type": "tool_result", "tool_use_id": block["id"]} | told)
        # Without thoughts every other time, as after a change of the model.
        kept = [each for each in blocks if each["type"] != "thinking" or self.calls % 2]
        self.history.append({"role": "assistant", "content": kept})
        if results:
            self.history.append({"role": "user", "content": results})
        if self.calls % 3 == 0:
            self.history.append({"role": "system", "content": "The user waits."})
        return bool(results)


@dataclass
class Codex(Harness):
    #: The server keeps what was said, and only what is new is sent.
    keeps: bool = False
    _previous: str | None = None
    _sent: int = 0

    def say(self, text: str) -> None:
        self._previous = self._previous if self.history else None
        content = [{"type": "input_text", "text": text}]
        self.history.append({"type": "message", "role": "user", "content": content})

    def call(self) -> bool:
        new = self.history
        if self.keeps and self._previous:
            new = self.history[self._sent :]
        body: Document = {
            "model": "m", "input": new, "instructions": "Be careful.", "stream": self.stream,
            "tools": [{"type": "function", "name": "read"}, {"type": "web_search"},
                      {"type": "custom", "name": "edit"}, {"type": "function", "name": "test"}],
            "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"],
            "store": self.keeps, "tool_choice": "auto", "parallel_tool_calls": True,
        }  # fmt: skip
        if self.keeps and self._previous:
            body["previous_response_id"] = self._previous
        answer = self._ask("/v1/responses", body)
        whole = said_in_responses(answer, stream=self.stream)
        self.history += whole["output"]
        self._previous, self._sent = whole["id"], len(self.history)
        results = [
            {"type": f"{item['type']}_output", "call_id": item["call_id"],
             "output": f"what {item['name']} said"}
            for item in whole["output"] if item["type"].endswith("_call")
        ]  # fmt: skip
        self.history += results
        return bool(results)


def work(harness: Harness, turns: int) -> Harness:
    """So many turns, and a compaction in the middle."""
    for turn in range(turns):
        harness.turn(f"{harness.session}: turn {turn}, ünd on")
        if turn == turns // 2:
            harness.compact(f"{harness.session} went on")
    return harness


def harnesses(url: str, count: int) -> list[Harness]:
    """Of both kinds, streaming and not, keeping and not."""
    made: list[Harness] = []
    for number in range(count):
        stream, name = number % 4 < 2, f"h-{number}"
        if number % 2:
            made.append(Codex(url, name, stream, keeps=number % 8 > 3))
        else:
            made.append(ClaudeCode(url, name, stream))
    return made


@contextmanager
def working(url: str, count: int, turns: int) -> Iterator[list[Harness]]:
    """All at once; they have ended at the end of the block."""
    made = harnesses(url, count)
    with ThreadPoolExecutor(count) as pool:
        done = [pool.submit(work, each, turns) for each in made]
        yield made
        for each in done:
            each.result()
