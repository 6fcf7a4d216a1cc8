"""OpenHands from version 1 on: a folder with `base_state.json` and `events/`, or a file with an
event per line. Actions with one `llm_response_id` belong to one model call. Its tokens follow it,
without log-probabilities.

Before version 1: an array of events, or the `output.jsonl` of evaluations. Actions of one answer
hold its response. In some versions an edit holds the whole file before and after.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.events.messages import Message, answer_of, count_of, plain, text_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import reported_edit
from penstock_jobs.importers.fields import Row, digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, engine_tokens, run_name, tool_call

_BEGINS = re.compile(
    rb'\s*\[\s*\{(?=[^\]]{0,4000}"source")(?=[^\]]{0,8000}"(?:action|observation)")'
)
_NO_NEWS = ("null", "agent_state_changed", "change_agent_state", "recall", "loadgen")
#: Tools whose actions have another name.
_TOOLS = {"run": "execute_bash", "run_ipython": "execute_ipython_cell", "call_tool_mcp": "mcp",
          "task_tracking": "task_tracker"}  # fmt: skip


class OpenHandsV0Importer(Importer):
    name = "openhands-v0"

    def recognises(self, candidate: Candidate) -> bool:
        begins = candidate.beginning
        attempt = b'"instance_id"' in begins[:4096] and (
            any({"instance_id", "history"} <= row.keys() for row in candidate.first_rows)
            or b'"history": [{"id": 0' in begins
        )
        return attempt or bool(_BEGINS.match(begins))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        for number, row in source.records(notes):
            if isinstance(row, list):
                yield from _EventStream(row, {}, source, notes).events()
            elif not isinstance(row, dict):
                raise SourceUnfit("it is not an array of events")
            elif isinstance(history := row.pop("history", None), list):
                yield from _EventStream(history, row, source, notes).events()
            else:
                notes.skip("attempt without a history", f"line {number}")


class _EventStream(SessionDraft):
    def __init__(self, events: Sequence[Any], attempt: Row, source: Source, notes: Notes) -> None:
        self._events = [event for event in events if isinstance(event, dict)]
        self._attempt = attempt
        task = attempt.get("instance_id")
        if task:
            name = run_name(task, [attempt, self._events])
        else:  # the first events identify a conversation: they have times
            name = f"openhands-{digest_of(self._events[:2])[:16]}"
        super().__init__(name, "openhands-v0", source.changed_us(), notes)
        agent = fields.at(attempt, "metadata", "agent_class")
        self.start = {"client": "openhands", "task_id": task, "agent": agent}
        self.model = fields.at(attempt, "metadata", "llm_config", "model")
        self._responses: set[str] = set()
        #: Calls without an id, by their event.
        self._unnamed: dict[Any, str] = {}

    def events(self) -> list[ImportedEvent]:
        for at, event in enumerate(self._events):
            key = f"event-{event.get('id', at)}"
            self.at(event.get("timestamp"))
            kind = event.get("action") or event.get("observation")
            if kind in _NO_NEWS:
                self.notes.skip(f"event of the harness itself: {kind}", key)
            elif "observation" in event:
                self._take_observation(event, key)
            elif "action" in event:
                self._take_action(event, key)
            else:
                self.notes.skip("event that is neither action nor observation", key)
        self._finish()
        return self.finished()

    def _take_action(self, event: Row, key: str) -> None:
        kind, args = event.get("action"), fields.mapping(event, "args")
        response = fields.mapping(event, "tool_call_metadata", "model_response")
        said = args.get("content") or event.get("message")
        if kind == "system":
            self.add_system_prompt(str(args.get("content") or ""), key)
            self.start.setdefault("tools", args.get("tools"))
        elif kind == "condensation":
            self.add("compaction", {"trigger": "auto", "summary": args.get("summary")}, key)
        elif event.get("source") == "user":
            self.add_prompt(str(said or ""), key, image_urls=args.get("image_urls") or None)
        elif response:
            self._take_response(response, key)
        elif kind == "message":
            self.add_answer(key, text=said)
        else:
            # The model calls no tools: its answer is the thought and the action.
            plain_args = fields.without(args, "thought")
            call = tool_call(f"{key}:call", _TOOLS.get(str(kind), kind), plain_args)
            self._unnamed[event.get("id")] = call["id"]
            text = args.get("thought") or event.get("message") or None
            self.add_answer(key, tool_calls=[call], text=text)

    def _take_response(self, response: Row, key: str) -> None:
        name = str(response.get("id") or key)
        if name in self._responses:
            return
        self._responses.add(name)
        answer = answer_of(response) or Message("assistant")
        answer.extra = {}
        usage = usage_of(response.get("usage"))
        self.add_message(answer, name, model=response.get("model"), usage=usage)

    def _take_observation(self, event: Row, key: str) -> None:
        metadata = fields.mapping(event, "tool_call_metadata")
        extras, kind = fields.mapping(event, "extras"), event.get("observation")
        call_id = metadata.get("tool_call_id") or self._unnamed.get(event.get("cause"))
        if kind == "condense":
            self.add("compaction", {"summary": event.get("content")}, key)
            return
        if kind == "user_rejected":
            self.add("feedback", {"kind": "reject", "target": call_id}, f"{key}:reject")
        told = reported_edit(extras) if kind == "edit" else None
        held = extras["metadata"] if isinstance(extras.get("metadata"), dict) else extras
        self.add_result(
            call_id,
            event.get("content"),
            key,
            tool=metadata.get("function_name") or kind,
            ok=False if kind in ("error", "user_rejected") else None,
            changes=[told] if told else None,
            error_class="user_aborted" if kind == "user_rejected" else None,
            exit_code=held.get("exit_code"),
        )

    def _finish(self) -> None:
        attempt = self._attempt
        patch = fields.text(attempt, "git_patch")
        told = fields.at(attempt, "test_result", "git_patch") if patch is None else patch
        self.add_final_patch(told, "git-patch")
        if attempt:
            self.add("x_attempt", attempt, "attempt")
            self.end_run(str(attempt.get("error") or "finished"))


_STATE, _EVENTS = "base_state.json", "events"
_RESULTS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


class OpenHandsV1Importer(Importer):
    name = "openhands"
    homes = ("~/.openhands/conversations",)

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_folder:
            return candidate.entries >= {_STATE, _EVENTS}
        return any(map(_is_event, candidate.first_rows[:3]))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if not source.is_folder:
            events = [row for _, row in source.rows(notes)]
            first = next((event.get("id") for event in events), None)
            name = f"openhands-{digest_of(first)[:16]}"
            yield from _EventLog(name, {}, source, notes).read(events)
            return
        state = source.below(_STATE).json_object("its state is not an object")
        log = _EventLog(str(state.get("id") or source.name), state, source, notes)
        files = [file for file in source.below(_EVENTS).files() if file.name.startswith("event-")]
        files.sort(key=lambda each: each.name)
        stored = (file.json_object_or_skip(notes, "event") for file in files)
        yield from log.read(event for event in stored if event is not None)


def _is_event(row: Row) -> bool:
    kind = row.get("kind")
    named = isinstance(kind, str) and (
        kind.endswith("Event") or kind in (*_RESULTS, "Condensation")
    )
    return named and {"id", "timestamp", "source"} <= row.keys()


class _EventLog(SessionDraft):
    def __init__(self, session_id: str, state: Row, source: Source, notes: Notes) -> None:
        super().__init__(session_id, "openhands", source.changed_us(), notes)
        self.project = fields.at(state, "workspace", "working_dir")
        self.model = fields.at(state, "agent", "llm", "model")
        self._call: ImportedEvent | None = None
        self._totals: dict[str, Any] = {}
        self._usages = {
            str(usage.get("response_id")): usage
            for _, metrics in _metrics(state.get("stats"))
            for usage in fields.rows(metrics, "token_usages")
            if usage.get("response_id")
        }

    def read(self, events: Iterable[Row]) -> list[ImportedEvent]:
        for at, event in enumerate(events):
            self.at(event.get("timestamp"))
            self._take(event, str(event.get("id") or f"event-{at}"))
        if not self._usages:
            self._add_totals()
        return self.finished()

    def _take(self, event: Row, key: str) -> None:
        kind = event.get("kind")
        if kind == "ActionEvent":
            self._take_action(event, key)
        elif kind in _RESULTS:
            self._take_result(event, key, str(kind))
        elif kind == "MessageEvent":
            self._take_message(event, key)
        elif kind == "SystemPromptEvent":
            self.add_system_prompt(text_of([event.get("system_prompt")]), key)
            tools = event.get("tools")
            listed = isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
            self.start.setdefault("tools", (listed and tools) or None)
        elif kind == "TokenEvent":
            self._take_tokens(event, key)
        elif kind in ("PauseEvent", "InterruptEvent"):
            self.add("interrupt", {"reason": event.get("reason") or kind}, key)
        elif kind == "Condensation":
            forgotten = event.get("forgotten_event_ids")
            facts = {"trigger": "auto", "summary": event.get("summary"), "forgotten": forgotten}
            self.add("compaction", facts, key)
        elif kind in ("ConversationErrorEvent", "ServerErrorEvent"):
            message = event.get("detail") or event.get("error")
            self.add("error", {"message": str(message), "code": event.get("code")}, key)
        elif kind == "ConversationStateUpdateEvent" and event.get("key") == "stats":
            self._totals |= _metrics(event.get("value"))
        else:
            self.notes.skip(f"event of the harness itself: {kind}", key)

    def _take_action(self, event: Row, key: str) -> None:
        name = str(event.get("llm_response_id") or key)
        told = fields.mapping(event, "tool_call")
        call = tool_call(
            event.get("tool_call_id") or told.get("id") or key,
            event.get("tool_name") or told.get("name"),
            told.get("arguments", event.get("action")),
            security_risk=event.get("security_risk"),
            summary=event.get("summary"),
        )
        if self._call is not None and self._call.event_id == name:
            self._call.payload.setdefault("tool_calls", []).append(call)
            self.open_call(call)
            return
        self._call = self.add_answer(
            name,
            tool_calls=[call],
            text=text_of(event.get("thought")) or None,
            thinking=event.get("reasoning_content") or None,
            usage=usage_of(self._usages.get(name)),
            critic_result=event.get("critic_result"),
        )

    def _take_result(self, event: Row, key: str, kind: str) -> None:
        observation = fields.mapping(event, "observation")
        call_id, failed = event.get("tool_call_id"), observation.get("is_error")
        facts: dict[str, Any] = {
            "tool": event.get("tool_name"),
            "exit_code": observation.get("exit_code"),
            "ok": not failed if "is_error" in observation else None,
        }
        output = observation.get("content", observation.get("output"))
        if kind == "AgentErrorEvent":
            facts |= {"ok": False, "error_class": "unknown"}
            output = event.get("error")
        elif kind == "UserRejectObservation":
            facts |= {"ok": False, "error_class": "user_aborted"}
            output = event.get("rejection_reason")
            comment = {"kind": "reject", "target": call_id, "comment": output}
            self.add("feedback", comment, f"{key}:reject")
        shows = observation.get("command") == "view" or failed
        change = None if shows else reported_edit(observation)
        self.add_result(call_id, plain(output), key, changes=[change] if change else None, **facts)

    def _take_message(self, event: Row, key: str) -> None:
        message = fields.mapping(event, "llm_message")
        if event.get("source") == "user":
            text = text_of(message.get("content"))
            self.add_prompt(text, key, extended=text_of(event.get("extended_content")) or None)
            return
        said = {name: message.get(name) for name in ("content", "reasoning_content")}
        name = str(event.get("llm_response_id") or key)
        self.add_message({"role": "assistant"} | said, name, usage=usage_of(self._usages.get(name)))
        self._call = self.made[-1]

    def _take_tokens(self, event: Row, key: str) -> None:
        prompt, completion = event.get("prompt_token_ids"), event.get("response_token_ids")
        tokens = engine_tokens(prompt, completion, None, self.notes)
        if tokens is None or self._call is None or "tokens" in self._call.payload:
            self.notes.skip("tokens of no known model call", key)
        else:
            self._call.payload["tokens"] = tokens

    def _add_totals(self) -> None:
        totals = [fields.mapping(each, "accumulated_token_usage") for each in self._totals.values()]
        names = {"prompt": "prompt_tokens", "completion": "completion_tokens",
                 "cached": "cache_read_tokens", "thinking": "reasoning_tokens"}  # fmt: skip
        usage = {
            name: sum(count_of(each.get(told)) or 0 for each in totals)
            for name, told in names.items()
        }
        self.add_run_usage(usage)


def _metrics(stats: object) -> list[tuple[str, dict[str, Any]]]:
    told = fields.mapping(stats, "usage_to_metrics").items()
    return [(name, each) for name, each in told if isinstance(each, dict)]
