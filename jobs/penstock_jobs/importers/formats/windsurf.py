"""Windsurf and Antigravity: transcripts with a step a line."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from penstock.events.messages import json_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import RowDraft, RowsImporter, tool_call


class _WindsurfSession(RowDraft):
    _answer: ImportedEvent | None = None

    def take(self, row: Row, key: str) -> None:
        kind = str(row.get("type"))
        step = fields.mapping(row, kind)
        if kind == "user_input":
            rules = step.get("rules_applied") or None
            self.add_prompt(fields.text(step, "user_response") or "", key, rules_applied=rules)
        elif kind == "planner_response":
            said, thinking = step.get("response"), step.get("thinking")
            self._answer = self.add_answer(key, text=said, thinking=thinking)
        elif kind == "code_action":
            self.notes.skip("edit whose earlier text is not shown", key)
            told = {"kind": "edit", "path": step.get("path"), "text": step.get("new_content")}
            self.add("x_context", told, key)
        else:
            if self._answer is not None:
                asked = tool_call(key, step.get("tool_name") or kind, step.get("arguments", step))
                self._answer.payload.setdefault("tool_calls", []).append(asked)
                self.open_call(asked)
            output = step.get("result", step.get("output"))
            self.add_result(key, output, f"{key}:result", ok=row.get("status") == "done")


class WindsurfImporter(RowsImporter):
    """Windsurf: what its hook `post_cascade_response_with_transcript` writes.

    Steps have no times, no tokens, and of a changed file the new text alone, or a part of it."""

    name = "windsurf"
    homes = ("~/.windsurf/transcripts",)
    draft_type = _WindsurfSession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        kind = fields.text(first, "type")
        return kind in ("user_input", "planner_response") and kind in first


_REQUEST = re.compile(r"<USER_REQUEST>\n?(.*?)\n?</USER_REQUEST>\s*", re.DOTALL)
_MODEL = re.compile(r"Model Selection`? (?:changed )?from .*? to (.+?)\.(?:\s|<|\Z)")
_FULL, _SHORT = "transcript_full.jsonl", "transcript.jsonl"


class _AntigravitySession(RowDraft):
    #: Calls without results, in their order.
    _open: Sequence[str] = ()

    def take(self, row: Row, key: str) -> None:
        self.at(row.get("created_at"))
        key = f"step-{row['step_index']}" if "step_index" in row else key
        kind, content = row.get("type"), fields.text(row, "content") or ""
        if kind == "USER_INPUT":
            asked = _REQUEST.search(content)
            self.add_prompt(asked[1] if asked else content, key)
            if asked and (rest := _REQUEST.sub("", content)):
                self.add_context("client", rest, f"{key}:client")
            if told := _MODEL.search(content):
                self.model = told[1]
        elif kind == "PLANNER_RESPONSE":
            self._answer(row, content, key)
        elif kind == "CHECKPOINT":
            self.add("compaction", {"summary": content}, key)
        elif row.get("source") == "MODEL" and self._open:
            failed = row.get("status") not in ("DONE", "RUNNING", None)
            call_id, *self._open = self._open
            self.add_result(call_id, content, key, ok=False if failed else None)
        elif content:
            self.add_context(kind, content, key)
        else:
            self.skip_client(kind, key)

    def _answer(self, row: Row, content: str, key: str) -> None:
        calls = []
        for at, call in enumerate(fields.rows(row, "tool_calls")):
            told = fields.mapping(call, "args").items()
            arguments = {name: _decoded(name, value) for name, value in told}
            tool = str(call.get("name")).removeprefix("default_api:")
            calls.append(tool_call(f"{key}:call:{at}", tool, arguments))
        self._open = [call["id"] for call in calls]
        facts = {"thinking": row.get("thinking"), "usage": usage_of(row.get("usage"))}
        model = fields.text(row, "model") or self.model
        self.add_answer(key, text=content or None, tool_calls=calls, model=model, **facts)


def _decoded(name: str, value: Any) -> Any:
    is_json = isinstance(value, str) and (value[:1] == '"' or name == "ReplacementChunks")
    known = json_of(value) if is_json else None
    return value if known is None else known


class AntigravityImporter(RowsImporter):
    """Antigravity: `brain/ID/.system_generated/logs/transcript.jsonl`.

    A step that is not the model's answer is the result of its next open call: calls have no ids.
    The values of their arguments are JSON in texts."""

    name = "antigravity"
    homes = ("~/.gemini/antigravity/brain", "~/.gemini/antigravity-cli/brain",
             "~/.gemini/antigravity-ide/brain")  # fmt: skip
    draft_type = _AntigravitySession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        return first.get("source") in ("USER_EXPLICIT", "MODEL", "SYSTEM") and "type" in first

    def draft(self, source: Source, notes: Notes) -> RowDraft:
        draft = super().draft(source, notes)
        if source.name in (_FULL, _SHORT):
            draft.session_id = source.real.parents[2].name
        return draft

    def duplicates(self, sources: Sequence[Source]) -> Collection[Source]:
        full = {source.real.parent for source in sources if source.name == _FULL}
        return [each for each in sources if each.name == _SHORT and each.real.parent in full]


IMPORTERS = (WindsurfImporter(), AntigravityImporter())
