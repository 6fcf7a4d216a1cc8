"""Agents that keep sessions in SQLite: Crush, goose and Zed."""

from collections.abc import Iterator
from typing import Any

from penstock.events.messages import json_of, plain, usage_of
from penstock.ingest.decompression import decompressed
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import DOCUMENT_BYTES_MAX, Source
from penstock_jobs.importers.stores import DatabaseImporter, Query
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, SessionDraft


class CrushImporter(DatabaseImporter):
    """Crush: `.crush/crush.db`, which has every version of each file that a session changed."""

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
    """goose: `sessions.db`, and before it a log whose first row has the session's facts.

    The database has the usage of each call in a ledger that names no message. It is the usage of
    the answers if there are as many."""

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


class ZedImporter(DatabaseImporter):
    """Zed: `threads.db`, with a thread per row, as JSON that may be compressed.

    A message is `{"User": …}` or `{"Agent": …}`, and its parts are named in the same way."""

    name = "zed"
    homes = ("~/.local/share/zed/threads", "~/Library/Application Support/Zed/threads")
    usual_name = "threads.db"
    tables = ("threads",)

    def sessions(self, query: Query, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        for row in query("SELECT * FROM threads ORDER BY id"):
            try:
                thread = fields.decode(_thread_of(row))
            except (SourceUnfit, ValueError) as error:
                notes.skip("thread that cannot be read", f"{row['id']}: {error}")
                continue
            updated = source.time_us(row.get("updated_at"))
            draft = _ZedThread(str(row["id"]), "zed", updated, notes)
            snapshot = fields.rows(thread, "initial_project_snapshot", "worktree_snapshots")
            folder = next((fields.text(tree, "worktree_path") for tree in snapshot), None)
            parent = fields.identifier(row, "parent_id")
            draft.begin(folder, parent=parent, title=fields.text(row, "summary"))
            draft.model = fields.text(thread, "model", "model")
            for at, message in enumerate(fields.items(thread, "messages")):
                draft.take(message, f"message-{at}")
            draft.add_run_usage(usage_of(fields.at(thread, "cumulative_token_usage")))
            yield from draft.finished()


def _thread_of(row: Row) -> bytes:
    data = row.get("data")
    content = data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else b""
    plain = bytearray()
    for piece in decompressed([content], "zstd") if row.get("data_type") == "zstd" else [content]:
        plain += piece
        if len(plain) > DOCUMENT_BYTES_MAX:
            raise SourceUnfit("it is longer than any thread")
    return bytes(plain)


class _ZedThread(SessionDraft):
    def take(self, message: Any, key: str) -> None:
        user, agent = fields.mapping(message, "User"), fields.mapping(message, "Agent")
        if user or agent:
            content = [_zed_part(part) for part in fields.rows(user or agent, "content")]
            self.add_message({"role": "user" if user else "assistant", "content": content}, key)
        elif message != "Resume":
            self.notes.skip("message of an unknown kind", key)
        for name, result in fields.mapping(agent, "tool_results").items():
            output, told = fields.at(result, "content"), fields.mapping(result, "output")
            text, after = fields.text(output, "Text"), fields.text(told, "new_text")
            path = fields.first_text(told, "input_path", "original_path")
            before, ok = fields.text(told, "old_text"), fields.at(result, "is_error") is not True
            changes = None
            if ok and path is not None and after is not None:
                changes = [FileEdit(path, before or "", after, is_whole=True)]
            output = output if text is None else text
            self.add_result(name, output, f"{key}:{name}", ok=ok, changes=changes)


_ZED_PARTS = {"Text": "text", "Thinking": "thinking", "ToolUse": "tool_use"}


def _zed_part(part: Row) -> dict[str, Any]:
    [(name, value), *_] = part.items() or [("", None)]
    facts = value if isinstance(value, dict) else {"text": value}
    return {"type": _ZED_PARTS.get(name, name.lower())} | facts
