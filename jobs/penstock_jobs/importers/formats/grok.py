"""Grok Build: `ID/chat_history.jsonl`, without times and tokens. An answer's reasoning comes first.
`summary.json` beside it names the session."""

from typing import Any

from penstock.events.messages import plain, text_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import RowDraft, RowsImporter


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


IMPORTERS = (GrokImporter(),)
