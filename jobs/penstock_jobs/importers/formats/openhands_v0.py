"""OpenHands before version 1: an array of events, and the `output.jsonl` of its evaluations.

Actions that one answer of the model called for have its response, all of them the same: it is one
model call. An edit tells the whole file before and after, where the version did.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_jobs.importers.file_edits import FileEdit
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.runs import end_run, run_name
from penstock_jobs.importers.session_draft import (
    SessionDraft,
    digest_of,
    moment_us,
    present,
    usage_of,
)
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import ImportedTranscript, tool_calls_of

_BEGINS = re.compile(
    rb'\s*\[\s*\{(?=[^\]]{0,4000}"source")(?=[^\]]{0,8000}"(?:action|observation)")'
)
#: What the harness tells itself.
_NO_NEWS = ("null", "agent_state_changed", "change_agent_state", "recall", "loadgen")
_TOOLS = {"run": "execute_bash", "run_ipython": "execute_ipython_cell", "edit": "edit",
          "read": "read", "write": "write", "browse": "browse",
          "browse_interactive": "browse_interactive", "mcp": "mcp", "call_tool_mcp": "mcp",
          "think": "think", "finish": "finish", "task_tracking": "task_tracker"}  # fmt: skip


class OpenHandsV0Importer(Importer):
    name = "openhands-v0"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.name.endswith(".jsonl"):
            begins = candidate.beginning
            return b'"instance_id"' in begins[:4096] and (
                any({"instance_id", "history"} <= row.keys() for row in candidate.first_rows)
                or b'"history": [{"id": 0' in begins
            )
        return candidate.name.endswith(".json") and bool(_BEGINS.match(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if source.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
            for number, row in source.rows(notes):
                history = row.get("history")
                if isinstance(history, list):
                    rest = {name: row[name] for name in row.keys() - {"history"}}
                    yield from _EventStream(history, rest, source, notes).events()
                else:
                    notes.skip("attempt without a history", f"line {number}")
            return
        events = source.document()
        if not isinstance(events, list):
            raise SourceUnfit("it is no array of events")
        yield from _EventStream(events, {}, source, notes).events()


class _EventStream:
    def __init__(
        self, events: Sequence[Any], attempt: Mapping[str, Any], source: Source, notes: Notes
    ) -> None:
        self._events = [event for event in events if isinstance(event, dict)]
        self._attempt, self._notes = attempt, notes
        task = attempt.get("instance_id")
        metadata = attempt.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if task:
            name = run_name(task, [attempt, self._events])
        else:  # the first events tell a conversation apart: they have times
            name = f"openhands-{digest_of(self._events[:2])[:16]}"
        draft = SessionDraft(name, "openhands-v0", clock_us=source.changed_us())
        draft.start = {
            "client": "openhands",
            "task_id": task,
            "agent": metadata.get("agent_class"),
        }
        llm = metadata.get("llm_config")
        model = llm.get("model") if isinstance(llm, dict) else None
        self._draft, self._transcript = draft, ImportedTranscript(draft, model=model)
        self._responses: set[str] = set()
        #: Calls that have no id, by the event that they came from.
        self._unnamed: dict[Any, str] = {}

    def events(self) -> list[ImportedEvent]:
        for at, event in enumerate(self._events):
            key = f"event-{event.get('id', at)}"
            ts_us = moment_us(event.get("timestamp"))
            if ts_us is not None:
                self._draft.clock_us = ts_us
            kind = event.get("action") or event.get("observation")
            if kind in _NO_NEWS:
                self._notes.skip(f"event of the harness itself: {kind}", key)
            elif "observation" in event:
                self._take_observation(event, key)
            elif "action" in event:
                self._take_action(event, key)
            else:
                self._notes.skip("event that is neither action nor observation", key)
        self._finish()
        return self._draft.finished()

    def _take_action(self, event: Mapping[str, Any], key: str) -> None:
        kind, args = event.get("action"), event.get("args")
        args = args if isinstance(args, dict) else {}
        metadata = event.get("tool_call_metadata")
        response = metadata.get("model_response") if isinstance(metadata, dict) else None
        if kind == "system":
            self._transcript.instructed(str(args.get("content") or ""), key)
            self._draft.start.setdefault("tools", args.get("tools"))
        elif kind == "condensation":
            self._draft.add("compaction", {"trigger": "auto", "summary": args.get("summary")}, key)
        elif event.get("source") == "user":
            text = str(args.get("content") or event.get("message") or "")
            images = args.get("image_urls") or None
            self._transcript.asked(text, key, **present({"image_urls": images}))
        elif isinstance(response, dict):
            self._take_response(response, key)
        elif kind == "message":
            self._transcript.answered(key, text=args.get("content") or event.get("message"))
        else:
            self._take_plain_action(str(kind), args, event, key)

    def _take_response(self, response: Mapping[str, Any], key: str) -> None:
        name = str(response.get("id") or key)
        if name in self._responses:
            return
        self._responses.add(name)
        choices = response.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        message = choice.get("message") or {}
        facts = {
            "text": message.get("content") or None,
            "thinking": message.get("reasoning_content"),
            "model": response.get("model") or self._transcript.model,
            "usage": usage_of(response.get("usage")),
            "finish_reason": choice.get("finish_reason"),
        }
        calls = tool_calls_of(message, key)
        self._transcript.answered(name, tool_calls=calls, **present(facts))

    def _take_plain_action(
        self, kind: str, args: Mapping[str, Any], event: Mapping[str, Any], key: str
    ) -> None:
        """An action of a model that calls no tools: what it said is its thought and the action."""
        call = {"id": f"{key}:call", "name": _TOOLS.get(kind, kind)}
        told = {name: value for name, value in args.items() if name != "thought"}
        self._unnamed[event.get("id")] = call["id"]
        text = args.get("thought") or event.get("message") or None
        self._transcript.answered(key, tool_calls=[call | {"arguments": told}], text=text)

    def _take_observation(self, event: Mapping[str, Any], key: str) -> None:
        metadata = event.get("tool_call_metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        extras = event.get("extras")
        extras = extras if isinstance(extras, dict) else {}
        call_id = metadata.get("tool_call_id") or self._unnamed.get(event.get("cause"))
        kind = event.get("observation")
        result = extras.get("metadata")
        code = result.get("exit_code") if isinstance(result, dict) else extras.get("exit_code")
        if kind == "condense":
            self._draft.add("compaction", {"summary": event.get("content")}, key)
            return
        if kind == "user_rejected":
            self._draft.add("feedback", {"kind": "reject", "target": call_id}, f"{key}:reject")
        facts = {
            "tool": metadata.get("function_name") or kind,
            "error_class": "user_aborted" if kind == "user_rejected" else None,
            "exit_code": code,
            "ok": False if kind in ("error", "user_rejected") else None,
        }
        told = _told_change(extras) if kind == "edit" else None
        facts |= {"changes": [told]} if told else {}
        self._transcript.returned(call_id, event.get("content"), key, **present(facts))

    def _finish(self) -> None:
        attempt, patch = self._attempt, self._attempt.get("git_patch")
        result = attempt.get("test_result")
        if not isinstance(patch, str) and isinstance(result, dict):
            patch = result.get("git_patch")
        if isinstance(patch, str) and patch:
            self._transcript.changes.add_final_patch(patch, "git-patch")
        if attempt:
            self._draft.add("x_attempt", attempt, "attempt")
            error = attempt.get("error")
            end_run(self._draft, str(error) if error else "finished")


def _told_change(extras: Mapping[str, Any]) -> FileEdit | None:
    path, before, after = (extras.get(name) for name in ("path", "old_content", "new_content"))
    if not isinstance(path, str) or not isinstance(after, str):
        return None
    return FileEdit(path, before if isinstance(before, str) else "", after, is_whole=True)


IMPORTER = OpenHandsV0Importer()
