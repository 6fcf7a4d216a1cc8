"""GitHub Copilot, in VS Code's chat and on the command line.

VS Code: `chatSessions/ID.jsonl`, a log of changes of a session; older versions wrote the whole
session, `ID.json`. The log begins with the session. Each further line sets, pushes or deletes
something at a path, so the log is replayed before anything is read.

Copilot CLI: `session-state/ID/events.jsonl`, an event per line. An event holds a prompt as it was
typed and as the model got it. If the client repeats a prompt, it has an event of its own. Tokens
are reported per model when the client ends.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import present, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import (
    RowDraft,
    RowsImporter,
    SessionDraft,
    is_unfinished,
    tool_call,
)

_INITIAL, _SET, _PUSH, _DELETE = range(4)
_LOG = re.compile(rb'\s*\{"kind":\s*0,\s*"v":\s*\{')
_WHOLE = re.compile(rb'"requests"\s*:\s*\[')
_STORE = ("~/.config/Code/User", "~/Library/Application Support/Code/User", "$APPDATA/Code/User")
#: `modelState.value` of answers that will not change.
_ANSWERED = (1, 2, 3)
_CANCELLED = 2
_GAP_MAX = 10_000
_SILENT = (
    "markdownContent", "thinking", "toolInvocationSerialized",
    "undoStop", "codeblockUri", "progressMessage", "progressTaskSerialized", "inlineReference",
    "mcpServersStarting", "confirmation", "prepareToolInvocation", "markdownVuln", "command",
    "warning", "extensions", "pullRequest", "elicitationSerialized", "multiDiffData", "hook",
    "workspaceEdit", "notebookEditGroup", "treeData", "questionCarousel", "reference",
    "clearToPreviousToolInvocation",
)  # fmt: skip


class VsCodeChatImporter(Importer):
    name = "vscode-chat"
    version = 2
    homes = tuple(
        f"{store}/{folder}"
        for store in _STORE
        for folder in ("workspaceStorage", "globalStorage/emptyWindowChatSessions")
    )

    def recognises(self, candidate: Candidate) -> bool:
        begins = candidate.beginning
        if b'"sessionId"' not in begins:
            return False
        whole = b'"creationDate"' in begins and bool(_WHOLE.search(begins))
        return whole or bool(_LOG.match(begins))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        lines = _LOG.match(source.probe().beginning)
        session = _replayed(source.rows(notes), notes) if lines else source.document()
        if fields.text(session, "sessionId") is None:
            raise SourceUnfit("it holds no session")
        yield from _ChatSession(session, source, notes).events()


def _replayed(rows: Iterator[tuple[int, dict[str, Any]]], notes: Notes) -> Any:
    """Replay a log of changes. Changes that do not fit are skipped and noted."""
    state: Any = None
    for number, row in rows:
        kind, path = row.get("kind"), row.get("k")
        if kind == _INITIAL:
            state = row.get("v")
        elif state is None or not isinstance(path, list) or not path:
            notes.skip("change without a path", f"line {number}")
        elif not _change(state, kind, path, row):
            notes.skip("change that does not fit the state before", f"line {number}")
    return state


def _change(state: Any, kind: object, path: Sequence[Any], row: Row) -> bool:
    place = state
    for name in path[:-1]:
        place = _at(place, name)
    last = path[-1]
    if kind != _PUSH:
        return kind in (_SET, _DELETE) and _put(place, last, row.get("v"))
    known = _at(place, last)
    if known is None and not _put(place, last, known := []):
        return False
    if not isinstance(known, list):
        return False
    if isinstance(row.get("i"), int):
        del known[row["i"] :]
    known.extend(fields.items(row, "v"))
    return True


def _at(place: Any, name: Any) -> Any:
    if isinstance(place, dict):
        return place.get(name)
    if isinstance(place, list) and isinstance(name, int) and 0 <= name < len(place):
        return place[name]
    return None


def _put(place: Any, name: Any, value: Any) -> bool:
    if isinstance(place, dict):
        place[name] = value
        return True
    if isinstance(place, list) and isinstance(name, int) and 0 <= name < len(place) + _GAP_MAX:
        place.extend([None] * (name + 1 - len(place)))
        place[name] = value
        return True
    return False


class _ChatSession(SessionDraft):
    def __init__(self, session: Row, source: Source, notes: Notes) -> None:
        self._requests, self._file = fields.rows(session, "requests"), source
        created = source.time_us(session.get("creationDate"))
        super().__init__(session["sessionId"], "vscode-chat", created, notes)
        repo = fields.mapping(session, "repoData")
        self.project = repo.get("workspaceFolder") or repo.get("remoteUrl")
        self.start |= {
            "repo": repo.get("remoteUrl"),
            "branch": repo.get("localBranch"),
            "commit": repo.get("localHeadCommit"),
            "title": session.get("customTitle"),
            "responder": session.get("responderUsername"),
        }

    def events(self) -> list[ImportedEvent]:
        for at, request in enumerate(self._requests):
            key = str(request.get("requestId") or f"request-{at}")
            asked_us = fields.moment(request, "timestamp")
            self.at(asked_us)
            variables = fields.at(request, "variableData", "variables") or None
            self.add_prompt(fields.text(request, "message", "text") or "", key, variables=variables)
            answered = fields.at(request, "modelState", "value") in _ANSWERED or "result" in request
            ended = answered or at < len(self._requests) - 1
            if is_unfinished(self._file, self.notes, ended=ended, changed_us=asked_us):
                break
            self._take_answer(request, key)
        return self.finished()

    def _take_answer(self, request: Row, key: str) -> None:
        parts, result = fields.rows(request, "response"), fields.mapping(request, "result")
        metadata = fields.mapping(result, "metadata")
        if not parts and not result:
            return
        name = str(request.get("responseId") or f"{key}:answer")
        calls, results = _tools(parts, metadata)
        self.at(fields.at(request, "modelState", "completedAt"))
        self.add_answer(
            name,
            tool_calls=calls,
            text="".join(map(_markdown, parts)) or None,
            thinking="".join(map(_thought, parts)) or None,
            model=fields.text(request, "modelId"),
            usage=_usage(result, metadata),
            latency_ms=fields.at(result, "timings", "totalElapsed"),
            ttft_ms=fields.at(result, "timings", "firstProgress"),
        )
        for call_id, output in results:
            self.add_result(call_id, output, f"{call_id}:result")
        for at, part in enumerate(parts):
            kind = part.get("kind")
            if kind == "textEditGroup":
                self._take_edits(part, f"{name}:{at}")
            elif kind is not None and kind not in _SILENT:
                self.notes.skip(f"part of an answer of the unknown kind {kind}", f"{name}:{at}")
        if error := fields.mapping(result, "errorDetails"):
            self.add("error", {"message": str(error.get("message"))}, f"{name}:error")
        is_cancelled = fields.at(request, "modelState", "value") == _CANCELLED
        if is_cancelled or request.get("isCanceled"):
            self.add("interrupt", {"call_id": name}, f"{name}:cancelled")
        if (vote := request.get("vote")) in (0, 1):
            told = {"kind": "thumbs", "target": name, "value": "up" if vote else "down"}
            comment = fields.text(request, "voteDownReason") or None
            self.add("feedback", told | {"comment": comment}, f"{name}:vote-{vote}")

    def _take_edits(self, part: Row, key: str) -> None:
        """Add edits, which name ranges without their old text. Pure insertions become edits; others
        are kept as context, since their survival cannot be measured."""
        path = fields.text(part, "uri", "path")
        edits = [edit for group in fields.items(part, "edits") for edit in fields.rows(group)]
        known = self.changes.edited  # a tool's call recorded the old text
        if path is None or not edits or path in known:
            return
        if all(map(_inserts, edits)):
            text = "".join(fields.text(edit, "text") or "" for edit in edits)
            self.changes.add(FileEdit(path, "", text), f"{key}:edit", None)
        else:
            payload = {"kind": "textEditGroup", "path": path, "edits": edits}
            self.add("x_context", payload, f"{key}:edits")


def _tools(
    parts: Sequence[Row], metadata: Row
) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    """The calls of tools and their results: in full from Copilot's rounds, else as shown."""
    told = fields.mapping(metadata, "toolCallResults")
    calls = {
        str(call.get("id")): tool_call(call.get("id"), call.get("name"), call.get("arguments"))
        for each in fields.rows(metadata, "toolCallRounds")
        for call in fields.rows(each, "toolCalls")
    }
    results: list[tuple[str, Any]] = [(name, told[name]) for name in calls if name in told]
    shown = [part for part in parts if part.get("kind") == "toolInvocationSerialized"]
    for part in [] if calls else shown:
        name = str(part.get("toolCallId"))
        data = fields.mapping(part, "toolSpecificData")
        calls[name] = {"id": name, "name": str(part.get("toolId")), "arguments": data}
        if part.get("isComplete"):
            detail = part.get("resultDetails") or _plain(part.get("pastTenseMessage"))
            results.append((name, detail))
    return list(calls.values()), results


def _inserts(edit: Row) -> bool:
    start, end = (
        [fields.count(edit, "range", f"{side}{what}") for what in ("LineNumber", "Column")]
        for side in ("start", "end")
    )
    return None not in start and start == end


def _markdown(part: Row) -> str:
    kind = part.get("kind")
    content = part.get("content") if kind == "markdownContent" else part
    return _plain(content) if kind in (None, "markdownContent") else ""


def _thought(part: Row) -> str:
    if part.get("kind") != "thinking":
        return ""
    value = part.get("value")
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _plain(value: object) -> str:
    text = value.get("value") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _usage(result: Row, metadata: Row) -> dict[str, int] | None:
    told = fields.mapping(result, "usage") or fields.mapping(metadata, "usage")
    prompt = fields.count(told, "promptTokens") or fields.count(metadata, "promptTokens")
    completion = fields.count(told, "completionTokens") or fields.count(metadata, "outputTokens")
    return present({"prompt": prompt, "completion": completion}) or None


_TYPES = ("session.", "user.message", "assistant.", "system.message", "tool.", "subagent.", "abort")
_QUIET = ("assistant.turn_start", "assistant.turn_end", "tool.execution_start", "session.idle")
#: Events with a direct counterpart: its type, fixed fields, and fields by their names.
_TOLD: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "session.compaction_complete": ("compaction", {"trigger": "auto"}, {
        "tokens_before": "preCompactionTokens", "tokens_after": "postCompactionTokens",
        "summary": "summaryContent",
    }),
    "session.error": ("error", {}, {"message": "message", "error_class": "errorType"}),
    "abort": ("interrupt", {}, {"reason": "reason"}),
}  # fmt: skip


def _is_event(row: Row) -> bool:
    kind = row.get("type")
    named = isinstance(kind, str) and kind.startswith(_TYPES)
    return named and isinstance(row.get("data"), dict) and "id" in row and "timestamp" in row


class _ClientRun(RowDraft):
    _last_prompt: tuple[object, str] | None = None
    _thinking: str | None = None
    _tells_completions = False

    def take(self, row: dict[str, Any], key: str) -> None:
        if not _is_event(row):
            self.notes.skip("line that is not an event", key)
            return
        kind, data = str(row["type"]), row["data"]
        match kind:
            case "session.start":
                self._begin(data)
            case "session.model_change":
                self.model = fields.text(data, "newModel")
            case "session.resume":
                self.add("x_resume", data, key)
            case "session.shutdown":
                self._end(data, key)
            case "system.message":
                self.add_system_prompt(fields.text(data, "content") or "", key)
            case "user.message":
                self._take_prompt(data, key)
            case "assistant.reasoning":
                self._thinking = fields.text(data, "content")
            case "assistant.message":
                self._take_answer(data, key)
            case "tool.execution_complete":
                self._take_result(data, key)
            case _ if kind in _TOLD:
                told, facts, names = _TOLD[kind]
                self.add(told, facts | {name: data.get(own) for name, own in names.items()}, key)
            case _ if kind not in _QUIET:
                self.notes.skip(f"event of the client itself: {kind}", key)

    def _begin(self, data: Row) -> None:
        self.session_id = fields.text(data, "sessionId") or self.session_id
        self.project = fields.text(data, "context", "cwd")
        self.model = fields.text(data, "selectedModel") or self.model
        self.start |= {
            "client_version": data.get("copilotVersion"),
            "repo": fields.at(data, "context", "repository"),
            "branch": fields.at(data, "context", "branch"),
        }

    def _take_prompt(self, data: Row, key: str) -> None:
        text, turn = fields.text(data, "content") or "", data.get("interactionId")
        if turn is not None and self._last_prompt == (turn, text):
            self.notes.skip("repeated prompt", key)
            return
        self._last_prompt = turn, text
        self.add_prompt(
            text,
            key,
            transformed=data.get("transformedContent"),
            attachments=data.get("attachments") or None,
            # A prompt that the client sends by itself names its source.
            synthetic=True if data.get("source") not in (None, "user") else None,
        )

    def _take_answer(self, data: Row, key: str) -> None:
        calls = [
            tool_call(call.get("toolCallId"), call.get("name"), call.get("arguments"))
            for call in fields.rows(data, "toolRequests")
        ]
        thinking, self._thinking = self._thinking, None
        self._tells_completions |= fields.count(data, "outputTokens") is not None
        self.add_answer(
            key,
            tool_calls=calls,
            text=fields.text(data, "content") or None,
            thinking=fields.text(data, "reasoningText") or thinking,
            model=fields.text(data, "model"),
            usage=usage_of({"completion": data.get("outputTokens")}),
            call_id=fields.text(data, "messageId"),
        )

    def _take_result(self, data: Row, key: str) -> None:
        result, error = fields.mapping(data, "result"), fields.mapping(data, "error")
        ok, code = fields.flag(data, "success"), error.get("code")
        self.add_result(
            fields.text(data, "toolCallId"),
            result.get("content") if ok else error.get("message", result.get("content")),
            key,
            ok=ok,
            detail=result.get("detailedContent"),
            error_code=code,
            error_class="user_aborted" if code in ("denied", "rejected") else None,
        )

    def _end(self, data: Row, key: str) -> None:
        for model, metrics in fields.mapping(data, "modelMetrics").items():
            usage = usage_of(fields.at(metrics, "usage")) or {}
            if self._tells_completions:  # the answers have them
                usage.pop("completion", None)
            if usage:
                self.add("x_run_usage", usage | {"model": model}, f"{key}:{model}")
        changes = fields.mapping(data, "codeChanges")
        self.add("x_shutdown", {"kind": data.get("shutdownType"), "changes": changes}, key)


class CopilotCliImporter(RowsImporter):
    name = "copilot-cli"
    homes = ("~/.copilot/session-state",)
    draft_type = _ClientRun

    def recognises(self, candidate: Candidate) -> bool:
        return any(map(_is_event, candidate.first_rows))

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        draft = super().draft(source, notes)
        draft.session_id = source.parent_name
        return draft
