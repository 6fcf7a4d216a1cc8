"""Chat completions as engines take and answer them: other protocols are made into them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

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


# Answers


class CallFunction(Struct):
    name: str | None = None
    arguments: str | None = None


class CallPart(Struct):
    index: int | None = None
    id: str | None = None
    function: CallFunction = msgspec.field(default_factory=CallFunction)


class Said(Struct):
    """A message, or the next piece of one."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPart] | None = None

    @property
    def thinking(self) -> str | None:
        return self.reasoning_content or self.reasoning

    @property
    def calls(self) -> Iterator[tuple[int, CallPart]]:
        """The parts of calls, with the numbers of their calls."""
        for at, part in enumerate(self.tool_calls or ()):
            yield at if part.index is None else part.index, part


class ChatChoice(Struct):
    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None
    #: A stop sequence, or the id of a token.
    stop_reason: Any = None
    matched_stop: Any = None
    token_ids: list[int] | None = None

    @property
    def said(self) -> Said:
        return self.message or self.delta or Said()

    @property
    def stop_sequence(self) -> str | None:
        stop = self.matched_stop if self.stop_reason is None else self.stop_reason
        return stop if isinstance(stop, str) else None


class _Details(Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class ChatUsage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None

    @property
    def cached(self) -> int:
        return (self.prompt_tokens_details or _Details()).cached_tokens or 0

    @property
    def completion(self) -> int:
        return self.completion_tokens or 0

    @property
    def thinking(self) -> int:
        return (self.completion_tokens_details or _Details()).reasoning_tokens or 0


class ChatAnswer(Struct):
    """A whole answer, or an event of one."""

    id: str | None = None
    model: str | None = None
    choices: list[ChatChoice] = msgspec.field(default_factory=list)
    usage: ChatUsage | None = None
    #: As text: of a long prompt its numbers would take long.
    prompt_token_ids: Raw = Raw(b"null")
    error: Any = None

    @property
    def prompt_ids(self) -> bytes:
        """The ids of the prompt as a list of JSON; empty if they are not told."""
        text = bytes(self.prompt_token_ids)
        return b"" if text == b"null" else text


_decoder = msgspec.json.Decoder(ChatAnswer)


def chat_answer(text: bytes) -> ChatAnswer:
    """Read an answer, or an event of one. Raises ValueError."""
    return _decoder.decode(text)


class ChatDraft:
    """An answer as far as it came, for whoever says it again to the engine."""

    def __init__(self) -> None:
        self.prompt_ids = b""
        self.ids: list[int] = []
        #: It ended with a token, and not with a text or its length.
        self.ended_turn = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, list[str]] = {}

    def take(self, answer: ChatAnswer) -> None:
        self.prompt_ids = answer.prompt_ids or self.prompt_ids
        for choice in answer.choices[:1]:
            said = choice.said
            self._texts += [said.content] if said.content else []
            self._thoughts += [said.thinking] if said.thinking else []
            self.ids += choice.token_ids or ()
            if choice.finish_reason:
                ends = choice.finish_reason in ("stop", "tool_calls")
                self.ended_turn = ends and choice.stop_sequence is None
            for number, part in said.calls:
                call = self._calls.setdefault(number, [part.id or f"call_{number}", "", ""])
                call[1] = call[1] or part.function.name or ""
                call[2] += part.function.arguments or ""

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts) or None}
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function",
                 "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in self._calls.values()
            ]  # fmt: skip
        return message


class ProtocolAnswer(ABC):
    """An answer in another protocol. Each method returns the events that it makes known."""

    #: Kind of the part that is open, and its call's number.
    _open: tuple[str, int] | None = None

    def _say(self, said: Said) -> Iterator[dict[str, Any]]:
        if said.thinking:
            yield from self._piece("thinking", said.thinking)
        # White space alone, as between a thought and a call, is no part.
        if said.content and (self._open == ("text", 0) or said.content.strip()):
            yield from self._piece("text", said.content)
        for number, part in said.calls:
            yield from self._call(part, number)

    @abstractmethod
    def take(self, answer: ChatAnswer) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def end(self) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def whole(self) -> dict[str, Any]: ...

    @abstractmethod
    def _piece(self, kind: str, text: str) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def _call(self, part: CallPart, number: int) -> Iterator[dict[str, Any]]: ...


def arguments_of(text: str) -> dict[str, Any]:
    """Read the arguments of a call. What is no JSON object is kept as the text that it is."""
    try:
        arguments = msgspec.json.decode(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": text}
