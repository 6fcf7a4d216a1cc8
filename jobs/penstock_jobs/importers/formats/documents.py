"""Agents that keep a JSON document for each session: Amp and Continue."""

import re
from collections.abc import Iterator

from penstock.events.messages import usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, usage_beside

_THREAD = re.compile(rb'\s*\{[^{}\[]{,2000}"id"\s*:\s*"T-')
_AMP_USAGE = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


class AmpImporter(Importer):
    """Amp: `threads/T-ID.json`, with Anthropic's blocks.

    A result in the user's next message says how the run of the tool ended. The store is kept on a
    server: a local copy may lack the end of a thread."""

    name = "amp"
    homes = ("$AMP_DATA_HOME/threads", "~/.local/share/amp/threads")

    def recognises(self, candidate: Candidate) -> bool:
        return bool(_THREAD.match(candidate.beginning)) and b'"messages"' in candidate.beginning

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        thread = source.json_object()
        if (name := fields.identifier(thread, "id")) is None:
            raise SourceUnfit("it names no thread")
        draft = _AmpThread(name, "amp", source.time_us(thread.get("created")), notes)
        trees = fields.rows(thread, "env", "initial", "trees")
        folder = next((fields.text(tree, "uri") for tree in trees), None)
        related = thread.get("relationships") or None
        draft.begin(folder, title=thread.get("title"), relationships=related)
        ledger = fields.rows(thread, "usageLedger", "events")
        entries = {str(entry.get("toMessageId")): entry for entry in ledger}
        for at, message in enumerate(fields.rows(thread, "messages")):
            number = str(message.get("messageId", at))
            draft.take(message, entries.get(number, {}), f"message-{number}")
        yield from draft.finished()


class _AmpThread(SessionDraft):
    def take(self, message: Row, entry: Row, key: str) -> None:
        role, content = message.get("role"), message.get("content")
        self.at(fields.at(message, "meta", "sentAt"))
        if role == "assistant":
            usage, tokens = fields.mapping(message, "usage"), fields.mapping(entry, "tokens")
            self.at(usage.get("timestamp") or entry.get("timestamp"))
            self.add_message(
                {"role": role, "content": content},
                key,
                model=usage.get("model") or entry.get("model"),
                usage=usage_beside(usage, *_AMP_USAGE) or usage_of(tokens),
                finish_reason=fields.at(message, "state", "stopReason"),
            )
            return
        blocks = fields.rows(message, "content")
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for at, block in enumerate(results):
            run = fields.mapping(block, "run")
            error, status = (
                fields.at(run, "error", "message") or run.get("error"),
                run.get("status"),
            )
            self.add_result(
                fields.text(block, "toolUseID"),
                run.get("result", error or block.get("content")),
                f"{key}:result" + (f":{at}" if at else ""),
                ok=status == "done",
                refused=status == "rejected-by-user",
            )
        if said := [block for block in blocks if block not in results]:
            self.add_message({"role": "user", "content": said}, key)


_HISTORY = re.compile(
    rb'"history"\s*:\s*\[\s*(?:\]|\{\s*"(?:message|contextItems|editorState)"\s*:)'
)
_REFUSED = ("canceled", "cancelled", "rejected")


class ContinueImporter(Importer):
    """Continue: `sessions/ID.json`. An answer's item has the state of its tools, with their
    results."""

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
