"""Answers of models, whole or streamed, from any of the four APIs, with the engine's tokens."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.doors.proxy.dialogue import ModelApi
from penstock.doors.proxy.engine import EventCutter, data_of
from penstock.events.messages import Message, answer_of, call_of, message_of, usage_of

_EVENT_BYTES_MAX = 64 * 1024 * 1024
#: Choices, parts or calls of one answer. More are an error in their numbering.
_PARTS_MAX = 4_096


@dataclass(slots=True)
class ChoiceDraft:
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish_reason: str | None = None
    stop_id: int | None = None
    prompt_ids: list[int] | None = None
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    logprobs: "array[float]" = field(default_factory=lambda: array("d"))
    #: Where each policy version begins, by its name.
    version_runs: list[tuple[int, str]] = field(default_factory=list)
    #: Experts of its tokens as vLLM writes them: a file of numpy in base64.
    experts: str | None = None

    def message(self) -> Message:
        calls = []
        for at, call in enumerate(self.calls.values()):
            arguments = "".join(call.get("parts", ())) or call.get("arguments")
            named = {"id": call["id"] or f"call-{at}", "name": call["name"] or "unknown"}
            calls.append(named | {"arguments": arguments})
        text, thinking = "".join(self.texts) or None, "".join(self.thoughts) or None
        return Message("assistant", text, thinking, calls)


@dataclass(slots=True)
class AnswerDraft:
    api: ModelApi
    #: A longer answer is dropped and marked `was_cut`.
    bytes_max: int
    is_stream: bool = False
    id: str | None = None
    model: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    choices: dict[int, ChoiceDraft] = field(default_factory=dict)
    problem: str | None = None
    #: It was too long.
    was_cut: bool = False
    #: Events that could not be decoded.
    unreadable: int = 0
    _cutter: EventCutter | None = None
    _body: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def take(self, piece: bytes) -> None:
        if self.was_cut:
            return
        self._bytes += len(piece)
        if self._bytes > self.bytes_max:
            self.was_cut = True
            return
        if not self.is_stream:
            self._body.append(piece)
            return
        self._cutter = self._cutter or EventCutter(_EVENT_BYTES_MAX)
        for event in self._cutter.cut(piece):
            start, end = data_of(event)
            if end > start and event[start : start + 1] == b"{":
                self._take(event[start:end], _READERS[self.api][0])

    def end(self) -> None:
        if self._cutter is not None:
            self.take(b"\n\n")
        elif self._body and not self.was_cut:
            self._take(b"".join(self._body), _READERS[self.api][1])
        self._body = []

    def _take(self, text: bytes, reader: Any) -> None:
        try:
            document = msgspec.json.decode(text)
            if isinstance(document, dict):
                reader(self, document)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.unreadable += 1

    def choice(self, index: object = 0) -> ChoiceDraft:
        number = index if isinstance(index, int) else 0
        if number not in self.choices and len(self.choices) >= _PARTS_MAX:
            raise ValueError("an answer has too many choices")
        return self.choices.setdefault(number, ChoiceDraft())

    def about(self, document: Mapping[str, Any]) -> None:
        self.id = document.get("id") or self.id
        self.model = document.get("model") or self.model
        self.use(document.get("usage"))
        if error := document.get("error"):
            self.problem = problem_of({"error": error})
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and "weight_version" in metadata:
            spans = metadata.get("weight_versions") or [
                {"version": metadata["weight_version"], "start": 0}
            ]
            # SGLang speaks of the first choice alone.
            self.choice().version_runs = _version_runs(spans)

    def use(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.usage |= {name: value for name, value in usage.items() if value is not None}


def _version_runs(spans: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    return [(int(span["start"]), str(span["version"])) for span in spans]


def _chat_event(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    draft.about(document)
    _take_ids(draft, document)
    for each in document.get("choices") or ():
        choice = draft.choice(each.get("index"))
        delta = each.get("delta") or {}
        if content := delta.get("content"):
            choice.texts.append(content)
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            choice.thoughts.append(thought)
        for at, part in enumerate(delta.get("tool_calls") or ()):
            _take_call(choice, part, at)
        _take_choice(choice, each)


def _take_call(choice: ChoiceDraft, part: Mapping[str, Any], at: int) -> None:
    number = part.get("index", at)
    function = part.get("function") or {}
    if number not in choice.calls and len(choice.calls) >= _PARTS_MAX:
        raise ValueError("an answer has too many calls")
    call = choice.calls.setdefault(number, {"id": "", "name": ""})
    if part.get("id"):
        call["id"] = str(part["id"])
    if function.get("name"):
        call["name"] = str(function["name"])
    if arguments := function.get("arguments"):
        call.setdefault("parts", []).append(str(arguments))


def _chat_whole(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    draft.about(document)
    _take_ids(draft, document)
    for each in document.get("choices") or ():
        choice = draft.choice(each.get("index"))
        _take_message(choice, message_of({"role": "assistant"} | (each.get("message") or {})))
        _take_choice(choice, each)


def _text(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    draft.about(document)
    _take_ids(draft, document)
    for each in document.get("choices") or ():
        choice = draft.choice(each.get("index"))
        if text := each.get("text"):
            choice.texts.append(text)
        _take_choice(choice, each)


def _take_ids(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    if prompt := document.get("prompt_token_ids"):
        draft.choice().prompt_ids = prompt
    if extension := document.get("sglext"):
        if extension.get("input_ids"):
            draft.choice().prompt_ids = extension["input_ids"]
        for index, ids in enumerate(extension.get("output_ids") or ()):
            draft.choice(index).ids = array("q", ids)


def _take_choice(choice: ChoiceDraft, part: Mapping[str, Any]) -> None:
    choice.finish_reason = part.get("finish_reason") or choice.finish_reason
    choice.prompt_ids = part.get("prompt_token_ids") or choice.prompt_ids
    if type(matched := part.get("matched_stop")) is int:
        choice.stop_id = matched
    if ids := part.get("token_ids") or part.get("response_token_ids"):
        choice.ids.extend(ids)
    if spans := part.get("weight_versions"):
        choice.version_runs = _version_runs(spans)
    choice.experts = part.get("routed_experts") or choice.experts
    if logprobs := part.get("logprobs"):
        if (content := logprobs.get("content")) is not None:
            choice.logprobs.extend([each["logprob"] for each in content])
        else:
            values = logprobs.get("token_logprobs") or ()
            choice.logprobs.extend([value for value in values if value is not None])


def _take_message(choice: ChoiceDraft, message: Message) -> None:
    choice.texts = [message.text] if message.text else []
    choice.thoughts = [message.thinking] if message.thinking else []
    choice.calls = dict(enumerate(message.calls))


def _message_whole(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    draft.about(document)
    if isinstance(document.get("content"), list):
        _take_message(draft.choice(), message_of(document))
        draft.choice().finish_reason = document.get("stop_reason")


def _message_event(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    match document.get("type"):
        case "message_start":
            draft.about(document["message"])
        case "content_block_start":
            _begin_block(draft.choice(), document["index"], document["content_block"])
        case "content_block_delta":
            _take_block(draft.choice(), document["index"], document["delta"])
        case "message_delta":
            draft.use(document.get("usage"))
            choice = draft.choice()
            choice.finish_reason = document["delta"].get("stop_reason") or choice.finish_reason
        case "error":
            draft.problem = problem_of(document)


def _begin_block(choice: ChoiceDraft, index: int, block: Mapping[str, Any]) -> None:
    kind = block.get("type")
    if kind in ("tool_use", "server_tool_use"):
        if len(choice.calls) >= _PARTS_MAX:
            raise ValueError("an answer has too many calls")
        call = call_of(block)
        choice.calls[index] = call | {"arguments": call["arguments"] or None}
    elif kind == "text":
        choice.texts += ["\n"] if choice.texts else []
        choice.texts.append(block.get("text") or "")
    elif kind == "thinking":
        choice.thoughts += ["\n"] if choice.thoughts else []
        choice.thoughts.append(block.get("thinking") or "")


def _take_block(choice: ChoiceDraft, index: int, delta: Mapping[str, Any]) -> None:
    match delta.get("type"):
        case "text_delta":
            choice.texts.append(delta["text"])
        case "thinking_delta":
            choice.thoughts.append(delta["thinking"])
        case "input_json_delta":
            choice.calls[index].setdefault("parts", []).append(delta["partial_json"])


def _response_whole(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    draft.about(document)
    choice = draft.choice()
    _take_message(choice, answer_of(document.get("output")) or Message("assistant"))
    reason = (document.get("incomplete_details") or {}).get("reason")
    choice.finish_reason = reason or document.get("status")


def _response_event(draft: AnswerDraft, document: Mapping[str, Any]) -> None:
    kind = str(document.get("type"))
    choice = draft.choice()
    match kind:
        case "response.created":
            draft.about(document["response"])
        case "response.completed" | "response.incomplete" | "response.failed":
            _response_whole(draft, document["response"])
        case "response.output_text.delta":
            choice.texts.append(document["delta"])
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            choice.thoughts.append(document["delta"])
        case "response.output_item.done":
            item = document["item"]
            if str(item.get("type")).endswith("_call"):
                number = int(document.get("output_index") or 0)
                if len(choice.calls) < _PARTS_MAX:
                    choice.calls[number] = message_of(item).calls[0]
        case "error":
            draft.problem = problem_of(document)


#: Readers of an event of a stream, and of a whole answer.
_READERS = {
    ModelApi.CHAT: (_chat_event, _chat_whole),
    ModelApi.COMPLETIONS: (_text, _text),
    ModelApi.MESSAGES: (_message_event, _message_whole),
    ModelApi.RESPONSES: (_response_event, _response_whole),
}


def problem_of(document: object) -> str:
    found: Any = document
    for name in ("error", "message"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def usage_of_choice(usage: Mapping[str, Any], choice: ChoiceDraft) -> dict[str, int]:
    counted = {"prompt": len(choice.prompt_ids or ()), "completion": len(choice.ids)}
    reported = usage_of(usage) or {}
    return {
        name: count for name, count in counted.items() if count and not reported.get(name)
    } | reported
