"""OpenCode: `opencode.db` since version 1.2, and the store of one JSON file a message before.

Both may hold the same session: its events have the same ids, of its messages and parts. Messages
come in two forms: with parts beside them, and with their content inside.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.events.messages import count_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import arguments_of, told_change
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import DatabaseSource, is_database_with, row_of, tables_of
from penstock_jobs.importers.transcript import (
    SessionDraft,
    is_unfinished,
    milliseconds,
    moment_us,
    present,
    tool_call,
)

_DB = ("session", "message", "part")
#: Parts that say how the store works, and nothing of the conversation.
_MARKS = ("step-start", "step-finish", "snapshot", "patch")
_DONE = ("completed", "error")


class StoredMessage(NamedTuple):
    id: str
    facts: dict[str, Any]
    parts: list[dict[str, Any]]


@dataclass(frozen=True)
class StoredSession(Source):
    """The file of a session, in a store whose messages and parts are files of their own."""

    @property
    def store(self) -> Source:
        return Source(self.path.parents[2], self.root, self.names[:-3], is_folder=True)

    def mark(self) -> str:
        store, session = self.store, self.name.removesuffix(".json")
        files = list(store.below("message", session).files())
        parts = [part for file in files for part in _parts_folder(store, file).files()]
        return "|".join([super().mark(), *(each.mark() for each in (*files, *parts))])


class OpenCodeImporter(Importer):
    name = "opencode"
    homes = ("~/.local/share/opencode",)

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            return candidate.entries >= {"session", "message"} and candidate.name == "storage"
        if candidate.names[-3:-2] == ("session",):
            return candidate.name.endswith(".json") and b'"projectID"' in candidate.beginning
        return candidate.name.endswith(".db") and is_database_with(candidate, "opencode.db", *_DB)

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        if not candidate.is_folder:
            stored = candidate.name.endswith(".json")
            place = candidate.path, candidate.root, candidate.names
            yield StoredSession(*place) if stored else DatabaseSource(*place)
            return
        for file in candidate.source().below("session").files():
            if len(file.names) == len(candidate.names) + 3 and file.name.endswith(".json"):
                yield StoredSession(file.path, file.root, file.names)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if isinstance(source, DatabaseSource):
            yield from _read_database(source, notes)
        elif isinstance(source, StoredSession):
            session = source.document()
            if not isinstance(session, dict):
                raise SourceUnfit("it is no object")
            project = source.store.below("project", f"{session.get('projectID')}.json")
            if "directory" not in session and project.exists():
                session["directory"] = (_object(project, notes) or {}).get("worktree")
            messages = _stored_messages(source, notes)
            yield from _Conversation(session, source, notes).events(messages)


# The database


def _read_database(source: DatabaseSource, notes: Notes) -> Iterator[ImportedEvent]:
    with source.connection() as connection:
        tables = tables_of(connection)
        newer = "session_message" if "session_message" in tables else None
        worktrees = {}
        if "worktree" in tables.get("project", ()):
            rows = connection.execute("SELECT id, worktree FROM project").fetchall()
            worktrees = {row["id"]: row["worktree"] for row in rows}
        for row in connection.execute("SELECT * FROM session ORDER BY id").fetchall():
            session = row_of(row)
            session.setdefault("directory", worktrees.get(session.get("project_id")))
            statement = "SELECT * FROM part WHERE message_id = ? ORDER BY id"
            messages = []
            told = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
            for message in connection.execute(told, (session["id"],)).fetchall():
                rows = connection.execute(statement, (message["id"],)).fetchall()
                parts = [_data(part) for part in rows]
                messages.append(StoredMessage(str(message["id"]), _data(message), parts))
            if newer and not messages:
                told = "SELECT * FROM session_message WHERE session_id = ? ORDER BY seq"
                for message in connection.execute(told, (session["id"],)).fetchall():
                    facts = {"type": message["type"]} | _data(message)
                    messages.append(StoredMessage(str(message["id"]), facts, []))
            yield from _Conversation(session, source, notes).events(messages)


def _data(row: Any) -> dict[str, Any]:
    columns = row_of(row)
    data = arguments_of(columns.pop("data", None))
    created = {"created": columns.get("time_created")}
    return {"id": columns.get("id"), "time": created} | data


# The store of files


def _parts_folder(store: Source, message: Source) -> Source:
    return store.below("part", message.name.removesuffix(".json"))


def _stored_messages(session: StoredSession, notes: Notes) -> list[StoredMessage]:
    store, name = session.store, session.name.removesuffix(".json")
    messages = []
    for file in store.below("message", name).files():
        facts = _object(file, notes)
        if facts is not None:
            parts = [_object(part, notes) for part in _parts_folder(store, file).files()]
            found = [part for part in parts if part is not None]
            messages.append(StoredMessage(str(facts.get("id") or file.name), facts, found))
    return messages


def _object(file: Source, notes: Notes) -> dict[str, Any] | None:
    try:
        document = file.document()
    except SourceUnfit as error:
        notes.skip("file of a message that cannot be read", f"{file.name}: {error}")
        return None
    if isinstance(document, dict):
        return document
    notes.skip("file of a message that is no object", file.name)
    return None


# Messages


class _Conversation(SessionDraft):
    def __init__(self, session: Row, source: Source, notes: Notes) -> None:
        self._file, self._notes = source, notes
        created = fields.mapping(session, "time").get("created", session.get("time_created"))
        clock_us = moment_us(created) or source.changed_us()
        folder = fields.text(session, "directory")
        super().__init__(str(session.get("id")), "opencode", clock_us, folder)
        parent = fields.text(session, "parent_id") or fields.text(session, "parentID")
        self.start = {
            "client": "opencode",
            "client_version": session.get("version"),
            "parent_session": parent,
            "link": "subagent" if parent else None,
            "title": session.get("title"),
        }

    def events(self, messages: Sequence[StoredMessage]) -> list[ImportedEvent]:
        ordered = sorted(messages, key=lambda message: (_created(message.facts) or 0, message.id))
        for at, message in enumerate(ordered):
            ts_us = _created(message.facts)
            if ts_us is not None:
                self.clock_us = ts_us
            if self._is_being_written(message, last=at == len(ordered) - 1):
                break
            self._take(message)
        return self.finished()

    def _is_being_written(self, message: StoredMessage, *, last: bool) -> bool:
        time = fields.mapping(message.facts, "time")
        answers = "assistant" in (message.facts.get("role"), message.facts.get("type"))
        done = time.get("completed") or message.facts.get("error") or message.facts.get("finish")
        if done or not answers or not last:
            return False
        times = [_created(message.facts), *(_latest(part) for part in message.parts)]
        changed_us = max(filter(None, times), default=None)
        return is_unfinished(self._file, self._notes, ended=False, changed_us=changed_us)

    def _take(self, message: StoredMessage) -> None:
        facts, parts = message.facts, message.parts or fields.rows(message.facts, "content")
        kind = facts.get("role") or facts.get("type")
        if kind == "user":
            self._take_user(message)
        elif kind == "assistant":
            self._take_answer(message.id, facts, parts)
        elif kind == "system":
            self.instructed(fields.text(facts, "text") or "", message.id)
        elif kind == "compaction":
            self.add("compaction", {"summary": facts.get("text")}, message.id)
        elif kind in ("shell", "model-switched", "agent-switched", "synthetic"):
            rest = fields.without(facts, "id", "time", "type")
            self.add(f"x_{kind.replace('-', '_')}", rest, message.id)
        else:
            self._notes.skip(f"message of the unknown kind {kind}", message.id)

    def _take_user(self, message: StoredMessage) -> None:
        texts = [part for part in message.parts if part.get("type") == "text"]
        said = [str(part.get("text") or "") for part in texts if not part.get("synthetic")]
        if (text := fields.text(message.facts, "text")) is not None:
            said.append(text)
        others = [part for part in message.parts if part.get("type") != "text"]
        if said or others:
            files = message.facts.get("files") or None
            self.asked("\n".join(said), message.id, parts=others or None, files=files)
        for part in texts:
            if part.get("synthetic"):
                key = str(part.get("id") or f"{message.id}:context")
                self.asked(str(part.get("text") or ""), key, synthetic=True)

    def _take_answer(self, key: str, facts: Row, parts: Sequence[dict[str, Any]]) -> None:
        steps = list(_steps(parts))
        for at, step in enumerate(steps):
            finish = next((p for p in step if p.get("type") == "step-finish"), {})
            tokens = finish.get("tokens") or (facts.get("tokens") if len(steps) == 1 else None)
            name = f"{key}:{at}" if at else key
            tools = [part for part in step if part.get("type") == "tool"]
            calls = [_call(part, name) for part in tools]
            self.answered(
                name,
                tool_calls=calls,
                text=_joined(step, "text"),
                thinking=_joined(step, "reasoning"),
                model=_model(facts),
                usage=_usage(tokens),
                finish_reason=finish.get("reason") or facts.get("finish"),
                cost_usd=finish.get("cost", facts.get("cost")),
            )
            for part, call in zip(tools, calls, strict=True):
                self._take_result(part, call["id"])
            self._take_others(step)
        error = fields.mapping(facts, "error")
        if error:
            message = fields.mapping(error, "data").get("message") or error.get("message")
            told = {"message": str(message or error.get("name")), "error_class": error.get("name")}
            self.add("error", told, f"{key}:error")

    def _take_result(self, part: Row, call_id: str) -> None:
        state = fields.mapping(part, "state")
        status = state.get("status")
        if status not in _DONE:
            self._notes.skip("call of a tool without a result", call_id)
            return
        time, metadata = fields.mapping(state, "time"), fields.mapping(state, "metadata")
        began, ended = moment_us(time.get("start")), moment_us(time.get("end"))
        failed = status == "error"
        change = told_change(fields.mapping(metadata, "filediff"), "file", "before", "after")
        self.returned(
            call_id,
            state.get("error") if failed else state.get("output", state.get("content")),
            f"{call_id}:result",
            ended,
            ok=not failed,
            changes=(change and not failed and [change]) or None,
            duration_ms=milliseconds(began, ended),
            title=state.get("title"),
            metadata=metadata or None,
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
                rest = fields.without(part, "id", "sessionID", "messageID")
                self.add("x_part", rest, key)


def _steps(parts: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The parts of each call of the model: one begins behind each `step-finish`."""
    step: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start" and any(p.get("type") == "step-finish" for p in step):
            yield step
            step = []
        step.append(part)
    yield step


def _joined(step: Sequence[Row], kind: str) -> str | None:
    texts = [str(part.get("text") or "") for part in step if part.get("type") == kind]
    return "\n".join(text for text in texts if text) or None


def _model(facts: Row) -> str | None:
    model = facts.get("model")
    told = model if isinstance(model, dict) else facts
    provider, name = told.get("providerID"), told.get("modelID") or told.get("id")
    return f"{provider}/{name}" if provider and name else None


def _usage(tokens: object) -> dict[str, int] | None:
    if not isinstance(tokens, Mapping):
        return None
    cache = fields.mapping(tokens, "cache")
    read, write = count_of(cache.get("read")) or 0, count_of(cache.get("write")) or 0
    given = count_of(tokens.get("input"))
    usage = {
        "prompt": None if given is None else given + read + write,
        "completion": count_of(tokens.get("output")),
        "thinking": count_of(tokens.get("reasoning")),
        "cached": count_of(cache.get("read")),
    }
    return present(usage) or None


def _call(part: Row, key: str) -> dict[str, Any]:
    call_id = part.get("callID") or part.get("id") or f"{key}:call"
    given = fields.mapping(part, "state").get("input")
    return tool_call(call_id, part.get("tool") or part.get("name"), given)


def _created(facts: Row) -> int | None:
    return moment_us(fields.mapping(facts, "time").get("created"))


def _latest(part: Row) -> int | None:
    times = [fields.mapping(part, "time"), fields.mapping(fields.mapping(part, "state"), "time")]
    moments = [moment_us(time.get(name)) for time in times for name in ("start", "end", "created")]
    return max(filter(None, moments), default=None)


IMPORTERS = (OpenCodeImporter(),)
