"""Answers of Anthropic's Messages protocol, made of chat completions, whole or event by event."""

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.doors.proxy.chat_answer import (
    CallPart,
    ChatAnswer,
    ChatUsage,
    ProtocolAnswer,
    arguments_of,
)
from penstock.doors.proxy.chat_request import Object

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
