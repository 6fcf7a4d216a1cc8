"""mini-swe-agent's trajectories, `.traj.json`: version 2, version 1, and the bare messages.

The agent knows one tool, a shell. In version 1 its output is a message of the user. Files that a
command writes as a whole (`cat > path <<'EOF'`) are edits; the final patch has what else changed.
"""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, is_unfinished, moment_us, run_name

_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL)
_HEREDOC = re.compile(
    r"""cat\s+(?:<<-?\s*(['"]?)(\w+)\1\s*>\s*(\S+)|>\s*(\S+)\s*<<-?\s*(['"]?)(\w+)\5)[ \t]*\n"""
)
_BY_PEOPLE = "UserInterruption"


class MiniSweAgentImporter(Importer):
    name = "mini-swe-agent"

    def recognises(self, candidate: Candidate) -> bool:
        if not candidate.name.endswith(".traj.json"):
            return False
        begins = candidate.beginning
        named = b'"mini-swe-agent' in begins or b'"mini_version"' in begins
        return named or (begins.lstrip().startswith(b"[") and b'"role"' in begins)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        document = source.document()
        bare = isinstance(document, list)
        messages = document if bare else (document or {}).get("messages")
        info = {} if bare else document.get("info") or {}
        if not isinstance(messages, list) or not isinstance(info, dict):
            raise SourceUnfit("it has no list of messages")
        if not is_unfinished(source, notes, ended=bare or bool(info.get("exit_status"))):
            run = _ShellRun(document, info, source)
            for at, message in enumerate(messages):
                if isinstance(message, dict):
                    run.take(message, f"message-{at}")
                else:
                    notes.skip("message that is no object", str(at))
            yield from run.events()


class _ShellRun(SessionDraft):
    def __init__(self, document: Any, info: Row, source: Source) -> None:
        config = fields.mapping(info, "config")
        task = source.name.removesuffix(".traj.json")
        super().__init__(run_name(task, document), "mini-swe-agent", source.changed_us())
        self.model = fields.mapping(config, "model").get("model_name")
        self.start = {
            "client": "mini-swe-agent",
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
        ts_us = moment_us(extra.get("timestamp") or message.get("timestamp"))
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "assistant":
            self._take_answer(message, extra, key, ts_us)
        elif role in ("user", "tool") and self.made and extra.get("interrupt_type") != _BY_PEOPLE:
            # Behind the first message it is what the shell said, or the harness.
            self._take_output(message, extra, key, ts_us)
        elif role == "exit":
            self._patch = extra.get("submission") or text
            self.add("x_exit", {"text": text, "extra": extra}, key, ts_us)
        else:
            self.told(fields.without(message, "timestamp"), key, ts_us)

    def _take_answer(self, message: Row, extra: Row, key: str, ts_us: int | None) -> None:
        response = fields.mapping(extra, "response")
        usage, actions = usage_of(response.get("usage")), extra.get("actions")
        self._has_usage |= bool(usage)
        facts = {"cost_usd": extra.get("cost"), "model": response.get("model"), "actions": actions}
        plain = fields.without(message, "extra", "timestamp")
        self.told(plain, key, ts_us, usage=usage, **facts)
        commands = [
            str(action.get("command") or action.get("action") or "")
            for action in fields.rows(extra, "actions")
        ]
        self._command = "\n".join(commands or _BLOCK.findall(text_of(message.get("content"))))

    def _take_output(self, message: Row, extra: Row, key: str, ts_us: int | None) -> None:
        output = text_of(message.get("content"))
        told = _RETURN_CODE.search(output)
        code = extra.get("returncode", int(told[1]) if told else None)
        if output.startswith("diff --git"):
            self._patch = output
        call_id, more = message.get("tool_call_id"), extra or None
        self.returned(call_id, output, key, ts_us, tool="bash", returncode=code, extra=more)
        if code == 0:
            for at, change in enumerate(_written(self._command)):
                self.changes.add(change, f"{key}:edit:{at}", call_id)

    def events(self) -> list[ImportedEvent]:
        patch = self._info.get("submission") or self._patch
        if isinstance(patch, str) and "diff --git" in patch:
            self.changes.add_final_patch(patch, "submission")
        cost = fields.mapping(self._info, "model_stats").get("instance_cost")
        if not self._has_usage:
            self.add_run_usage(None, cost_usd=cost)
        self.end_run(self._info.get("exit_status"))
        return self.finished()


def _written(command: str) -> Iterator[FileEdit]:
    for match in _HEREDOC.finditer(command):
        path, end = match[3] or match[4], match[2] or match[6]
        text, found, _ = command[match.end() :].partition(f"\n{end}")
        if found:
            yield FileEdit(path.strip("'\""), "", f"{text}\n", is_whole=True)


IMPORTER = MiniSweAgentImporter()
