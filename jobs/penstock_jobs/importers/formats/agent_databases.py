"""SQLite databases of agents.

goose's `sessions.db` has the usage of each call in a ledger that names no message. It is the usage
of the answers if there are as many.

Crush's `.crush/crush.db` has every version of each file that a session changed.

Zed's `threads.db` has a thread per row, as JSON that may be compressed. A message is `{"User": …}`
or `{"Agent": …}`, and its parts are named in the same way.

Copilot's `agent-traces.db`, which VS Code keeps if `dbSpanExporter` is on, has spans. Spans
of the operation `chat` are calls of a model, whose tokens others repeat. Texts are there if they
were captured.
"""

from collections.abc import Iterator
from typing import Any

from penstock.events.messages import answer_of, json_of, messages_of, usage_of
from penstock.ingest.decompression import decompressed
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row, milliseconds
from penstock_jobs.importers.formats.agent_logs import GooseLogImporter, GooseSession
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.model_calls import CallSessions, ExportedCall, skip_other
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import DOCUMENT_BYTES_MAX, Source
from penstock_jobs.importers.stores import DatabaseImporter, Query
from penstock_jobs.importers.transcript import SessionDraft


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
            draft = GooseSession(str(name), "goose", created, notes)
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


class CopilotTracesImporter(DatabaseImporter):
    name = "copilot-traces"
    homes = tuple(
        f"{store}/Code/User/globalStorage/github.copilot-chat"
        for store in ("~/.config", "~/Library/Application Support", "$APPDATA")
    )
    usual_name = "agent-traces.db"
    tables = ("spans", "span_attributes")

    def sessions(self, query: Query, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        calls = CallSessions(self.name, notes)
        for span in query("SELECT * FROM spans ORDER BY start_time_ms, span_id"):
            if (kind := span.get("operation_name")) == "chat":
                told = query("SELECT * FROM span_attributes WHERE span_id = ?", span["span_id"])
                facts = {str(row["key"]): json_of(row["value"]) for row in told}
                yield from calls.take(_traced_call(span, facts, source))
            else:
                skip_other(notes, f"span of the operation {kind}", span["span_id"])


def _traced_call(span: Row, facts: Row, source: Source) -> ExportedCall:
    began, ended = source.time_us(span["start_time_ms"]), fields.moment(span, "end_time_ms")
    names = ("chat_session_id", "conversation_id", "trace_id")
    counts = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    return ExportedCall(
        id=span["span_id"],
        began_us=began,
        ended_us=ended,
        messages=messages_of(facts.get("gen_ai.input.messages")),
        answer=answer_of(facts.get("gen_ai.output.messages") or {"role": "assistant"}),
        # The chat's own file may be imported too.
        session=f"{fields.first(span, *names) or span['span_id']}/traces",
        facts={
            "call_id": facts.get("gen_ai.response.id") or span["span_id"],
            "model": fields.first(span, "response_model", "request_model"),
            "usage": usage_of({name: span.get(name) for name in counts}),
            "latency_ms": milliseconds(began, ended),
            "ttft_ms": span.get("ttft_ms"),
        },
    )


IMPORTERS = GooseImporter(), CrushImporter(), ZedImporter(), CopilotTracesImporter()
