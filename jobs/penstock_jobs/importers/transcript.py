"""The draft of a session, which an importer fills with events."""

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from penstock.events.event import ID_CHARS_MAX
from penstock.events.messages import (
    Message,
    ToolCall,
    count_of,
    message_of,
    present,
    text_of,
    usage_of,
)
from penstock_jobs.importers.edits import FileChanges, FileEdit, ToolUse
from penstock_jobs.importers.fields import arguments_of, digest_of, moment_us, project_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source

Payload = dict[str, Any]

#: Longer than any step of an agent.
_STEP_SECONDS_MAX = 3600
_LIMITS = ("timeout", "time_out", "cost", "context", "limit", "max_")
#: Some stores round log-probabilities to this many decimals. Fewer values may be so by chance.
_DECIMALS = 4
_ROUNDED_MIN = 8


class SessionDraft:
    """Events in the order in which they are added. An event's key is its `event_id`.

    The key must be the same whenever the source is read, even after it has grown."""

    #: Whether the source tells edits by itself, so that calls of tools yield none.
    tells_edits = False

    def __init__(self, session_id: str, form: str, clock_us: int, notes: Notes) -> None:
        self.session_id = session_id
        self.form = form
        self.clock_us = clock_us
        self.notes = notes
        self.project: str | None = None
        self.user: str | None = None
        self.model: str | None = None
        #: The payload of `session_start`, which always comes first.
        self.start: Payload = {"client": form}
        self.made: list[ImportedEvent] = []
        self.changes = FileChanges(self.add, self._miss)
        self._keys: dict[str, int] = {}
        #: Calls of tools without results, by their ids.
        self._open_calls: dict[str, tuple[str, dict[str, Any]]] = {}

    def begin(
        self, folder: str | None, *, parent: str | None = None, link: str = "subagent", **facts: Any
    ) -> None:
        """Note where a session works, and the session that it belongs to."""
        folder = folder.removeprefix("file://") if folder else None
        self.project = project_of(folder)
        told = {"repo": folder, "parent_session": parent, "link": link if parent else None}
        self.start |= told | facts

    def at(self, moment: object) -> None:
        """Set the clock. A value that is not a time leaves it unchanged."""
        if (us := moment_us(moment)) is not None:
            self.clock_us = us

    def add(self, kind: str, payload: Mapping[str, Any], key: str) -> ImportedEvent:
        """Add an event. None values are left out of the payload. A repeated key gets a number."""
        times = self._keys[key] = self._keys.get(key, 0) + 1
        name = key if times == 1 else f"{key}#{times}"
        event = self._event(kind, payload, name, len(self.made) + 1, self.clock_us)
        self.made.append(event)
        return event

    def finished(self) -> list[ImportedEvent]:
        """All events, the start first. Empty if nothing was added."""
        if not self.made:
            return []
        first_us = min(int(event.ts) for event in self.made)
        return [self._event("session_start", self.start, "start", 0, first_us), *self.made]

    def _event(
        self, kind: str, payload: Mapping[str, Any], key: str, seq: int, ts_us: int
    ) -> ImportedEvent:
        return ImportedEvent(
            session_id=self.session_id[:ID_CHARS_MAX],
            seq=seq,
            ts=ts_us,
            type=kind,
            event_id=key if len(key) <= ID_CHARS_MAX else digest_of(key),
            source=self.form,
            user=self.user,
            project=self.project,
            payload=present(payload),
        )

    def _miss(self, use: ToolUse) -> None:
        self.notes.skip("edit of a tool, whose text is not shown", f"{use.tool}: {use.call_id}")

    def add_system_prompt(self, text: str, key: str, **facts: Any) -> None:
        """Add a system prompt: to the session's start, or as an event if events came before."""
        if self.made:
            self.add("x_system_message", {"text": text} | facts, key)
        else:
            known = self.start.get("system")
            self.start["system"] = f"{known}\n\n{text}" if known else text

    def add_prompt(self, text: str, key: str, **facts: Any) -> None:
        self.add("user_message", {"text": text} | facts, key)

    def add_context(self, kind: object, text: object, key: str) -> None:
        """Add what the client told the model."""
        self.add("x_context", {"kind": kind, "text": text}, key)

    def add_answer(
        self, key: str, *, tool_calls: Sequence[ToolCall] = (), **facts: Any
    ) -> ImportedEvent:
        """Add a model's answer. Tool calls without an id get one."""
        payload: Payload = {"call_id": key, "model": self.model} | present(facts)
        for at, call in enumerate(tool_calls):
            call["id"] = call["id"] or f"{key}:call:{at}"
            self.open_call(call)
        if tool_calls:
            payload["tool_calls"] = list(map(present, tool_calls))
        return self.add("model_call", payload, key)

    def open_call(self, call: ToolCall) -> None:
        self._open_calls[call["id"]] = call["name"], arguments_of(call.get("arguments"))

    def add_result(
        self,
        call_id: str | None,
        output: Any,
        key: str,
        *,
        copied: bool = False,
        refused: bool = False,
        changes: Sequence[FileEdit] | None = None,
        **facts: Any,
    ) -> None:
        """Add a tool's result, and its edits: the `changes` if the source reports them, else those
        that the call asks for. A copied result adds no edits. A call may be refused by the user."""
        if refused:
            self.add("feedback", {"kind": "reject", "target": call_id}, f"{call_id}:reject")
            facts |= {"ok": False, "error_class": "user_aborted"}
        tool, arguments = self._open_calls.pop(call_id or "", (facts.get("tool"), {}))
        payload = {"call_id": call_id} | facts | {"tool": tool, "output": output}
        if copied:
            payload["is_copied_context"] = True
        self.add("tool_result", payload, key)
        if changes is not None:
            for at, change in enumerate(changes):
                name = f"{call_id or key}:edit" + (f":{at}" if at else "")
                self.changes.add(change, name, call_id)
        elif tool and call_id and not copied and not self.tells_edits:
            text = output if isinstance(output, str) else text_of(output)
            self.changes.take(ToolUse(call_id, tool, arguments, facts.get("ok"), text))

    def add_message(self, message: Message | Mapping[str, Any], key: str, **facts: Any) -> None:
        """Add a message as events. `facts` go into the payload; unknown fields are kept."""
        said = message if isinstance(message, Message) else message_of(message)
        if said.extra:
            facts["extra"] = said.extra | facts.get("extra", {})
        if said.role == "system":
            self.add_system_prompt(said.text or "", key)
        elif said.role == "assistant":
            known = {
                "text": said.text,
                "thinking": said.thinking,
                "model": said.model,
                "usage": usage_of(said.usage),
                "finish_reason": said.finish_reason,
            }
            calls = [call | {"name": call["name"] or "unknown"} for call in said.calls]
            self.add_answer(key, tool_calls=calls, **(known | present(facts)))
        else:
            self._add_results(said, key, facts)
            if said.role != "tool" and (said.text or said.others or not said.outputs):
                self.add_prompt(said.text or "", key, content=said.content, **facts)

    def _add_results(self, said: Message, key: str, facts: Payload) -> None:
        if said.role != "tool":
            facts = {"copied": bool(facts.get("is_copied_context"))}
        for at, output in enumerate(said.outputs):
            name = key if said.role == "tool" else f"{key}:result" + (f":{at}" if at else "")
            more: Payload = {"tool": output.tool, "ok": output.ok} | facts
            self.add_result(output.call_id, output.output, name, **more)

    # Runs of harnesses

    def end_run(self, exit_status: object) -> None:
        if not isinstance(exit_status, str) or not exit_status:
            return
        status = exit_status.lower()
        if status.startswith(("submitted", "completed", "finished", "resolved")):
            reason = "completed"
        else:
            reason = "timeout" if any(limit in status for limit in _LIMITS) else "crash"
        self.add("session_end", {"reason": reason, "exit_status": exit_status}, "end")

    def add_run_usage(self, usage: Mapping[str, Any] | None, **facts: Any) -> None:
        """Add the tokens of a whole run, if its model calls have none."""
        counts = {name: count_of(value) for name, value in (usage or {}).items()}
        if any(counts.values()) or any(facts.values()):
            self.add("x_run_usage", counts | facts, "run-usage")

    def add_reward(self, name: str, value: object, given_by: str, key: str) -> None:
        if isinstance(value, int | float):
            self.add("x_reward", {"name": name, "value": value, "given_by": given_by}, key)

    def add_final_patch(self, patch: object, key: str) -> None:
        if isinstance(patch, str) and patch:
            self.changes.add_final_patch(patch, key)


class RowDraft(SessionDraft):
    """A draft that is made of the rows of a log, one by one."""

    @abstractmethod
    def take(self, row: Payload, key: str) -> None:
        """Add what a row says. `key` is the row's id, or its line."""

    def end(self) -> None:
        """Add what is known once all rows are read."""

    def skip_client(self, kind: object, key: str) -> None:
        self.notes.skip(f"row of the client: {str(kind)[:60]}", key)


class RowsImporter(Importer):
    """A format whose files are logs of a session each, a JSON object per line."""

    draft_type: ClassVar[type[RowDraft]]
    #: The type of the first row, and some of its fields.
    first_type: ClassVar[str | None] = None
    first_fields: ClassVar[set[str]]

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        return first.get("type") == self.first_type and first.keys() >= self.first_fields

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        name = source.plain_name.removesuffix(".jsonl")
        return self.draft_type(name, self.name, source.changed_us(), notes)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        draft = self.draft(source, notes)
        for number, row in source.rows(notes):
            draft.at(row.get("timestamp"))
            draft.take(row, str(row.get("id") or f"line-{number}"))
        draft.end()
        yield from draft.finished()


def tool_call(call_id: object, name: object, arguments: Any, **more: Any) -> ToolCall:
    """Make a tool call in the form of docs/events.md, with its arguments unchanged."""
    known = {"id": str(call_id or ""), "name": str(name or "unknown"), "arguments": arguments}
    return present(known | more)


_BESIDE = ("input_tokens", "output_tokens", "cache_read_input_tokens",
           "cache_creation_input_tokens")  # fmt: skip


def usage_beside(told: Mapping[str, Any], *names: str) -> dict[str, int] | None:
    """Read a usage whose prompt does not count cached tokens. `names` are its names of the tokens
    of the prompt and the answer, and of tokens that the cache gave and took."""
    return usage_of({name: told.get(own) for name, own in zip(_BESIDE, names, strict=False)})


# A run of a benchmark harness is one document without an id. It is named by its content, so it is
# only imported once it has ended.


def run_name(task: object, document: object) -> str:
    return f"{task or 'run'}-{digest_of(document)[:16]}"


def is_unfinished(
    source: Source, notes: Notes, *, ended: bool, changed_us: int | None = None
) -> bool:
    """Whether a run may still continue, and is left for a later import.

    `changed_us` is the run's own time of its last step, if it has one."""
    last_us = source.changed_us() if changed_us is None else changed_us
    if ended or time.time() - last_us / 1_000_000 > _STEP_SECONDS_MAX:
        return False
    notes.hold("the run has not ended yet")
    return True


def engine_tokens(
    prompt_ids: object, completion_ids: object, logprobs: object, notes: Notes, **facts: Any
) -> Payload | None:
    """Make the `tokens` of a model call. Returns None if there are no token ids."""
    prompt, completion = _ids(prompt_ids), _ids(completion_ids)
    if not completion:
        return None
    tokens: Payload = {"prompt_ids": prompt or None, "completion_ids": completion}
    values = logprobs if isinstance(logprobs, list) else []
    if not all(type(each) in (int, float) and each - each == 0 for each in values):
        notes.skip("log-probabilities that are not numbers")
    elif values and len(values) != len(completion):
        counts = f"{len(values)} for {len(completion)} tokens"
        notes.skip("log-probabilities that do not fit their tokens", counts)
    elif values:
        tokens["logprobs"] = [float(each) for each in values]
        some = [each for each in tokens["logprobs"] if each]
        if len(some) >= _ROUNDED_MIN and all(round(each, _DECIMALS) == each for each in some):
            tokens["logprobs_decimals"] = _DECIMALS
    return present(tokens | facts)


def _ids(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        return []
    return value
