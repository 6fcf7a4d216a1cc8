"""Codex: a JSON object a line, `{timestamp, type, payload}`, in `sessions/…/rollout-….jsonl`.

- A call of the model leaves several response items; `token_count` ends it, and repeats itself.
- What was said stands as a response item, and again as an event or, in paginated threads, as a
  completed item. Each text is taken once.
- A resume or a fork copies history, and rewrites its times: ids are made of the items' own ids, or
  of their content, so that a copy has the same `source_key`.
- `compacted` rows repeat the history, and can be most of a file: their copies are left out.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field
from xxhash import xxh3_64_hexdigest

from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.formats.codex_tools import Patches, arguments_of, outcome_of
from penstock_jobs.importers.importer import (
    ImportedEvent,
    LogImporter,
    RecentEntries,
    RowReader,
    SessionEvents,
)
from penstock_jobs.importers.sources import Candidate, Source

NAME = "codex"
_ITEMS = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output", "local_shell_call", "web_search_call", "tool_search_call",
    "tool_search_output", "image_generation_call",
}  # fmt: skip
_OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
_CALLS = {
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call",
}  # fmt: skip
_SAID = {"user_message": "prompt", "agent_message": "answer", "agent_reasoning": "thought",
         "agent_reasoning_raw_content": "thought"}  # fmt: skip
#: Rows that say nothing that is not said elsewhere.
_MARKS = {"task_started", "task_complete", "turn_started", "turn_complete", "thread_name_updated"}
#: What the client puts into the user's messages: a text that is one tag, or a file of instructions.
_INJECTED = re.compile(r"\s*<([A-Za-z_]+)[ >].*</\1>\s*\Z", re.DOTALL)
_INSTRUCTIONS = ("# AGENTS.md instructions", "<INSTRUCTIONS>", "<user_instructions>")
_FILE_ID = re.compile(r"rollout-.*?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})")
_QUIET_SECONDS = 600
#: Larger rows of kinds that are not known are not kept.
_UNKNOWN_BYTES_MAX = 64 * 1024

_encoder = msgspec.json.Encoder(order="deterministic")


class _Call(Struct):
    key: str
    ts: str | int
    seq: int
    texts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, int] | None = None
    is_over: bool = False

    def event(self, session: SessionEvents, model: str | None) -> ImportedEvent:
        payload = {
            "call_id": self.key.removesuffix(":call"),
            "model": model,
            "text": "\n".join(self.texts) or None,
            "thinking": "\n".join(self.thinking) or None,
            "tool_calls": self.calls or None,
            "usage": self.usage,
        }
        return session.event("model_call", self.ts, self.key, payload, seq=self.seq)


class _RolloutMemory(Struct):
    session: SessionEvents | None = None
    ts: str | int | None = None
    model: str | None = None
    folder: str | None = None
    call: _Call | None = None
    total: Row = field(default_factory=dict)
    #: How often each key was made.
    keys: RecentEntries[int] = field(default_factory=RecentEntries)
    #: Digests of what was said: how often as items, and how often as events.
    said: RecentEntries[list[int]] = field(default_factory=RecentEntries)
    names: RecentEntries[str] = field(default_factory=RecentEntries)
    patches: Patches = field(default_factory=Patches)


class Codex(LogImporter):
    name: ClassVar = NAME
    memory_type: ClassVar = _RolloutMemory
    homes: ClassVar = (
        "$CODEX_HOME/sessions", "$CODEX_HOME/archived_sessions",
        "~/.codex/sessions", "~/.codex/archived_sessions",
    )  # fmt: skip

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder or not candidate.name.endswith(".jsonl"):
            return False
        first = next(iter(candidate.first_rows), {})
        if first.get("type") == "session_meta":
            return isinstance(first.get("payload"), dict)
        old = candidate.name.startswith("rollout-") and first.keys() >= {"id", "timestamp"}
        return old and not first.keys() & {"type", "kind", "role"}

    def reader(self, source: Source, memory: _RolloutMemory) -> "_Rollout":
        named = _FILE_ID.match(source.name)
        return _Rollout(named[1] if named else source.real.stem, memory)


class _Rollout(RowReader):
    def __init__(self, file_id: str, memory: _RolloutMemory) -> None:
        self._file_id = file_id
        self._row = 0
        self.memory = self._known = memory

    def take(self, number: int, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        self._row = number
        self._known.ts = fields.moment(row, "timestamp") or self._known.ts
        kind, payload = fields.text(row, "type"), fields.mapping(row, "payload")
        if kind is None and self._known.session is None and "id" in row:  # the first rollouts
            kind, payload = "session_meta", row
        elif kind in _ITEMS and not payload:
            kind, payload = "response_item", row
        if self._known.ts is None:
            self._skip("row without a time")
            return
        if kind == "session_meta":
            if self._known.session is not None:
                self.notes.skip("head of the session that this one was forked from")
                return
            yield self._start(payload)
            return
        if self._known.session is None:
            yield self._start({})
        if kind == "response_item":
            yield from self._item(payload)
        elif kind == "event_msg":
            yield from self._event(payload)
        elif kind == "turn_context":
            yield from self._end_call()
            self._known.model = fields.text(payload, "model") or self._known.model
            self._known.folder = fields.text(payload, "cwd") or self._known.folder
        elif kind == "compacted":
            yield from self._end_call()
            if fields.items(payload, "replacement_history"):
                self._skip("history that a compaction repeats")
            yield self._made(
                "compaction", {"summary": fields.text(payload, "message")}, "compacted"
            )
        else:
            yield from self._unknown(kind, payload or row)

    def finish(self) -> Iterator[ImportedEvent]:
        if self._known.call is not None and fields.is_recent(self._known.ts, _QUIET_SECONDS):
            self.notes.hold("the last answer may still be written")
        elif self._known.call is not None:
            yield self._call.event(self._session, self._known.model)

    # Events

    @property
    def _session(self) -> SessionEvents:
        assert self._known.session is not None
        return self._known.session

    @property
    def _call(self) -> _Call:
        assert self._known.call is not None
        return self._known.call

    def _skip(self, kind: str) -> None:
        self.notes.skip(kind, f"line {self._row}")

    def _start(self, meta: Row) -> ImportedEvent:
        session_id = fields.identifier(meta, "id") or self._file_id
        self._known.folder = fields.text(meta, "cwd")
        session = SessionEvents(session_id, NAME, fields.project_of(self._known.folder))
        self._known.session = session
        git, source = fields.mapping(meta, "git"), fields.mapping(meta, "source")
        spawned = fields.mapping(fields.mapping(source, "subagent"), "thread_spawn")
        agent = fields.identifier(spawned, "parent_thread_id")
        forked = fields.identifier(meta, "forked_from_id") or fields.identifier(
            fields.mapping(meta, "history_base"), "thread_id"
        )
        parent = agent or forked
        payload = {
            "client": NAME,
            "client_version": fields.text(meta, "cli_version"),
            "repo": self._known.folder,
            "branch": fields.text(git, "branch"),
            "commit": fields.text(git, "commit_hash"),
            "parent_session": parent,
            "link": ("subagent" if agent else "fork") if parent else None,
            "codex": fields.without(meta, "id", "cwd", "cli_version", "git", "timestamp") or None,
        }
        started = fields.moment(meta, "timestamp") or self._known.ts
        assert started is not None
        assert started is not None
        return session.event("session_start", started, session_id, payload, row=self._row)

    def _made(self, kind: str, payload: dict[str, Any], key: str, part: str = "") -> ImportedEvent:
        """An event of this row; `key` is made different from those before."""
        name = self._own(f"{key}:{part}" if part else key)
        assert self._known.ts is not None
        return self._session.event(kind, self._known.ts, name, payload, row=self._row)

    def _own(self, key: str) -> str:
        times = self._known.keys[key] = (self._known.keys.get(key) or 0) + 1
        return key if times == 1 else f"{key}#{times}"

    # Response items: what the model was sent and what it answered

    def _item(self, item: Row) -> Iterator[ImportedEvent]:
        kind = fields.text(item, "type")
        if kind == "message":
            yield from self._message(item)
        elif kind == "reasoning":
            for text in _texts(item.get("summary")) + _texts(item.get("content")):
                yield from self._said("thought", text, item, is_event=False)
        elif kind in _CALLS:
            yield from self._tool_call(item, kind)
        elif kind in _OUTPUTS:
            yield from self._tool_output(item)
        else:
            yield from self._unknown(kind, item)

    def _message(self, item: Row) -> Iterator[ImportedEvent]:
        text = "\n".join(_texts(item.get("content")))
        role = fields.text(item, "role")
        if role == "assistant":
            yield from self._said("answer", text, item, is_event=False)
        elif role == "user" and not _is_injected(text):
            yield from self._said("prompt", text, item, is_event=False)
        elif text:
            payload = {"text": text, "kind": "client" if role == "user" else role}
            yield self._made("x_context", payload, _key(item, text))

    def _said(self, kind: str, text: str, item: Row, *, is_event: bool) -> Iterator[ImportedEvent]:
        """A prompt, an answer or a thought."""
        if not text or not self._is_new(kind, text, is_event=is_event):
            return
        if kind == "prompt":
            yield from self._end_call()
            key = f"user-{xxh3_64_hexdigest(text.encode())}"
            yield self._made("user_message", {"text": text}, key)
        else:
            yield from self._begin_call(_key(item, text))
            (self._call.texts if kind == "answer" else self._call.thinking).append(text)

    def _is_new(self, kind: str, text: str, *, is_event: bool) -> bool:
        digest = xxh3_64_hexdigest(f"{kind}:{text}".encode())
        counts = self._known.said.get(digest) or [0, 0]
        self._known.said[digest] = counts
        counts[is_event] += 1
        return counts[is_event] > counts[not is_event]

    def _tool_call(self, item: Row, kind: str) -> Iterator[ImportedEvent]:
        call_id = fields.identifier(item, "call_id") or fields.identifier(item, "id")
        call_id = call_id or f"call-{xxh3_64_hexdigest(_encoder.encode(item))}"
        name = fields.text(item, "name") or kind.removesuffix("_call")
        yield from self._begin_call(call_id)
        arguments = arguments_of(item)
        self._call.calls.append({"id": call_id, "name": name, "arguments": arguments})
        self._known.names[call_id] = name
        self._known.patches.note(call_id, arguments)

    def _tool_output(self, item: Row) -> Iterator[ImportedEvent]:
        call_id = fields.identifier(item, "call_id") or "unknown"
        if self._known.call is not None:
            self._known.call.is_over = True
        outcome = outcome_of(item.get("output"))
        payload = {
            "call_id": call_id,
            "tool": self._known.names.get(call_id),
            "ok": outcome.ok,
            "error_class": outcome.error_class,
            "output": outcome.output,
            "duration_ms": outcome.duration_ms,
            "codex": outcome.kept or None,
        }
        yield self._made("tool_result", payload, call_id, "result")
        yield from self._edits(
            self._known.patches.of_output(call_id, outcome.ok, self._known.folder)
        )

    def _edits(self, payloads: Iterator[dict[str, Any]]) -> Iterator[ImportedEvent]:
        for payload in payloads:
            yield self._made("edit", payload, str(payload["edit_id"]), "edit")

    def _begin_call(self, key: str) -> Iterator[ImportedEvent]:
        if self._known.call is not None and self._known.call.is_over:
            yield from self._end_call()
        if self._known.call is None:
            assert self._known.ts is not None
            seq = self._session.number(self._row)
            self._known.call = _Call(self._own(f"{key}:call"), self._known.ts, seq)

    def _end_call(self) -> Iterator[ImportedEvent]:
        call, self._known.call = self._known.call, None
        if call is not None:
            yield call.event(self._session, self._known.model)

    # Events of the client

    def _event(self, event: Row) -> Iterator[ImportedEvent]:
        kind = fields.text(event, "type")
        if kind in _SAID:
            text = fields.text(event, "message") or fields.text(event, "text") or ""
            if kind != "user_message" or not _is_injected(text):
                yield from self._said(_SAID[kind], text, event, is_event=True)
        elif kind == "token_count":
            yield from self._tokens(fields.mapping(event, "info"))
        elif kind == "patch_apply_end":
            yield from self._edits(self._known.patches.of_changes(event, self._known.folder))
        elif kind == "item_completed":
            yield from self._completed(fields.mapping(event, "item"))
        elif kind in _MARKS:
            yield from self._end_call()
        elif kind == "context_compacted":
            self.notes.skip("mark of a compaction that stands in a row of its own")
        else:
            yield from self._trouble(kind, event)

    def _trouble(self, kind: str | None, event: Row) -> Iterator[ImportedEvent]:
        if kind == "turn_aborted":
            yield from self._end_call()
            yield self._made("interrupt", {"reason": fields.text(event, "reason")}, "aborted")
        elif kind == "thread_rolled_back":
            comment = f"{event.get('num_turns')} turns rolled back"
            yield self._made("feedback", {"kind": "undo", "comment": comment}, "rolled-back")
        elif kind in ("error", "stream_error"):
            payload = {"message": fields.text(event, "message"), "codex": dict(event)}
            yield self._made("error", payload, "error")
        else:
            yield from self._unknown(kind, event)

    def _completed(self, item: Row) -> Iterator[ImportedEvent]:
        kind = (fields.text(item, "type") or "").replace("_", "").lower()
        if kind in ("usermessage", "agentmessage"):
            text = "\n".join(_texts(item.get("content")))
            said = "prompt" if kind == "usermessage" else "answer"
            yield from self._said(said, text, item, is_event=True)
        elif kind == "reasoning":
            for text in _texts(item.get("summary_text")) + _texts(item.get("raw_content")):
                yield from self._said("thought", text, item, is_event=True)
        elif kind == "filechange":
            yield from self._edits(self._known.patches.of_changes(item, self._known.folder))
        elif kind in ("commandexecution", "mcptoolcall", "websearch", "contextcompaction"):
            self.notes.skip(f"completed item that repeats a response item: {kind}")
        else:
            yield from self._unknown(f"item {kind}", item)

    def _tokens(self, info: Row) -> Iterator[ImportedEvent]:
        """The usage of the call that ended: of the total what was not there before, since the last
        count is repeated."""
        total, last = (fields.mapping(info, f"{name}_token_usage") for name in ("total", "last"))
        used = _usage(total, self._known.total) if total else _usage(last, {})
        if total and _went_down(total, self._known.total):
            used = _usage(last or total, {})
        self._known.total = total or self._known.total
        if not used:
            return
        if self._known.call is None:  # one that left no items, such as a compaction
            yield from self._begin_call(f"tokens-{xxh3_64_hexdigest(_encoder.encode(info))}")
        known = self._call.usage or {}
        self._call.usage = {name: known.get(name, 0) + count for name, count in used.items()}
        yield from self._end_call()

    def _unknown(self, kind: str | None, content: Row) -> Iterator[ImportedEvent]:
        encoded = _encoder.encode(content)
        if len(encoded) > _UNKNOWN_BYTES_MAX:
            self._skip(f"large row of the kind {kind}")
            return
        payload = {"kind": kind, "codex": dict(content)}
        yield self._made("x_context", payload, f"{kind}-{xxh3_64_hexdigest(encoded)}"[:200])


def _key(item: Row, text: str) -> str:
    return fields.identifier(item, "id") or f"text-{xxh3_64_hexdigest(text.encode())}"


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    texts = [fields.text(part, "text") if isinstance(part, dict) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _is_injected(text: str) -> bool:
    return text.startswith(_INSTRUCTIONS) or _INJECTED.match(text) is not None


_USAGE = {
    "prompt": "input_tokens",
    "completion": "output_tokens",
    "cached": "cached_input_tokens",
    "thinking": "reasoning_output_tokens",
}


def _usage(now: Row, before: Row) -> dict[str, int]:
    used = {
        name: (fields.count(now, field_name) or 0) - (fields.count(before, field_name) or 0)
        for name, field_name in _USAGE.items()
        if field_name in now
    }
    return {name: max(count, 0) for name, count in used.items()} if any(used.values()) else {}


def _went_down(now: Row, before: Row) -> bool:
    return any(
        (fields.count(now, name) or 0) < (fields.count(before, name) or 0)
        for name in _USAGE.values()
    )


IMPORTERS = (Codex(),)
