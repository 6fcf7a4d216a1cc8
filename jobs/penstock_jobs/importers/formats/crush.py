"""Crush: `.crush/crush.db`, which has every version of each file that a session changed."""

from collections.abc import Iterator

from penstock.events.messages import json_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.stores import DatabaseImporter, Query
from penstock_jobs.importers.transcript import SessionDraft


class CrushImporter(DatabaseImporter):
    name = "crush"
    homes = ("$CRUSH_GLOBAL_DATA", "~/.local/share/crush")
    usual_name = "crush.db"
    tables = ("sessions", "messages", "files")

    def sessions(self, query: Query, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        for session in query("SELECT * FROM sessions ORDER BY created_at, id"):
            created = source.time_us(session.get("created_at"))
            draft = _CrushSession(str(session["id"]), "crush", created, notes)
            parent = fields.identifier(session, "parent_session_id")
            draft.begin(None, parent=parent, title=session.get("title"))
            if source.parent_name == ".crush":
                draft.project = fields.project_of(str(source.real.parents[1]))
            of_session = "WHERE session_id = ? ORDER BY created_at, id"
            files = query(f"SELECT * FROM files {of_session}", session["id"])
            rows = query(f"SELECT * FROM messages {of_session}", session["id"]) + files
            draft.tells_edits = bool(files)
            for row in sorted(rows, key=lambda row: (row["created_at"], row.get("version") or 0)):
                draft.at(row["created_at"])
                draft.take(row)
            counts = ("prompt_tokens", "completion_tokens")
            draft.add_run_usage(usage_of({name: session.get(name) for name in counts}))
            yield from draft.finished()


class _CrushSession(SessionDraft):
    def take(self, row: Row) -> None:
        if "path" in row:
            path, text = str(row["path"]), str(row.get("content") or "")
            before = self.changes.texts.get(path)
            if before is None and row.get("version") in (0, "initial"):
                self.changes.texts[path] = text  # as it was found
            else:
                edit = FileEdit(path, before or "", text, is_whole=True)
                self.changes.add(edit, f"file-{row['id']}", None)
            return
        key, held = str(row["id"]), {"parts": json_of(row.get("parts"))}
        parts = fields.rows(held, "parts")
        content = [fields.mapping(part, "data") | {"type": part.get("type")} for part in parts]
        reasons = [part.get("reason") for part in content if part["type"] == "finish"]
        said = {"role": row["role"], "content": [p for p in content if p["type"] != "finish"]}
        facts = {"model": row.get("model"), "finish_reason": next(iter(reasons), None)}
        self.add_message(said, key, **(facts if row["role"] == "assistant" else {}))
        if "canceled" in reasons or "permission_denied" in reasons:
            self.add("interrupt", {"call_id": key, "reason": reasons[0]}, f"{key}:interrupt")


IMPORTERS = (CrushImporter(),)
