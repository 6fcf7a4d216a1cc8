"""Messages in OpenAI's form, as JSON and as chat templates take them."""

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock_jobs.shards.messages import Message, ToolCall

_encoder = msgspec.json.Encoder()


def openai_message(message: Message) -> dict[str, Any]:
    """The keys always in this order. What the model thought is `reasoning_content`, as inference
    servers call it. Arguments are the text that was sent."""
    form: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        form["reasoning_content"] = message.reasoning
    if message.tool_calls:
        form["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.role == "tool":
        if message.tool_call_id is not None:
            form["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            form["name"] = message.name
    return form


def encode_message(message: Message, *, trained: bool) -> bytes:
    """What the model said and is not trained has the weight 0, as fine-tuning files have it."""
    form = openai_message(message)
    if message.role == "assistant" and not trained:
        form["weight"] = 0
    return _encoder.encode(form)


def join_messages(encoded: Iterable[bytes]) -> str:
    return (b"[" + b",".join(encoded) + b"]").decode()


class RawObject(dict[str, Any]):
    """Arguments that templates may go through, and that `tojson` writes as the model did."""

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.text = text


class RawText(str):
    """Arguments that are no object: `tojson` writes them as they are."""

    __slots__ = ()


def template_message(message: Message) -> dict[str, Any]:
    """For templates, which expect arguments as objects. `thinking` is another name that some have
    for `reasoning_content`."""
    form = openai_message(message)
    if message.reasoning is not None:
        form["thinking"] = message.reasoning
    for call in form.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"])
    return form


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str) -> RawObject | RawText:
    try:
        value = msgspec.json.decode(text.encode(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return RawText(text)
    return RawObject(text, value)
