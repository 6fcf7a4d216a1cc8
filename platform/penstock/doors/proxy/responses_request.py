"""Requests of OpenAI's Responses protocol, as chat completions."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.doors.proxy.chat_request import (
    ChatMessages,
    NotOfTheEngine,
    Object,
    function_name,
    function_tool,
    offered,
    renamed,
    stream_members,
)

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
