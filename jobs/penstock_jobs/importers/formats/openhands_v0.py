"""OpenHands before version 1: an array of events, and the `output.jsonl` of its evaluations.

Actions that one answer of the model called for have its response, all of them the same: it is one
model call. An edit tells the whole file before and after, where the version did.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import Message, answer_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import told_change
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import (
    SessionDraft,
    digest_of,
    moment_us,
    run_name,
    tool_call,
)

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


class _EventStream(SessionDraft):
    def __init__(self, events: Sequence[Any], attempt: Row, source: Source, notes: Notes) -> None:
        self._events = [event for event in events if isinstance(event, dict)]
        self._attempt, self._notes = attempt, notes
        task = attempt.get("instance_id")
        metadata = fields.mapping(attempt, "metadata")
        if task:
            name = run_name(task, [attempt, self._events])
        else:  # the first events tell a conversation apart: they have times
            name = f"openhands-{digest_of(self._events[:2])[:16]}"
        super().__init__(name, "openhands-v0", source.changed_us())
        self.start = {"client": "openhands", "task_id": task, "agent": metadata.get("agent_class")}
        self.model = fields.mapping(metadata, "llm_config").get("model")
        self._responses: set[str] = set()
        #: Calls that have no id, by the event that they came from.
        self._unnamed: dict[Any, str] = {}

    def events(self) -> list[ImportedEvent]:
        for at, event in enumerate(self._events):
            key = f"event-{event.get('id', at)}"
            ts_us = moment_us(event.get("timestamp"))
            if ts_us is not None:
                self.clock_us = ts_us
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
        return self.finished()

    def _take_action(self, event: Row, key: str) -> None:
        kind, args = event.get("action"), fields.mapping(event, "args")
        response = fields.mapping(event, "tool_call_metadata").get("model_response")
        if kind == "system":
            self.instructed(str(args.get("content") or ""), key)
            self.start.setdefault("tools", args.get("tools"))
        elif kind == "condensation":
            self.add("compaction", {"trigger": "auto", "summary": args.get("summary")}, key)
        elif event.get("source") == "user":
            text = str(args.get("content") or event.get("message") or "")
            self.asked(text, key, image_urls=args.get("image_urls") or None)
        elif isinstance(response, dict):
            self._take_response(response, key)
        elif kind == "message":
            self.answered(key, text=args.get("content") or event.get("message"))
        else:
            self._take_plain_action(str(kind), args, event, key)

    def _take_response(self, response: Row, key: str) -> None:
        name = str(response.get("id") or key)
        if name in self._responses:
            return
        self._responses.add(name)
        answer = answer_of(response) or Message("assistant")
        answer.extra = {}
        usage = usage_of(response.get("usage"))
        self.told(answer, name, model=response.get("model"), usage=usage)

    def _take_plain_action(self, kind: str, args: Row, event: Row, key: str) -> None:
        """An action of a model that calls no tools: what it said is its thought and the action."""
        call = tool_call(f"{key}:call", _TOOLS.get(kind, kind), fields.without(args, "thought"))
        self._unnamed[event.get("id")] = call["id"]
        text = args.get("thought") or event.get("message") or None
        self.answered(key, tool_calls=[call], text=text)

    def _take_observation(self, event: Row, key: str) -> None:
        metadata = fields.mapping(event, "tool_call_metadata")
        extras = fields.mapping(event, "extras")
        call_id = metadata.get("tool_call_id") or self._unnamed.get(event.get("cause"))
        kind = event.get("observation")
        result = extras.get("metadata")
        code = (result if isinstance(result, dict) else extras).get("exit_code")
        if kind == "condense":
            self.add("compaction", {"summary": event.get("content")}, key)
            return
        if kind == "user_rejected":
            self.add("feedback", {"kind": "reject", "target": call_id}, f"{key}:reject")
        told = told_change(extras) if kind == "edit" else None
        self.returned(
            call_id,
            event.get("content"),
            key,
            tool=metadata.get("function_name") or kind,
            ok=False if kind in ("error", "user_rejected") else None,
            changes=[told] if told else None,
            error_class="user_aborted" if kind == "user_rejected" else None,
            exit_code=code,
        )

    def _finish(self) -> None:
        attempt, patch = self._attempt, self._attempt.get("git_patch")
        if not isinstance(patch, str):
            patch = fields.mapping(attempt, "test_result").get("git_patch")
        if isinstance(patch, str) and patch:
            self.changes.add_final_patch(patch, "git-patch")
        if attempt:
            self.add("x_attempt", attempt, "attempt")
            error = attempt.get("error")
            self.end_run(str(error) if error else "finished")


IMPORTER = OpenHandsV0Importer()
