"""Editors: logs of the Agent Client Protocol, and transcripts of Windsurf and Antigravity."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from penstock.events.messages import json_of, plain, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, tool_call


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
    """Logs of the Agent Client Protocol, which editors speak with many agents.

    Texts come in pieces, calls of tools with updates, and messages may stand inside other objects,
    beside their time. A log is read as the session of its first message."""

    name = "acp"
    draft_type = _AcpSession

    def recognises(self, candidate: Candidate) -> bool:
        known = map(_acp_update, map(_acp_message, candidate.first_rows))
        # Grok keeps such a log beside its own history.
        return any("sessionUpdate" in each for each in known) and not (
            candidate.beside("chat_history.jsonl").exists()
        )


class _WindsurfSession(RowDraft):
    _answer: ImportedEvent | None = None

    def take(self, row: Row, key: str) -> None:
        kind = str(row.get("type"))
        step = fields.mapping(row, kind)
        if kind == "user_input":
            rules = step.get("rules_applied") or None
            self.add_prompt(fields.text(step, "user_response") or "", key, rules_applied=rules)
        elif kind == "planner_response":
            said, thinking = step.get("response"), step.get("thinking")
            self._answer = self.add_answer(key, text=said, thinking=thinking)
        elif kind == "code_action":
            self.notes.skip("edit whose earlier text is not shown", key)
            told = {"kind": "edit", "path": step.get("path"), "text": step.get("new_content")}
            self.add("x_context", told, key)
        else:
            if self._answer is not None:
                asked = tool_call(key, step.get("tool_name") or kind, step.get("arguments", step))
                self._answer.payload.setdefault("tool_calls", []).append(asked)
                self.open_call(asked)
            output = step.get("result", step.get("output"))
            self.add_result(key, output, f"{key}:result", ok=row.get("status") == "done")


class WindsurfImporter(RowsImporter):
    """Windsurf: what its hook `post_cascade_response_with_transcript` writes.

    Steps have no times, no tokens, and of a changed file the new text alone, or a part of it."""

    name = "windsurf"
    homes = ("~/.windsurf/transcripts",)
    draft_type = _WindsurfSession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        kind = fields.text(first, "type")
        return kind in ("user_input", "planner_response") and kind in first


_REQUEST = re.compile(r"<USER_REQUEST>\n?(.*?)\n?</USER_REQUEST>\s*", re.DOTALL)
_MODEL = re.compile(r"Model Selection`? (?:changed )?from .*? to (.+?)\.(?:\s|<|\Z)")
_FULL, _SHORT = "transcript_full.jsonl", "transcript.jsonl"


class _AntigravitySession(RowDraft):
    #: Calls without results, in their order.
    _open: Sequence[str] = ()

    def take(self, row: Row, key: str) -> None:
        self.at(row.get("created_at"))
        key = f"step-{row['step_index']}" if "step_index" in row else key
        kind, content = row.get("type"), fields.text(row, "content") or ""
        if kind == "USER_INPUT":
            asked = _REQUEST.search(content)
            self.add_prompt(asked[1] if asked else content, key)
            if asked and (rest := _REQUEST.sub("", content)):
                self.add_context("client", rest, f"{key}:client")
            if told := _MODEL.search(content):
                self.model = told[1]
        elif kind == "PLANNER_RESPONSE":
            self._answer(row, content, key)
        elif kind == "CHECKPOINT":
            self.add("compaction", {"summary": content}, key)
        elif row.get("source") == "MODEL" and self._open:
            failed = row.get("status") not in ("DONE", "RUNNING", None)
            call_id, *self._open = self._open
            self.add_result(call_id, content, key, ok=False if failed else None)
        elif content:
            self.add_context(kind, content, key)
        else:
            self.skip_client(kind, key)

    def _answer(self, row: Row, content: str, key: str) -> None:
        calls = []
        for at, call in enumerate(fields.rows(row, "tool_calls")):
            told = fields.mapping(call, "args").items()
            arguments = {name: _decoded(name, value) for name, value in told}
            tool = str(call.get("name")).removeprefix("default_api:")
            calls.append(tool_call(f"{key}:call:{at}", tool, arguments))
        self._open = [call["id"] for call in calls]
        facts = {"thinking": row.get("thinking"), "usage": usage_of(row.get("usage"))}
        model = fields.text(row, "model") or self.model
        self.add_answer(key, text=content or None, tool_calls=calls, model=model, **facts)


def _decoded(name: str, value: Any) -> Any:
    is_json = isinstance(value, str) and (value[:1] == '"' or name == "ReplacementChunks")
    known = json_of(value) if is_json else None
    return value if known is None else known


class AntigravityImporter(RowsImporter):
    """Antigravity: `brain/ID/.system_generated/logs/transcript.jsonl`.

    A step that is not the model's answer is the result of its next open call: calls have no ids.
    The values of their arguments are JSON in texts."""

    name = "antigravity"
    homes = ("~/.gemini/antigravity/brain", "~/.gemini/antigravity-cli/brain",
             "~/.gemini/antigravity-ide/brain")  # fmt: skip
    draft_type = _AntigravitySession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        return first.get("source") in ("USER_EXPLICIT", "MODEL", "SYSTEM") and "type" in first

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        draft = super().draft(source, notes)
        if source.name in (_FULL, _SHORT):
            draft.session_id = source.real.parents[2].name
        return draft

    def duplicates(self, sources: Sequence[Source]) -> Collection[Source]:
        full = {source.real.parent for source in sources if source.name == _FULL}
        return [each for each in sources if each.name == _SHORT and each.real.parent in full]
