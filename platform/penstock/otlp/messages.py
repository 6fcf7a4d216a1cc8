"""Messages in whichever shape a client's library has them, in one form."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from penstock.otlp.attributes import as_text, objects, structured

_Object = Mapping[str, Any]


class ToolOutput(Struct):
    """What a model was told of a tool's call."""

    output: Any = None
    call_id: str | None = None
    tool: str | None = None
    failed: bool | None = None


class Message(Struct):
    role: str
    text: str | None = None
    thinking: str | None = None
    #: As events have them: id, name, arguments.
    calls: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[ToolOutput] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.thinking or self.calls or self.outputs)


#: Names of those who speak, where they are others than system, user, assistant and tool.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant",
          "developer": "system", "function": "tool", "ipython": "tool"}  # fmt: skip
_ANSWERING = ("assistant", "model", "ai")
_CALL_TYPES = {"tool_call", "tool_use", "tool-call", "function_call", "custom_tool_call",
               "server_tool_use", "mcp_call"}  # fmt: skip
_OUTPUT_TYPES = {"tool_call_response", "tool_result", "tool-result", "function_call_output",
                 "custom_tool_call_output", "web_search_tool_result"}  # fmt: skip
#: Parts that are told by the name of their only field.
_CALL_NAMES = ("toolUse", "functionCall", "function_call")
_OUTPUT_NAMES = ("toolResult", "functionResponse", "function_response")
_THINKING_TYPES = {"reasoning", "thinking", "thought", "redacted_thinking", "reasoning_content"}
_TEXT_TYPES = {"text", "input_text", "output_text", "raw_text", "refusal", "summary_text"}
_PART_TYPES = _CALL_TYPES | _OUTPUT_TYPES | _THINKING_TYPES | _TEXT_TYPES
#: Items of OpenAI's Responses that stand for themselves, without a message around them.
_ITEM_ROLES = {"function_call": "assistant", "custom_tool_call": "assistant",
               "reasoning": "assistant", "function_call_output": "tool",
               "custom_tool_call_output": "tool", "mcp_call": "assistant"}  # fmt: skip


def messages_of(value: Any, role: str = "user") -> list[Message]:
    """Those of a value, or of its JSON; a bare text is said by `role`, and so is a part."""
    value = structured(value)
    if isinstance(value, str):
        return [Message(role, text=value)] if value else []
    if isinstance(value, dict):
        return _of_object(value, role)
    if not isinstance(value, list):
        return []
    if len(value) == 1 and isinstance(value[0], list):  # of a batch of one
        value = value[0]
    if value and all(isinstance(item, dict) and _is_part(item) for item in value):
        whole = Message(role)
        _add_parts(whole, value)
        return [whole]
    messages: list[Message] = []
    for item in value:
        messages += messages_of(item, role)
    return messages


def newest_of(value: Any) -> tuple[list[Message], int]:
    """Of the messages that a model was sent those from its last answer on, and system prompts; and
    how many were left out. Long histories stand in each call of a session."""
    items = structured(value)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return messages_of(items), 0
    answers = [place for place, item in enumerate(items) if item.get("role") in _ANSWERING]
    last = answers[-1] if answers else 0
    prompts = [item for item in items[:last] if item.get("role") in ("system", "developer")]
    return messages_of(prompts + items[last:]), last - len(prompts)


def message_of(value: _Object, role: str = "user") -> Message:
    """One message: of OpenAI, Anthropic, Gemini, Bedrock, LangChain, Vercel, GenAI conventions."""
    kind = _kind(value)
    inner = value.get("kwargs") or value.get("data")  # LangChain's own forms
    if isinstance(inner, dict) and ("content" in inner or "tool_calls" in inner):
        name = kind if _is_role(kind) else inner.get("type", role)
        value, kind = {"role": name, **inner}, ""
    given = value.get("role")
    if not isinstance(given, str) or not given:
        given = _ITEM_ROLES.get(kind) or (kind if _is_role(kind) else role)
    message = Message(_ROLES.get(given, given))
    if kind in _ITEM_ROLES:
        _add_parts(message, [value])
        return message
    content = value.get("content", value.get("parts"))
    if content is None:
        content = value.get("parts", value.get("message"))
    content = structured(content) if message.role == "assistant" else _parts_within(content)
    reason = value.get("finish_reason") or value.get("finishReason")
    message.finish_reason = reason if isinstance(reason, str) and reason else None
    thought = next((value[name] for name in ("reasoning_content", "reasoning", "thinking")
                    if value.get(name)), None)  # fmt: skip
    if thought is not None:
        message.thinking = _plain(thought)
    call_id = value.get("tool_call_id") or value.get("id") if message.role == "tool" else None
    if message.role == "tool" and not _has_outputs(content):
        name = value.get("name")
        message.outputs.append(
            ToolOutput(_plain(content), _word(call_id), _word(name), _failed(value))
        )
    elif content is not None:
        _add_parts(message, content if isinstance(content, list) else [content])
    calls = structured(value.get("tool_calls") or value.get("toolCalls"))
    message.calls += [call for call in map(call_of, objects(calls)) if call]
    if isinstance(function := value.get("function_call"), dict) and not calls:
        message.calls.append(call_of(function))
    return message


def call_of(value: _Object) -> dict[str, Any]:
    """A call of a tool as events have it, of any of the shapes."""
    held = _unwrapped(value, ("function", "tool_call", *_CALL_NAMES))
    name = held.get("name") or held.get("toolName") or held.get("tool_name")
    return {
        "id": _call_id(held) or "",
        "name": as_text(name) if name is not None else "",
        "arguments": _first(held, ("arguments", "input", "args", "parameters")),
    }


def system_text(messages: Iterable[Message]) -> str | None:
    texts = [message.text for message in messages if message.role == "system" and message.text]
    return "\n\n".join(texts) or None


def joined(messages: Iterable[Message]) -> Message:
    """Items of one answer, which some tell one by one, as one message."""
    items = list(messages)
    reasons = [item.finish_reason for item in items if item.finish_reason]
    return Message(
        "assistant",
        text=_lines(item.text for item in items),
        thinking=_lines(item.thinking for item in items),
        calls=[call for item in items for call in item.calls],
        finish_reason=reasons[-1] if reasons else None,
    )


def _of_object(value: _Object, role: str) -> list[Message]:
    if "role" not in value:
        for name in ("messages", "input_messages", "contents", "input"):
            if isinstance(structured(value.get(name)), list):
                system = value.get("system") or value.get("instructions")
                first = messages_of(system, "system") if system else []
                return first + messages_of(value[name], role)
        choices = objects(value.get("choices")) or objects(value.get("candidates"))
        if choices:
            return [_choice(choice) for choice in choices]
        generations = value.get("generations")
        if isinstance(generations, list) and generations:
            return messages_of(generations[0], "assistant")[:1]
        for name in ("message", "output", "prompt", "prompts"):
            if value.get(name) is not None and "content" not in value:
                return messages_of(value[name], role)
    if _is_part(value) and "role" not in value:
        whole = Message(_ITEM_ROLES.get(str(value.get("type")), role))
        _add_parts(whole, [value])
        return [whole]
    message = message_of(value, role)
    if message.is_empty and not _is_message(value):
        return [Message(role, text=as_text(value))] if value else []
    return [message]


def _choice(choice: _Object) -> Message:
    answer = choice.get("message") or choice.get("content") or choice.get("text") or ""
    message = (messages_of(answer, "assistant") or [Message("assistant")])[0]
    message.role = "assistant"
    reason = choice.get("finish_reason") or choice.get("finishReason")
    message.finish_reason = reason if isinstance(reason, str) else message.finish_reason
    return message


def _kind(value: _Object) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def _is_role(kind: str) -> bool:
    return kind in _ROLES or kind in ("system", "user", "assistant", "tool")


def _is_message(value: _Object) -> bool:
    return isinstance(value.get("role"), str) or _is_role(_kind(value))


def _is_part(value: _Object) -> bool:
    kind = _kind(value)
    if "role" in value:
        return False
    if kind:
        return kind in _PART_TYPES
    return any(name in value for name in (*_CALL_NAMES, *_OUTPUT_NAMES, "reasoningContent"))


def _parts_within(content: Any) -> Any:
    """What a user says may look like JSON and is a text all the same, unless it is parts."""
    parsed = structured(content)
    if parsed is content or not isinstance(parsed, list) or not parsed:
        return content
    are_parts = all(isinstance(item, dict) and (_is_part(item) or "text" in item)
                    for item in parsed)  # fmt: skip
    return parsed if are_parts else content


def _has_outputs(content: Any) -> bool:
    return any(_is_output(part) for part in objects(content))


def _is_output(part: _Object) -> bool:
    names = _OUTPUT_NAMES
    return _kind(part) in _OUTPUT_TYPES or any(isinstance(part.get(n), dict) for n in names)


def _add_parts(message: Message, parts: Iterable[Any]) -> None:
    texts: list[str | None] = [message.text]
    thoughts: list[str | None] = [message.thinking]
    for part in parts:
        if not isinstance(part, dict):
            texts.append(as_text(part) if part is not None else None)
            continue
        kind = _kind(part)
        if kind in _CALL_TYPES or any(isinstance(part.get(n), dict) for n in _CALL_NAMES):
            message.calls.append(call_of(part))
        elif _is_output(part):
            message.outputs.append(_output(part))
        elif kind in _THINKING_TYPES or "reasoningContent" in part:
            thoughts.append(_thought(part))
        elif (said := _word(_first(part, ("text", "content", "value", "refusal")))) is not None:
            texts.append(said)
        elif "text" not in part:
            texts.append(f"[{kind or 'part'}]")  # an image, or whatever else is no text
    message.text, message.thinking = _lines(texts), _lines(thoughts)


def _output(part: _Object) -> ToolOutput:
    held = _unwrapped(part, _OUTPUT_NAMES)
    output = _first(held, ("response", "result", "output", "content"))
    if isinstance(output, dict) and set(output) == {"type", "value"}:  # Vercel's
        output = output["value"]
    name = held.get("name") or held.get("toolName")
    return ToolOutput(_plain(output), _call_id(held), _word(name), _failed(held))


def _unwrapped(value: _Object, names: tuple[str, ...]) -> dict[str, Any]:
    """An object with the fields of the one that it holds under one of these names."""
    for name in names:
        inner = value.get(name)
        if isinstance(inner, dict):
            return {**value, **inner}
    return dict(value)


def _first(held: _Object, names: tuple[str, ...]) -> Any:
    return next((held[name] for name in names if held.get(name) is not None), None)


def _call_id(held: _Object) -> str | None:
    call_id = _first(held, ("call_id", "tool_use_id", "toolUseId", "toolCallId", "tool_call_id",
                            "id"))  # fmt: skip
    return as_text(call_id) if call_id not in (None, "") else None


def _failed(held: _Object) -> bool | None:
    if held.get("is_error") is True or held.get("isError") is True:
        return True
    status = held.get("status")
    return status == "error" if status in ("error", "success") else None


def _thought(part: _Object) -> str | None:
    inner = part.get("reasoningContent")
    if isinstance(inner, dict):
        inner = inner.get("reasoningText", inner)
        part = inner if isinstance(inner, dict) else part
    for name in ("thinking", "text", "content", "summary", "reasoning"):
        if part.get(name):
            return _plain(part[name])
    return None


def _plain(value: Any) -> str | None:
    """A text, or the texts of parts; anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        texts = [_part_text(part) for part in value]
        if all(isinstance(each, str) for each in texts):
            return "\n".join(str(each) for each in texts)
    return as_text(value)


def _part_text(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return part.get("text", part.get("content"))


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _lines(texts: Iterable[str | None]) -> str | None:
    there = [text for text in texts if text is not None]
    return "\n".join(there) if there else None
