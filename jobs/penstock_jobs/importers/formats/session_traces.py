"""The Hugging Face Hub's Session Trace Simple Format: a header, then a message a line."""

from collections.abc import Iterator

from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft

#: Names of fields that differ from OpenAI's.
_FIELDS = {
    "reasoningContent": "reasoning_content", "toolCalls": "tool_calls",
    "toolCallId": "tool_call_id",
}  # fmt: skip


class SessionTraceImporter(Importer):
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


IMPORTERS = (SessionTraceImporter(),)
