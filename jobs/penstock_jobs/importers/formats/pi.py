"""Pi, and OpenClaw in its form: a row an entry, which names its parent.

A prompt that follows an earlier entry than the last one takes back what came between; both branches
are kept."""

from typing import Any

from penstock.events.messages import plain
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.sources import Candidate
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, usage_beside


class _PiSession(RowDraft):
    _last: object = None

    def take(self, row: dict[str, Any], key: str) -> None:
        kind, message = row.get("type"), fields.mapping(row, "message")
        if kind == "session":
            self.session_id = str(row["id"])
            parent = (fields.text(row, "parentSession") or "").removesuffix(".jsonl")
            named = parent.rpartition("/")[2].rpartition("_")[2] or None
            self.begin(fields.text(row, "cwd"), parent=named, link="fork")
        elif kind == "message":
            self._take_message(message, row, key)
        elif kind == "model_change":
            self.model = fields.text(row, "modelId")
        elif kind == "compaction":
            facts = {"summary": row.get("summary"), "tokens_before": row.get("tokensBefore")}
            self.add("compaction", facts, key)
        elif kind in ("branch_summary", "custom_message"):
            self.add_context(kind, row.get("summary") or plain(row.get("content")), key)
        else:
            self.skip_client(kind, key)
        self._last = row.get("id", self._last)

    def _take_message(self, message: Row, row: Row, key: str) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            usage, reason = fields.mapping(message, "usage"), message.get("stopReason")
            self.add_message(
                {"role": role, "content": content},
                key,
                model=fields.text(message, "model"),
                usage=usage_beside(usage, "input", "output", "cacheRead", "cacheWrite"),
                cost_usd=fields.at(usage, "cost", "total"),
                finish_reason=reason,
            )
            if reason == "aborted":
                self.add("interrupt", {"call_id": key}, f"{key}:aborted")
            elif reason == "error":
                self.add("error", {"message": str(message.get("errorMessage"))}, f"{key}:error")
        elif role == "toolResult":
            ok, details = message.get("isError") is not True, message.get("details") or None
            call_id, tool = (fields.text(message, name) for name in ("toolCallId", "toolName"))
            self.add_result(call_id, plain(content), key, ok=ok, tool=tool, details=details)
        elif role == "bashExecution":
            ran = fields.without(message, "role", "command", "timestamp")
            self.add("x_command", ran | {"text": message.get("command")}, key)
        elif role == "user":
            if self._last not in (None, row.get("parentId")) and "parentId" in row:
                comment = {"comment": "went back in the conversation", "target": str(self._last)}
                self.add("feedback", {"kind": "undo"} | comment, f"{key}:rewind")
            self.add_message({"role": role, "content": content}, key)
        else:
            self.add_context(role, plain(content), key)


class PiImporter(RowsImporter):
    name = "pi"
    homes = ("$PI_CODING_AGENT_DIR/sessions", "~/.pi/agent/sessions")
    draft_type = _PiSession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        named = first.get("type") == "session" and "id" in first and "harness" not in first
        return named and bool(first.keys() & {"version", "cwd"})


IMPORTERS = (PiImporter(),)
