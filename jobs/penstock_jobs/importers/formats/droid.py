"""Droid: rows of Anthropic's blocks. Tokens are only known for the session, from `ID.settings.json`
beside it."""

import re
from typing import Any

from penstock.events.messages import text_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, usage_beside

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


IMPORTERS = (DroidImporter(),)
