"""Cline and Roo Code: a folder a task with `api_conversation_history.json`, and Cline's newer
`sessions/ID/ID.messages.json`. The messages are Anthropic's.

Older versions call tools in the text, as XML, and tell the result in the next message of the user.
Times and tokens stand in `ui_messages.json`, in the order of the requests. Without it there are the
tokens of the task as a whole, in its own facts.
"""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import ToolUse, arguments_of
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, moment_us

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


class _Task(SessionDraft):
    def __init__(self, source: Source, notes: Notes, document: Row | None = None) -> None:
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
        super().__init__(f"{client}-{task}", client, created)
        folders = ("workspace", "cwd", "cwdOnTaskInitialization", "workspace_root")
        self.project = next(filter(None, (fields.text(facts, name) for name in folders)), None)
        title = facts.get("task") or fields.mapping(facts, "metadata").get("title")
        self.start = {"client": client, "title": title}
        self.model = fields.text(facts, "modelId") or fields.text(facts, "model")
        self._requests = _requests(self._shown)
        self._totals = facts
        self._answers = 0
        self._tells_usage = False
        #: Calls in the text of the last answer, without results yet.
        self._written: list[ToolUse] = []

    def events(self) -> list[ImportedEvent]:
        if self._answers < len(self._requests):
            left = len(self._requests) - self._answers
            self._notes.skip("tokens of a request without an answer", self.session_id, left)
        if not self._tells_usage and not self._requests:
            cost = self._totals.get("totalCost") or None
            self.add_run_usage(_request_usage(self._totals), cost_usd=cost)
        return self.finished()

    def take(self, message: Row, at: int) -> None:
        key = str(message.get("id") or f"message-{at}")
        ts_us = moment_us(message.get("ts"))
        if message.get("role") == "assistant":
            self._take_answer(message, key, ts_us)
        else:
            self._take_user(message, key, ts_us)

    def _take_answer(self, message: Row, key: str, ts_us: int | None) -> None:
        metrics = fields.mapping(message, "metrics")
        ts_told, usage = (
            None,
            _usage(metrics, "inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"),
        )
        if usage is None and self._answers < len(self._requests):
            ts_told, usage = self._requests[self._answers]
        self._answers += 1
        self._tells_usage |= usage is not None
        plain = fields.without(message, "id", "ts", "metrics", "modelInfo")
        model = fields.text(fields.mapping(message, "modelInfo"), "id")
        self.told(plain, key, ts_us or ts_told, usage=usage, model=model)
        self._written = [
            ToolUse(f"{key}:{at}", match[1], dict(_ARGUMENT.findall(match[2])), None, "")
            for at, match in enumerate(_TOOL.finditer(text_of(message.get("content"))))
        ]

    def _take_user(self, message: Row, key: str, ts_us: int | None) -> None:
        content = message.get("content")
        text = text_of(content)
        environment = "\n".join(_ENVIRONMENT.findall(text)) or None
        text = _ENVIRONMENT.sub("", text).strip()
        if result := _RESULT.match(text):
            self._take_result(result[1], result[2], key, ts_us, environment)
            return
        if any(part.get("type") == "tool_result" for part in fields.rows(message, "content")):
            self.told(fields.without(message, "id", "ts"), key, ts_us)
            return
        told = _TASK.search(text)
        self.asked(told[2] if told else text, key, ts_us, environment=environment)

    def _take_result(
        self, tool: str, output: str, key: str, ts_us: int | None, environment: str | None
    ) -> None:
        said = _TASK.search(output)
        self.returned(None, output, key, ts_us, tool=tool, environment=environment)
        for use in self._written:
            if use.tool == tool:
                self.changes.take(use._replace(output=output))
        self._written = []
        if said and said[1] != "task":
            self.asked(said[2], f"{key}:said", ts_us)


def _requests(shown: list[dict[str, Any]]) -> list[tuple[int | None, dict[str, Any] | None]]:
    requests = []
    for row in shown:
        if row.get("say") == "api_req_started":
            told = arguments_of(row.get("text"))
            requests.append((moment_us(row.get("ts")), _request_usage(told)))
    return requests


def _request_usage(told: Row) -> dict[str, Any] | None:
    return _usage(told, "tokensIn", "tokensOut", "cacheReads", "cacheWrites")


def _usage(told: Row, *names: str) -> dict[str, int] | None:
    known = ("input_tokens", "output_tokens", "cache_read_input_tokens",
             "cache_creation_input_tokens")  # fmt: skip
    return usage_of({name: told.get(own) for name, own in zip(known, names, strict=True)})


def _task_of(folder: Source) -> dict[str, Any]:
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


IMPORTERS = (ClineImporter(),)
