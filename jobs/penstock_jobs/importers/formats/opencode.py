"""OpenCode: `opencode.db` since version 1.2, before that a store with a JSON file per message.

Both may hold the same session; its events get the same ids from messages and parts. Messages come
in two forms: with separate parts, and with their content inside.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.events.messages import present
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import reported_edit
from penstock_jobs.importers.fields import Row, arguments_of, milliseconds
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import (
    DatabaseSource,
    is_database,
    is_database_with,
    rows_in,
    tables_of,
)
from penstock_jobs.importers.transcript import SessionDraft, is_unfinished, tool_call

_DB = ("session", "message", "part")
#: Parts about the store, not the conversation.
_MARKS = ("step-start", "step-finish", "snapshot", "patch")
_DONE = ("completed", "error")
_FILE = "file of a message"


class StoredMessage(NamedTuple):
    id: str
    facts: dict[str, Any]
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class StoredSession(Source):
    """A session in a store with a file per session, message and part."""

    @property
    def store(self) -> Source:
        return Source(self.path.parents[2], self.folder, self.names[:-3], is_folder=True)

    def messages(self) -> Iterator[tuple[Source, list[Source]]]:
        for file in self.store.below("message", self.real.stem).files():
            yield file, list(self.store.below("part", file.real.stem).files())

    def mark(self) -> str:
        files = [each for file, parts in self.messages() for each in (file, *parts)]
        return "|".join([super().mark(), *(file.mark() for file in files)])


class OpenCodeImporter(Importer):
    name = "opencode"
    homes = ("~/.local/share/opencode",)

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            return candidate.entries >= {"session", "message"} and candidate.name == "storage"
        if candidate.names[-3:-2] == ("session",):
            return b'"projectID"' in candidate.beginning
        return is_database_with(candidate, "opencode.db", *_DB)

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        if not candidate.is_folder:
            yield candidate.source(DatabaseSource if is_database(candidate) else StoredSession)
            return
        for file in candidate.below("session").files():
            if len(file.names) == len(candidate.names) + 3 and file.name.endswith(".json"):
                yield StoredSession(file.path, file.folder, file.names)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if isinstance(source, DatabaseSource):
            yield from _read_database(source, notes)
        elif isinstance(source, StoredSession):
            session = source.json_object()
            project = source.store.below("project", f"{session.get('projectID')}.json")
            if "directory" not in session and project.exists():
                found = project.json_object_or_skip(notes, _FILE)
                session["directory"] = fields.at(found, "worktree")
            messages = _stored_messages(source, notes)
            yield from _Conversation(session, source, notes).events(messages)


def _read_database(source: DatabaseSource, notes: Notes) -> Iterator[ImportedEvent]:
    with source.connection() as connection:
        rows, tables = partial(rows_in, connection), tables_of(connection)
        worktrees = {}
        if "worktree" in tables.get("project", ()):
            told = rows("SELECT id, worktree FROM project")
            worktrees = {row["id"]: row["worktree"] for row in told}
        for session in rows("SELECT * FROM session ORDER BY id"):
            session.setdefault("directory", worktrees.get(session.get("project_id")))
            told = rows(
                "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id",
                session["id"],
            )
            statement = "SELECT * FROM part WHERE message_id = ? ORDER BY id"
            messages = [
                StoredMessage(str(row["id"]), _data(row), [*map(_data, rows(statement, row["id"]))])
                for row in told
            ]
            if "session_message" in tables and not messages:
                told = rows(
                    "SELECT * FROM session_message WHERE session_id = ? ORDER BY seq", session["id"]
                )
                messages = [
                    StoredMessage(str(row["id"]), {"type": row["type"]} | _data(row), [])
                    for row in told
                ]
            yield from _Conversation(session, source, notes).events(messages)


def _data(row: Row) -> dict[str, Any]:
    told = {"id": row.get("id"), "time": {"created": row.get("time_created")}}
    return told | arguments_of(row.get("data"))


def _stored_messages(session: StoredSession, notes: Notes) -> list[StoredMessage]:
    messages = []
    for file, parts in session.messages():
        facts = file.json_object_or_skip(notes, _FILE)
        if facts is not None:
            found = [part.json_object_or_skip(notes, _FILE) for part in parts]
            held = [part for part in found if part is not None]
            messages.append(StoredMessage(str(facts.get("id") or file.name), facts, held))
    return messages


class _Conversation(SessionDraft):
    def __init__(self, session: Row, source: Source, notes: Notes) -> None:
        self._file = source
        created = fields.mapping(session, "time").get("created", session.get("time_created"))
        super().__init__(str(session.get("id")), "opencode", source.time_us(created), notes)
        self.project = fields.text(session, "directory")
        parent = fields.text(session, "parent_id") or fields.text(session, "parentID")
        self.start |= {
            "client_version": session.get("version"),
            "parent_session": parent,
            "link": "subagent" if parent else None,
            "title": session.get("title"),
        }

    def events(self, messages: Sequence[StoredMessage]) -> list[ImportedEvent]:
        ordered = sorted(messages, key=lambda message: (_created(message.facts) or 0, message.id))
        for message in ordered:
            self.at(fields.at(message.facts, "time", "created"))
            if message is ordered[-1] and self._is_being_written(message):
                break
            self._take(message)
        return self.finished()

    def _is_being_written(self, message: StoredMessage) -> bool:
        facts = message.facts
        done = facts.get("error") or facts.get("finish") or fields.at(facts, "time", "completed")
        if done or "assistant" not in (facts.get("role"), facts.get("type")):
            return False
        times = [_created(facts), *(_latest(part) for part in message.parts)]
        changed_us = max(filter(None, times), default=None)
        return is_unfinished(self._file, self.notes, ended=False, changed_us=changed_us)

    def _take(self, message: StoredMessage) -> None:
        facts, parts = message.facts, message.parts or fields.rows(message.facts, "content")
        kind = facts.get("role") or facts.get("type")
        if kind == "user":
            self._take_user(message)
        elif kind == "assistant":
            self._take_answer(message.id, facts, parts)
        elif kind == "system":
            self.add_system_prompt(fields.text(facts, "text") or "", message.id)
        elif kind == "compaction":
            self.add("compaction", {"summary": facts.get("text")}, message.id)
        elif kind in ("shell", "model-switched", "agent-switched", "synthetic"):
            rest = fields.without(facts, "id", "time", "type")
            self.add(f"x_{kind.replace('-', '_')}", rest, message.id)
        else:
            self.notes.skip(f"message of the unknown kind {kind}", message.id)

    def _take_user(self, message: StoredMessage) -> None:
        texts = [part for part in message.parts if part.get("type") == "text"]
        said = [str(part.get("text") or "") for part in texts if not part.get("synthetic")]
        if (text := fields.text(message.facts, "text")) is not None:
            said.append(text)
        others = [part for part in message.parts if part.get("type") != "text"]
        if said or others:
            files = message.facts.get("files") or None
            self.add_prompt("\n".join(said), message.id, parts=others or None, files=files)
        for part in texts:
            if part.get("synthetic"):
                key = str(part.get("id") or f"{message.id}:context")
                self.add_prompt(str(part.get("text") or ""), key, synthetic=True)

    def _take_answer(self, key: str, facts: Row, parts: Sequence[dict[str, Any]]) -> None:
        steps = list(_steps(parts))
        told = facts.get("model") if isinstance(facts.get("model"), dict) else facts
        provider = fields.at(told, "providerID")
        model = fields.at(told, "modelID") or fields.at(told, "id")
        for at, step in enumerate(steps):
            finish: Row = next((p for p in step if p.get("type") == "step-finish"), {})
            tokens = finish.get("tokens") or (facts.get("tokens") if len(steps) == 1 else None)
            name = f"{key}:{at}" if at else key
            tools = [part for part in step if part.get("type") == "tool"]
            calls = [_call(part, name) for part in tools]
            self.add_answer(
                name,
                tool_calls=calls,
                text=_joined(step, "text"),
                thinking=_joined(step, "reasoning"),
                model=f"{provider}/{model}" if provider and model else None,
                usage=_usage(tokens),
                finish_reason=finish.get("reason") or facts.get("finish"),
                cost_usd=finish.get("cost", facts.get("cost")),
            )
            for part, call in zip(tools, calls, strict=True):
                self._take_result(part, call["id"])
            self._take_others(step)
        error = fields.mapping(facts, "error")
        if error:
            message = fields.at(error, "data", "message") or error.get("message")
            said = {"message": str(message or error.get("name")), "error_class": error.get("name")}
            self.add("error", said, f"{key}:error")

    def _take_result(self, part: Row, call_id: str) -> None:
        state = fields.mapping(part, "state")
        status = state.get("status")
        if status not in _DONE:
            self.notes.skip("call of a tool without a result", call_id)
            return
        began, ended = fields.moment(state, "time", "start"), fields.moment(state, "time", "end")
        failed = status == "error"
        change = reported_edit(fields.mapping(state, "metadata", "filediff"))
        self.at(fields.at(state, "time", "end"))
        self.add_result(
            call_id,
            state.get("error") if failed else state.get("output", state.get("content")),
            f"{call_id}:result",
            ok=not failed,
            changes=(change and not failed and [change]) or None,
            duration_ms=milliseconds(began, ended),
            title=state.get("title"),
            metadata=fields.mapping(state, "metadata") or None,
        )

    def _take_others(self, step: Sequence[Row]) -> None:
        for part in step:
            kind, key = part.get("type"), str(part.get("id") or "part")
            if kind == "compaction":
                self.add("compaction", {"trigger": "auto"}, key)
            elif kind == "retry":
                error = fields.mapping(part, "error")
                self.add("error", {"message": str(error.get("message") or error)}, key)
            elif kind not in ("text", "reasoning", "tool", *_MARKS):
                self.add("x_part", fields.without(part, "id", "sessionID", "messageID"), key)


def _steps(parts: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split parts into calls of the model. A call ends with a `step-finish`."""
    step: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start" and any(p.get("type") == "step-finish" for p in step):
            yield step
            step = []
        step.append(part)
    yield step


def _joined(step: Sequence[Row], kind: str) -> str | None:
    texts = [str(part.get("text") or "") for part in step if part.get("type") == kind]
    return "\n".join(filter(None, texts)) or None


def _usage(tokens: object) -> dict[str, int] | None:
    given, read = fields.count(tokens, "input"), fields.count(tokens, "cache", "read")
    written = fields.count(tokens, "cache", "write")
    usage = {
        "prompt": None if given is None else given + (read or 0) + (written or 0),
        "completion": fields.count(tokens, "output"),
        "thinking": fields.count(tokens, "reasoning"),
        "cached": read,
    }
    return present(usage) or None


def _call(part: Row, key: str) -> dict[str, Any]:
    call_id = part.get("callID") or part.get("id") or f"{key}:call"
    name = part.get("tool") or part.get("name")
    return tool_call(call_id, name, fields.at(part, "state", "input"))


def _created(facts: Row) -> int | None:
    return fields.moment(facts, "time", "created")


def _latest(part: Row) -> int | None:
    times = (fields.mapping(part, "time"), fields.mapping(part, "state", "time"))
    moments = (fields.moment(each, name) for each in times for name in ("start", "end", "created"))
    return max(filter(None, moments), default=None)
