"""Phoenix: traces and spans as its command line saves them, and its table of spans as JSON or
Parquet. Attributes are those of OpenInference, nested or with dots in their names. Spans of the
kind LLM are calls of a model.
"""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import answer_of, count_of, json_of, messages_of, present
from penstock.ingest.otlp.attributes import with_lists
from penstock.ingest.otlp.dialects.tracers import openinference_message
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, digest_of, milliseconds
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.model_calls import CallImporter, Exported, ExportedCall, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source

_KIND = re.compile(rb'"(?:span_kind|openinference\.span\.kind)"\s*:')
_CONTEXT = re.compile(rb'"context\.trace_id"\s*:|"context"\s*:\s*\{[^{}]*"trace_id"\s*:')
#: Names with more dots are nobody's.
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
                notes.skip("row that is no span", where)
                continue
            owner = fields.text(facts, "attributes", "session", "id") or trace
            if facts.get("span_kind") == "LLM":
                yield _call(facts, owner, name, source)
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
    """With dots in names as levels; levels that are numbered are lists."""
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


def _call(span: Row, owner: str, name: str, source: Source) -> ExportedCall:
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


IMPORTERS = (PhoenixImporter(),)
