"""Chat completions as engines take them: what requests in other protocols are made into."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.core.errors import PenstockError
from penstock.events.messages import present

Object = dict[str, Any]
#: Names of functions, as engines take them.
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class RequestRefused(PenstockError, http_status=400):
    """The request is not put to the engine."""

    #: As OpenAI names the error, and the member of the request that it is about.
    code: ClassVar[str | None] = None
    param: ClassVar[str | None] = None


class NotOfTheEngine(RequestRefused):
    """The engine behind this proxy takes no {what}."""


class RequestUnreadable(RequestRefused):
    """The request does not have the form of {api}: {why}."""


class AnswerNotKept(RequestRefused):
    """Previous response with id '{id}' not found: send the whole input."""

    code = "previous_response_not_found"
    param = "previous_response_id"


@dataclass(slots=True)
class ChatMessages:
    """Messages in the order of the conversation, joined as models expect them.

    Templates want one system prompt, at the start, and many want turns of the user that alternate
    with others."""

    messages: list[Object] = field(default_factory=list)

    def system(self, text: str) -> None:
        """Add a system message. Behind the first answer it is a reminder in the user's turn, as
        harnesses write them: the prompt still begins as it did."""
        if not text:
            return
        if not self.messages:
            self.messages.append({"role": "system", "content": text})
        elif len(self.messages) == 1 and self.messages[0]["role"] == "system":
            self.messages[0]["content"] += f"\n\n{text}"
        else:
            self.user(f"<system-reminder>\n{text}\n</system-reminder>")

    def user(self, text: str) -> None:
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"] += f"\n\n{text}"
        else:
            self.messages.append({"role": "user", "content": text})

    def tool(self, call_id: str, text: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def assistant(self) -> Object:
        """Return the answer that is being repeated: one for all items between two other turns."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def say(self, text: str) -> None:
        answer = self.assistant()
        answer["content"] = "\n".join(filter(None, [answer["content"], text])) or None

    def think(self, text: str) -> None:
        answer = self.assistant()
        said = [answer.get("reasoning_content"), text]
        answer["reasoning_content"] = "\n".join(filter(None, said))

    def call(self, call_id: str, name: str, arguments: str) -> None:
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        self.assistant().setdefault("tool_calls", []).append(call)


def function_tool(name: str, description: object, parameters: object) -> Object:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": present(function)}


def function_name(*parts: str) -> str:
    return "__".join(_NOT_IN_NAMES.sub("_", part) for part in parts if part)


def offered(hosted: Iterable[str], tools: list[Object], *, is_forced: bool) -> list[Object] | None:
    """Leave out tools that the vendor's server runs, where they are only offered beside others.

    Raises NotOfTheEngine where the request is about such a tool."""
    named = sorted(hosted)
    if named and (is_forced or not tools):
        raise NotOfTheEngine(what=f"tools that a server runs: {', '.join(named)}")
    return tools or None


def renamed(request: Mapping[str, Any], names: Mapping[str, str]) -> Object:
    return {new: request[old] for old, new in names.items() if request.get(old) is not None}


def stream_members(request: Mapping[str, Any]) -> Object:
    if not request.get("stream"):
        return {}
    return {"stream": True, "stream_options": {"include_usage": True}}
