"""MLflow: traces as `Trace.to_json` writes them, one a document, a line or an element, and what
`search_traces` gives as rows. Spans of the types CHAT_MODEL and LLM are calls of a model; version 2
and 3 name fields of a span differently.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.events.messages import answer_of, json_of, messages_of, present, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, digest_of, milliseconds
from penstock_jobs.importers.model_calls import CallImporter, Exported, ExportedCall, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source

_MARK = re.compile(rb'"mlflow\.(?:traceRequestId|spanType|trace_schema\.version)\\?"\s*:')
_CALLS = ("CHAT_MODEL", "LLM")
_SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop")
_TAKEN = ("mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.spanType", "mlflow.traceRequestId",
          "mlflow.chat.tokenUsage", "mlflow.chat.tools", "mlflow.chat.messages")  # fmt: skip


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
            notes.skip("row that is no trace", where)
            return
        session = str(_metadata(info).get("mlflow.trace.session") or name)
        for span in fields.rows(fields.mapping(trace, "data") or trace, "spans"):
            told = fields.mapping(span, "attributes").items()
            attributes = {each: _decoded(value) for each, value in told}
            kind = attributes.get("mlflow.spanType")
            if kind in _CALLS:
                yield _call(span, attributes, info, session, source)
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
            notes.skip("assessment that is no feedback", name)
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


def _call(span: Row, attributes: Row, info: Row, session: str, source: Source) -> ExportedCall:
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
            "mlflow": fields.without(attributes, *_TAKEN) | {"name": span.get("name")},
        },
    )


IMPORTERS = (MlflowImporter(),)
