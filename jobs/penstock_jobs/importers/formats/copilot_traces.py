"""Copilot's `agent-traces.db`, which VS Code keeps if `dbSpanExporter` is on.

Spans of the operation `chat` are calls of a model, whose tokens others repeat. Texts are there if
they were captured."""

from collections.abc import Iterator

from penstock.events.messages import answer_of, json_of, messages_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, milliseconds
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.model_calls import CallSessions, ExportedCall, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.stores import DatabaseImporter, Query


class CopilotTracesImporter(DatabaseImporter):
    name = "copilot-traces"
    homes = tuple(
        f"{store}/Code/User/globalStorage/github.copilot-chat"
        for store in ("~/.config", "~/Library/Application Support", "$APPDATA")
    )
    usual_name = "agent-traces.db"
    tables = ("spans", "span_attributes")

    def sessions(self, query: Query, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        calls = CallSessions(self.name, notes)
        for span in query("SELECT * FROM spans ORDER BY start_time_ms, span_id"):
            if (kind := span.get("operation_name")) == "chat":
                told = query("SELECT * FROM span_attributes WHERE span_id = ?", span["span_id"])
                facts = {str(row["key"]): json_of(row["value"]) for row in told}
                yield from calls.take(_traced_call(span, facts, source))
            else:
                skip_other(notes, f"span of the operation {kind}", span["span_id"])


def _traced_call(span: Row, facts: Row, source: Source) -> ExportedCall:
    began, ended = source.time_us(span["start_time_ms"]), fields.moment(span, "end_time_ms")
    names = ("chat_session_id", "conversation_id", "trace_id")
    counts = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    return ExportedCall(
        id=span["span_id"],
        began_us=began,
        ended_us=ended,
        messages=messages_of(facts.get("gen_ai.input.messages")),
        answer=answer_of(facts.get("gen_ai.output.messages") or {"role": "assistant"}),
        # The chat's own file may be imported too.
        session=f"{fields.first(span, *names) or span['span_id']}/traces",
        facts={
            "call_id": facts.get("gen_ai.response.id") or span["span_id"],
            "model": fields.first(span, "response_model", "request_model"),
            "usage": usage_of({name: span.get(name) for name in counts}),
            "latency_ms": milliseconds(began, ended),
            "ttft_ms": span.get("ttft_ms"),
        },
    )


IMPORTERS = (CopilotTracesImporter(),)
