"""A model that follows a script, over the interfaces of OpenAI and Anthropic: it calls the first
tool once, and says the same sentence from then on."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.servers.scripted_server import Answer, Asked, Server, answering

Row = dict[str, Any]
SAID = "one file: a.py"
ARGUMENTS = {"path": "."}


@contextmanager
def scripted_model() -> Iterator[str]:
    """Its address."""
    numbers = itertools.count(1)

    def script(asked: Asked) -> Answer:
        request, number = asked.document, next(numbers)
        calls = _calls(request)
        if request.get("stream"):
            stream = {"Content-Type": "text/event-stream"}
            return Answer(body=_stream(request, number, calls), headers=stream)
        speak = {"messages": _messages, "responses": _response}.get(
            asked.path.rpartition("/")[2], _completion
        )
        body = json.dumps(speak(request, number, calls))
        return Answer(body=body, headers={"Content-Type": "application/json"})

    server = Server(script=script)
    with answering(server, ""):
        yield server.url


def _calls(request: Row) -> str | None:
    """The tool that is called next."""
    told = request.get("messages") or request.get("input") or []
    answered = isinstance(told, list) and any(
        item.get("role") in ("assistant", "tool") or item.get("type") == "function_call_output"
        for item in told
    )
    if answered or not request.get("tools"):
        return None
    tool = request["tools"][0]
    return str(tool.get("name") or tool["function"]["name"])


def _completion(request: Row, number: int, calls: str | None) -> Row:
    message: Row = {"role": "assistant", "content": None if calls else SAID}
    if calls:
        function = {"name": calls, "arguments": json.dumps(ARGUMENTS)}
        message["tool_calls"] = [{"id": "call-1", "type": "function", "function": function}]
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": f"chat-{number}", "object": "chat.completion", "created": 1,
            "model": request["model"], "choices": [choice], "usage": {
                "prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17,
                "prompt_tokens_details": {"cached_tokens": 3}}}  # fmt: skip


def _stream(request: Row, number: int, calls: str | None) -> str:
    whole = _completion(request, number, calls)
    [choice] = whole["choices"]
    message = choice["message"]
    for place, call in enumerate(message.get("tool_calls", [])):
        call["index"] = place
    made = {"object": "chat.completion.chunk", "id": whole["id"], "created": 1,
            "model": whole["model"]}  # fmt: skip
    chunks = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {"choices": [], "usage": whole["usage"]},
    ]
    lines = ["data: " + json.dumps(made | chunk) for chunk in chunks]
    return "\n\n".join([*lines, "data: [DONE]", ""])


def _response(request: Row, number: int, calls: str | None) -> Row:
    if calls:
        item: Row = {"type": "function_call", "id": "f-1", "call_id": "call-1", "name": calls,
                     "arguments": json.dumps(ARGUMENTS), "status": "completed"}  # fmt: skip
    else:
        part = {"type": "output_text", "text": SAID, "annotations": []}
        item = {"type": "message", "id": f"m-{number}", "role": "assistant",
                "status": "completed", "content": [part]}  # fmt: skip
    return {"id": f"response-{number}", "object": "response", "created_at": 1,
            "status": "completed", "model": request["model"], "output": [item],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": {
                "input_tokens": 12, "output_tokens": 5, "total_tokens": 17,
                "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0}}}  # fmt: skip


def _messages(request: Row, number: int, calls: str | None) -> Row:
    block: Row = {"type": "text", "text": SAID}
    if calls:
        block = {"type": "tool_use", "id": "call-1", "name": calls, "input": ARGUMENTS}
    return {"id": f"message-{number}", "type": "message", "role": "assistant",
            "model": request["model"], "content": [block], "stop_sequence": None,
            "stop_reason": "tool_use" if calls else "end_turn", "usage": {
                "input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 0}}  # fmt: skip
