"""Kimi Code: `session_ID/agents/NAME/wire.jsonl`.

An answer comes in parts. Agents other than `main` become sessions, linked to that one."""

from typing import Any

from penstock.events.messages import plain, text_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, tool_call, usage_beside

_KIMI_USAGE = ("inputOther", "output", "inputCacheRead", "inputCacheCreation")
#: Rows that other rows repeat, or that only begin something.
_REPEATED = ("turn.prompt", "llm.request", "metadata")


class _KimiSession(RowDraft):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._parts: list[dict[str, Any]] = []
        self._usage: dict[str, int] | None = None
        #: Of the call that writes the next summary.
        self._summary_usage: dict[str, int] | None = None
        self._key = ""

    def take(self, row: dict[str, Any], key: str) -> None:
        kind, message = row.get("type"), fields.mapping(row, "message")
        self.at(row.get("time"))
        if kind == "context.append_loop_event":
            self._take_event(fields.mapping(row, "event"), key)
        elif kind == "context.append_message":
            self.end()
            origin = fields.at(message, "origin", "kind")
            if message.get("role") == "user" and origin not in (None, "user"):
                self.add_context(origin, text_of(message.get("content")), key)
            else:
                self.add_message(fields.without(message, "origin", "toolCalls"), key)
        elif kind == "usage.record":
            self.model = fields.text(row, "model") or self.model
            if row.get("usageScope") == "session":
                self._summary_usage = usage_beside(fields.mapping(row, "usage"), *_KIMI_USAGE)
            else:
                self._count(row)
        elif kind == "config.update":
            self.model = fields.text(row, "modelAlias") or self.model
            self.project = fields.project_of(fields.text(row, "cwd")) or self.project
            if prompt := fields.text(row, "systemPrompt"):
                self.add_system_prompt(prompt, key)
        elif kind == "context.apply_compaction":
            told = {"summary": row.get("summary"), "usage": self._summary_usage}
            self.add("compaction", told, key)
            self._summary_usage = None
        elif kind == "turn.cancel":
            self.add("interrupt", {}, key)
        elif kind not in _REPEATED:
            self.skip_client(kind, key)

    def _take_event(self, event: Row, key: str) -> None:
        kind, part = event.get("type"), fields.mapping(event, "part")
        if kind == "step.begin":
            self.end()
            self._key = str(event.get("uuid") or key)
        elif kind == "content.part":
            thought = {"type": "thinking", "thinking": part.get("think")}
            self._parts.append(thought if part.get("type") == "think" else part)
        elif kind == "tool.call":
            call = tool_call(event.get("toolCallId"), event.get("name"), event.get("args"))
            self._parts.append({"type": "tool_call"} | call)
        elif kind == "tool.result":
            self.end()
            output, failed = (fields.at(event, "result", name) for name in ("output", "isError"))
            call_id, ok = fields.text(event, "toolCallId"), failed is not True
            self.add_result(call_id, plain(output), key, ok=ok)
        elif kind == "step.end":
            self._count(event)
            self.end()
        else:
            self.skip_client(kind, key)

    def _count(self, told: Row) -> None:
        """Note the usage of the open answer, else of the last one, which may have been told."""
        usage = usage_beside(fields.mapping(told, "usage"), *_KIMI_USAGE)
        last = next((each for each in reversed(self.made) if each.type == "model_call"), None)
        if self._parts:
            self._usage = self._usage or usage
        elif usage and last is not None:
            last.payload.setdefault("usage", usage)

    def end(self) -> None:
        """Add the answer whose parts came."""
        if self._parts:
            said = {"role": "assistant", "content": self._parts}
            key = self._key or f"answer-{len(self.made)}"
            self.add_message(said, key, usage=self._usage)
        self._parts, self._usage, self._key = [], None, ""


class KimiImporter(RowsImporter):
    name = "kimi"
    homes = ("$KIMI_CODE_HOME/sessions", "~/.kimi-code/sessions")
    draft_type, first_type, first_fields = _KimiSession, "metadata", {"protocol_version"}

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        draft = super().draft(source, notes)
        *_, session, agents, agent, _file = ("", "", "", *source.real.parts)
        if agents == "agents":
            draft.session_id = session if agent == "main" else f"{session}/{agent}"
            draft.begin(None, parent=None if agent == "main" else session)
        return draft


IMPORTERS = (KimiImporter(),)
