"""Agents whose log of a session has a row for each message, or part of one: Droid, Grok, Kimi and
Pi. And the Hugging Face Hub's format for such logs."""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import plain, text_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import (
    RowDraft,
    RowsImporter,
    SessionDraft,
    tool_call,
    usage_beside,
)

_DROID_USAGE = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheCreationTokens")
#: What the client writes in the user's name.
_REMINDER = re.compile(r"\s*<(system-reminder|system-notification)>.*</\1>\s*\Z", re.DOTALL)


class _DroidSession(RowDraft):
    usage: dict[str, int] | None = None

    def end(self) -> None:
        self.add_run_usage(self.usage)

    def take(self, row: dict[str, Any], key: str) -> None:
        kind, message = row.get("type"), fields.mapping(row, "message")
        if kind == "session_start":
            self.session_id = str(row["id"])
            self.begin(fields.text(row, "cwd"), title=row.get("title"))
        elif kind == "message":
            said = message.get("content")
            content = [{"type": "text", "text": said}] if isinstance(said, str) else said or []
            told = [block for block in content if _REMINDER.match(text_of([block]))]
            if told:
                self.add_context("client", text_of(told), f"{key}:client")
            if rest := [block for block in content if block not in told]:
                self.add_message(fields.without(message, "content") | {"content": rest}, key)
        elif kind == "compaction_state":
            self.add("compaction", {"summary": row.get("summaryText")}, key)
        else:
            self.skip_client(kind, key)


class DroidImporter(RowsImporter):
    """Droid: rows of Anthropic's blocks. Tokens are only known for the session, from
    `ID.settings.json` beside it."""

    name = "droid"
    homes = ("~/.factory/sessions",)
    draft_type, first_type, first_fields = _DroidSession, "session_start", {"id"}

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        session = super().draft(source, notes)
        settings = source.beside(f"{session.session_id}.settings.json")
        if settings.exists() and isinstance(session, _DroidSession):
            told = settings.json_object_or_skip(notes, "settings")
            session.model = fields.text(told, "model")
            session.usage = usage_beside(fields.mapping(told, "tokenUsage"), *_DROID_USAGE)
        return session


class _GrokSession(RowDraft):
    _thinking: str | None = None

    def take(self, row: dict[str, Any], key: str) -> None:
        kind, text = row.get("type"), text_of(row.get("content"))
        if kind == "system":
            self.add_system_prompt(text, key)
        elif kind == "user" and (reason := row.get("synthetic_reason")):
            self.add_context(reason, text, key)
        elif kind == "user":
            self.add_message({"role": "user", "content": row.get("content")}, key)
        elif kind == "reasoning":
            self._thinking = text_of(row.get("summary")) or None
        elif kind == "assistant":
            self.model = fields.text(row, "model_id") or self.model
            said = {"role": "assistant"} | {
                name: row.get(name) for name in ("content", "tool_calls")
            }
            self.add_message(said, key, thinking=self._thinking, model=self.model)
            self._thinking = None
        elif kind == "tool_result":
            self.add_result(fields.text(row, "tool_call_id"), plain(row.get("content")), key)
        else:
            self.skip_client(kind, key)


_GROK_TYPES = {"system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call"}
#: Fields of other formats whose rows have such types.
_NOT_GROK = {"uuid", "sessionId", "message", "timestamp", "payload"}


class GrokImporter(RowsImporter):
    """Grok Build: `ID/chat_history.jsonl`, without times and tokens. An answer's reasoning comes
    first. `summary.json` beside it names the session."""

    name = "grok"
    homes = ("$GROK_HOME/sessions", "~/.grok/sessions")
    draft_type = _GrokSession

    def recognises(self, candidate: Candidate) -> bool:
        rows = candidate.first_rows
        known = all(row.get("type") in _GROK_TYPES and not row.keys() & _NOT_GROK for row in rows)
        return known and any(row["type"] == "user" and "content" in row for row in rows)

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        draft, summary = super().draft(source, notes), source.beside("summary.json")
        told = summary.json_object_or_skip(notes, "summary") if summary.exists() else None
        info = fields.mapping(told, "info")
        draft.session_id = fields.identifier(info, "id") or source.parent_name
        draft.at(fields.at(told, "created_at"))
        draft.model = fields.text(told, "current_model_id")
        draft.begin(fields.text(info, "cwd"), title=fields.text(told, "session_summary"))
        return draft


_KIMI_USAGE = ("inputOther", "output", "inputCacheRead", "inputCacheCreation")
#: Rows that other rows repeat, or that only begin something.
_REPEATED = ("turn.prompt", "llm.request", "metadata")


class _KimiSession(RowDraft):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._parts: list[dict[str, Any]] = []
        self._usage: dict[str, int] | None = None
        #: Of the call that writes the next summary.
        self._summary_usage: dict[str, int] | None = None
        self._key = ""

    def take(self, row: dict[str, Any], key: str) -> None:
        kind, message = row.get("type"), fields.mapping(row, "message")
        self.at(row.get("time"))
        if kind == "context.append_loop_event":
            self._take_event(fields.mapping(row, "event"), key)
        elif kind == "context.append_message":
            self.end()
            origin = fields.at(message, "origin", "kind")
            if message.get("role") == "user" and origin not in (None, "user"):
                self.add_context(origin, text_of(message.get("content")), key)
            else:
                self.add_message(fields.without(message, "origin", "toolCalls"), key)
        elif kind == "usage.record":
            self.model = fields.text(row, "model") or self.model
            if row.get("usageScope") == "session":
                self._summary_usage = usage_beside(fields.mapping(row, "usage"), *_KIMI_USAGE)
            else:
                self._count(row)
        elif kind == "config.update":
            self.model = fields.text(row, "modelAlias") or self.model
            self.project = fields.project_of(fields.text(row, "cwd")) or self.project
            if prompt := fields.text(row, "systemPrompt"):
                self.add_system_prompt(prompt, key)
        elif kind == "context.apply_compaction":
            told = {"summary": row.get("summary"), "usage": self._summary_usage}
            self.add("compaction", told, key)
            self._summary_usage = None
        elif kind == "turn.cancel":
            self.add("interrupt", {}, key)
        elif kind not in _REPEATED:
            self.skip_client(kind, key)

    def _take_event(self, event: Row, key: str) -> None:
        kind, part = event.get("type"), fields.mapping(event, "part")
        if kind == "step.begin":
            self.end()
            self._key = str(event.get("uuid") or key)
        elif kind == "content.part":
            thought = {"type": "thinking", "thinking": part.get("think")}
            self._parts.append(thought if part.get("type") == "think" else part)
        elif kind == "tool.call":
            call = tool_call(event.get("toolCallId"), event.get("name"), event.get("args"))
            self._parts.append({"type": "tool_call"} | call)
        elif kind == "tool.result":
            self.end()
            output, failed = (fields.at(event, "result", name) for name in ("output", "isError"))
            call_id, ok = fields.text(event, "toolCallId"), failed is not True
            self.add_result(call_id, plain(output), key, ok=ok)
        elif kind == "step.end":
            self._count(event)
            self.end()
        else:
            self.skip_client(kind, key)

    def _count(self, told: Row) -> None:
        """Note the usage of the open answer, else of the last one, which may have been told."""
        usage = usage_beside(fields.mapping(told, "usage"), *_KIMI_USAGE)
        last = next((each for each in reversed(self.made) if each.type == "model_call"), None)
        if self._parts:
            self._usage = self._usage or usage
        elif usage and last is not None:
            last.payload.setdefault("usage", usage)

    def end(self) -> None:
        """Add the answer whose parts came."""
        if self._parts:
            said = {"role": "assistant", "content": self._parts}
            key = self._key or f"answer-{len(self.made)}"
            self.add_message(said, key, usage=self._usage)
        self._parts, self._usage, self._key = [], None, ""


class KimiImporter(RowsImporter):
    """Kimi Code: `session_ID/agents/NAME/wire.jsonl`.

    An answer comes in parts. Agents other than `main` become sessions, linked to that one."""

    name = "kimi"
    homes = ("$KIMI_CODE_HOME/sessions", "~/.kimi-code/sessions")
    draft_type, first_type, first_fields = _KimiSession, "metadata", {"protocol_version"}

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        draft = super().draft(source, notes)
        *_, session, agents, agent, _file = ("", "", "", *source.real.parts)
        if agents == "agents":
            draft.session_id = session if agent == "main" else f"{session}/{agent}"
            draft.begin(None, parent=None if agent == "main" else session)
        return draft


class _PiSession(RowDraft):
    _last: object = None

    def take(self, row: dict[str, Any], key: str) -> None:
        kind, message = row.get("type"), fields.mapping(row, "message")
        if kind == "session":
            self.session_id = str(row["id"])
            parent = (fields.text(row, "parentSession") or "").removesuffix(".jsonl")
            named = parent.rpartition("/")[2].rpartition("_")[2] or None
            self.begin(fields.text(row, "cwd"), parent=named, link="fork")
        elif kind == "message":
            self._take_message(message, row, key)
        elif kind == "model_change":
            self.model = fields.text(row, "modelId")
        elif kind == "compaction":
            facts = {"summary": row.get("summary"), "tokens_before": row.get("tokensBefore")}
            self.add("compaction", facts, key)
        elif kind in ("branch_summary", "custom_message"):
            self.add_context(kind, row.get("summary") or plain(row.get("content")), key)
        else:
            self.skip_client(kind, key)
        self._last = row.get("id", self._last)

    def _take_message(self, message: Row, row: Row, key: str) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            usage, reason = fields.mapping(message, "usage"), message.get("stopReason")
            self.add_message(
                {"role": role, "content": content},
                key,
                model=fields.text(message, "model"),
                usage=usage_beside(usage, "input", "output", "cacheRead", "cacheWrite"),
                cost_usd=fields.at(usage, "cost", "total"),
                finish_reason=reason,
            )
            if reason == "aborted":
                self.add("interrupt", {"call_id": key}, f"{key}:aborted")
            elif reason == "error":
                self.add("error", {"message": str(message.get("errorMessage"))}, f"{key}:error")
        elif role == "toolResult":
            ok, details = message.get("isError") is not True, message.get("details") or None
            call_id, tool = (fields.text(message, name) for name in ("toolCallId", "toolName"))
            self.add_result(call_id, plain(content), key, ok=ok, tool=tool, details=details)
        elif role == "bashExecution":
            ran = fields.without(message, "role", "command", "timestamp")
            self.add("x_command", ran | {"text": message.get("command")}, key)
        elif role == "user":
            if self._last not in (None, row.get("parentId")) and "parentId" in row:
                comment = {"comment": "went back in the conversation", "target": str(self._last)}
                self.add("feedback", {"kind": "undo"} | comment, f"{key}:rewind")
            self.add_message({"role": role, "content": content}, key)
        else:
            self.add_context(role, plain(content), key)


class PiImporter(RowsImporter):
    """Pi, and OpenClaw in its form: a row an entry, which names its parent.

    A prompt that follows an earlier entry than the last one takes back what came between; both
    branches are kept."""

    name = "pi"
    homes = ("$PI_CODING_AGENT_DIR/sessions", "~/.pi/agent/sessions")
    draft_type = _PiSession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        named = first.get("type") == "session" and "id" in first and "harness" not in first
        return named and bool(first.keys() & {"version", "cwd"})


#: Names of fields that differ from OpenAI's.
_FIELDS = {
    "reasoningContent": "reasoning_content", "toolCalls": "tool_calls",
    "toolCallId": "tool_call_id",
}  # fmt: skip


class SessionTraceImporter(Importer):
    """The Hub's Session Trace Simple Format: a header, then a message a line."""

    name = "session-trace"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder or not candidate.is_lines:
            return False
        header, *lines = candidate.first_rows
        return _is_header(header) and bool(lines) and all(map(_is_message, lines[:3]))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        draft: SessionDraft | None = None
        for number, row in source.rows(notes):
            if draft is None:
                if not _is_header(row):
                    raise SourceUnfit("its first line is not the header of a session")
                draft = _begun(row, source, notes)
            elif not _is_message(row):
                notes.skip("line without a message", f"line {number}")
            else:
                message = {_FIELDS.get(name, name): row["message"][name] for name in row["message"]}
                draft.at(message.pop("timestamp", None))
                draft.add_message(message, f"line-{number}")
        if draft is not None:
            yield from draft.finished()


def _begun(header: Row, source: Source, notes: Notes) -> SessionDraft:
    began = source.time_us(header.get("timestamp"))
    draft = SessionDraft(header["id"], SessionTraceImporter.name, began, notes)
    rest = fields.without(header, "type", "harness", "id", "client_version", "tools")
    draft.start |= {
        "client": header["harness"],
        "client_version": fields.text(header, "client_version"),
        "tools": header.get("tools") or None,
        "extra": rest or None,
    }
    return draft


def _is_header(row: Row) -> bool:
    # Pi's header has a version, and its messages have ids.
    named = all(fields.text(row, name) for name in ("harness", "id"))
    return row.get("type") == "session" and named and "version" not in row


def _is_message(row: Row) -> bool:
    return row.get("type") == "message" and bool(fields.text(row, "message", "role"))
