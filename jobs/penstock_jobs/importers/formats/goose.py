"""goose: `sessions.db`, and before it a log whose first row has the session's facts.

The database has the usage of each call in a ledger that names no message. It is the usage of the
answers if there are as many."""

from collections.abc import Iterator
from typing import Any

from penstock.events.messages import json_of, plain, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.stores import DatabaseImporter, Query
from penstock_jobs.importers.transcript import RowDraft, RowsImporter


class _GooseSession(RowDraft):
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
    draft_type, first_fields = _GooseSession, {"working_dir", "description"}


class GooseImporter(DatabaseImporter):
    name = "goose"
    homes = GooseLogImporter.homes
    usual_name = "sessions.db"
    tables = ("sessions", "messages", "schema_version")

    def sessions(self, query: Query, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        in_order = "WHERE session_id = ? ORDER BY created_timestamp, id"
        has_ledger = query("SELECT 1 FROM sqlite_master WHERE name = 'usage_ledger'")
        for session in query("SELECT * FROM sessions ORDER BY id"):
            name = session["id"]
            created = source.time_us(session.get("created_at"))
            draft = _GooseSession(str(name), "goose", created, notes)
            draft.model = fields.text(json_of(session.get("model_config_json")), "model_name")
            for row in query(f"SELECT * FROM messages {in_order}", name):
                facts = {"role": row["role"], "created": row["created_timestamp"],
                         "content": json_of(row["content_json"]),
                         "metadata": json_of(row.get("metadata_json"))}  # fmt: skip
                draft.take(facts, str(row.get("message_id") or row["id"]))
            answers = [event for event in draft.made if event.type == "model_call"]
            ledger = query(f"SELECT * FROM usage_ledger {in_order}", name) if has_ledger else []
            calls = [entry for entry in ledger if not entry.get("is_compaction")]
            for answer, entry in zip(answers, calls, strict=False):
                if len(answers) == len(calls):
                    cached = {"cached_tokens": entry.get("cache_read_tokens")}
                    answer.payload["usage"] = usage_of(entry | cached)
            told = len(answers) == len(calls)
            draft.take({name: each for name, each in session.items()
                        if not told or not name.startswith("accumulated")}, "session")  # fmt: skip
            yield from draft.finished()


IMPORTERS = (GooseLogImporter(), GooseImporter())
