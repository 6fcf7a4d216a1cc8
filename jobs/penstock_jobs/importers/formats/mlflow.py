"""MLflow: traces as `Trace.to_json` writes them, one a document, a line or an element, and what
`search_traces` gives as rows. Spans of the types CHAT_MODEL and LLM are calls of a model; version 2
and 3 name fields of a span differently."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.events.messages import answer_of, messages_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.model_calls import CallImporter, ExportedCall, Score, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import Row, columns_of, is_export, rows_of
from penstock_jobs.importers.transcript import digest_of, json_of, milliseconds, moment_us, present

_MARK = re.compile(rb'"mlflow\.(?:traceRequestId|spanType|trace_schema\.version)\\?"\s*:')
_CALLS = ("CHAT_MODEL", "LLM")
_SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop")
_TAKEN = ("mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.spanType", "mlflow.traceRequestId",
          "mlflow.chat.tokenUsage", "mlflow.chat.tools", "mlflow.chat.messages")  # fmt: skip


class MlflowImporter(CallImporter):
    name = "mlflow"

    def recognises(self, candidate: Candidate) -> bool:
        if not is_export(candidate):
            return False
        return bool(_MARK.search(candidate.beginning)) or (
            {"trace_id", "trace", "spans"} <= columns_of(candidate)
        )

    def calls(self, source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
        return _items(source, notes)


def _items(source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
    for where, row in rows_of(source, notes, "traces"):
        trace = json_of(row.get("trace")) if "trace" in row else row
        trace = trace if isinstance(trace, dict) else row
        info = fields.mapping(trace, "info") or trace
        spans = fields.rows(fields.mapping(trace, "data") or trace, "spans")
        name = fields.identifier(info, "trace_id") or fields.identifier(info, "request_id")
        if name is None:
            notes.skip("row that is no trace", where)
            continue
        session = _metadata(info).get("mlflow.trace.session") or name
        for span in spans:
            kind = _attributes(span).get("mlflow.spanType")
            if kind in _CALLS:
                yield _call(span, info, str(session), source)
            else:
                skip_other(notes, f"span of the type {kind}", span.get("name"))
        for assessment in fields.rows(info, "assessments"):
            yield from _score(assessment, str(session), source, notes)


def _metadata(info: Row) -> dict[str, Any]:
    return fields.mapping(info, "trace_metadata") or fields.mapping(info, "request_metadata")


def _attributes(span: Row) -> dict[str, Any]:
    return {name: _decoded(value) for name, value in fields.mapping(span, "attributes").items()}


def _decoded(value: Any) -> Any:
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.MsgspecError, RecursionError):
        return value


def _call(span: Row, info: Row, session: str, source: Source) -> ExportedCall:
    attributes, context = _attributes(span), fields.mapping(span, "context")
    given, gave = attributes.get("mlflow.spanInputs"), attributes.get("mlflow.spanOutputs")
    request = given if isinstance(given, dict) else {}
    response = gave if isinstance(gave, dict) else {}
    times = (("start_time_unix_nano", "start_time"), ("end_time_unix_nano", "end_time"))
    began, ended = (moment_us(_first(span, *names)) for names in times)
    began = began or moment_us(info.get("request_time")) or source.changed_us()
    name = str(context.get("span_id") or span.get("span_id") or digest_of(span))
    user = fields.text(_metadata(info), "mlflow.trace.user")
    usage = attributes.get("mlflow.chat.tokenUsage") or response.get("usage")
    parent = fields.text(span, "parent_span_id") or fields.text(span, "parent_id")
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=ended,
        messages=messages_of(json_of(given)),
        answer=answer_of(json_of(gave)),
        session=session,
        span=name,
        parent=parent,
        user=user if isinstance(user, str) else None,
        tools=attributes.get("mlflow.chat.tools") or request.get("tools"),
        error=_error(span),
        facts={
            "call_id": name,
            "model": attributes.get("mlflow.llm.model") or request.get("model")
            or response.get("model"),
            "usage": usage_of(usage),
            "sampling": present({each: request.get(each) for each in _SAMPLING}) or None,
            "latency_ms": milliseconds(began, ended),
            "mlflow": fields.without(attributes, *_TAKEN) | {"name": span.get("name")},
        },
    )  # fmt: skip


def _error(span: Row) -> str | None:
    status = fields.mapping(span, "status")
    message = status.get("message") or span.get("status_message")
    return message if isinstance(message, str) and message else None


def _score(assessment: Row, session: str, source: Source, notes: Notes) -> Iterator[Score]:
    feedback, by = fields.mapping(assessment, "feedback"), fields.mapping(assessment, "source")
    name = str(assessment.get("assessment_name") or assessment.get("name"))
    if "value" not in feedback:
        notes.skip("assessment that is no feedback", name)
        return
    yield Score(
        id=str(assessment.get("assessment_id") or digest_of(assessment)),
        session=session,
        name=name,
        value=_decoded(feedback["value"]),
        given_by=f"mlflow:{str(by.get('source_type') or 'unknown').lower()}",
        ts_us=moment_us(assessment.get("create_time")) or source.changed_us(),
        comment=fields.text(assessment, "rationale"),
        call_id=fields.text(assessment, "span_id"),
    )


def _first(row: Row, *names: str) -> Any:
    value = next((row[name] for name in names if row.get(name)), None)
    return int(value) if isinstance(value, str) and value.isdigit() else value


IMPORTERS = (MlflowImporter(),)
