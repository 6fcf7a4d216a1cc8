"""VS Code's chat: `chatSessions/ID.jsonl`, a log of what changed in a session, and `ID.json`, the
whole session, before.

The log begins with the session; each line behind it sets, pushes or deletes something in it, by a
path. It is replayed before anything is read: a line alone says nothing.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import present
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, is_unfinished, tool_call

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
        if candidate.ends(".jsonl"):
            return bool(_LOG.match(begins))
        return (
            candidate.ends(".json") and b'"creationDate"' in begins and bool(_WHOLE.search(begins))
        )

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        lines = source.ends(".jsonl")
        session = _replayed(source.rows(notes), notes) if lines else source.document()
        if fields.text(session, "sessionId") is None:
            raise SourceUnfit("it holds no session")
        yield from _ChatSession(session, source, notes).events()


def _replayed(rows: Iterator[tuple[int, dict[str, Any]]], notes: Notes) -> Any:
    """The state that a log of changes ends with. What does not fit is left out and noted."""
    state: Any = None
    for number, row in rows:
        kind, path = row.get("kind"), row.get("k")
        if kind == _INITIAL:
            state = row.get("v")
        elif state is None or not isinstance(path, list) or not path:
            notes.skip("change of nothing", f"line {number}")
        elif not _change(state, kind, path, row):
            notes.skip("change that does not fit what came before", f"line {number}")
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
            self.asked(fields.text(request, "message", "text") or "", key, variables=variables)
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
        self.answered(
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
            self.returned(call_id, output, f"{call_id}:result")
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
        """Edits name ranges of a file, and nobody tells what stood there. It is known where they
        only insert; others are kept, and are no edits: what became of them cannot be said."""
        path = fields.text(part, "uri", "path")
        edits = [edit for group in fields.items(part, "edits") for edit in fields.rows(group)]
        known = self.changes.edited  # the call of a tool told what was there before
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
    """The calls of tools, in full from the rounds that Copilot tells, else from what was shown of
    them; and their results."""
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


IMPORTERS = (VsCodeChatImporter(),)
