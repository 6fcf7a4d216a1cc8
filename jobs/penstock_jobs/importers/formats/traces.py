"""Traces of Phoenix, MLflow, OpenTelemetry and Copilot.

Phoenix: traces and spans saved by its command line, and its table of spans as JSON or Parquet.
Attributes follow OpenInference, nested or with dots in their names. Spans of the kind LLM are calls
of a model.

MLflow: traces as `Trace.to_json` writes them, per document, line or element, and the rows of
`search_traces`. Spans of the types CHAT_MODEL and LLM are calls of a model. Versions 2 and 3 name a
span's fields differently.

OTLP in files: requests as JSON, per document or line, as the collector's file exporter writes them.
They are converted as by `POST /v1/traces` and `/v1/logs`.

Copilot's `agent-traces.db`, which VS Code keeps if `dbSpanExporter` is on. Spans of the operation
`chat` are calls of a model, whose tokens others repeat. Texts are there if they were captured.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from penstock.events.messages import answer_of, count_of, json_of, messages_of, present, usage_of
from penstock.ingest.otlp.conversion import TelemetryBatch
from penstock.ingest.otlp.json_form import logs_of, metrics_of, spans_of
from penstock.ingest.otlp.log_batch import SessionNotes
from penstock.ingest.otlp.records import with_lists
from penstock.ingest.otlp.tracers import openinference_message
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, digest_of, milliseconds
from penstock_jobs.importers.importer import ImportedEvent, Importer, RecentEntries
from penstock_jobs.importers.model_calls import (
    CallImporter,
    CallSessions,
    Exported,
    ExportedCall,
    skip_other,
)
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import DatabaseImporter, Query, is_export, rows_of

_KIND = re.compile(rb'"(?:span_kind|openinference\.span\.kind)"\s*:')
_CONTEXT = re.compile(rb'"context\.trace_id"\s*:|"context"\s*:\s*\{[^{}]*"trace_id"\s*:')
#: Names have fewer dots.
_DOTS_MAX = 30


class PhoenixImporter(CallImporter):
    name = "phoenix"
    marks = ((_KIND, _CONTEXT),)
    columns = ({"span_kind", "context.trace_id"},)
    holders = ("data",)

    def calls(self, row: Row, source: Source, notes: Notes, where: str) -> Iterator[Exported]:
        for span in fields.rows(row, "spans") if "spans" in row else [row]:
            facts = fields.mapping(_nested(present(span)))
            trace = fields.identifier(facts, "context", "trace_id")
            name = fields.text(facts, "context", "span_id")
            if trace is None or name is None:
                notes.skip("row that is not a span", where)
                continue
            owner = fields.text(facts, "attributes", "session", "id") or trace
            if facts.get("span_kind") == "LLM":
                yield _phoenix_call(facts, owner, name, source)
            else:
                skip_other(notes, f"span of the kind {facts.get('span_kind')}", facts.get("name"))
            for note in fields.rows(span, "annotations"):
                yield self._score(note, owner, name, source)

    def _score(self, note: Row, owner: str, span: str, source: Source) -> ImportedEvent:
        score = fields.at(note, "result", "score")
        return self.reward(
            owner,
            note.get("id") or digest_of(span, note),
            source.time_us(note.get("created_at")),
            note.get("annotator_kind") or "unknown",
            name=str(note.get("name")),
            value=fields.at(note, "result", "label") if score is None else score,
            comment=fields.text(note, "result", "explanation"),
            call_id=span,
        )


def _nested(value: Any) -> Any:
    """Turn dots in names into levels, and numbered levels into lists."""
    if isinstance(value, list):
        return [_nested(item) for item in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for name, given in value.items():
        *path, last = name.split(".", _DOTS_MAX)
        level = tree
        for part in path:
            if not isinstance(level.get(part), dict):
                level[part] = {}
            level = level[part]
        item = _nested(given)
        known = level.get(last)
        level[last] = known | item if isinstance(known, dict) and isinstance(item, dict) else item
    return with_lists(tree)


def _phoenix_call(span: Row, owner: str, name: str, source: Source) -> ExportedCall:
    attributes, llm = fields.mapping(span, "attributes"), fields.mapping(span, "attributes", "llm")
    began, ended = source.time_us(span.get("start_time")), fields.moment(span, "end_time")
    messages, answers = (
        [openinference_message(fields.mapping(each, "message")) for each in fields.rows(llm, told)]
        for told in ("input_messages", "output_messages")
    )
    given, gave = (json_of(fields.at(attributes, each, "value")) for each in ("input", "output"))
    tools = [json_of(fields.at(each, "tool", "json_schema")) for each in fields.rows(llm, "tools")]
    counts = fields.mapping(llm, "token_count")
    usage = {
        "prompt": count_of(counts.get("prompt")),
        "completion": count_of(counts.get("completion")),
        "cached": fields.count(counts, "prompt_details", "cache_read"),
        "thinking": fields.count(counts, "completion_details", "reasoning"),
    }
    about = {"name": span.get("name"), "metadata": json_of(attributes.get("metadata"))}
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=ended,
        messages=messages or messages_of(given),
        answer=answers[0] if answers else answer_of(gave),
        session=owner,
        span=name,
        parent=fields.text(span, "parent_id"),
        user=fields.text(attributes, "user", "id") or None,
        tools=[tool for tool in tools if tool is not None],
        error=fields.text(span, "status_message") or None,
        facts={
            "call_id": name,
            "model": llm.get("model_name"),
            "usage": present(usage) or None,
            "sampling": json_of(llm.get("invocation_parameters")) or None,
            "latency_ms": milliseconds(began, ended),
            "phoenix": present(about),
        },
    )


_MARK = re.compile(rb'"mlflow\.(?:traceRequestId|spanType|trace_schema\.version)\\?"\s*:')
_CALLS = ("CHAT_MODEL", "LLM")
_SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop")
_MLFLOW_FIELDS = (
    "mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.spanType", "mlflow.traceRequestId",
    "mlflow.chat.tokenUsage", "mlflow.chat.tools", "mlflow.chat.messages",
)  # fmt: skip


class MlflowImporter(CallImporter):
    name = "mlflow"
    marks = ((_MARK,),)
    columns = ({"trace_id", "trace", "spans"},)
    holders = ("traces",)

    def calls(self, row: Row, source: Source, notes: Notes, where: str) -> Iterator[Exported]:
        held = json_of(row.get("trace"))
        trace = held if isinstance(held, dict) else row
        info = fields.mapping(trace, "info") or trace
        name = fields.identifier(info, "trace_id") or fields.identifier(info, "request_id")
        if name is None:
            notes.skip("row that is not a trace", where)
            return
        session = str(_metadata(info).get("mlflow.trace.session") or name)
        for span in fields.rows(fields.mapping(trace, "data") or trace, "spans"):
            told = fields.mapping(span, "attributes").items()
            attributes = {each: _decoded(value) for each, value in told}
            kind = attributes.get("mlflow.spanType")
            if kind in _CALLS:
                yield _mlflow_call(span, attributes, info, session, source)
            else:
                skip_other(notes, f"span of the type {kind}", span.get("name"))
        for assessment in fields.rows(info, "assessments"):
            yield from self._score(assessment, session, source, notes)

    def _score(
        self, assessment: Row, session: str, source: Source, notes: Notes
    ) -> Iterator[Exported]:
        name = str(assessment.get("assessment_name") or assessment.get("name"))
        feedback = fields.mapping(assessment, "feedback")
        if "value" not in feedback:
            notes.skip("assessment that is not feedback", name)
            return
        yield self.reward(
            session,
            assessment.get("assessment_id") or digest_of(assessment),
            source.time_us(assessment.get("create_time")),
            fields.at(assessment, "source", "source_type") or "unknown",
            name=name,
            value=_decoded(feedback["value"]),
            comment=fields.text(assessment, "rationale"),
            call_id=fields.text(assessment, "span_id"),
        )


def _metadata(info: Row) -> dict[str, Any]:
    return fields.mapping(info, "trace_metadata") or fields.mapping(info, "request_metadata")


def _decoded(value: Any) -> Any:
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.MsgspecError, RecursionError):
        return value


def _mlflow_call(
    span: Row, attributes: Row, info: Row, session: str, source: Source
) -> ExportedCall:
    given, gave = attributes.get("mlflow.spanInputs"), attributes.get("mlflow.spanOutputs")
    request = given if isinstance(given, dict) else {}
    response = gave if isinstance(gave, dict) else {}
    began, ended = (
        fields.moment_us(int(told) if isinstance(told, str) and told.isdigit() else told)
        for side in ("start", "end")
        for told in [fields.first(span, f"{side}_time_unix_nano", f"{side}_time")]
    )
    began = began or source.time_us(info.get("request_time"))
    context = fields.at(span, "context", "span_id")
    name = str(context or span.get("span_id") or digest_of(span))
    models = attributes.get("mlflow.llm.model"), request.get("model"), response.get("model")
    error = fields.at(span, "status", "message") or span.get("status_message")
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=ended,
        messages=messages_of(json_of(given)),
        answer=answer_of(json_of(gave)),
        session=session,
        span=name,
        parent=fields.text(span, "parent_span_id") or fields.text(span, "parent_id"),
        user=fields.text(_metadata(info), "mlflow.trace.user"),
        tools=attributes.get("mlflow.chat.tools") or request.get("tools"),
        error=fields.text(error) or None,
        facts={
            "call_id": name,
            "model": next(filter(None, models), None),
            "usage": usage_of(attributes.get("mlflow.chat.tokenUsage") or response.get("usage")),
            "sampling": present({each: request.get(each) for each in _SAMPLING}) or None,
            "latency_ms": milliseconds(began, ended),
            "mlflow": fields.without(attributes, *_MLFLOW_FIELDS) | {"name": span.get("name")},
        },
    )


_BEGINS = re.compile(rb'\s*\[?\s*\{\s*"resource(?:Spans|Logs|Metrics)"\s*:')


class OtlpImporter(Importer):
    name = "otlp"

    def recognises(self, candidate: Candidate) -> bool:
        return is_export(candidate) and bool(_BEGINS.match(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        known = SessionNotes()
        seen: RecentEntries[bool] = RecentEntries()
        for where, row in rows_of(source, notes):
            batch = TelemetryBatch(source.changed_us(), notes=known)
            for converted in chain(
                batch.spans(spans_of(row)), batch.logs(logs_of(row)), batch.metrics(metrics_of(row))
            ):
                if converted.why is not None:
                    example = f"{where}: {converted.why}"
                    notes.skip("span, log record or metric that cannot be read", example)
                elif not converted.is_known:
                    what = converted.name or "span or log record"
                    notes.skip(f"{what} that belongs to no agent", where)
                for event in converted.events:
                    key = f"{event['session_id']}\0{event['event_id']}"
                    if seen.get(key) is None:
                        seen[key] = True
                        yield ImportedEvent(**event)


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
