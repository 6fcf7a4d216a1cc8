"""mini-swe-agent's trajectories, `.traj.json`: version 2, version 1, and the bare messages.

The agent knows one tool, a shell. In version 1 its output is a message of the user. Files that a
command writes as a whole (`cat > path <<'EOF'`) are edits; the final patch has what else changed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock_jobs.importers.file_edits import FileEdit
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.runs import add_run_usage, end_run, is_unfinished, run_name
from penstock_jobs.importers.session_draft import SessionDraft, moment_us, present, usage_of
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import ImportedTranscript, text_of

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
            yield from run.finished()


class _ShellRun:
    def __init__(self, document: Any, info: Mapping[str, Any], source: Source) -> None:
        config = info.get("config")
        model = config.get("model") if isinstance(config, dict) else None
        model = model if isinstance(model, dict) else {}
        task = source.name.removesuffix(".traj.json")
        draft = SessionDraft(run_name(task, document), "mini-swe-agent", source.changed_us())
        draft.start = {
            "client": "mini-swe-agent",
            "client_version": info.get("mini_version"),
            "task_id": None if isinstance(document, list) else document.get("instance_id") or task,
            "config": config,
        }
        self._info, self._draft = info, draft
        self._transcript = ImportedTranscript(draft, model=model.get("model_name"))
        self._command = ""
        self._patch: str | None = None
        self._has_usage = False

    def take(self, message: Mapping[str, Any], key: str) -> None:
        extra = message.get("extra")
        extra = extra if isinstance(extra, dict) else {}
        ts_us = moment_us(extra.get("timestamp") or message.get("timestamp"))
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "assistant":
            self._take_answer(message, extra, key, ts_us)
        elif role in ("user", "tool") and self._draft.events and _is_output(extra):
            self._take_output(message, extra, key, ts_us)
        elif role == "exit":
            self._patch = extra.get("submission") or text
            self._draft.add("x_exit", {"text": text, "extra": extra}, key, ts_us)
        else:
            known = {name: message[name] for name in message.keys() - {"timestamp"}}
            self._transcript.take(known, key, ts_us)

    def _take_answer(
        self,
        message: Mapping[str, Any],
        extra: Mapping[str, Any],
        key: str,
        ts_us: int | None,
    ) -> None:
        response = extra.get("response")
        response = response if isinstance(response, dict) else {}
        facts = {
            "usage": usage_of(response.get("usage")),
            "cost_usd": extra.get("cost"),
            "model": response.get("model"),
            "actions": extra.get("actions"),
        }
        self._has_usage |= bool(facts["usage"])
        plain = {name: message[name] for name in message.keys() - {"extra", "timestamp"}}
        self._transcript.take_answer(plain, key, ts_us, **present(facts))
        actions = extra.get("actions")
        commands = [
            str(action.get("command") or action.get("action") or "")
            for action in (actions if isinstance(actions, list) else [])
            if isinstance(action, dict)
        ]
        self._command = "\n".join(commands or _BLOCK.findall(text_of(message.get("content"))))

    def _take_output(
        self,
        message: Mapping[str, Any],
        extra: Mapping[str, Any],
        key: str,
        ts_us: int | None,
    ) -> None:
        output = text_of(message.get("content"))
        told = _RETURN_CODE.search(output)
        code = extra.get("returncode", int(told[1]) if told else None)
        if output.startswith("diff --git"):
            self._patch = output
        facts = {"returncode": code, "extra": extra or None}
        call_id = message.get("tool_call_id")
        self._transcript.returned(call_id, output, key, ts_us, tool="bash", **present(facts))
        if code == 0:
            for at, change in enumerate(_written(self._command)):
                self._transcript.changes.add(change, f"{key}:edit:{at}", call_id)

    def finished(self) -> list[ImportedEvent]:
        patch = self._info.get("submission") or self._patch
        if isinstance(patch, str) and "diff --git" in patch:
            self._transcript.changes.add_final_patch(patch, "submission")
        stats = self._info.get("model_stats")
        cost = stats.get("instance_cost") if isinstance(stats, dict) else None
        if not self._has_usage:
            add_run_usage(self._draft, None, cost_usd=cost)
        end_run(self._draft, self._info.get("exit_status"))
        return self._draft.finished()


def _is_output(extra: Mapping[str, Any]) -> bool:
    """All but the first message behind the system prompt is what the shell said, or the harness;
    people can interrupt."""
    return extra.get("interrupt_type") != _BY_PEOPLE


def _written(command: str) -> Iterator[FileEdit]:
    """The files that a command writes as a whole."""
    for match in _HEREDOC.finditer(command):
        path, end = match[3] or match[4], match[2] or match[6]
        text, found, _ = command[match.end() :].partition(f"\n{end}")
        if found:
            yield FileEdit(path.strip("'\""), "", f"{text}\n", is_whole=True)


IMPORTER = MiniSweAgentImporter()
