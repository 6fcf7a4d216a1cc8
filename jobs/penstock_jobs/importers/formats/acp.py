"""Logs of the Agent Client Protocol, which editors speak with many agents.

Texts come in pieces, calls of tools with updates, and messages may stand inside other objects,
beside their time. A log is read as the session of its first message."""

from typing import Any

from penstock.events.messages import plain, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.sources import Candidate
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
    name = "acp"
    draft_type = _AcpSession

    def recognises(self, candidate: Candidate) -> bool:
        known = map(_acp_update, map(_acp_message, candidate.first_rows))
        # Grok keeps such a log beside its own history.
        return any("sessionUpdate" in each for each in known) and not (
            candidate.beside("chat_history.jsonl").exists()
        )


IMPORTERS = (AcpImporter(),)
