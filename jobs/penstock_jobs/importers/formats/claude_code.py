"""Claude Code: a JSON object a line, in `projects/FOLDER/SESSION.jsonl`."""

from collections.abc import Iterator
from typing import ClassVar

from penstock_jobs.importers import fields
from penstock_jobs.importers.importer import ImportedEvent, Importer, SessionEvents
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source

_KEYS = {"sessionId", "uuid", "type"}


class ClaudeCode(Importer):
    name: ClassVar = "claude-code"
    homes: ClassVar = ("~/.claude/projects",)

    def recognises(self, candidate: Candidate) -> bool:
        return candidate.name.endswith(".jsonl") and any(
            row.keys() >= _KEYS for row in candidate.first_rows
        )

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        for number, row in source.rows(notes):
            content = fields.mapping(row, "message").get("content")
            if row.get("type") != "user" or not isinstance(content, str):
                notes.skip(f"row of the type {row.get('type')}", f"line {number}")
                continue
            session = SessionEvents(row["sessionId"], self.name)
            payload = {"text": content}
            yield session.event("user_message", row["timestamp"], row["uuid"], payload, row=number)


IMPORTER = ClaudeCode()
