"""Copilot CLI: `session-state/ID/events.jsonl`, an event a line.

A prompt stands twice in its event, as it was typed and as the model got it, and once more in an
event of its own where the client repeats it. Tokens are told when the client ends, for each model.
"""

from collections.abc import Iterator

from penstock.events.messages import usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, tool_call

_TYPES = ("session.", "user.message", "assistant.", "system.message", "tool.", "subagent.", "abort")
_QUIET = ("assistant.turn_start", "assistant.turn_end", "tool.execution_start", "session.idle")
#: Events that become one of ours: its type, what all of them say, and which of their fields are
#: which of its.
_TOLD: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "session.compaction_complete": ("compaction", {"trigger": "auto"}, {
        "tokens_before": "preCompactionTokens", "tokens_after": "postCompactionTokens",
        "summary": "summaryContent",
    }),
    "session.error": ("error", {}, {"message": "message", "error_class": "errorType"}),
    "abort": ("interrupt", {}, {"reason": "reason"}),
}  # fmt: skip


class CopilotCliImporter(Importer):
    name = "copilot-cli"
    homes = ("~/.copilot/session-state",)

    def recognises(self, candidate: Candidate) -> bool:
        return candidate.ends(".jsonl") and any(map(_is_event, candidate.first_rows))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        run = _ClientRun(source.parent_name, "copilot-cli", source.changed_us(), notes)
        for number, row in source.rows(notes):
            if _is_event(row):
                run.take(row)
            else:
                notes.skip("line that is no event", f"line {number}")
        yield from run.finished()


def _is_event(row: Row) -> bool:
    kind = row.get("type")
    named = isinstance(kind, str) and kind.startswith(_TYPES)
    return named and isinstance(row.get("data"), dict) and "id" in row and "timestamp" in row


class _ClientRun(SessionDraft):
    _last_prompt: tuple[object, str] | None = None
    _thinking: str | None = None
    _tells_completions = False

    def take(self, row: Row) -> None:
        kind, key, data = str(row["type"]), str(row["id"]), row["data"]
        self.at(row.get("timestamp"))
        match kind:
            case "session.start":
                self._begin(data)
            case "session.model_change":
                self.model = fields.text(data, "newModel")
            case "session.resume":
                self.add("x_resume", data, key)
            case "session.shutdown":
                self._end(data, key)
            case "system.message":
                self.instructed(fields.text(data, "content") or "", key)
            case "user.message":
                self._take_prompt(data, key)
            case "assistant.reasoning":
                self._thinking = fields.text(data, "content")
            case "assistant.message":
                self._take_answer(data, key)
            case "tool.execution_complete":
                self._take_result(data, key)
            case _ if kind in _TOLD:
                told, facts, names = _TOLD[kind]
                self.add(told, facts | {name: data.get(own) for name, own in names.items()}, key)
            case _ if kind not in _QUIET:
                self.notes.skip(f"event of the client itself: {kind}", key)

    def _begin(self, data: Row) -> None:
        self.session_id = fields.text(data, "sessionId") or self.session_id
        self.project = fields.text(data, "context", "cwd")
        self.model = fields.text(data, "selectedModel") or self.model
        self.start |= {
            "client_version": data.get("copilotVersion"),
            "repo": fields.at(data, "context", "repository"),
            "branch": fields.at(data, "context", "branch"),
        }

    def _take_prompt(self, data: Row, key: str) -> None:
        text, turn = fields.text(data, "content") or "", data.get("interactionId")
        if turn is not None and self._last_prompt == (turn, text):
            self.notes.skip("prompt that stands twice", key)
            return
        self._last_prompt = turn, text
        self.asked(
            text,
            key,
            transformed=data.get("transformedContent"),
            attachments=data.get("attachments") or None,
            # What the client sends by itself says who sent it.
            synthetic=True if data.get("source") not in (None, "user") else None,
        )

    def _take_answer(self, data: Row, key: str) -> None:
        calls = [
            tool_call(call.get("toolCallId"), call.get("name"), call.get("arguments"))
            for call in fields.rows(data, "toolRequests")
        ]
        thinking, self._thinking = self._thinking, None
        self._tells_completions |= fields.count(data, "outputTokens") is not None
        self.answered(
            key,
            tool_calls=calls,
            text=fields.text(data, "content") or None,
            thinking=fields.text(data, "reasoningText") or thinking,
            model=fields.text(data, "model"),
            usage=usage_of({"completion": data.get("outputTokens")}),
            call_id=fields.text(data, "messageId"),
        )

    def _take_result(self, data: Row, key: str) -> None:
        result, error = fields.mapping(data, "result"), fields.mapping(data, "error")
        ok, code = fields.flag(data, "success"), error.get("code")
        self.returned(
            fields.text(data, "toolCallId"),
            result.get("content") if ok else error.get("message", result.get("content")),
            key,
            ok=ok,
            detail=result.get("detailedContent"),
            error_code=code,
            error_class="user_aborted" if code in ("denied", "rejected") else None,
        )

    def _end(self, data: Row, key: str) -> None:
        for model, metrics in fields.mapping(data, "modelMetrics").items():
            usage = usage_of(fields.at(metrics, "usage")) or {}
            if self._tells_completions:  # by answer
                usage.pop("completion", None)
            if usage:
                self.add("x_run_usage", usage | {"model": model}, f"{key}:{model}")
        changes = fields.mapping(data, "codeChanges")
        self.add("x_shutdown", {"kind": data.get("shutdownType"), "changes": changes}, key)


IMPORTERS = (CopilotCliImporter(),)
