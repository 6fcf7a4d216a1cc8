"""Cline and Roo Code: a folder a task with `api_conversation_history.json`, and Cline's newer
`sessions/ID/ID.messages.json`. The messages are Anthropic's.

Older versions call tools in the text, as XML, and tell the result in the next message of the user.
Times and tokens stand in `ui_messages.json`, in the order of the requests. Without it there are the
tokens of the task as a whole, in its own facts.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock_jobs.importers import fields
from penstock_jobs.importers.file_edits import ToolUse
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.runs import add_run_usage
from penstock_jobs.importers.session_draft import SessionDraft, moment_us, present, usage_of
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import ImportedTranscript, json_of, text_of

_HISTORY, _SHOWN, _ITEM = (
    "api_conversation_history.json", "ui_messages.json", "history_item.json",
)  # fmt: skip
_MODERN = ".messages.json"
_TASK = re.compile(r"<(task|feedback|user_message)>\s*(.*?)\s*</\1>", re.DOTALL)
_ENVIRONMENT = re.compile(r"<environment_details>.*?</environment_details>", re.DOTALL)
_RESULT = re.compile(r"\[(\w+)(?: for [^\]]*)?\] Result:\s*(.*)", re.DOTALL)
_TOOL = re.compile(
    r"<(write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace)>\s*(.*?)</\1>",
    re.DOTALL,
)
_ARGUMENT = re.compile(r"<(\w+)>(.*?)</\1>", re.DOTALL)


class ClineImporter(Importer):
    name = "cline"
    homes = (
        "~/.cline/data",
        "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev",
        "~/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline",
        "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev",
        "~/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline",
    )

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            return _HISTORY in candidate.entries
        if candidate.name == _HISTORY:
            return True
        begins = candidate.beginning
        return candidate.name.endswith(_MODERN) and b'"messages"' in begins and b'"role"' in begins

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        if not candidate.is_folder and candidate.name == _HISTORY:
            names = candidate.names[:-1]
            yield Source(candidate.path.parent, candidate.root, names, is_folder=True)
        else:
            yield candidate.source()

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if source.is_folder:
            task = _Task(source, notes)
            messages = source.below(_HISTORY).document()
        else:
            document = source.document()
            messages = document.get("messages") if isinstance(document, dict) else None
            task = _Task(source, notes, document)
        if not isinstance(messages, list):
            raise SourceUnfit("it has no list of messages")
        for at, message in enumerate(messages):
            if isinstance(message, dict):
                task.take(message, at)
            else:
                notes.skip("message that is no object", str(at))
        yield from task.events()


class _Task:
    def __init__(
        self, source: Source, notes: Notes, document: Mapping[str, Any] | None = None
    ) -> None:
        self._notes = notes
        if document is None:
            item = _object(source.below(_ITEM))
            client = "roo-code" if item else "cline"
            task = source.name
            self._shown = [row for row in _list(source.below(_SHOWN)) if isinstance(row, dict)]
            facts = item or _task_of(source)
        else:
            client, task = "cline", str(document.get("sessionId") or source.name)
            names = (*source.names[:-1], source.name.removesuffix(_MODERN) + ".json")
            facts = _object(Source(source.path.with_name(names[-1]), source.root, names))
            self._shown = []
        created = moment_us(facts.get("created_at") or facts.get("ts")) or source.changed_us()
        draft = SessionDraft(f"{client}-{task}", client, created)
        folders = ("workspace", "cwd", "cwdOnTaskInitialization", "workspace_root")
        draft.project = next(
            (folder for name in folders if (folder := fields.text(facts, name))), None
        )
        draft.start = {
            "client": client,
            "title": facts.get("task") or fields.mapping(facts, "metadata").get("title"),
        }
        model = fields.text(facts, "modelId") or fields.text(facts, "model")
        self._draft, self._transcript = draft, ImportedTranscript(draft, model=model)
        self._requests = _requests(self._shown)
        self._totals = facts
        self._answers = 0
        self._tells_usage = False
        #: Calls in the text of the last answer, without results yet.
        self._written: list[ToolUse] = []

    def events(self) -> list[ImportedEvent]:
        if self._answers < len(self._requests):
            left = len(self._requests) - self._answers
            self._notes.skip("tokens of a request without an answer", self._draft.session_id, left)
        if not self._tells_usage and not self._requests:
            cost = self._totals.get("totalCost") or None
            add_run_usage(self._draft, _request_usage(self._totals), cost_usd=cost)
        return self._draft.finished()

    def take(self, message: Mapping[str, Any], at: int) -> None:
        key = str(message.get("id") or f"message-{at}")
        ts_us = moment_us(message.get("ts"))
        if message.get("role") == "assistant":
            self._take_answer(message, key, ts_us)
        else:
            self._take_user(message, key, ts_us)

    def _take_answer(self, message: Mapping[str, Any], key: str, ts_us: int | None) -> None:
        ts_told, usage = None, usage_of(_plain(fields.mapping(message, "metrics")))
        if usage is None and self._answers < len(self._requests):
            ts_told, usage = self._requests[self._answers]
        self._answers += 1
        self._tells_usage |= usage is not None
        plain = fields.without(message, "id", "ts", "metrics", "modelInfo")
        model = fields.text(fields.mapping(message, "modelInfo"), "id") or self._transcript.model
        facts = {"usage": usage, "model": model}
        self._transcript.take_answer(plain, key, ts_us or ts_told, **present(facts))
        self._written = [
            ToolUse(f"{key}:{at}", match[1], dict(_ARGUMENT.findall(match[2])), None, "")
            for at, match in enumerate(_TOOL.finditer(text_of(message.get("content"))))
        ]

    def _take_user(self, message: Mapping[str, Any], key: str, ts_us: int | None) -> None:
        content = message.get("content")
        text = text_of(content)
        environment = "\n".join(_ENVIRONMENT.findall(text)) or None
        text = _ENVIRONMENT.sub("", text).strip()
        if result := _RESULT.match(text):
            self._take_result(result[1], result[2], key, ts_us, environment)
            return
        if isinstance(content, list) and any(
            isinstance(part, dict) and part.get("type") == "tool_result" for part in content
        ):
            plain = fields.without(message, "id", "ts")
            self._transcript.take(plain, key, ts_us)
            return
        told = _TASK.search(text)
        facts = {"environment": environment}
        self._transcript.asked(told[2] if told else text, key, ts_us, **present(facts))

    def _take_result(
        self, tool: str, output: str, key: str, ts_us: int | None, environment: str | None
    ) -> None:
        """Of a call in the text. What the user says with it is a message of its own."""
        said = _TASK.search(output)
        facts = {"tool": tool, "environment": environment}
        self._transcript.returned(None, output, key, ts_us, **present(facts))
        for use in self._written:
            if use.tool == tool:
                self._transcript.changes.take(use._replace(output=output))
        self._written = []
        if said and said[1] != "task":
            self._transcript.asked(said[2], f"{key}:said", ts_us)


def _requests(shown: list[dict[str, Any]]) -> list[tuple[int | None, dict[str, Any] | None]]:
    """When each request was sent, and what it took."""
    requests = []
    for row in shown:
        if row.get("say") == "api_req_started":
            told = json_of(row.get("text"))
            told = told if isinstance(told, dict) else {}
            requests.append((moment_us(row.get("ts")), _request_usage(told)))
    return requests


def _request_usage(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a request, or of a task: the names are the same."""
    return usage_of(
        {
            "input_tokens": told.get("tokensIn"),
            "output_tokens": told.get("tokensOut"),
            "cache_read_input_tokens": told.get("cacheReads"),
            "cache_creation_input_tokens": told.get("cacheWrites"),
        }
    )


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": metrics.get("inputTokens"),
        "output_tokens": metrics.get("outputTokens"),
        "cache_read_input_tokens": metrics.get("cacheReadTokens"),
        "cache_creation_input_tokens": metrics.get("cacheWriteTokens"),
    }


def _task_of(folder: Source) -> dict[str, Any]:
    """What the list of all tasks says of one, where it lies beside the tasks."""
    if len(folder.names) < 2:
        return {}
    names = (*folder.names[:-2], "state", "taskHistory.json")
    path = folder.path.parent.parent.joinpath("state", "taskHistory.json")
    tasks = [task for task in _list(Source(path, folder.root, names)) if isinstance(task, dict)]
    return next((task for task in tasks if task.get("id") == folder.name), {})


def _document(file: Source) -> Any:
    try:
        return file.document() if file.exists() else None
    except SourceUnfit:
        return None


def _object(file: Source) -> dict[str, Any]:
    document = _document(file)
    return document if isinstance(document, dict) else {}


def _list(file: Source) -> list[Any]:
    document = _document(file)
    return document if isinstance(document, list) else []


IMPORTER = ClineImporter()
