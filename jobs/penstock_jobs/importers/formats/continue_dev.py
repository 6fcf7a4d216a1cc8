"""Continue: `sessions/ID.json`. An answer's item has the state of its tools, with their results."""

import re
from collections.abc import Iterator

from penstock.events.messages import usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft

_HISTORY = re.compile(
    rb'"history"\s*:\s*\[\s*(?:\]|\{\s*"(?:message|contextItems|editorState)"\s*:)'
)
_REFUSED = ("canceled", "cancelled", "rejected")


class ContinueImporter(Importer):
    name = "continue"
    homes = ("$CONTINUE_GLOBAL_DIR/sessions", "~/.continue/sessions")

    def recognises(self, candidate: Candidate) -> bool:
        begins = candidate.beginning
        return b'"sessionId"' in begins and bool(_HISTORY.search(begins))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        session = source.json_object()
        name = fields.identifier(session, "sessionId") or source.real.stem
        began = source.time_us(session.get("dateCreated"))
        draft = _ContinueSession(name, "continue", began, notes)
        draft.begin(fields.text(session, "workspaceDirectory"), title=session.get("title"))
        draft.model = fields.text(session, "chatModelTitle")
        for at, item in enumerate(fields.rows(session, "history")):
            draft.take(item, f"item-{at}")
        yield from draft.finished()


class _ContinueSession(SessionDraft):
    _thinking: str | None = None

    def take(self, item: Row, key: str) -> None:
        message = fields.mapping(item, "message")
        role, told = message.get("role"), fields.mapping(message, "usage")
        said = fields.without(message, "id", "usage", "toolCallId")
        if role == "thinking":
            self._thinking = fields.text(message, "content")
        elif role == "assistant":
            titles = [fields.text(log, "modelTitle") for log in fields.rows(item, "promptLogs")]
            names = {"prompt": "promptTokens", "completion": "completionTokens"}
            usage = usage_of(told | {name: told.get(own) for name, own in names.items()})
            model = next(filter(None, titles), self.model)
            self.add_message(said, key, thinking=self._thinking, model=model, usage=usage)
            self._thinking = None
            states = fields.rows(item, "toolCallStates") or [fields.mapping(item, "toolCallState")]
            for at, state in enumerate(states):
                self._take_state(state, f"{key}:result:{at}")
        elif role == "tool":
            if message.get("toolCallId") in self._open_calls:  # the state had no result
                self.add_message(said | {"tool_call_id": message["toolCallId"]}, key)
        elif role is not None:
            self.add_message(said, key, context=fields.items(item, "contextItems") or None)

    def _take_state(self, state: Row, key: str) -> None:
        status, call_id = state.get("status"), fields.text(state, "toolCallId")
        if status in (*_REFUSED, "done", "errored"):
            texts = [str(each.get("content") or "") for each in fields.rows(state, "output")]
            refused, ok = status in _REFUSED, status == "done"
            self.add_result(call_id, "\n".join(texts), key, ok=ok, refused=refused)


IMPORTERS = (ContinueImporter(),)
