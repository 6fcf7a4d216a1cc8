"""Answers of OpenAI's Responses protocol, made of chat completions, whole or event by event."""

import time
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
from penstock.doors.proxy.messages_answer import error_text
from penstock.doors.proxy.responses_request import ToolNames

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
