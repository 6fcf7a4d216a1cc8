"""VS Code's chat: `chatSessions/ID.jsonl`, a log of what changed in a session, and `ID.json`, the
whole session, before.

The log begins with the session; each line behind it sets, pushes or deletes something in it, by a
path. It is replayed before anything is read: a line alone says nothing.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import (
    SessionDraft,
    is_unfinished,
    moment_us,
    present,
    tool_call,
)

_INITIAL, _SET, _PUSH, _DELETE = range(4)
_WHOLE = re.compile(rb'"requests"\s*:\s*\[')
_STORE = ("~/.config/Code/User", "~/Library/Application Support/Code/User", "$APPDATA/Code/User")
#: `modelState.value` of answers that will not change.
_ANSWERED = (1, 2, 3)
_CANCELLED = 2
#: An index that would make a list of nothing.
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
        if candidate.name.endswith(".jsonl"):
            first = candidate.beginning[:4096].lstrip()
            return bool(re.match(rb'\{"kind":\s*0,\s*"v":\s*\{', first)) and b'"sessionId"' in (
                candidate.beginning
            )
        begins = candidate.beginning
        return candidate.name.endswith(".json") and (
            b'"sessionId"' in begins and b'"creationDate"' in begins and bool(_WHOLE.search(begins))
        )

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if source.plain_name.endswith(".jsonl"):
            session = replayed(source.rows(notes), notes)
        else:
            session = source.document()
        if not isinstance(session, dict) or not isinstance(session.get("sessionId"), str):
            raise SourceUnfit("it holds no session")
        yield from _ChatSession(session, source, notes).events()


def replayed(rows: Iterator[tuple[int, dict[str, Any]]], notes: Notes) -> Any:
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
    if kind == _PUSH:
        known = _at(place, last)
        added = row.get("v")
        if known is None:
            known = []
            if not _put(place, last, known):
                return False
        if not isinstance(known, list):
            return False
        if isinstance(row.get("i"), int):
            del known[row["i"] :]
        known.extend(added if isinstance(added, list) else [])
        return True
    return kind in (_SET, _DELETE) and _put(place, last, row.get("v"))


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
        self._requests, self._notes, self._file = fields.rows(session, "requests"), notes, source
        clock_us = moment_us(session.get("creationDate")) or source.changed_us()
        super().__init__(session["sessionId"], "vscode-chat", clock_us)
        repo = fields.mapping(session, "repoData")
        self.project = repo.get("workspaceFolder") or repo.get("remoteUrl")
        self.start = {
            "client": "vscode-chat",
            "repo": repo.get("remoteUrl"),
            "branch": repo.get("localBranch"),
            "commit": repo.get("localHeadCommit"),
            "title": session.get("customTitle"),
            "responder": session.get("responderUsername"),
        }

    def events(self) -> list[ImportedEvent]:
        for at, request in enumerate(self._requests):
            key = str(request.get("requestId") or f"request-{at}")
            ts_us = moment_us(request.get("timestamp"))
            message = fields.mapping(request, "message")
            variables = fields.mapping(request, "variableData").get("variables") or None
            self.asked(fields.text(message, "text") or "", key, ts_us, variables=variables)
            state = fields.mapping(request, "modelState")
            answered = state.get("value") in _ANSWERED or "result" in request
            ended = answered or at < len(self._requests) - 1
            if is_unfinished(self._file, self._notes, ended=ended, changed_us=ts_us):
                break
            self._take_answer(request, key)
        return self.finished()

    def _take_answer(self, request: Row, key: str) -> None:
        parts = fields.rows(request, "response")
        result = fields.mapping(request, "result")
        timings, metadata = fields.mapping(result, "timings"), fields.mapping(result, "metadata")
        name = str(request.get("responseId") or f"{key}:answer")
        calls, results = self._tools(parts, metadata)
        if not parts and not result:
            return
        state = fields.mapping(request, "modelState")
        ended = moment_us(state.get("completedAt"))
        self.answered(
            name,
            ended,
            tool_calls=calls,
            text="".join(_markdown(part) for part in parts) or None,
            thinking="".join(_thought(part) for part in parts) or None,
            model=fields.text(request, "modelId"),
            usage=_usage(result, metadata),
            latency_ms=timings.get("totalElapsed"),
            ttft_ms=timings.get("firstProgress"),
        )
        for call_id, output in results:
            self.returned(call_id, output, f"{call_id}:result")
        for at, part in enumerate(parts):
            self._take_part(part, f"{name}:{at}")
        error = fields.mapping(result, "errorDetails")
        if error:
            self.add("error", {"message": str(error.get("message"))}, f"{name}:error")
        if state.get("value") == _CANCELLED or request.get("isCanceled"):
            self.add("interrupt", {"call_id": name}, f"{name}:cancelled")
        if (vote := request.get("vote")) in (0, 1):
            told = {"kind": "thumbs", "target": name, "value": "up" if vote else "down"}
            if comment := fields.text(request, "voteDownReason"):
                told["comment"] = comment
            self.add("feedback", told, f"{name}:vote-{vote}")

    def _tools(
        self, parts: Sequence[Row], metadata: Row
    ) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
        """The calls of tools, in full from the rounds that Copilot tells, else from what was
        shown of them; and their results."""
        told = fields.mapping(metadata, "toolCallResults")
        rounds = [
            call
            for each in fields.rows(metadata, "toolCallRounds")
            for call in fields.rows(each, "toolCalls")
        ]
        calls = {
            str(call.get("id")): tool_call(call.get("id"), call.get("name"), call.get("arguments"))
            for call in rounds
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

    def _take_part(self, part: Row, key: str) -> None:
        kind = part.get("kind")
        if kind == "textEditGroup":
            self._take_edits(part, key)
        elif kind is not None and kind not in _SILENT:
            self._notes.skip(f"part of an answer of the unknown kind {kind}", key)

    def _take_edits(self, part: Row, key: str) -> None:
        """Edits name ranges of a file, and nobody tells what stood there. It is known where they
        only insert; others are kept, and are no edits: what became of them cannot be said."""
        path = fields.mapping(part, "uri").get("path")
        edits = [
            edit
            for group in fields.items(part, "edits")
            for edit in (group if isinstance(group, list) else [])
            if isinstance(edit, dict)
        ]
        text = "".join(fields.text(edit, "text") or "" for edit in edits)
        known = self.changes.edited  # the call of a tool told what was there before
        if not isinstance(path, str) or not edits or path in known:
            return
        if all(map(_inserts, edits)):
            self.changes.add(FileEdit(path, "", text), f"{key}:edit", None)
        else:
            payload = {"kind": "textEditGroup", "path": path, "edits": edits}
            self.add("x_context", payload, f"{key}:edits")


def _inserts(edit: Row) -> bool:
    span = fields.mapping(edit, "range")
    start, end = (
        (fields.count(span, f"{side}LineNumber"), fields.count(span, f"{side}Column"))
        for side in ("start", "end")
    )
    return None not in start and start == end


def _markdown(part: Row) -> str:
    content = part.get("content") if part.get("kind") == "markdownContent" else part
    return _plain(content) if part.get("kind") in (None, "markdownContent") else ""


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
    usage = {
        "prompt": fields.count(told, "promptTokens") or fields.count(metadata, "promptTokens"),
        "completion": fields.count(told, "completionTokens")
        or fields.count(metadata, "outputTokens"),
    }
    return present(usage) or None


IMPORTERS = (VsCodeChatImporter(),)
