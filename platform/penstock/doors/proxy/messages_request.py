"""Requests of Anthropic's Messages protocol, as chat completions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.doors.proxy.chat_request import (
    ChatMessages,
    NotOfTheEngine,
    Object,
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
