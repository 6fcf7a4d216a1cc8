"""Claude Code: a JSON object a line, in `projects/FOLDER/SESSION.jsonl`.

- An answer of the model stands in several rows with one message id; its usage stands in each, the
  last one is right. Rows of tools come in between.
- A subagent has a file of its own, `agent-ID.jsonl`; older versions wrote its rows between those of
  the session. It is a session of its own, linked to the one that started it.
- `/branch` and older resumes copy rows into a new session: they keep their `uuid`, which is the
  `source_key` of the events.
- Rows that look like the user's are often the client's: summaries, reminders, output of commands.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field
from xxhash import xxh3_64_hexdigest

from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.formats.claude_code_tools import (
    CLIENT_TEXTS,
    INTERRUPTED,
    ClaudeToolUse,
    blocks_of,
    is_qwen_code,
    observed,
    plain_text,
    prompt_of,
    text_of,
    tool_events,
    usage_of,
)
from penstock_jobs.importers.importer import (
    ImportedEvent,
    LogImporter,
    RecentEntries,
    RowReader,
    SessionEvents,
)
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source

NAME = "claude-code"
_KEYS = {"sessionId", "uuid", "type"}
_WEB_EXPORT = re.compile(rb'\s*\{\s*"loglines"\s*:\s*\[')
#: What the client keeps for itself: nothing that somebody said, and copies of what is elsewhere.
_CLIENT_ROWS = {
    "agent-name", "ai-title", "custom-title", "file-history-snapshot", "last-prompt", "mode",
    "permission-mode", "pr-link", "progress", "queue-operation", "summary", "tag",
}  # fmt: skip
#: Fields of rows that events are made of, or that repeat what the session's start says.
_USED = (
    "agentId", "cwd", "forkedFrom", "gitBranch", "isApiErrorMessage", "isCompactSummary",
    "isMeta", "isSidechain", "message", "sessionId", "timestamp", "toolUseResult", "type",
    "userType", "uuid", "version",
)  # fmt: skip
#: A session whose last row is younger may still be written.
_QUIET_SECONDS = 600


_encoder = msgspec.json.Encoder()


class _Answer(Struct):
    message_id: str | None
    key: str
    ts: str | int
    seq: int
    is_late: bool
    model: str | None
    texts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    usage: Row = field(default_factory=dict)
    stop_reason: str | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    def event(self, session: SessionEvents) -> ImportedEvent:
        usage = None if self.is_late else usage_of(self.usage)
        payload = {
            "call_id": self.message_id or self.key,
            "model": self.model,
            "text": "\n".join(self.texts) or None,
            "thinking": "\n".join(self.thinking) or None,
            "tool_calls": self.calls or None,
            "usage": usage,
            "finish_reason": self.stop_reason,
            "claude_code": self.kept or None,
        }
        return session.event("model_call", self.ts, self.key, payload, seq=self.seq)


class _SessionMemory(Struct):
    sessions: dict[str, SessionEvents] = field(default_factory=dict)
    open: dict[str, _Answer] = field(default_factory=dict)
    #: Messages whose answers have ended, calls of tools, rows, the chains of subagents and the
    #: prompts by the rows that they follow.
    ended: RecentEntries[bool] = field(default_factory=RecentEntries)
    tools: RecentEntries[ClaudeToolUse] = field(default_factory=RecentEntries)
    rows: RecentEntries[str] = field(default_factory=RecentEntries)
    chains: RecentEntries[str] = field(default_factory=RecentEntries)
    prompted: RecentEntries[str] = field(default_factory=RecentEntries)
    ts: str | int | None = None
    last_session: str | None = None


class ClaudeCode(LogImporter):
    name: ClassVar = NAME
    memory_type: ClassVar = _SessionMemory
    homes: ClassVar = ("$CLAUDE_CONFIG_DIR/projects", "~/.claude/projects")

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            return False
        if candidate.name.endswith(".json"):
            return _WEB_EXPORT.match(candidate.beginning) is not None
        return candidate.name.endswith(".jsonl") and any(
            row.keys() >= _KEYS and not is_qwen_code(row) for row in candidate.first_rows
        )

    def reader(self, source: Source, memory: _SessionMemory) -> "_SessionFile":
        return _SessionFile(source.real.stem, memory)

    def reads_lines(self, source: Source) -> bool:
        return not source.name.endswith(".json")

    def rows(self, source: Source, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
        return source.rows(notes) if self.reads_lines(source) else _web_export(source)


def _web_export(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the web client downloads: rows without ids, in one document."""
    for number, row in enumerate(fields.rows(source.document(), "loglines"), 1):
        ids = {"sessionId": source.real.stem, "uuid": f"row-{number}"}
        yield number, ids | row


class _SessionFile(RowReader):
    def __init__(self, file: str, memory: _SessionMemory) -> None:
        self._file = file
        self.memory = self._known = memory
        #: Of the row that is read.
        self._number, self._key = 0, ""

    def take(self, number: int, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        self._number = number
        kind, main = fields.text(row, "type"), fields.identifier(row, "sessionId")
        if kind in _CLIENT_ROWS:
            self._skip(f"row of the client: {kind}")
            return
        self._known.ts = fields.moment(row, "timestamp") or self._known.ts
        if kind is None or main is None or self._known.ts is None:
            why = "type" if kind is None else "session" if main is None else "time"
            self._skip(f"row without a {why}")
            return
        session_id = self._session_of(row, main)
        key = self._key_of(row, session_id)
        if key is None:
            return
        self._key = key
        is_new = session_id not in self._known.sessions
        if is_new:
            project = fields.project_of(fields.text(row, "cwd"))
            self._known.sessions[session_id] = SessionEvents(session_id, NAME, project)
        self._session = self._known.sessions[session_id]
        if is_new:
            yield self._start(row, main)
        by_kind = {"assistant": self._answer, "user": self._user, "system": self._system}
        yield from by_kind.get(kind, self._other)(row)

    def _made(self, kind: str, payload: dict[str, Any], part: str = "") -> ImportedEvent:
        assert self._known.ts is not None
        return self._session.event(
            kind, self._known.ts, self._key, payload, row=self._number, part=part
        )

    def _skip(self, kind: str) -> None:
        self.notes.skip(kind, f"line {self._number}")

    def finish(self) -> Iterator[ImportedEvent]:
        if self._known.open and fields.is_recent(self._known.ts, _QUIET_SECONDS):
            self.notes.hold("the last answer may still be written")
            return
        for session_id, answer in self._known.open.items():
            yield answer.event(self._known.sessions[session_id])

    # Sessions

    def _session_of(self, row: dict[str, Any], main: str) -> str:
        """The session of a row: the subagent's, if one wrote it."""
        if row.get("isSidechain") is not True:
            return main
        agent = fields.text(row, "agentId")
        if agent is None and self._file.startswith("agent-"):
            agent = self._file.removeprefix("agent-")
        if agent is None:  # between the rows of the session: by the row that its chain began with
            uuid = str(row.get("uuid"))
            agent = self._known.chains.get(str(row.get("parentUuid"))) or uuid
            self._known.chains[uuid] = agent
        return f"{main}.agent-{agent}"

    def _start(self, row: dict[str, Any], main: str) -> ImportedEvent:
        session_id = self._session.session_id
        forked = fields.mapping(row, "forkedFrom")
        parent: str | None = fields.identifier(forked, "sessionId")
        link = "fork" if parent else None
        if session_id != main:
            parent, link = main, "subagent"
        elif parent is None and self._known.last_session is not None and main == self._file:
            # An older resume: the history that it copied keeps its session.
            parent, link = self._known.last_session, "resume"
        if session_id == main:
            self._known.last_session = main
        payload = {
            "client": NAME,
            "client_version": fields.text(row, "version"),
            "repo": fields.text(row, "cwd"),
            "branch": fields.text(row, "gitBranch") or None,
            "parent_session": parent,
            "link": link,
        }
        return self._made("session_start", payload, "start")

    def _key_of(self, row: dict[str, Any], session_id: str) -> str | None:
        """The row's id; None for one that stood in the file before."""
        uuid = fields.identifier(row, "uuid")
        said = xxh3_64_hexdigest(_encoder.encode((row.get("type"), row.get("message"))))
        if uuid is None:
            return f"row-{said}-{self._known.ts}"
        known = self._known.rows.get(f"{session_id} {uuid}")
        self._known.rows[f"{session_id} {uuid}"] = said
        if known is None:
            return uuid
        if known == said:
            self._skip("row that stands twice")
            return None
        return f"{uuid}-{said}"

    # Rows

    def _answer(self, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        message = fields.mapping(row, "message")
        message_id = fields.identifier(message, "id")
        blocks = blocks_of(message.get("content"))
        if row.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
            payload = {"message": text_of(blocks), "claude_code": _kept(row)}
            yield self._made("error", payload)
            return
        answer = self._known.open.get(self._session.session_id)
        if answer is None or message_id is None or answer.message_id != message_id:
            yield from self._end_answer()
            answer = self._known.open[self._session.session_id] = _Answer(
                message_id,
                self._key,
                self._known.ts or 0,
                self._session.number(self._number),
                self._known.ended.get(f"{self._session.session_id} {message_id}") is not None,
                fields.text(message, "model"),
                kept=_kept(row),
            )
        answer.usage = fields.mapping(message, "usage") or answer.usage
        answer.stop_reason = fields.text(message, "stop_reason") or answer.stop_reason
        for block in blocks:
            self._add_block(answer, block)

    def _add_block(self, answer: _Answer, block: Row) -> None:
        kind = block.get("type")
        if kind == "text":
            answer.texts.append(fields.text(block, "text") or "")
        elif kind == "thinking":
            answer.thinking.append(fields.text(block, "thinking") or "")
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            name, call_id = fields.text(block, "name"), fields.text(block, "id")
            if name is None or call_id is None:
                self._skip("tool call without a name or an id")
                return
            arguments = block.get("input")
            answer.calls.append({"id": call_id, "name": name, "arguments": arguments})
            self._known.tools[call_id] = ClaudeToolUse(
                name, arguments if isinstance(arguments, dict) else {}
            )
        else:
            answer.kept.setdefault("blocks", []).append(block)

    def _end_answer(self) -> Iterator[ImportedEvent]:
        answer = self._known.open.pop(self._session.session_id, None)
        if answer is None:
            return
        if answer.message_id is not None:
            self._known.ended[f"{self._session.session_id} {answer.message_id}"] = True
        yield answer.event(self._session)

    def _user(self, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        message = row.get("message")
        content = message.get("content") if isinstance(message, dict) else message
        blocks = blocks_of(content)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for place, block in enumerate(results):
            call_id = str(block.get("tool_use_id"))
            use = self._known.tools.get(call_id)
            if use is not None:  # what it asked for may be long, and is said
                self._known.tools[call_id] = ClaudeToolUse(use.name, {})
            result = row.get("toolUseResult") if len(results) == 1 else None
            made = tool_events(block, result, use, self.notes, _kept(row))
            for part, kind, payload in made:
                name = f"{part}-{place}" if place else part
                yield self._made(kind, payload, name)
        said = [block for block in blocks if block.get("type") != "tool_result"]
        if said:
            yield from self._said(row, said)
        elif not results:
            self._skip("row of the user without content")

    def _said(self, row: dict[str, Any], blocks: list[Row]) -> Iterator[ImportedEvent]:
        texts = [fields.text(block, "text") for block in blocks if block.get("type") == "text"]
        spoken = [text for text in texts if text and not text.startswith(CLIENT_TEXTS)]
        for block in blocks:
            if block.get("type") != "text":
                self._skip(f"{block.get('type')} in a message of the user")
        text = prompt_of("\n".join(spoken))
        kept = _kept(row)
        if text is not None and text.startswith(INTERRUPTED):
            yield from self._end_answer()
            yield self._made("interrupt", {"reason": text})
            return
        by_client = any(row.get(mark) is True for mark in ("isMeta", "isCompactSummary"))
        if text is None or not text.strip() or by_client:
            everything = "\n".join(text for text in texts if text)
            if everything:
                kind = "compaction_summary" if row.get("isCompactSummary") is True else "client"
                payload = {"text": everything, "kind": kind, "claude_code": kept}
                yield self._made("x_context", payload)
            return
        yield from self._end_answer()
        yield from self._rewound(row)
        payload = {"text": text, "claude_code": kept}
        yield self._made("user_message", payload)

    def _rewound(self, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        """A second prompt at the same place: the user went back to before the first."""
        parent = fields.text(row, "parentUuid")
        if parent is None:
            return
        before = self._known.prompted.get(f"{self._session.session_id} {parent}")
        self._known.prompted[f"{self._session.session_id} {parent}"] = self._key
        if before is not None:
            payload = {"kind": "undo", "target": before, "comment": "rewound the conversation"}
            yield self._made("feedback", payload, "rewind")

    def _system(self, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        subtype = fields.text(row, "subtype")
        if subtype in ("turn_duration", "stop_hook_summary", "compact_boundary"):
            yield from self._end_answer()
        if subtype == "compact_boundary":
            facts = fields.mapping(row, "compactMetadata")
            payload: dict[str, Any] = {
                "trigger": fields.text(facts, "trigger"),
                "tokens_before": fields.count(facts, "preTokens"),
                "tokens_after": fields.count(facts, "postTokens"),
                "claude_code": _kept(row),
            }
            yield self._made("compaction", payload)
        elif subtype == "api_error":
            payload = {"message": plain_text(row.get("content")), "claude_code": _kept(row)}
            yield self._made("error", payload)
        else:
            yield from self._other(row)

    def _other(self, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        """Attachments, and rows of kinds that are not known yet: they are kept."""
        attachment = fields.mapping(row, "attachment")
        if attachment.get("type") == "queued_command":
            prompt = text_of(blocks_of(attachment.get("prompt")))
            if prompt and not prompt.startswith(CLIENT_TEXTS):
                yield from self._end_answer()
                payload = {"text": prompt, "queued": True}
                yield self._made("user_message", payload)
                return
        seen = observed(fields.mapping(attachment, "content"))
        if seen is not None:
            yield self._made("file_observed", seen, "file")
            return
        payload = {"kind": row.get("type"), "claude_code": fields.without(row, *_REPEATED)}
        yield self._made("x_context", payload)


_REPEATED = ("cwd", "gitBranch", "sessionId", "timestamp", "type", "userType", "uuid", "version")


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    return fields.without(row, *_USED)


IMPORTERS = (ClaudeCode(),)
