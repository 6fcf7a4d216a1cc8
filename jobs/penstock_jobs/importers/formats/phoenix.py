"""Phoenix: traces and spans as its command line saves them, and its table of spans as JSON or
Parquet. Attributes are those of OpenInference, nested or with dots in their names. Spans of the
kind LLM are calls of a model."""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import answer_of, count_of, messages_of
from penstock.otlp.attributes import with_lists
from penstock.otlp.dialects.tracers import openinference_message
from penstock_jobs.importers import fields
from penstock_jobs.importers.model_calls import CallImporter, ExportedCall, Score, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import Row, columns_of, is_export, rows_of
from penstock_jobs.importers.transcript import digest_of, json_of, milliseconds, moment_us, present

_KIND = re.compile(rb'"(?:span_kind|openinference\.span\.kind)"\s*:')
_CONTEXT = re.compile(rb'"context\.trace_id"\s*:|"context"\s*:\s*\{[^{}]*"trace_id"\s*:')
#: Names with more dots are nobody's.
_DOTS_MAX = 30


class PhoenixImporter(CallImporter):
    name = "phoenix"

    def recognises(self, candidate: Candidate) -> bool:
        if not is_export(candidate):
            return False
        begins = candidate.beginning
        return bool(_KIND.search(begins) and _CONTEXT.search(begins)) or (
            {"span_kind", "context.trace_id"} <= columns_of(candidate)
        )

    def calls(self, source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
        return _items(source, notes)


def _items(source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
    for where, row in rows_of(source, notes, "data"):
        held = "spans" in row
        for span in fields.rows(row, "spans") if held else [row]:
            facts = _facts(span)
            context = fields.mapping(facts, "context")
            trace, name = fields.identifier(context, "trace_id"), fields.text(context, "span_id")
            if trace is None or name is None:
                notes.skip("row that is no span", where)
                continue
            attributes = fields.mapping(facts, "attributes")
            session = fields.mapping(attributes, "session").get("id")
            owner = session if isinstance(session, str) and session else trace
            if facts.get("span_kind") == "LLM":
                yield _call(facts, attributes, owner, name, source)
            else:
                skip_other(notes, f"span of the kind {facts.get('span_kind')}", facts.get("name"))
            for note in fields.rows(span, "annotations"):
                yield _score(note, owner, name, source)


def _facts(span: Row) -> dict[str, Any]:
    tree = nested({name: value for name, value in span.items() if value is not None})
    return tree if isinstance(tree, dict) else {}


def nested(value: Any) -> Any:
    """With dots in names as levels; levels that are numbered are lists."""
    if isinstance(value, list):
        return [nested(item) for item in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for name, given in value.items():
        *path, last = name.split(".", _DOTS_MAX)
        level = tree
        for part in path:
            below = level.get(part)
            if not isinstance(below, dict):
                below = level[part] = {}
            level = below
        item = nested(given)
        known = level.get(last)
        level[last] = known | item if isinstance(known, dict) and isinstance(item, dict) else item
    return with_lists(tree)


def _call(span: Row, attributes: Row, owner: str, name: str, source: Source) -> ExportedCall:
    llm = fields.mapping(attributes, "llm")
    began = moment_us(span.get("start_time")) or source.changed_us()
    ended = moment_us(span.get("end_time"))
    messages, answers = (
        [openinference_message(fields.mapping(each, "message")) for each in fields.rows(llm, name)]
        for name in ("input_messages", "output_messages")
    )
    given, gave = (fields.mapping(attributes, each).get("value") for each in ("input", "output"))
    user = fields.text(fields.mapping(attributes, "user"), "id")
    message = fields.text(span, "status_message")
    tools = [json_of(fields.mapping(each, "tool").get("json_schema"))
             for each in fields.rows(llm, "tools")]  # fmt: skip
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=ended,
        messages=messages or messages_of(json_of(given)),
        answer=answers[0] if answers else answer_of(json_of(gave)),
        session=owner,
        span=name,
        parent=fields.text(span, "parent_id"),
        user=user or None,
        tools=[tool for tool in tools if tool is not None],
        error=message or None,
        facts={
            "call_id": name,
            "model": llm.get("model_name"),
            "usage": _usage(fields.mapping(llm, "token_count")),
            "sampling": json_of(llm.get("invocation_parameters")) or None,
            "latency_ms": milliseconds(began, ended),
            "phoenix": present(
                {"name": span.get("name"), "metadata": json_of(attributes.get("metadata"))}
            ),
        },
    )


def _usage(counts: Row) -> dict[str, int] | None:
    read, wrote = (
        fields.mapping(counts, each) for each in ("prompt_details", "completion_details")
    )
    usage = {
        "prompt": count_of(counts.get("prompt")),
        "completion": count_of(counts.get("completion")),
        "cached": count_of(read.get("cache_read")),
        "thinking": count_of(wrote.get("reasoning")),
    }
    return present(usage) or None


def _score(note: Row, owner: str, span: str, source: Source) -> Score:
    result = fields.mapping(note, "result")
    score = result.get("score")
    return Score(
        id=str(note.get("id") or digest_of(span, note)),
        session=owner,
        name=str(note.get("name")),
        value=result.get("label") if score is None else score,
        given_by=f"phoenix:{str(note.get('annotator_kind') or 'unknown').lower()}",
        ts_us=moment_us(note.get("created_at")) or source.changed_us(),
        comment=fields.text(result, "explanation"),
        call_id=span,
    )


IMPORTERS = (PhoenixImporter(),)
