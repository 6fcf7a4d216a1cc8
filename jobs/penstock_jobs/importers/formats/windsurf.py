"""Windsurf: what its hook `post_cascade_response_with_transcript` writes, a step a line.

They have no times, no tokens, and of a changed file the new text alone, or a part of it."""

from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.sources import Candidate
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
    name = "windsurf"
    homes = ("~/.windsurf/transcripts",)
    draft_type = _WindsurfSession

    def recognises(self, candidate: Candidate) -> bool:
        first = next(iter(candidate.first_rows), {})
        kind = fields.text(first, "type")
        return kind in ("user_input", "planner_response") and kind in first


IMPORTERS = (WindsurfImporter(),)
