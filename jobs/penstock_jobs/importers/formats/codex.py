"""Codex: `sessions/…/rollout-….jsonl`, an object `{timestamp, type, payload}` per line.

- A call of the model leaves several response items. A `token_count` ends it, and may be repeated.
- Each text occurs as a response item, and again as an event or, in paginated threads, as a
  completed item. It is imported once.
- A resume or fork copies history with new times. Ids are made of the items' ids or content, so a
  copy has the same `source_key`.
- A `token_usage_record` tells the usage of one call, and a `token_count` beside it the same again.
- `compacted` rows repeat the history, and can be most of a file. Their copies are skipped.
"""

import re
from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import msgspec
from msgspec import field
from xxhash import xxh3_64_hexdigest

from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.formats.codex_tools import Patches, call_arguments, call_outcome
from penstock_jobs.importers.importer import (
    ImportedEvent,
    LogImporter,
    LogMemory,
    OpenAnswer,
    RecentEntries,
    RowReader,
    SessionEvents,
)
from penstock_jobs.importers.sources import Candidate, Source

NAME = "codex"
_CALLS = {
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call",
}  # fmt: skip
_OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
_ITEMS = {"message", "reasoning", *_CALLS, *_OUTPUTS}
_SAID = {"user_message": "prompt", "agent_message": "answer", "agent_reasoning": "thought",
         "agent_reasoning_raw_content": "thought"}  # fmt: skip
#: Rows that only mark something that other rows tell.
_MARKS = {"task_started", "task_complete", "turn_started", "turn_complete", "thread_name_updated"}
_CLIENT_ROWS = {"world_state", "inter_agent_communication_metadata"}
_REPEATED_ITEMS = ("commandexecution", "mcptoolcall", "websearch", "contextcompaction")
#: Texts that the client puts into the user's messages: one tag, or a file of instructions.
_INJECTED = re.compile(r"\s*<([A-Za-z_]+)[ >].*</\1>\s*\Z", re.DOTALL)
_INSTRUCTIONS = ("# AGENTS.md instructions", "<INSTRUCTIONS>", "<user_instructions>")
_FILE_ID = re.compile(r"rollout-.*?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})")
_UNKNOWN_BYTES_MAX = 64 * 1024
_USAGE = {
    "prompt": "input_tokens",
    "completion": "output_tokens",
    "cached": "cached_input_tokens",
    "thinking": "reasoning_output_tokens",
}

_encoder = msgspec.json.Encoder(order="deterministic")


class _Call(OpenAnswer, kw_only=True):
    usage: dict[str, int] | None = None
    is_over: bool = False


class _RolloutMemory(LogMemory):
    session: SessionEvents | None = None
    model: str | None = None
    folder: str | None = None
    call: _Call | None = None
    total: Row = field(default_factory=dict)
    #: Whether the last usage came as a record, and that usage.
    counted: tuple[bool, dict[str, int]] = (False, {})
    keys: RecentEntries[int] = field(default_factory=RecentEntries)
    #: Digests of texts, with their counts as items and as events.
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
        first, *rest = candidate.first_rows or [{}]
        if first.get("type") == "session_meta":
            return isinstance(first.get("payload"), dict)
        if first.keys() & {"type", "kind", "role"} or not first.keys() >= {"id", "timestamp"}:
            return False
        # The first versions wrote bare items.
        return any(row.get("type") in _ITEMS or row.get("record_type") == "state" for row in rest)

    def reader(self, source: Source, memory: _RolloutMemory) -> "_Rollout":
        named = _FILE_ID.match(source.name)
        return _Rollout(named[1] if named else source.real.stem, memory)


class _Rollout(RowReader[_RolloutMemory]):
    def __init__(self, file_id: str, memory: _RolloutMemory) -> None:
        super().__init__(memory)
        self._file_id = file_id

    def _events(self, kind: str | None, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        known, payload = self.memory, fields.mapping(row, "payload")
        if kind is None and known.session is None and "id" in row:  # the first rollouts
            kind, payload = "session_meta", row
        elif kind in _ITEMS and not payload:
            kind, payload = "response_item", row
        if known.ts_us is None:
            self._skip("row without a time")
            return
        if kind == "session_meta":
            if known.session is not None:
                self.notes.skip("head of the session that this one was forked from")
                return
            yield self._start(payload)
            return
        if known.session is None:
            yield self._start({})
        if kind == "response_item":
            yield from self._item(payload)
        elif kind == "event_msg":
            yield from self._client_event(payload)
        elif kind == "turn_context":
            yield from self._end_call()
            known.model = fields.text(payload, "model") or known.model
            known.folder = fields.text(payload, "cwd") or known.folder
        elif kind == "compacted":
            yield from self._compaction(payload)
        elif kind == "token_usage_record":
            yield from self._usage_record(payload)
        else:
            yield from self._unknown(kind, payload or row)

    def finish(self) -> Iterator[ImportedEvent]:
        if self.memory.call is not None and fields.is_recent(self.memory.ts_us):
            self.notes.hold("the last answer may still be written")
        elif self.memory.call is not None:
            yield self._call_event(self.memory.call)

    @property
    def _session(self) -> SessionEvents:
        assert self.memory.session is not None
        return self.memory.session

    def _start(self, meta: Row) -> ImportedEvent:
        session_id = fields.identifier(meta, "id") or self._file_id
        self.memory.folder = fields.text(meta, "cwd")
        project = fields.project_of(self.memory.folder)
        session = self.memory.session = SessionEvents(session_id, NAME, project)
        agent = fields.identifier(meta, "source", "subagent", "thread_spawn", "parent_thread_id")
        forked = fields.identifier(meta, "forked_from_id")
        parent = agent or forked or fields.identifier(meta, "history_base", "thread_id")
        payload = {
            "client": NAME,
            "client_version": fields.text(meta, "cli_version"),
            "repo": self.memory.folder,
            "branch": fields.text(meta, "git", "branch"),
            "commit": fields.text(meta, "git", "commit_hash"),
            "parent_session": parent,
            "link": ("subagent" if agent else "fork") if parent else None,
            "codex": fields.without(meta, "id", "cwd", "cli_version", "git", "timestamp") or None,
        }
        started = fields.moment(meta, "timestamp") or self.memory.ts_us
        assert started is not None
        seq = session.number(self._number)
        return session.event("session_start", started, session_id, payload, seq)

    def _event(self, kind: str, key: str, /, **payload: Any) -> ImportedEvent:
        """Make an event of this row. A repeated `key` gets a number."""
        return self._made(self._session, kind, payload, self._own(key))

    def _own(self, key: str) -> str:
        times = self.memory.keys[key] = (self.memory.keys.get(key) or 0) + 1
        return key if times == 1 else f"{key}#{times}"

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
            kind = "client" if role == "user" else role
            yield self._event("x_context", _key(item, text), text=text, kind=kind)

    def _compaction(self, payload: Row) -> Iterator[ImportedEvent]:
        yield from self._end_call()
        if fields.items(payload, "replacement_history"):
            self._skip("history that a compaction repeats")
        yield self._event("compaction", "compacted", summary=fields.text(payload, "message"))

    def _said(self, kind: str, text: str, item: Row, *, is_event: bool) -> Iterator[ImportedEvent]:
        """Add a prompt, an answer or a thought, unless it came before in the other form."""
        if not text:
            return
        digest = xxh3_64_hexdigest(f"{kind}:{text}".encode())
        counts = self.memory.said[digest] = self.memory.said.get(digest) or [0, 0]
        counts[is_event] += 1
        if counts[is_event] <= counts[not is_event]:
            return
        if kind == "prompt":
            yield from self._end_call()
            yield self._event("user_message", f"user-{xxh3_64_hexdigest(text.encode())}", text=text)
        else:
            call = yield from self._open_answer(_key(item, text))
            (call.texts if kind == "answer" else call.thinking).append(text)

    def _tool_call(self, item: Row, kind: str) -> Iterator[ImportedEvent]:
        call_id = fields.identifier(item, "call_id") or fields.identifier(item, "id")
        call_id = call_id or f"call-{xxh3_64_hexdigest(_encoder.encode(item))}"
        name = fields.text(item, "name") or kind.removesuffix("_call")
        call = yield from self._open_answer(call_id)
        arguments = call_arguments(item)
        call.calls.append({"id": call_id, "name": name, "arguments": arguments})
        self.memory.names[call_id] = name
        self.memory.patches.note(call_id, arguments)

    def _tool_output(self, item: Row) -> Iterator[ImportedEvent]:
        call_id = fields.identifier(item, "call_id") or "unknown"
        if self.memory.call is not None:
            self.memory.call.is_over = True
        outcome = call_outcome(item.get("output"))
        tool = self.memory.names.get(call_id)
        yield self._event("tool_result", f"{call_id}:result", call_id=call_id, tool=tool, **outcome)
        patches, folder = self.memory.patches, self.memory.folder
        yield from self._edits(patches.of_output(call_id, outcome["ok"], folder))

    def _edits(self, payloads: Iterator[dict[str, Any]]) -> Iterator[ImportedEvent]:
        for payload in payloads:
            yield self._event("edit", f"{payload['edit_id']}:edit", **payload)

    def _open_answer(self, key: str) -> Generator[ImportedEvent, None, _Call]:
        if self.memory.call is not None and self.memory.call.is_over:
            yield from self._end_call()
        if self.memory.call is None:
            assert self.memory.ts_us is not None
            seq = self._session.number(self._number)
            name = self._own(f"{key}:call")
            self.memory.call = _Call(key=name, ts_us=self.memory.ts_us, seq=seq)
        return self.memory.call

    def _end_call(self) -> Iterator[ImportedEvent]:
        call, self.memory.call = self.memory.call, None
        if call is not None:
            yield self._call_event(call)

    def _call_event(self, call: _Call) -> ImportedEvent:
        call_id = call.key.removesuffix(":call")
        return call.event(self._session, call_id=call_id, model=self.memory.model, usage=call.usage)

    def _client_event(self, event: Row) -> Iterator[ImportedEvent]:
        kind = fields.text(event, "type")
        if kind in _SAID:
            text = fields.text(event, "message") or fields.text(event, "text") or ""
            if kind != "user_message" or not _is_injected(text):
                yield from self._said(_SAID[kind], text, event, is_event=True)
        elif kind == "token_count":
            yield from self._tokens(fields.mapping(event, "info"))
        elif kind == "patch_apply_end":
            yield from self._edits(self.memory.patches.of_changes(event, self.memory.folder))
        elif kind == "item_completed":
            yield from self._completed(fields.mapping(event, "item"))
        elif kind in _MARKS:
            yield from self._end_call()
        elif kind == "context_compacted":
            self.notes.skip("mark of a compaction that stands in a row of its own")
        elif kind == "turn_aborted":
            yield from self._end_call()
            yield self._event("interrupt", "aborted", reason=fields.text(event, "reason"))
        elif kind == "thread_rolled_back":
            comment = f"{event.get('num_turns')} turns rolled back"
            yield self._event("feedback", "rolled-back", kind="undo", comment=comment)
        elif kind in ("error", "stream_error"):
            message = fields.text(event, "message")
            yield self._event("error", "error", message=message, codex=dict(event))
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
            yield from self._edits(self.memory.patches.of_changes(item, self.memory.folder))
        elif kind in _REPEATED_ITEMS:
            self.notes.skip(f"completed item that repeats a response item: {kind}")
        else:
            yield from self._unknown(f"item {kind}", item)

    def _tokens(self, info: Row) -> Iterator[ImportedEvent]:
        """Add the usage of the call that ended: the increase of the total, since counts repeat."""
        total, last = (fields.mapping(info, f"{name}_token_usage") for name in ("total", "last"))
        counts = {name: fields.count(total, name) or 0 for name in _USAGE.values()}
        before = self.memory.total
        if total and all(
            count >= (fields.count(before, name) or 0) for name, count in counts.items()
        ):
            used = _usage(total, before)
        else:
            used = _usage(last or total, {})
        self.memory.total = total or before
        yield from self._count(used, info, is_record=False)

    def _usage_record(self, record: Row) -> Iterator[ImportedEvent]:
        if record.get("thread_id") not in (None, self._session.session_id):
            self._skip("usage of a thread that this one was forked from")
            return
        used = _usage(fields.mapping(record, "usage"), {})
        yield from self._count(used, record, is_record=True)

    def _count(
        self, used: dict[str, int], told: Row, *, is_record: bool
    ) -> Iterator[ImportedEvent]:
        was_record, before = self.memory.counted
        self.memory.counted = is_record, used
        if was_record != is_record and before == used:
            self.memory.counted = is_record, {}  # told twice, but not three times
            return
        if not used:
            return
        # A call without items, such as a compaction, begins here.
        key = f"tokens-{xxh3_64_hexdigest(_encoder.encode(told))}"
        call = self.memory.call or (yield from self._open_answer(key))
        known = call.usage or {}
        call.usage = {name: known.get(name, 0) + count for name, count in used.items()}
        yield from self._end_call()

    def _unknown(self, kind: str | None, content: Row) -> Iterator[ImportedEvent]:
        if kind in _CLIENT_ROWS:
            self._skip(f"row of the client: {kind}")
            return
        encoded = _encoder.encode(content)
        if len(encoded) > _UNKNOWN_BYTES_MAX:
            self._skip(f"large row of the kind {kind}")
            return
        key = f"{kind}-{xxh3_64_hexdigest(encoded)}"[:200]
        yield self._event("x_context", key, kind=kind, codex=dict(content))


def _key(item: Row, text: str) -> str:
    return fields.identifier(item, "id") or f"text-{xxh3_64_hexdigest(text.encode())}"


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _is_injected(text: str) -> bool:
    return text.startswith(_INSTRUCTIONS) or _INJECTED.match(text) is not None


def _usage(now: Row, before: Row) -> dict[str, int]:
    used = {
        name: (fields.count(now, told) or 0) - (fields.count(before, told) or 0)
        for name, told in _USAGE.items()
        if told in now
    }
    return {name: max(count, 0) for name, count in used.items()} if any(used.values()) else {}
