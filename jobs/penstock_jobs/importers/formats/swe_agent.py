"""SWE-agent's trajectories, `.traj`. Demonstrations hold only the messages.

Its windowed editor names lines, so old texts come from the last window. Files without visible
edits, such as those a command wrote, get their edits from the final patch.

mini-swe-agent's trajectories, `.traj.json`, of versions 2 and 1, and bare messages. Its only tool
is a shell. In version 1 the output is a message of the user. Files that a command writes whole
become edits.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from penstock.events.messages import json_of, message_of, present, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileChanges, FileEdit
from penstock_jobs.importers.fields import Row, arguments_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, is_unfinished, run_name

_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL)
_HEREDOC = re.compile(
    r"""cat\s+(?:<<-?\s*(['"]?)(\w+)\1\s*>\s*(\S+)|>\s*(\S+)\s*<<-?\s*(['"]?)(\w+)\5)[ \t]*\n"""
)
_BY_PEOPLE = "UserInterruption"
_BARE = re.compile(rb'\s*\[\s*\{\s*"(?:role|content)"\s*:')
_SHELL = re.compile(rb"```(?:mswea_bash_command|bash)\\n|<returncode>")


class MiniSweAgentImporter(Importer):
    name = "mini-swe-agent"

    def recognises(self, candidate: Candidate) -> bool:
        begins = candidate.beginning
        if begins.lstrip()[:1] == b"[":
            return bool(_BARE.match(begins)) and bool(_SHELL.search(begins))
        named = b'"mini-swe-agent' in begins or b'"mini_version"' in begins
        return named and b'"messages"' in begins

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        document = source.document()
        bare = isinstance(document, list)
        messages = document if bare else fields.at(document, "messages")
        info = fields.at(document, "info") or {}
        if not isinstance(messages, list) or not isinstance(info, dict):
            raise SourceUnfit("it has no list of messages")
        if not is_unfinished(source, notes, ended=bare or bool(info.get("exit_status"))):
            run = _ShellRun(document, info, source, notes)
            for at, message in notes.objects("message", messages):
                run.take(message, f"message-{at}")
            yield from run.events()


class _ShellRun(SessionDraft):
    def __init__(self, document: Any, info: Row, source: Source, notes: Notes) -> None:
        task = source.name.removesuffix(".traj.json")
        super().__init__(run_name(task, document), "mini-swe-agent", source.changed_us(), notes)
        self.model = fields.at(info, "config", "model", "model_name")
        self.start |= {
            "client_version": info.get("mini_version"),
            "task_id": None if isinstance(document, list) else document.get("instance_id") or task,
            "config": info.get("config"),
        }
        self._info = info
        self._command = ""
        self._patch: str | None = None
        self._has_usage = False

    def take(self, message: Row, key: str) -> None:
        extra = fields.mapping(message, "extra")
        self.at(extra.get("timestamp") or message.get("timestamp"))
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "assistant":
            self._take_answer(message, extra, text, key)
        elif role in ("user", "tool") and self.made and extra.get("interrupt_type") != _BY_PEOPLE:
            # After the first message this is the output of the shell or the harness.
            self._take_output(message, extra, text, key)
        elif role == "exit":
            self._patch = extra.get("submission") or text
            self.add("x_exit", {"text": text, "extra": extra}, key)
        else:
            self.add_message(fields.without(message, "timestamp"), key)

    def _take_answer(self, message: Row, extra: Row, text: str, key: str) -> None:
        usage = usage_of(fields.at(extra, "response", "usage"))
        self._has_usage |= bool(usage)
        self.add_message(
            fields.without(message, "extra", "timestamp"),
            key,
            usage=usage,
            cost_usd=extra.get("cost"),
            model=fields.at(extra, "response", "model"),
            actions=extra.get("actions"),
        )
        actions = fields.rows(extra, "actions")
        commands = [str(fields.first(each, "command", "action") or "") for each in actions]
        self._command = "\n".join(commands or _BLOCK.findall(text))

    def _take_output(self, message: Row, extra: Row, output: str, key: str) -> None:
        told = _RETURN_CODE.search(output)
        code = extra.get("returncode", int(told[1]) if told else None)
        if output.startswith("diff --git"):
            self._patch = output
        call_id = message.get("tool_call_id")
        self.add_result(call_id, output, key, tool="bash", returncode=code, extra=extra or None)
        if code == 0:
            for at, change in enumerate(_written(self._command)):
                self.changes.add(change, f"{key}:edit:{at}", call_id)

    def events(self) -> list[ImportedEvent]:
        patch = self._info.get("submission") or self._patch
        if isinstance(patch, str) and "diff --git" in patch:
            self.add_final_patch(patch, "submission")
        if not self._has_usage:
            cost = fields.at(self._info, "model_stats", "instance_cost")
            self.add_run_usage(None, cost_usd=cost)
        self.end_run(self._info.get("exit_status"))
        return self.finished()


def _written(command: str) -> Iterator[FileEdit]:
    for match in _HEREDOC.finditer(command):
        path, end = match[3] or match[4], match[2] or match[6]
        text, found, _ = command[match.end() :].partition(f"\n{end}")
        if found:
            yield FileEdit(path.strip("'\""), "", f"{text}\n", is_whole=True)


_BEGINS = re.compile(
    rb'"trajectory"\s*:\s*\[\s*\{\s*"(?:action|observation|response|thought)"\s*:'
    rb'|"history"\s*:\s*\[\s*\{[^{}]*"(?:agent|message_type)"\s*:'
)
_STEP_FIELDS = ("action", "observation", "response", "thought", "execution_time", "state", "query",
                "messages", "extra_info")  # fmt: skip
_MESSAGE_FIELDS = ("agent", "message_type", "is_demo", "thought", "action", "tags",
                   "tool_call_ids")  # fmt: skip


class SweAgentImporter(Importer):
    name = "swe-agent"

    def recognises(self, candidate: Candidate) -> bool:
        return not candidate.is_lines and bool(_BEGINS.search(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        document = source.json_object()
        info = fields.mapping(document, "info")
        ended = "info" not in document or bool(info.get("exit_status"))
        if not is_unfinished(source, notes, ended=ended):
            yield from _Run(document, info, source, notes).events()


class _Run(SessionDraft):
    def __init__(self, document: Row, info: Row, source: Source, notes: Notes) -> None:
        self._info = info
        self._steps = fields.rows(document, "trajectory")
        self._history = fields.rows(document, "history")
        replay = arguments_of(document.get("replay_config"))
        repository = fields.mapping(replay, "env", "repo")
        task = fields.at(replay, "problem_statement", "id") or source.name.removesuffix(".traj")
        seconds = [step.get("execution_time") for step in self._steps]
        self._seconds = [each if isinstance(each, int | float) else 0 for each in seconds]
        start_us = source.changed_us() - int(sum(self._seconds) * 1_000_000)
        super().__init__(run_name(task, document), "swe-agent", start_us, notes)
        self.start |= {
            "client_version": info.get("swe_agent_version"),
            "repo": repository.get("github_url") or repository.get("repo_name"),
            "commit": repository.get("base_commit"),
            "task_id": task,
            "environment": document.get("environment"),
        }
        self.model = fields.at(replay, "agent", "model", "name")
        self._editor = _Editor(self.changes, notes)

    def events(self) -> list[ImportedEvent]:
        if self._steps:
            self._take_steps()
        else:
            for at, message in enumerate(self._history):
                self._take_message(message, f"message-{at}")
        patch = fields.text(self._info, "submission") or ""
        self.add_final_patch(patch.replace("\r\n", "\n"), "submission")
        stats = fields.mapping(self._info, "model_stats")
        usage = {"prompt": stats.get("tokens_sent"), "completion": stats.get("tokens_received")}
        self.add_run_usage(usage, cost_usd=stats.get("instance_cost") or None)
        self.end_run(self._info.get("exit_status"))
        return self.finished()

    def _take_steps(self) -> None:
        answers = [
            m for m in self._history if m.get("role") == "assistant" and not m.get("is_demo")
        ]
        first = next((at for at, m in enumerate(self._history) if m in answers), None)
        for at, message in enumerate(self._history[: first or 0]):
            self._take_message(message, f"message-{at}")
        told = 0
        for at, step in enumerate(self._steps):
            message = answers[told] if told < len(answers) else {}
            same = message.get("action") == step.get("action")
            told += same
            self._take_step(at, step, message_of(message).calls if same else [])

    def _take_step(self, at: int, step: Row, calls: Sequence[dict[str, Any]]) -> None:
        key, action = f"step-{at}", step.get("action")
        text = fields.text(step, "response")
        unknown = present(fields.without(step, *_STEP_FIELDS))
        self.add_answer(key, tool_calls=calls, text=text, action=action, extra=unknown or None)
        output = fields.text(step, "observation") or ""
        call: Row = calls[0] if calls else {}
        self.clock_us += int(self._seconds[at] * 1_000_000)
        took, state = self._seconds[at] * 1000 or None, json_of(step.get("state"))
        call_id = call.get("id")
        self.add_result(call_id, output, f"{key}:result", duration_ms=took, state=state)
        if isinstance(action, str) and call.get("name") not in ("str_replace_editor", "bash"):
            folder = fields.text(state, "working_dir")
            place = _Place(key, call_id, "/" if folder is None else folder)
            self._editor.take(action, arguments_of(call.get("arguments")), output, place)

    def _take_message(self, message: Row, key: str) -> None:
        known = fields.without(message, *_MESSAGE_FIELDS)
        if call_ids := message.get("tool_call_ids"):
            known["tool_call_id"] = call_ids[0]
        if message.get("is_demo"):
            text = text_of(message.get("content"))
            self.add_prompt(text, key, synthetic=True, demonstration=True)
        else:
            self.add_message(known, key)


class _Place(NamedTuple):
    """The key of a step, its tool call, and its working directory."""

    key: str
    call_id: str | None
    folder: str


@dataclass
class _Editor:
    """The windowed editor: the lines that it showed of each file, and its edits."""

    changes: FileChanges
    notes: Notes
    _lines: dict[str, dict[int, str]] = field(default_factory=dict)
    _cursors: tuple[int, int] = (1, 1)

    def take(self, action: str, arguments: Row, observation: str, place: _Place) -> None:
        command, _, rest = action.strip().partition("\n")
        words = command.split()
        verb = words[0] if words else ""
        if verb == "set_cursors" and len(words) == 3 and words[1].isdigit() and words[2].isdigit():
            self._cursors = int(words[1]), int(words[2])
        window = _read_window(observation, place.folder)
        if window is None:
            return
        path, lines = window
        if verb == "create":
            self._cursors = 1, 1
        elif verb in ("edit", "insert"):
            change = self._change(path, command, rest, arguments, action)
            if change is None:
                self.notes.skip("edit of lines that were not shown before", place.key)
            else:
                self.changes.add(change, f"{place.key}:edit", place.call_id)
        self._lines[path] = lines

    def _change(
        self, path: str, command: str, rest: str, arguments: Row, action: str
    ) -> FileEdit | None:
        verb = command.split(maxsplit=1)[0]
        if isinstance(old := arguments.get("search"), str):
            new = arguments.get("replace")
            return FileEdit(path, old, new) if isinstance(new, str) else None
        if verb == "insert" and isinstance(text := arguments.get("text"), str):
            return FileEdit(path, "", f"{text}\n")
        lines = re.match(r"(?:edit|insert)\s+(\d+):(\d+)", command)
        if verb == "insert" or (command != "edit" and not lines):
            return _quoted_change(path, verb, action)
        first, last = (int(lines[1]), int(lines[2])) if lines else self._cursors
        shown = self._lines.get(path, {})
        before = [shown.get(number) for number in range(first, last + 1)]
        if any(line is None for line in before):
            return None
        after = re.sub(r"\n?end_of_edit\s*\Z", "", rest)
        text = "".join(f"{line}\n" for line in before)
        return FileEdit(path, text if text.strip() else "", f"{after}\n" if after else "")


def _quoted_change(path: str, verb: str, action: str) -> FileEdit | None:
    try:
        words = shlex.split(action)
    except ValueError:
        return None
    if verb == "insert" and len(words) >= 2:
        return FileEdit(path, "", f"{words[1]}\n")
    return FileEdit(path, words[1], words[2]) if len(words) >= 3 else None


def _read_window(observation: str, folder: str) -> tuple[str, dict[int, str]] | None:
    head = re.search(r"\[File: (.+?)(?: \(\d+ lines total\))?\]\r?\n?", observation)
    if head is None or "edit has introduced new syntax error" in observation:
        return None
    found = (re.match(r"(\d+):(.*)", line) for line in observation[head.end() :].splitlines())
    lines = {int(match[1]): match[2] for match in found if match}
    return str(PurePosixPath(folder, head[1])), lines
