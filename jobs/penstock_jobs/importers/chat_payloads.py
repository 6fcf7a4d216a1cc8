"""What tracers keep as the input and the output of a call: messages in whichever form the client's
library sent them, as those that a transcript reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock_jobs.importers.session_draft import present
from penstock_jobs.importers.transcript import json_of

_Message = dict[str, Any]
#: LangChain's names for who speaks.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant",
          "system": "system", "tool": "tool", "function": "tool"}  # fmt: skip
#: Parts of Anthropic's messages, and the names that others have for them.
_CALLS, _RESULTS = ("tool_use", "tool_call"), ("tool_result",)
_ITEMS = ("function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output",
          "reasoning", "message")  # fmt: skip


def messages_of(value: object) -> list[_Message]:
    """The messages that a model was sent; a bare text is the user's."""
    value = json_of(value)
    if isinstance(value, Mapping):
        return _messages_of_request(value)
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], list):  # of a batch of one
            return messages_of(value[0])
        if value and all(_is_message(item) for item in value):
            messages = [message for item in value for message in _as_messages(item)]
            return _joined(messages) if any(_is_item(item) for item in value) else messages
    if value in (None, "", [], {}):
        return []
    return [{"role": "user", "content": _as_text(value)}]


def _messages_of_request(request: Mapping[str, Any]) -> list[_Message]:
    told = next((request[name] for name in ("messages", "input") if request.get(name)), None)
    if told is None and _is_message(request):
        return _as_messages(request)
    if told is None:
        text = next((request[name] for name in ("prompt", "question", "query") if name in request),
                    request)  # fmt: skip
        return [{"role": "user", "content": _as_text(text)}]
    system = request.get("system") or request.get("instructions")
    if isinstance(system, Mapping):  # what a template was filled with
        system = _as_text(system)
    first: list[_Message] = [{"role": "system", "content": system}] if system else []
    return first + messages_of(told)


def answer_of(value: object) -> _Message | None:
    """The message that a model gave; None where there is none."""
    value = json_of(value)
    if isinstance(value, str):
        return {"role": "assistant", "content": value} if value else None
    if isinstance(value, list):
        return _answer_of_list(value)
    if not isinstance(value, Mapping):
        return None
    choices = value.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        message = message if isinstance(message, dict) else {"content": choices[0].get("text")}
        return {"role": "assistant", "finish_reason": choices[0].get("finish_reason")} | message
    generations = value.get("generations")
    if isinstance(generations, list) and generations:
        return answer_of(generations[0])
    if (told := next((value[name] for name in ("message", "output", "messages")
                      if isinstance(value.get(name), dict | list)), None)) is not None:  # fmt: skip
        return answer_of(told)
    if _is_message(value) or "content" in value or "tool_calls" in value:
        messages = _as_messages(value)
        return (messages[0] if messages else {}) | {"role": "assistant"}
    return {"role": "assistant", "content": _as_text(value)} if value else None


def _answer_of_list(items: Sequence[Any]) -> _Message | None:
    if len(items) == 1 and isinstance(items[0], list):
        return _answer_of_list(items[0])
    if items and all(_is_message(item) for item in items):
        said = [m for m in messages_of(list(items)) if m.get("role") == "assistant"]
        return said[-1] if said else None
    if items and all(isinstance(item, dict) for item in items):  # parts of one message
        return {"role": "assistant", "content": list(map(_part, items))}
    return {"role": "assistant", "content": _as_text(items)} if items else None


def _is_message(item: object) -> bool:
    return isinstance(item, Mapping) and (
        isinstance(item.get("role"), str)
        or item.get("type") in _ITEMS
        or (item.get("type") in _ROLES and ("content" in item or "data" in item))
    )


def _as_messages(item: Mapping[str, Any]) -> list[_Message]:
    """A message, or an item of OpenAI's Responses."""
    kind = item.get("type")
    if kind in ("function_call", "custom_tool_call"):
        call = {"id": item.get("call_id") or item.get("id"), "name": item.get("name"),
                "arguments": item.get("arguments", item.get("input"))}  # fmt: skip
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    if kind in ("function_call_output", "custom_tool_call_output"):
        told = {"tool_call_id": item.get("call_id"), "content": item.get("output")}
        return [{"role": "tool"} | told]
    if kind == "reasoning":
        thought = _as_text(item.get("summary") or item.get("content") or "")
        return [{"role": "assistant", "reasoning": thought}] if thought else []
    data = item.get("data")
    held = data if kind in _ROLES and isinstance(data, Mapping) else item
    role = held.get("role") or _ROLES.get(str(kind), "user")
    message = {**held, "role": _ROLES.get(role, role)}
    message.pop("type", None)
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [_part(part) for part in content]
    if isinstance(content, Mapping):
        message["content"] = _as_text(content)
    return [message]


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind in _CALLS:
        arguments = part.get("input", part.get("arguments", part.get("args")))
        return {"type": "tool_use", "id": part.get("id"), "name": part.get("name"),
                "input": arguments}  # fmt: skip
    if kind in _RESULTS:
        call_id = part.get("tool_use_id") or part.get("id")
        result = part.get("content", part.get("result"))
        return part | {"type": "tool_result", "tool_use_id": call_id, "content": result}
    if kind in ("thought", "thinking"):
        return {"type": "thinking", "thinking": part.get("thinking") or part.get("text")}
    if kind in ("text", "raw_text") and "text" not in part:
        return {"type": "text", "text": _as_text(part.get("value", part.get("content", "")))}
    return part


def _joined(messages: Sequence[_Message]) -> list[_Message]:
    """Items of one answer, which Responses tell one by one, as one message."""
    joined: list[_Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or not last["role"] == message["role"] == "assistant":
            joined.append(message)
            continue
        texts = [each.get("content") for each in (last, message) if each.get("content")]
        calls = [*last.get("tool_calls", []), *message.get("tool_calls", [])]
        whole = last | message | {"content": texts[-1] if texts else None}
        thoughts = [each["reasoning"] for each in (last, message) if each.get("reasoning")]
        joined[-1] = present(
            whole | {"tool_calls": calls or None, "reasoning": "\n".join(thoughts) or None}
        )
    return joined


def _is_item(item: Mapping[str, Any]) -> bool:
    return item.get("type") in _ITEMS


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(p, dict) and "text" in p for p in value)
    ):
        return "\n".join(str(part["text"]) for part in value)
    return msgspec.json.encode(value).decode()
