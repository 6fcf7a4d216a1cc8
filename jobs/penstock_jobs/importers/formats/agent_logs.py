"""Logs of agents in terminals, a JSON object per line.

Pi, and OpenClaw in its form: entries name their parents. A prompt that follows an earlier entry
than the last one takes back what came between; both branches are kept.

Droid: Anthropic's blocks. Tokens are only known for the session, from `ID.settings.json` beside it.

Kimi Code: `session_ID/agents/NAME/wire.jsonl`. An answer comes in parts. Agents other than `main`
become sessions, linked to that one.

Grok Build: `ID/chat_history.jsonl`, without times and tokens. An answer's reasoning comes first.
`summary.json` beside it names the session.

goose, before its database: the first row has the session's facts.

Logs of the Agent Client Protocol, which editors speak with many agents. Texts come in pieces, calls
of tools with updates, and messages may stand inside other objects, beside their time. A log is read
as the session of its first message.
"""

import re
from typing import Any

from penstock.events.messages import plain, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, tool_call, usage_beside


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
    name = "pi"
    homes = ("$PI_CODING_AGENT_DIR/sessions", "~/.pi/agent/sessions")
    draft_type = _PiSession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        named = first.get("type") == "session" and "id" in first and "harness" not in first
        return named and bool(first.keys() & {"version", "cwd"})


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


_KIMI_USAGE = ("inputOther", "output", "inputCacheRead", "inputCacheCreation")
#: Rows that other rows repeat, or that only begin something.
_REPEATED = ("turn.prompt", "llm.request", "metadata")


class _KimiSession(RowDraft):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._parts: list[dict[str, Any]] = []
        self._usage: dict[str, int] | None = None
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
            self._count(row)
        elif kind == "config.update":
            self.model = fields.text(row, "modelAlias") or self.model
            self.project = fields.project_of(fields.text(row, "cwd")) or self.project
            if prompt := fields.text(row, "systemPrompt"):
                self.add_system_prompt(prompt, key)
        elif kind == "context.apply_compaction":
            self.add("compaction", {"summary": row.get("summary")}, key)
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


class GooseSession(RowDraft):
    """A session of goose, from a log or from the rows of its database."""

    def take(self, row: dict[str, Any], key: str) -> None:
        if "working_dir" in row:
            title = row.get("description") or row.get("name")
            self.begin(fields.text(row, "working_dir"), title=title)
            names = {"input_tokens": "accumulated_input_tokens",
                     "output_tokens": "accumulated_output_tokens"}  # fmt: skip
            self.add_run_usage(usage_of({name: row.get(own) for name, own in names.items()}))
            return
        self.at(row.get("created"))
        content = []
        for at, block in enumerate(fields.rows(row, "content")):
            kind, result = block.get("type"), fields.mapping(block, "toolResult")
            if kind == "toolRequest":
                call = fields.mapping(block, "toolCall", "value")
                content.append({"type": "tool_call", "id": block.get("id")} | call)
            elif kind == "toolResponse":
                value = result.get("value", result.get("error"))
                told = fields.at(value, "content")
                ok = result.get("status") == "success" and fields.at(value, "isError") is not True
                output, name = plain(value if told is None else told), f"{key}:result:{at}"
                self.add_result(fields.text(block, "id"), output, name, ok=ok)
            else:
                content.append(block)
        if content and fields.at(row, "metadata", "userVisible") is False:
            self.add_context("client", plain(content), key)
        elif content:
            self.add_message({"role": row.get("role"), "content": content}, key)


class GooseLogImporter(RowsImporter):
    name = "goose-jsonl"
    homes = ("~/.local/share/goose/sessions", "~/Library/Application Support/Block/goose/sessions")
    draft_type, first_fields = GooseSession, {"working_dir", "description"}


def _acp_message(row: Row) -> Row:
    inner = (fields.mapping(row, name) for name in ("message", "msg", "payload", "data"))
    return row if row.keys() & {"method", "result", "update"} else next(filter(None, inner), row)


def _acp_update(message: Row) -> dict[str, Any]:
    return fields.mapping(message, "params", "update") or fields.mapping(message, "update")


def _is_of_user(kind: str) -> bool:
    return kind.startswith("user")


class _AcpSession(RowDraft):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pieces: dict[str, str] = {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._called: list[str] = []
        self._asked = self._key = ""

    def take(self, row: dict[str, Any], key: str) -> None:
        message = _acp_message(row)
        update, result = _acp_update(message), fields.mapping(message, "result")
        kind = str(update.get("sessionUpdate") or message.get("method"))
        self.at(fields.first(row, "ts", "time"))
        named = fields.at(message, "params", "sessionId") or message.get("sessionId")
        if named and not self.made:
            self.session_id = str(named)
        if named not in (None, self.session_id):
            self.notes.skip("message of another session", key)
        elif kind == "session/prompt":
            self.end()
            self._asked = text_of(fields.at(message, "params", "prompt"))
            self.add_prompt(self._asked, key)
        elif "stopReason" in result:
            self.end(usage=usage_of(result.get("usage")))
            if result["stopReason"] == "cancelled":
                self.add("interrupt", {}, key)
        elif kind.endswith("_chunk"):
            by_user = any(map(_is_of_user, self._pieces))
            if self._called or (self._pieces and by_user != _is_of_user(kind)):
                self.end()
            self._key = self._key or key
            self._pieces[kind] = self._pieces.get(kind, "") + text_of([update.get("content")])
        elif kind in ("tool_call", "tool_call_update"):
            self._take_tool(update, key)
        else:
            self.skip_client(kind, key)

    def _take_tool(self, update: Row, key: str) -> None:
        call_id, self._key = str(update.get("toolCallId")), self._key or key
        if call_id not in self._tools:
            self._called.append(call_id)
        tool = self._tools.setdefault(call_id, {})
        was = tool.get("status")
        tool |= {name: value for name, value in update.items() if value is not None}
        if was == tool.get("status") or tool["status"] not in ("completed", "failed"):
            return
        self.end()
        parts, ok = fields.rows(tool, "content"), tool["status"] == "completed"
        said = [part["content"] for part in parts if part.get("type") == "content"]
        edits = [
            FileEdit(str(each.get("path")), each.get("oldText") or "", str(each.get("newText")),
                     is_whole=not each.get("oldText"))
            for each in parts
            if each.get("type") == "diff" and ok
        ]  # fmt: skip
        output = plain(said) if said else tool.get("rawOutput")
        self.add_result(call_id, output, f"{key}:result", ok=ok, changes=edits or None)

    def end(self, usage: dict[str, int] | None = None) -> None:
        """Add the prompt or the answer whose pieces came."""
        said, called, key = self._pieces, self._called, self._key
        self._pieces, self._called, self._key = {}, [], ""
        prompt, tools = said.get("user_message_chunk"), [self._tools[name] for name in called]
        if prompt is not None and prompt != self._asked:
            self.add_prompt(prompt, key)
        elif prompt is None and (said or called):
            calls = [tool_call(each["toolCallId"], each.get("kind") or each.get("title"),
                               each.get("rawInput")) for each in tools]  # fmt: skip
            texts = [said.get(f"agent_{what}_chunk") for what in ("message", "thought")]
            facts = {"text": texts[0], "thinking": texts[1], "usage": usage}
            self.add_answer(key, tool_calls=calls, **facts)
        elif usage:
            self.add_run_usage(usage)


class AcpImporter(RowsImporter):
    name = "acp"
    draft_type = _AcpSession

    def recognises(self, candidate: Candidate) -> bool:
        known = map(_acp_update, map(_acp_message, candidate.first_rows))
        # Grok keeps such a log beside its own history.
        return any("sessionUpdate" in each for each in known) and not (
            candidate.beside("chat_history.jsonl").exists()
        )


IMPORTERS = (
    PiImporter(), DroidImporter(), KimiImporter(), GrokImporter(), GooseLogImporter(),
    AcpImporter(),
)  # fmt: skip
