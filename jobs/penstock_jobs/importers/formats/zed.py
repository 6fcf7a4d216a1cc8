"""Zed: `threads.db`, with a thread per row, as JSON that may be compressed.

A message is `{"User": …}` or `{"Agent": …}`, and its parts are named in the same way."""

from collections.abc import Iterator
from typing import Any

from penstock.events.messages import usage_of
from penstock.ingest.decompression import decompressed
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import DOCUMENT_BYTES_MAX, Source
from penstock_jobs.importers.stores import DatabaseImporter, Query
from penstock_jobs.importers.transcript import SessionDraft


class ZedImporter(DatabaseImporter):
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


IMPORTERS = (ZedImporter(),)
