"""The normal form of messages, tool calls and results. It is made of the shapes of OpenAI (both
interfaces), Anthropic, Gemini, Bedrock, LangChain, Vercel and OpenTelemetry."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

Object = Mapping[str, Any]
#: A call as events have it: id, which may be empty, name, arguments.
ToolCall = dict[str, Any]


class ToolOutput(Struct):
    """The output of a tool call: a text, or all parts as they are."""

    call_id: str | None = None
    output: Any = None
    tool: str | None = None
    ok: bool | None = None


class Message(Struct):
    role: str
    text: str | None = None
    thinking: str | None = None
    calls: list[ToolCall] = field(default_factory=list)
    outputs: list[ToolOutput] = field(default_factory=list)
    finish_reason: str | None = None
    #: All parts but results, where some are no text, call or thought; and the kinds of those.
    content: Any = None
    others: list[str] = field(default_factory=list)
    #: Model and usage of an answer, and fields without a meaning here.
    model: Any = None
    usage: Any = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.thinking or self.calls or self.outputs or self.others)


_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant",
          "developer": "system", "function": "tool", "ipython": "tool"}  # fmt: skip
_SPEAKERS = {*_ROLES, "system", "user", "assistant", "tool"}
_CALL_TYPES = {"tool_call", "tool_use", "tool-call", "toolCall", "server_tool_use", "mcp_call",
               "function_call", "custom_tool_call"}  # fmt: skip
_OUTPUT_TYPES = {"tool_call_response", "tool_result", "tool-result", "function_call_output",
                 "custom_tool_call_output", "web_search_tool_result"}  # fmt: skip
_THINKING_TYPES = {"reasoning", "thinking", "thought", "redacted_thinking", "reasoning_content",
                   "reasoning_text"}  # fmt: skip
_TEXT_TYPES = {"text", "input_text", "output_text", "raw_text", "refusal", "summary_text"}
_PART_TYPES = _CALL_TYPES | _OUTPUT_TYPES | _THINKING_TYPES | _TEXT_TYPES
#: Parts that are known by the name of their only field.
_CALL_NAMES = ("toolUse", "functionCall", "function_call")
_OUTPUT_NAMES = ("toolResult", "functionResponse", "function_response")
_CALL_IDS = ("call_id", "tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "id")
_KNOWN = frozenset(
    ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning",
     "function_call", "is_error", "type", "id", "model", "usage", "stop_reason", "finish_reason")
)  # fmt: skip


# Requests and answers


def messages_of(value: Any, role: str = "user") -> list[Message]:
    """Read the messages of a request, an answer or a part. A bare text gets `role`."""
    if isinstance(value, str):
        return [Message(role, value)] if value else []
    if isinstance(value, Mapping):
        return _of_object(value, role)
    if not isinstance(value, list):
        return []
    if len(value) == 1 and isinstance(value[0], list):  # a batch of one
        value = value[0]
    objects = [item for item in value if isinstance(item, dict)]
    are_items = any(map(_item_role, objects))
    if objects and len(objects) == len(value) and not are_items and all(map(is_part, objects)):
        return [_with_parts(Message(role), value)]
    messages = [message for item in value for message in messages_of(item, role)]
    return _joined_answers(messages) if are_items else messages


def answer_of(value: Any) -> Message | None:
    """Read a model's answer: the first of several choices."""
    said = [each for each in messages_of(value, "assistant") if each.role == "assistant"]
    is_choice = isinstance(value, dict) and bool(value.get("choices") or value.get("candidates"))
    return (said[0] if is_choice else said[-1]) if said else None


def message_of(value: Object, role: str = "user") -> Message:
    kind = _kind(value)
    inner = value.get("kwargs") or value.get("data")  # LangChain's own forms
    if isinstance(inner, dict) and ("content" in inner or "tool_calls" in inner):
        name = kind if kind in _SPEAKERS else inner.get("type", role)
        value, kind = {"role": name, **inner}, ""
    if item := _item_role(value):
        return _with_parts(Message(item), [value])
    given = value.get("role")
    if not isinstance(given, str) or not given:
        given = kind if kind in _SPEAKERS else role
    message = Message(_ROLES.get(given, given), model=value.get("model"), usage=value.get("usage"))
    message.extra = {name: each for name, each in value.items()
                     if name not in _KNOWN and each is not None}  # fmt: skip
    message.finish_reason = _word(_first(value, "finish_reason", "finishReason", "stop_reason"))
    content = _first(value, "content", "parts", "message")
    parts = content if isinstance(content, list) else [content]
    if message.role == "tool" and not any(isinstance(p, dict) and _is_output(p) for p in parts):
        call_id, name = _first(value, "tool_call_id", "id"), _word(value.get("name"))
        output = ToolOutput(as_text(call_id) if call_id else None, plain(content), name, _ok(value))
        message.outputs.append(output)
    elif content is not None:
        _with_parts(message, parts)
    calls = json_of(_first(value, "tool_calls", "toolCalls"))
    held = map(json_of, calls if isinstance(calls, list) else [])  # some keep each as JSON
    message.calls += [call_of(call) for call in held if isinstance(call, dict) and call]
    if isinstance(function := value.get("function_call"), dict) and not calls:
        message.calls.append(call_of(function))
    thought = plain(_first(value, "reasoning_content", "reasoning", "thinking"))
    message.thinking = message.thinking or (as_text(thought) if thought else None)
    return message


def call_of(value: Object) -> ToolCall:
    held = _unwrapped(value, "function", "tool_call", *_CALL_NAMES)
    named = held.get("function")  # Inspect has a function's name there
    name = _first(held, "name", "toolName", "tool_name") or (isinstance(named, str) and named)
    kind = _kind(value)  # such as web_search_call, which says what is called
    own = kind.removesuffix("_call") if kind not in _CALL_TYPES else ""
    return {
        "id": as_text(_first(held, *_CALL_IDS) or ""),
        "name": as_text(name or own),
        "arguments": _first(held, "arguments", "input", "args", "parameters", "action"),
    }


def joined(messages: Iterable[Message]) -> Message:
    """Join the items of one answer, which some sources send one by one."""
    items = list(messages)
    reasons = [item.finish_reason for item in items if item.finish_reason]
    return Message(
        "assistant",
        _lines(item.text for item in items),
        _lines(item.thinking for item in items),
        [call for item in items for call in item.calls],
        finish_reason=reasons[-1] if reasons else None,
        extra={name: each for item in items for name, each in item.extra.items()},
    )


def system_text(messages: Iterable[Message]) -> str | None:
    texts = [each.text for each in messages if each.role == "system" and each.text]
    return "\n\n".join(texts) or None


def _of_object(value: Object, role: str) -> list[Message]:
    if "role" in value or _kind(value) in _SPEAKERS:
        return [message_of(value, role)]
    for name in ("messages", "input_messages", "contents", "input"):
        if isinstance(told := json_of(value.get(name)), list):
            system = value.get("system") or value.get("instructions")
            said = [Message("system", as_text(plain(system)))] if system else []
            return said + messages_of(told, role)
    if choices := _objects(value.get("choices")) or _objects(value.get("candidates")):
        return [_choice(choice) for choice in choices]
    if generations := value.get("generations"):
        return messages_of(generations[0] if isinstance(generations, list) else "", "assistant")[:1]
    if is_part(value):
        return [_with_parts(Message(_item_role(value) or role), [value])]
    for name in ("message", "output", "input", "prompt", "prompts", "question", "query"):
        if value.get(name) is not None and "content" not in value:
            return messages_of(value[name], role)
    message = message_of(value, role)
    if not message.is_empty:
        return [message]
    return [Message(role, as_text(value))] if value else []


def _joined_answers(messages: Iterable[Message]) -> list[Message]:
    folded: list[Message] = []
    for message in messages:
        if folded and folded[-1].role == message.role == "assistant":
            folded[-1] = joined([folded[-1], message])
        elif not message.is_empty or message.role != "assistant":
            folded.append(message)
    return folded


def _choice(choice: Object) -> Message:
    answer = choice.get("message") or choice.get("content") or choice.get("text") or ""
    message = (messages_of(answer, "assistant") or [Message("assistant")])[0]
    message.role = "assistant"
    reason = _word(_first(choice, "finish_reason", "finishReason"))
    message.finish_reason = reason or message.finish_reason
    return message


# Parts of messages


def text_of(content: Any) -> str:
    """Join the texts of a message, without thoughts, calls and pictures."""
    if isinstance(content, str):
        return content
    return _with_parts(Message(""), content).text or "" if isinstance(content, list) else ""


def plain(content: Any) -> Any:
    """Join the parts if all are text; else return them as they are."""
    if not isinstance(content, list) or not content:
        return content
    texts = [_text(part) for part in content]
    return "\n".join(filter(None, texts)) if None not in texts else content


def present(values: Object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def json_of(value: Any) -> Any:
    """Decode the text of a JSON list or object; return any other value as it is."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _with_parts(message: Message, parts: list[Any]) -> Message:
    texts, thoughts, rest = [message.text], [message.thinking], []
    for part in parts:
        held = part if isinstance(part, dict) else {}
        kind = _kind(held)
        if _is_output(held):
            message.outputs.append(_output(held))
            continue
        rest.append(part)
        if kind in _THINKING_TYPES or "reasoningContent" in held:
            thoughts.append(_thought(held))
        elif _is_call(held):
            message.calls.append(call_of(held))
        elif (said := _text(part)) is not None:
            texts.append(said)
        elif part is not None:
            message.others.append(kind or "part")
    message.content = rest if message.others else message.content
    message.text, message.thinking = _lines(texts), _lines(thoughts)
    return message


def _text(part: Any) -> str | None:
    """Read the text of a part; None if it is no text."""
    if not isinstance(part, dict) or (_kind(part) or "text") not in _TEXT_TYPES:
        return part if isinstance(part, str) else None
    told = _first(part, "text", "content", "value", "refusal")
    if told is None:
        return "" if "text" in part else None
    return as_text(told)


def _output(part: Object) -> ToolOutput:
    held = _unwrapped(part, *_OUTPUT_NAMES)
    output = _first(held, "response", "result", "output", "content")
    if isinstance(output, dict) and set(output) == {"type", "value"}:  # Vercel's
        output = output["value"]
    call_id, name = _first(held, *_CALL_IDS), _word(_first(held, "name", "toolName"))
    return ToolOutput(as_text(call_id) if call_id else None, plain(output), name, _ok(held))


def _thought(part: Object) -> str | None:
    inner = part.get("reasoningContent")
    if isinstance(inner, dict):
        inner = inner.get("reasoningText", inner)
        part = inner if isinstance(inner, dict) else part
    told = next((part[name] for name in ("thinking", "text", "content", "summary", "reasoning")
                 if part.get(name)), None)  # fmt: skip
    texts = [each.get("text") for each in _objects(told)]
    told = _lines(texts) if texts and None not in texts else plain(told)
    return as_text(told) if told else None


def _kind(value: Object) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def _item_role(value: Object) -> str | None:
    """Find the role of an item of OpenAI's Responses that has no message around it."""
    kind = _kind(value)
    if "role" in value or kind == "tool_call":
        return None
    if kind == "reasoning" or kind.endswith("_call"):
        return "assistant"
    return "tool" if kind.endswith("_call_output") else None


def is_part(value: Object) -> bool:
    if "role" in value:
        return False
    named = any(name in value for name in (*_CALL_NAMES, *_OUTPUT_NAMES, "reasoningContent"))
    kind = _kind(value)
    return kind in _PART_TYPES or _item_role(value) is not None or (not kind and named)


def _is_call(part: Object) -> bool:
    named = any(isinstance(part.get(name), dict) for name in _CALL_NAMES)
    return named or _kind(part) in _CALL_TYPES or _kind(part).endswith("_call")


def _is_output(part: Object) -> bool:
    named = any(isinstance(part.get(name), dict) for name in _OUTPUT_NAMES)
    return named or _kind(part) in _OUTPUT_TYPES


def _ok(held: Object) -> bool | None:
    failed = held.get("is_error", held.get("isError"))
    if isinstance(failed, bool):
        return not failed
    return {"error": False, "success": True}.get(str(held.get("status")))


def _unwrapped(value: Object, *names: str) -> dict[str, Any]:
    """Merge the fields of a value with the object in it under one of these names."""
    inner = next((value[name] for name in names if isinstance(value.get(name), dict)), None)
    return {**value, **(inner or {})}


def _first(held: Object, *names: str) -> Any:
    return next((held[name] for name in names if held.get(name) is not None), None)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _lines(texts: Iterable[str | None]) -> str | None:
    return "\n".join(filter(None, texts)) or None


# What a call took


def usage_of(values: object) -> dict[str, int] | None:
    """Read numbers of tokens by any of their names. `prompt` is all that the model read: Anthropic
    counts cached tokens apart."""
    if not isinstance(values, Mapping):
        return None

    def first(*names: str) -> int | None:
        for name in names:
            found: object = values
            for part in name.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            if (count := count_of(found)) is not None:
                return count
        return None

    prompt = first("prompt_tokens", "input_tokens", "inputTokens", "input", "prompt")
    apart = first("cache_read_input_tokens"), first("cache_creation_input_tokens")
    if prompt is not None and "input_tokens" in values and any(apart):
        prompt += sum(count or 0 for count in apart)
    usage = {
        "prompt": prompt,
        "completion": first(
            "completion_tokens", "output_tokens", "outputTokens", "output", "completion"
        ),
        "thinking": first(
            "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
            "reasoning_tokens", "thoughts", "thinking", "reasoningTokens",
        ),
        "cached": first(
            "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
            "cached_tokens", "input_cached_tokens", "cache_read_input_tokens", "cacheReadTokens",
            "cached",
        ),
    }  # fmt: skip
    return {name: count for name, count in usage.items() if count is not None} or None


def count_of(value: object) -> int | None:
    """Read a count as sources write it, such as 12.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == int(value) else None
