"""Cline and Roo Code: a folder per task with `api_conversation_history.json`, and Cline's newer
`sessions/ID/ID.messages.json`. The messages have Anthropic's form.

Older versions call tools in the text, as XML; the result is in the user's next message. Times and
tokens come from `ui_messages.json`, in the order of the requests. Without it only the tokens of the
whole task are known.
"""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import text_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import ToolUse
from penstock_jobs.importers.fields import Row, arguments_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, usage_beside

_HISTORY = "api_conversation_history.json"
_SHOWN, _ITEM = "ui_messages.json", "history_item.json"
_MODERN = ".messages.json"
_TASK_MARK = re.compile(rb'\s*\{\s*"version"\s*:[^\[]{,2000}"sessionId"\s*:')
_TASK = re.compile(r"<(task|feedback|user_message)>\s*(.*?)\s*</\1>", re.DOTALL)
_ENVIRONMENT = re.compile(r"<environment_details>.*?</environment_details>", re.DOTALL)
_RESULT = re.compile(r"\[(\w+)(?: for [^\]]*)?\] Result:\s*(.*)", re.DOTALL)
_TOOL = re.compile(
    r"<(write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace)>\s*(.*?)</\1>",
    re.DOTALL,
)
#: Names of prompt, completion, cache-read and cache-write tokens.
_OF_MESSAGE = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
_OF_REQUEST = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")
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
        if candidate.plain_name == _HISTORY:
            return True
        begins = candidate.beginning
        return bool(_TASK_MARK.match(begins)) and b'"messages"' in begins and b'"role"' in begins

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        if not candidate.is_folder and candidate.plain_name == _HISTORY:
            names = candidate.names[:-1]
            yield Source(candidate.path.parent, candidate.folder, names, is_folder=True)
        else:
            yield candidate.source()

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        document: Any = None
        if source.is_folder:
            messages = source.below(_HISTORY).document()
        else:
            document = source.document()
            messages = fields.at(document, "messages")
        if not isinstance(messages, list):
            raise SourceUnfit("it has no list of messages")
        task = _Task(source, notes, document)
        for at, message in notes.objects("message", messages):
            task.take(message, at)
        yield from task.events()


class _Task(SessionDraft):
    def __init__(self, source: Source, notes: Notes, document: Row | None) -> None:
        self._requests: list[Row] = []
        if document is None:
            item = fields.mapping(_document(source.below(_ITEM)))
            client, task = "roo-code" if item else "cline", source.name
            facts = item or _task_of(source)
            shown = fields.rows(_document(source.below(_SHOWN)))
            self._requests = [row for row in shown if row.get("say") == "api_req_started"]
        else:
            client, task = "cline", str(document.get("sessionId") or source.name)
            named = source.beside(source.name.removesuffix(_MODERN) + ".json")
            facts = fields.mapping(_document(named))
        created = source.time_us(facts.get("created_at") or facts.get("ts"))
        super().__init__(f"{client}-{task}", client, created, notes)
        folders = ("workspace", "cwd", "cwdOnTaskInitialization", "workspace_root")
        self.project = next(filter(None, (fields.text(facts, name) for name in folders)), None)
        title = facts.get("task") or fields.at(facts, "metadata", "title")
        self.start = {"client": client, "title": title}
        self.model = fields.text(facts, "modelId") or fields.text(facts, "model")
        self._totals = facts
        self._answers = 0
        self._tells_usage = False
        #: Calls in the text of the last answer that have no results yet.
        self._written: list[ToolUse] = []

    def events(self) -> list[ImportedEvent]:
        if self._answers < len(self._requests):
            left = len(self._requests) - self._answers
            self.notes.skip("tokens of a request without an answer", self.session_id, left)
        if not self._tells_usage and not self._requests:
            cost = self._totals.get("totalCost") or None
            self.add_run_usage(usage_beside(self._totals, *_OF_REQUEST), cost_usd=cost)
        return self.finished()

    def take(self, message: Row, at: int) -> None:
        key = str(message.get("id") or f"message-{at}")
        if message.get("role") == "assistant":
            self._take_answer(message, key)
        else:
            self.at(message.get("ts"))
            self._take_user(message, key)

    def _take_answer(self, message: Row, key: str) -> None:
        ts, usage = None, usage_beside(fields.mapping(message, "metrics"), *_OF_MESSAGE)
        if usage is None and self._answers < len(self._requests):
            told = self._requests[self._answers]
            ts, usage = told.get("ts"), usage_beside(arguments_of(told.get("text")), *_OF_REQUEST)
        self.at(ts)
        self.at(message.get("ts"))
        self._answers += 1
        self._tells_usage |= usage is not None
        plain = fields.without(message, "id", "ts", "metrics", "modelInfo")
        self.add_message(plain, key, usage=usage, model=fields.text(message, "modelInfo", "id"))
        self._written = [
            ToolUse(f"{key}:{at}", match[1], dict(_ARGUMENT.findall(match[2])), None, "")
            for at, match in enumerate(_TOOL.finditer(text_of(message.get("content"))))
        ]

    def _take_user(self, message: Row, key: str) -> None:
        text = text_of(message.get("content"))
        environment = "\n".join(_ENVIRONMENT.findall(text)) or None
        text = _ENVIRONMENT.sub("", text).strip()
        if result := _RESULT.match(text):
            self._take_result(result[1], result[2], key, environment)
        elif any(part.get("type") == "tool_result" for part in fields.rows(message, "content")):
            self.add_message(fields.without(message, "id", "ts"), key)
        else:
            told = _TASK.search(text)
            self.add_prompt(told[2] if told else text, key, environment=environment)

    def _take_result(self, tool: str, output: str, key: str, environment: str | None) -> None:
        self.add_result(None, output, key, tool=tool, environment=environment)
        for use in self._written:
            if use.tool == tool:
                self.changes.take(use._replace(output=output))
        self._written = []
        said = _TASK.search(output)
        if said and said[1] != "task":
            self.add_prompt(said[2], f"{key}:said")


def _task_of(folder: Source) -> dict[str, Any]:
    if len(folder.names) < 2:
        return {}
    names = (*folder.names[:-2], "state", "taskHistory.json")
    path = folder.path.parent.parent.joinpath("state", "taskHistory.json")
    tasks = fields.rows(_document(Source(path, folder.folder, names)))
    return next((task for task in tasks if task.get("id") == folder.name), {})


def _document(file: Source) -> Any:
    try:
        return file.document() if file.exists() else None
    except SourceUnfit:
        return None
