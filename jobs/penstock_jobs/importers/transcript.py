"""A session told as messages: what OpenAI's and Anthropic's forms say, as events.

Many formats keep messages in one of these forms, with facts of their own beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock_jobs.importers.file_edits import FileChanges, FileEdit, ToolUse, arguments_of
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.session_draft import Payload, SessionDraft, present, usage_of

_SYSTEM = ("system", "developer")
_KNOWN = frozenset(
    ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning",
     "function_call", "is_error", "type", "id", "model", "usage", "stop_reason", "finish_reason")
)  # fmt: skip
_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass
class ImportedTranscript:
    """Adds messages to a session in their order, and what their tools did to files."""

    draft: SessionDraft
    model: str | None = None
    changes: FileChanges = field(init=False)
    #: Calls of tools that have no result yet, by their ids.
    _open_calls: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changes = FileChanges(self.draft)

    # What was said

    def instructed(self, text: str, key: str) -> None:
        """The system prompt, where it comes before all else."""
        if self.draft.events:
            self.draft.add("x_system_message", {"text": text}, key)
        else:
            known = self.draft.start.get("system")
            self.draft.start["system"] = f"{known}\n\n{text}" if known else text

    def asked(self, text: str, key: str, ts_us: int | None = None, **facts: Any) -> ImportedEvent:
        return self.draft.add("user_message", {"text": text} | facts, key, ts_us)

    def answered(
        self,
        key: str,
        ts_us: int | None = None,
        *,
        tool_calls: Sequence[Payload] = (),
        **facts: Any,
    ) -> ImportedEvent:
        """`tool_calls` are those of docs/events.md; `facts` its other fields of a model call."""
        payload = {"call_id": key, "model": self.model} | facts
        if tool_calls:
            payload["tool_calls"] = list(tool_calls)
        for call in tool_calls:
            self.open_call(call)
        return self.draft.add("model_call", payload, key, ts_us)

    def open_call(self, call: Payload) -> None:
        """A call of a tool whose result may come."""
        self._open_calls[call["id"]] = call["name"], arguments_of(call.get("arguments"))

    def returned(
        self,
        call_id: str | None,
        output: Any,
        key: str,
        ts_us: int | None = None,
        *,
        ok: bool | None = None,
        copied: bool = False,
        changes: Sequence[FileEdit] | None = None,
        **facts: Any,
    ) -> ImportedEvent:
        """The result of a tool. What it did to files follows: the `changes`, where the source
        tells them, else what the call says; nothing of what was told before."""
        tool, arguments = self._open_calls.pop(call_id or "", (facts.pop("tool", None), {}))
        payload = {"call_id": call_id, "tool": tool, "ok": ok, "output": output} | facts
        if copied:
            payload["is_copied_context"] = True
        event = self.draft.add("tool_result", payload, key, ts_us)
        if changes is not None:
            for at, change in enumerate(changes):
                self.changes.add(
                    change, f"{call_id or key}:edit" + (f":{at}" if at else ""), call_id
                )
        elif tool and call_id and not copied:
            text = output if isinstance(output, str) else text_of(output)
            self.changes.take(ToolUse(call_id, tool, arguments, ok, text))
        return event

    # Messages of the two forms

    def take(
        self, message: Mapping[str, Any], key: str, ts_us: int | None = None, **facts: Any
    ) -> None:
        """A message; `facts` belong to the event that it becomes. Unknown fields are kept."""
        unknown = {name: value for name, value in message.items() if name not in _KNOWN}
        if unknown := present(unknown):
            facts["extra"] = unknown | facts.get("extra", {})
        role, content = message.get("role"), message.get("content")
        if role in _SYSTEM:
            self.instructed(text_of(content), key)
        elif role in ("tool", "function"):
            call_id = message.get("tool_call_id")
            failed = message.get("is_error")
            facts["ok"] = facts.get("ok", None if failed is None else not failed)
            named = {"tool": message["name"]} if message.get("name") else {}
            self.returned(call_id, plain_content(content), key, ts_us, **(named | facts))
        elif role in ("assistant", "model"):
            self.take_answer(message, key, ts_us, **facts)
        else:
            self._take_user(content, key, ts_us, **facts)

    def take_answer(
        self, message: Mapping[str, Any], key: str, ts_us: int | None = None, **facts: Any
    ) -> None:
        content = message.get("content")
        thinking = message.get("reasoning_content") or message.get("reasoning")
        said = {
            "text": text_of(content) or None,
            "thinking": thinking_of(content) or (thinking if isinstance(thinking, str) else None),
            "model": message.get("model") or self.model,
            "usage": usage_of(message.get("usage")),
            "finish_reason": message.get("stop_reason") or message.get("finish_reason"),
        }
        calls = tool_calls_of(message, key)
        self.answered(key, ts_us, tool_calls=calls, **(present(said) | facts))

    def _take_user(self, content: object, key: str, ts_us: int | None, **facts: Any) -> None:
        """Anthropic's results of tools are parts of a user's message, before what the user says."""
        parts = content if isinstance(content, list) else []
        results = [part for part in parts if _is(part, "tool_result")]
        for at, part in enumerate(results):
            failed = part.get("is_error")
            output = plain_content(part.get("content"))
            name = f"{key}:result" + (f":{at}" if at else "")
            ok = None if failed is None else not failed
            call_id = part.get("tool_use_id")
            copied = bool(facts.get("is_copied_context"))
            self.returned(call_id, output, name, ts_us, ok=ok, copied=copied)
        rest = [part for part in parts if not _is(part, "tool_result")]
        text = text_of(rest if parts else content)
        if text or not results:
            if any(not _is(part, *_TEXT_PARTS) for part in rest):
                facts["content"] = rest
            self.asked(text, key, ts_us, **facts)


# Parts of messages


def _is(part: object, *kinds: str) -> bool:
    return isinstance(part, dict) and part.get("type") in kinds


def text_of(content: object) -> str:
    """The texts of a message, without thoughts, calls and pictures."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            texts.append(part.get("text") or "")
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def thinking_of(content: object) -> str:
    parts = content if isinstance(content, list) else []
    texts = [
        part.get("thinking") or part.get("text") or ""
        for part in parts
        if _is(part, "thinking", "reasoning")
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def plain_content(content: object) -> Any:
    """Text where it is nothing but text, else all parts as they are."""
    if isinstance(content, list) and all(_is(part, *_TEXT_PARTS) for part in content):
        return text_of(content)
    return content


def tool_calls_of(message: Mapping[str, Any], key: str) -> list[Payload]:
    """In the form of docs/events.md, with arguments as they were sent."""
    calls: list[Payload] = []
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        if _is(part, "tool_use", "server_tool_use"):
            calls.append(_call(part.get("id"), part.get("name"), part.get("input"), key, calls))
    told = message.get("tool_calls")
    for each in told if isinstance(told, list) else []:
        call = arguments_of(each)  # some stores keep each as JSON
        if not call:
            continue
        function = call.get("function")
        named = function if isinstance(function, dict) else call
        arguments = named.get("arguments", named.get("args"))
        calls.append(_call(call.get("id"), named.get("name"), arguments, key, calls))
    if isinstance(function := message.get("function_call"), dict):
        calls.append(_call(None, function.get("name"), function.get("arguments"), key, calls))
    return calls


def _call(
    call_id: object, name: object, arguments: Any, key: str, before: Sequence[Payload]
) -> Payload:
    """A call without an id gets one that its result can be found by."""
    named = str(call_id) if call_id else f"{key}:call:{len(before)}"
    return present({"id": named, "name": str(name or "unknown"), "arguments": arguments})


def json_of(value: object) -> Any:
    """What a JSON text holds; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    return value
