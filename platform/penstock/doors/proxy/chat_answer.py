"""Chat completions as engines answer them: what answers in other protocols are made of."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, field


class CallFunction(Struct):
    name: str | None = None
    arguments: str | None = None


class CallPart(Struct):
    index: int | None = None
    id: str | None = None
    function: CallFunction = field(default_factory=CallFunction)


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
    choices: list[ChatChoice] = field(default_factory=list)
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
