"""Cursor: its database `state.vscdb`, and transcripts of its agent, a message per line.

The database also holds Cursor's credentials. Only conversations are read, and only the fields that
are named here are kept.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from sqlite3 import Connection
from typing import Any

from penstock.events.messages import json_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row, arguments_of
from penstock_jobs.importers.importer import ImportedEvent, Importer, expanded_home
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import DatabaseSource, is_database, is_database_with
from penstock_jobs.importers.transcript import SessionDraft, tool_call

_TABLE = "cursorDiskKV"
#: Range of keys, without the second: `;` follows `:`.
_CONVERSATIONS = ("composerData:", "composerData;")
_LIST = f"SELECT key FROM {_TABLE} WHERE key >= ? AND key < ? ORDER BY key"
_READ = f"SELECT value FROM {_TABLE} WHERE key = ?"
_USER, _ASSISTANT = 1, 2
_DATABASE = "state.vscdb"
_DATABASE_HOMES = (
    "~/.config/Cursor/User/globalStorage",
    "~/Library/Application Support/Cursor/User/globalStorage",
    "$APPDATA/Cursor/User/globalStorage",
)
_DONE = ("completed", "error", "cancelled")
_FEEDBACK = {"accepted": "accept", "rejected": "reject"}


class CursorImporter(Importer):
    name = "cursor"
    homes = (*_DATABASE_HOMES, "~/.cursor/projects")

    def recognises(self, candidate: Candidate) -> bool:
        rows = candidate.first_rows
        return any(map(_is_message, rows)) or is_database_with(candidate, _DATABASE, _TABLE)

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        yield candidate.source(DatabaseSource if is_database(candidate) else Source)

    def duplicates(self, sources: Sequence[Source]) -> Collection[Source]:
        """Transcripts of conversations that a database holds with times, tokens and results."""
        transcripts = [source for source in sources if not isinstance(source, DatabaseSource)]
        if not transcripts:
            return ()
        databases = {each.real: each for each in sources if isinstance(each, DatabaseSource)}
        for folder in map(expanded_home, _DATABASE_HOMES):
            if folder is not None and (path := folder.resolve() / _DATABASE).is_file():
                databases.setdefault(path, DatabaseSource(path, path.parent, (path.name,)))
        names = {_conversation_of(source) for source in transcripts}
        held = set[str]().union(
            *(_conversations_in(database, names) for database in databases.values())
        )
        return [source for source in transcripts if _conversation_of(source) in held]

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if isinstance(source, DatabaseSource):
            yield from _read_database(source, notes)
        else:
            yield from _read_transcript(source, notes)


def _is_message(row: Row) -> bool:
    spoken = row.get("role") in ("user", "assistant") and "uuid" not in row
    return spoken and isinstance(fields.at(row, "message", "content"), list)


def _conversation_of(transcript: Source) -> str:
    return transcript.plain_name.removesuffix(".jsonl")


def _conversations_in(source: DatabaseSource, names: Iterable[str]) -> set[str]:
    told = set[str]()
    with suppress(SourceUnfit), source.connection() as connection:
        for name in names:
            messages = f"bubbleId:{name}:", f"bubbleId:{name};"
            if connection.execute(f"{_LIST} LIMIT 1", messages).fetchone() is not None:
                told.add(name)
    return told


def _value(connection: Connection, key: str) -> dict[str, Any] | None:
    row = connection.execute(_READ, (key,)).fetchone()
    value = row["value"] if row is not None else None
    found = json_of(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return found if isinstance(found, dict) else None


def _read_transcript(source: Source, notes: Notes) -> Iterator[ImportedEvent]:
    name = _conversation_of(source)
    draft = SessionDraft(f"{name}/transcript", "cursor", source.changed_us(), notes)
    draft.start["conversation"] = name
    for number, row in source.rows(notes):
        if _is_message(row):
            draft.at(row.get("timestamp"))
            draft.add_message({"role": row["role"]} | row["message"], f"line-{number}")
        elif row.get("type") != "turn_ended":
            notes.skip("line that is not a message", f"line {number}")
    yield from draft.finished()


def _read_database(source: DatabaseSource, notes: Notes) -> Iterator[ImportedEvent]:
    with source.connection() as connection:
        for row in connection.execute(_LIST, _CONVERSATIONS).fetchall():
            name = str(row["key"]).partition(":")[2]
            composer = _value(connection, f"composerData:{name}")
            if composer is None:
                notes.skip("conversation that is not an object", name)
                continue
            conversation = _ComposerConversation(name, composer, source, notes)
            told = fields.rows(composer, "conversation")
            headers = fields.rows(composer, "fullConversationHeadersOnly")
            for bubble in told or [{"bubbleId": each.get("bubbleId")} for each in headers]:
                key = str(bubble.get("bubbleId"))
                inline = fields.mapping(composer, "conversationMap").get(key)
                stored = inline or _value(connection, f"bubbleId:{name}:{key}")
                found = bubble if "type" in bubble else stored
                if isinstance(found, dict):
                    conversation.take(found, key)
                else:
                    notes.skip("message that is not in the database", key)
            yield from conversation.events()


class _ComposerConversation(SessionDraft):
    def __init__(self, name: str, composer: Row, source: Source, notes: Notes) -> None:
        super().__init__(name, "cursor", source.time_us(composer.get("createdAt")), notes)
        self.start |= {
            "branch": fields.text(composer, "createdOnBranch"),
            "title": fields.text(composer, "name"),
            "mode": composer.get("unifiedMode") or composer.get("forceMode"),
        }
        self.model = fields.text(composer, "modelConfig", "modelName")
        self._thinking: list[str] = []

    def events(self) -> list[ImportedEvent]:
        if self._thinking:
            self.add_answer("thinking", thinking="\n".join(self._thinking))
        return self.finished()

    def take(self, bubble: Row, key: str) -> None:
        told = fields.moment(bubble, "createdAt")
        moment = told or fields.moment(bubble, "timingInfo", "clientRpcSendTime")
        self.clock_us = max(moment or 0, self.clock_us)
        if bubble.get("type") == _USER:
            self._take_prompt(bubble, key)
        elif bubble.get("type") == _ASSISTANT:
            self._take_answer(bubble, key)
        else:
            self.notes.skip("message of an unknown kind", key)

    def _take_prompt(self, bubble: Row, key: str) -> None:
        folders = [each for each in fields.items(bubble, "workspaceUris") if isinstance(each, str)]
        if self.project is None and folders:
            self.project = folders[0].removeprefix("file://")
        self.model = fields.text(bubble, "modelInfo", "modelName") or self.model
        self.add_prompt(fields.text(bubble, "text") or "", key)

    def _take_answer(self, bubble: Row, key: str) -> None:
        if thought := fields.text(bubble, "thinking", "text"):
            self._thinking.append(thought)
        tool, text = fields.mapping(bubble, "toolFormerData"), fields.text(bubble, "text")
        named = tool.get("name") or tool.get("tool")
        counts = fields.mapping(bubble, "tokenCount")
        usage = usage_of(counts) if any(counts.values()) else None
        if not text and named is None and usage is None:
            return
        call_id = str(tool.get("toolCallId") or f"{key}:call")
        call = tool_call(call_id, named, tool.get("rawArgs") or tool.get("params"))
        thinking, self._thinking = "\n".join(self._thinking) or None, []
        calls = [call] if named is not None else []
        self.add_answer(key, tool_calls=calls, text=text or None, thinking=thinking, usage=usage)
        if named is not None:
            self._take_result(tool, call_id)

    def _take_result(self, tool: Row, call_id: str) -> None:
        status, decision = tool.get("status"), tool.get("userDecision")
        if status not in _DONE:
            self.notes.skip("call of a tool without a result", call_id)
            return
        refused = decision == "rejected" or status == "cancelled"
        ok = status == "completed" and not refused
        self.add_result(
            call_id,
            tool.get("result") or tool.get("error"),
            f"{call_id}:result",
            ok=ok,
            changes=(ok and _reported_edits(tool)) or None,
            error_class="user_aborted" if refused else None,
        )
        if kind := _FEEDBACK.get(str(decision)):
            self.add("feedback", {"kind": kind, "target": call_id}, f"{call_id}:{kind}")


def _reported_edits(tool: Row) -> list[FileEdit]:
    arguments = arguments_of(tool.get("params")) | arguments_of(tool.get("rawArgs"))
    named = ("relativeWorkspacePath", "target_file", "file_path", "path")
    path = next((value for name in named if (value := fields.text(arguments, name))), None)
    changes = []
    for chunk in fields.rows(arguments_of(tool.get("result")), "diff", "chunks"):
        lines = (fields.text(chunk, "diffString") or "").splitlines()
        before, after = (
            "".join(f"{line[1:]}\n" for line in lines if not line.startswith(other))
            for other in "+-"
        )
        if path and before != after:
            changes.append(FileEdit(path, before, after))
    return changes
