"""Anthropic's Messages protocol: requests as chat completions, and answers made of them, whole or
event by event."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.doors.proxy.chat_completions import (
    CallPart,
    ChatAnswer,
    ChatMessages,
    ChatUsage,
    NotOfTheEngine,
    Object,
    ProtocolAnswer,
    arguments_of,
    function_tool,
    offered,
    renamed,
    stream_members,
)

#: Claude Code writes what its vendor bills by as a system prompt. It may differ from call to call.
_BILLING = "x-anthropic-billing-header"
_RENAMED = {
    "model": "model",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
#: Roles of Claude Code's own, and what they are to a model.
_USERS = frozenset(("user", "ctx", "msg"))
#: Members that ask for what no engine does.
_FOREIGN = ("container", "mcp_servers")


def chat_of_messages(request: Mapping[str, Any]) -> Object:
    """Translate a request. Raises NotOfTheEngine, and what a malformed one raises."""
    for name in _FOREIGN:
        if request.get(name):
            raise NotOfTheEngine(what=name)
    said = ChatMessages()
    said.system("\n\n".join(filter(None, _texts(request.get("system") or ()))))
    for message in request["messages"]:
        _add(said, message["role"], message["content"])
    chat = renamed(request, _RENAMED) | {"messages": said.messages} | stream_members(request)
    choice = request.get("tool_choice") or {}
    if tools := _tools(request, choice):
        chat["tools"] = tools
        if choice:
            chat["tool_choice"] = _chosen(choice)
        if choice.get("disable_parallel_tool_use"):
            chat["parallel_tool_calls"] = False
    return chat | _thinking(request) | _form(request.get("output_config") or {})


def _thinking(request: Mapping[str, Any]) -> Object:
    effort = (request.get("output_config") or {}).get("effort")
    if (request.get("thinking") or {}).get("type") == "disabled":
        return {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
    return {"reasoning_effort": effort} if effort in ("low", "medium", "high") else {}


def _form(output: Mapping[str, Any]) -> Object:
    form = output.get("format")
    if not form:
        return {}
    schema = {"name": "answer", "schema": form["schema"]}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _add(said: ChatMessages, role: str, content: str | list[Object]) -> None:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if role == "assistant":
        for block in blocks:
            _repeat(said, block)
    elif role == "system":
        changes = ("tool_addition", "tool_removal")
        texts = _texts(block for block in blocks if block["type"] not in changes)
        said.system("\n".join(filter(None, texts)))
    elif role in _USERS:
        _add_user(said, blocks)
    else:
        raise NotOfTheEngine(what=f"messages of the role {role}")


def _add_user(said: ChatMessages, blocks: list[Object]) -> None:
    texts: list[str] = []
    for block in blocks:
        if block["type"] == "tool_result":
            output = "\n".join(_texts(block.get("content") or ()))
            said.tool(block["tool_use_id"], output)
        else:
            texts += _texts([block])
    if text := "\n".join(filter(None, texts)):
        said.user(text)


def _repeat(said: ChatMessages, block: Object) -> None:
    match block["type"]:
        case "text":
            said.say(block["text"])
        case "thinking":
            said.think(block.get("thinking") or "")
        case "redacted_thinking":
            pass
        case "tool_use":
            # Spaced as chat templates write it.
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            said.call(block["id"], block["name"], arguments)
        case kind:
            raise NotOfTheEngine(what=f"blocks of the type {kind}")


def _texts(content: Any) -> Iterator[str]:
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match block["type"]:
            case "text" if not block["text"].startswith(_BILLING):
                yield block["text"]
            case "text":
                pass
            case "tool_reference":
                yield f"The tool {block['tool_name']} can be called now."
            case kind:
                raise NotOfTheEngine(what=f"blocks of the type {kind}")


def _tools(request: Mapping[str, Any], choice: Mapping[str, Any]) -> list[Object] | None:
    named: dict[str, Object] = {}
    hosted = set()
    for tool in request.get("tools") or ():
        if tool.get("type") in (None, "custom"):
            named[tool["name"]] = tool
        else:
            hosted.add(tool["type"])
    shown = {name for name, tool in named.items() if not tool.get("defer_loading")}
    for name, definition, is_there in _changes(request["messages"]):
        if definition is not None:
            named[name] = definition
        shown = shown | {name} if is_there else shown - {name}
    tools = [
        function_tool(name, tool.get("description"), tool.get("input_schema"))
        for name, tool in named.items()
        if name in shown
    ]
    forced = choice.get("type") == "tool" and choice.get("name") not in named
    return offered(hosted, tools, is_forced=forced)


def _changes(messages: list[Object]) -> Iterator[tuple[str, Object | None, bool]]:
    """Find the tools that the conversation itself brings or takes away."""
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] in ("tool_addition", "tool_removal"):
                change = block["tool"]
                definition = change.get("definition")
                name = (definition or change).get("name") or change["tool_name"]
                yield name, definition, block["type"] == "tool_addition"
            elif block["type"] == "tool_result" and isinstance(block.get("content"), list):
                for part in block["content"]:
                    if part["type"] == "tool_reference":
                        yield part["tool_name"], None, True


def _chosen(choice: Mapping[str, Any]) -> Any:
    if choice["type"] == "tool":
        return {"type": "function", "function": {"name": choice["name"]}}
    return _CHOICES[choice["type"]]


# Answers


_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
#: Clients send it back with a thought; nobody reads it.
_SIGNATURE = "penstock"
_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error",
    529: "overloaded_error",
}  # fmt: skip
#: What engines say when a prompt is too long. Claude Code compacts at the vendor's words for it.
_TOO_LONG = ("context length", "context_length", "longer than the model")


class MessagesAnswer(ProtocolAnswer):
    def __init__(self, request: Mapping[str, Any]) -> None:
        self._id, self._model = "", str(request["model"])
        self._usage = ChatUsage()
        self._blocks: list[Object] = []
        self._arguments: list[str] = []
        self._reason: str | None = None
        self._sequence: str | None = None
        self._is_broken = False

    def take(self, answer: ChatAnswer) -> Iterator[Object]:
        if not self._id:
            self._id, self._model = answer.id or "msg", answer.model or self._model
            ids = answer.prompt_ids
            self._usage.prompt_tokens = ids.count(b",") + 1 if ids else 0
            yield {"type": "message_start", "message": self.whole()}
        if answer.error:
            self._is_broken = True
            yield messages_error(500, error_text(answer.error))
        self._usage = answer.usage or self._usage
        for choice in answer.choices[:1]:
            yield from self._say(choice.said)
            if choice.finish_reason:
                self._reason, self._sequence = choice.finish_reason, choice.stop_sequence

    def end(self) -> Iterator[Object]:
        if self._is_broken:
            return
        yield from self._close()
        whole = self.whole()
        delta = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_delta", "delta": delta, "usage": whole["usage"]}
        yield {"type": "message_stop"}

    def whole(self) -> Object:
        usage = self._usage
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": list(self._blocks),
            "stop_reason": self._stop_reason(),
            "stop_sequence": self._sequence if self._stop_reason() == "stop_sequence" else None,
            "usage": {
                "input_tokens": max(0, usage.prompt_tokens - usage.cached),
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": usage.cached,
                "output_tokens": usage.completion,
            },
        }

    def _stop_reason(self) -> str | None:
        if self._reason is None:
            return None
        if self._reason in _REASONS:
            return _REASONS[self._reason]
        if any(block["type"] == "tool_use" for block in self._blocks):
            return "tool_use"
        return "end_turn" if self._sequence is None else "stop_sequence"

    def _piece(self, kind: str, text: str) -> Iterator[Object]:
        if self._open != (kind, 0):
            yield from self._begin((kind, 0), {"type": kind, kind: ""})
        self._blocks[-1][kind] += text
        yield self._delta({"type": f"{kind}_delta", kind: text})

    def _call(self, part: CallPart, number: int) -> Iterator[Object]:
        if self._open != ("tool_use", number):
            block: Object = {"type": "tool_use", "id": part.id or f"toolu_{number}"}
            block |= {"name": part.function.name or "unknown", "input": {}}
            yield from self._begin(("tool_use", number), block)
        if text := part.function.arguments:
            self._arguments.append(text)
            yield self._delta({"type": "input_json_delta", "partial_json": text})

    def _begin(self, kind: tuple[str, int], block: Object) -> Iterator[Object]:
        yield from self._close()
        self._open = kind
        self._blocks.append(block)
        shown = block | ({"signature": ""} if kind[0] == "thinking" else {})
        at = len(self._blocks) - 1
        yield {"type": "content_block_start", "index": at, "content_block": shown}

    def _close(self) -> Iterator[Object]:
        if self._open is None:
            return
        block = self._blocks[-1]
        if block["type"] == "tool_use":
            block["input"] = arguments_of("".join(self._arguments))
            self._arguments = []
        elif block["type"] == "thinking":
            block["signature"] = _SIGNATURE
            yield self._delta({"type": "signature_delta", "signature": _SIGNATURE})
        self._open = None
        yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _delta(self, delta: Object) -> Object:
        at = len(self._blocks) - 1
        return {"type": "content_block_delta", "index": at, "delta": delta}


def messages_error(status: int, message: str) -> Object:
    if status == 400 and is_too_long(message):
        message = f"prompt is too long: {message}"
    kind = _ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def is_too_long(message: str) -> bool:
    return any(each in message for each in _TOO_LONG)


def error_text(error: object) -> str:
    return str(error["message"]) if isinstance(error, dict) and "message" in error else str(error)
