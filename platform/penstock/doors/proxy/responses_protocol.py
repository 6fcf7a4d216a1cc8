"""OpenAI's Responses protocol: requests as chat completions, and answers made of them, whole or
event by event."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.doors.proxy.chat_completions import (
    CallPart,
    ChatAnswer,
    ChatMessages,
    ChatUsage,
    NotOfTheEngine,
    Object,
    ProtocolAnswer,
    arguments_of,
    function_name,
    function_tool,
    offered,
    renamed,
    stream_members,
)
from penstock.doors.proxy.messages_protocol import error_text

_RENAMED = {
    "model": "model",
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
}
#: Members that ask for what no engine does.
_FOREIGN = ("background", "conversation", "prompt")
_TEXTS = frozenset(("input_text", "output_text", "text", "summary_text", "reasoning_text"))


class ToolNames(msgspec.Struct, frozen=True):
    """Functions of the chat, and what the client calls them: its namespace and its name."""

    clients: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    #: Functions that stand for tools with free text.
    free: set[str] = msgspec.field(default_factory=set)


def chat_of_responses(
    request: Mapping[str, Any], before: list[Object]
) -> tuple[Object, ToolNames, list[Object]]:
    """Translate a request that continues the messages `before`: the chat, the names of its tools,
    and its messages without instructions.

    Raises NotOfTheEngine, and what a malformed request raises."""
    for name in _FOREIGN:
        if request.get(name):
            raise NotOfTheEngine(what=name)
    said = ChatMessages(list(before))
    content = request["input"]
    for item in [{"role": "user", "content": content}] if isinstance(content, str) else content:
        _add(said, item)
    names = ToolNames()
    chat = renamed(request, _RENAMED) | stream_members(request)
    choice = request.get("tool_choice")
    if tools := _tools([*(request.get("tools") or ()), *_brought(content)], choice, names):
        chat["tools"] = tools
        if choice:
            chat["tool_choice"] = _chosen(choice)
    else:
        chat.pop("parallel_tool_calls", None)
    if effort := (request.get("reasoning") or {}).get("effort"):
        chat["reasoning_effort"] = effort
    chat |= _form((request.get("text") or {}).get("format") or {})
    chat["messages"] = _instructed(request.get("instructions"), said.messages)
    return chat, names, said.messages


def _instructed(instructions: str | None, messages: list[Object]) -> list[Object]:
    """Put the instructions first. They hold for one call alone."""
    if not instructions:
        return messages
    if messages and messages[0]["role"] == "system":
        instructions += "\n\n" + messages[0]["content"]
        messages = messages[1:]
    return [{"role": "system", "content": instructions}, *messages]


def _form(form: Mapping[str, Any]) -> Object:
    if form.get("type") not in ("json_schema", "json_object"):
        return {}
    if form["type"] == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = renamed(form, {"name": "name", "schema": "schema", "strict": "strict"})
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _add(said: ChatMessages, item: Object) -> None:
    match item.get("type", "message"):
        case "message":
            _add_message(said, item["role"], item["content"])
        case "reasoning":
            said.think(_text(item.get("content") or item.get("summary") or ()))
        case "function_call":
            name = function_name(item.get("namespace") or "", item["name"])
            said.call(item["call_id"], name, item["arguments"])
        case "custom_tool_call":
            arguments = msgspec.json.encode({"input": item["input"]}).decode()
            name = function_name(item.get("namespace") or "", item["name"])
            said.call(item["call_id"], name, arguments)
        case "function_call_output" | "custom_tool_call_output":
            said.tool(item["call_id"], _text(item["output"]))
        case "additional_tools":
            pass
        case kind:
            raise NotOfTheEngine(what=f"items of the type {kind}")


def _add_message(said: ChatMessages, role: str, content: Any) -> None:
    text = _text(content)
    match role:
        case "user":
            said.user(text)
        case "assistant":
            said.say(text)
        case "system" | "developer":
            said.system(text)
        case _:
            raise NotOfTheEngine(what=f"messages of the role {role}")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if part["type"] not in _TEXTS:
            raise NotOfTheEngine(what=f"content of the type {part['type']}")
    return "\n".join(part["text"] for part in content)


def _tools(tools: Any, choice: Any, names: ToolNames) -> list[Object] | None:
    made, hosted = [], set()
    for space, tool in _flat(tools):
        if tool["type"] not in ("function", "custom"):
            hosted.add(tool["type"])
            continue
        name = function_name(space, tool["name"])
        names.clients[name] = space, tool["name"]
        if tool["type"] == "function":
            made.append(function_tool(name, tool.get("description"), tool.get("parameters")))
        else:
            names.free.add(name)
            made.append(_free_tool(name, tool))
    kind = choice.get("type") if isinstance(choice, dict) else None
    is_forced = kind is not None and kind not in ("function", "custom", "allowed_tools")
    return offered(hosted, made, is_forced=is_forced)


def _brought(content: Any) -> Iterator[Object]:
    """Find tools that are brought by an item, as Codex does for models that it knows."""
    for item in () if isinstance(content, str) else content:
        if item.get("type") == "additional_tools":
            yield from item["tools"]


def _flat(tools: Any) -> Iterator[tuple[str, Object]]:
    for tool in tools:
        if tool["type"] == "namespace":
            for each in tool["tools"]:
                yield tool["name"], each
        else:
            yield "", tool


def _free_tool(name: str, tool: Mapping[str, Any]) -> Object:
    """Make a tool with free text a function with one text; its grammar becomes a description."""
    texts = [tool.get("description"), (tool.get("format") or {}).get("definition")]
    free = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return function_tool(name, "\n\n".join(filter(None, texts)), free)


def _chosen(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    if choice["type"] == "allowed_tools":
        return choice["mode"]
    name = function_name(choice.get("namespace") or "", choice["name"])
    return {"type": "function", "function": {"name": name}}


# Answers


#: Members of a request that its answer repeats.
_REPEATED = (
    "instructions", "max_output_tokens", "metadata", "previous_response_id", "reasoning", "store",
    "temperature", "text", "tool_choice", "tools", "top_p", "prompt_cache_key", "service_tier",
)  # fmt: skip
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
#: The two kinds of text: the item's type, the part's, and the beginning of the events' names.
_KINDS = {"thinking": ("reasoning", "reasoning_text"), "text": ("message", "output_text")}
_ERRORS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ResponsesAnswer(ProtocolAnswer):
    def __init__(self, request: Mapping[str, Any], names: ToolNames) -> None:
        self._request, self._names = request, names
        self._created_s = int(time.time())
        self.id, self._model = "", str(request["model"])
        self._usage: ChatUsage | None = None
        self._items: list[Object] = []
        self._texts: list[str] = []
        self._reason: str | None = None
        self._problem: Object | None = None
        self._number = 0

    def take(self, answer: ChatAnswer) -> Iterator[Object]:
        if not self.id:
            self.id, self._model = answer.id or "resp", answer.model or self._model
            for kind in ("created", "in_progress"):
                yield self._event(f"response.{kind}", response=self.whole("in_progress"))
        if answer.error:
            self._problem = {"code": "server_error", "message": error_text(answer.error)}
        self._usage = answer.usage or self._usage
        for choice in answer.choices[:1]:
            yield from self._say(choice.said)
            self._reason = choice.finish_reason or self._reason

    def end(self) -> Iterator[Object]:
        yield from self._close()
        whole = self.whole()
        yield self._event(f"response.{whole['status']}", response=whole)

    def whole(self, status: str | None = None) -> Object:
        incomplete = _INCOMPLETE.get(self._reason or "")
        ended = "failed" if self._problem else "incomplete" if incomplete else "completed"
        repeated = {name: self._request.get(name) for name in _REPEATED}
        return repeated | {
            "id": self.id,
            "object": "response",
            "created_at": self._created_s,
            "status": status or ended,
            "error": self._problem,
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "model": self._model,
            "output": list(self._items),
            "parallel_tool_calls": self._request.get("parallel_tool_calls", True),
            "tool_choice": self._request.get("tool_choice") or "auto",
            "tools": self._request.get("tools") or [],
            "usage": _usage(self._usage) if self._usage else None,
        }

    def _piece(self, kind: str, text: str) -> Iterator[Object]:
        item_type, part_type = _KINDS[kind]
        if self._open != (kind, 0):
            item: Object = {"type": item_type, "status": "in_progress", "content": []}
            if kind == "thinking":
                item["summary"] = []
            else:
                item["role"] = "assistant"
            yield from self._begin((kind, 0), item)
            part = _part(part_type, "")
            yield self._item_event("response.content_part.added", content_index=0, part=part)
        self._texts.append(text)
        logprobs: Object = {"logprobs": []} if kind == "text" else {}
        yield self._item_event(
            f"response.{part_type}.delta", content_index=0, delta=text, **logprobs
        )

    def _call(self, part: CallPart, number: int) -> Iterator[Object]:
        if self._open != ("call", number):
            function = part.function.name or "unknown"
            space, name = self._names.clients.get(function, ("", function))
            item: Object = {
                "status": "in_progress",
                "call_id": part.id or f"call_{number}",
                "name": name,
            }
            if function in self._names.free:
                item |= {"type": "custom_tool_call", "input": ""}
            else:
                item |= {"type": "function_call", "arguments": ""}
            yield from self._begin(("call", number), item | ({"namespace": space} if space else {}))
        if text := part.function.arguments:
            self._texts.append(text)
            if self._items[-1]["type"] == "function_call":
                yield self._item_event("response.function_call_arguments.delta", delta=text)

    def _begin(self, kind: tuple[str, int], item: Object) -> Iterator[Object]:
        yield from self._close()
        self._open = kind
        item["id"] = f"{item['type']}_{len(self._items)}_{self.id}"
        self._items.append(item)
        yield self._at("response.output_item.added", item=dict(item))

    def _close(self) -> Iterator[Object]:
        if self._open is None:
            return
        item, text = self._items[-1], "".join(self._texts)
        self._texts, kind = [], self._open[0]
        self._open = None
        if kind in _KINDS:
            part_type = _KINDS[kind][1]
            part = _part(part_type, text)
            item["content"] = [part]
            more: Object = {"logprobs": []} if kind == "text" else {}
            yield self._item_event(f"response.{part_type}.done", content_index=0, text=text, **more)
            yield self._item_event("response.content_part.done", content_index=0, part=part)
        elif item["type"] == "function_call":
            item["arguments"] = text
            yield self._item_event("response.function_call_arguments.done", arguments=text)
        else:
            given = arguments_of(text)
            item["input"] = text = str(given.get("input", text))
            yield self._item_event("response.custom_tool_call_input.delta", delta=text)
            yield self._item_event("response.custom_tool_call_input.done", input=text)
        item["status"] = "completed"
        yield self._at("response.output_item.done", item=dict(item))

    def _item_event(self, kind: str, **members: Any) -> Object:
        return self._at(kind, item_id=self._items[-1]["id"], **members)

    def _at(self, kind: str, **members: Any) -> Object:
        return self._event(kind, output_index=len(self._items) - 1, **members)

    def _event(self, kind: str, **members: Any) -> Object:
        number, self._number = self._number, self._number + 1
        return {"type": kind, "sequence_number": number, **members}


def _part(kind: str, text: str) -> Object:
    more: Object = {"annotations": [], "logprobs": []} if kind == "output_text" else {}
    return {"type": kind, "text": text, **more}


def _usage(usage: ChatUsage) -> Object:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.thinking},
        "total_tokens": usage.prompt_tokens + usage.completion,
    }


def responses_error(status: int, message: str, code: str | None, param: str | None) -> Object:
    kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"type": kind, "message": message, "code": code, "param": param}}
