"""Langfuse: exports to a bucket (`observations_v2/`, `observations/`, `scores/`) or of a table, and
downloads of a trace.

An observation of the type GENERATION is a call of a model. Sessions are made of the calls of a
Langfuse session, or of a trace without one.

TensorZero: inferences from its gateway (`list_inferences`, `get_inferences`) and rows of its table
ChatInference. An episode is a session.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.events.messages import (
    Message,
    answer_of,
    call_of,
    count_of,
    json_of,
    messages_of,
    present,
)
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, arguments_of, milliseconds
from penstock_jobs.importers.importer import ImportedEvent
from penstock_jobs.importers.model_calls import CallImporter, Exported, ExportedCall, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source

_KEPT_OF_INFERENCE = (
    "function_name", "variant_name", "tags", "inference_params", "dispreferred_outputs",
    "output_schema", "extra_body", "snapshot_hash")  # fmt: skip
_UUID_7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-")


def _names(*names: bytes) -> list[re.Pattern[bytes]]:
    return [re.compile(rb'"(?:%s)"\s*:' % name) for name in names]


class TensorZeroImporter(CallImporter):
    name = "tensorzero"
    marks = (_names(b"episode_id", b"function_name", b"variant_name"),)
    holders = ("inferences", "data")

    def calls(self, row: Row, source: Source, notes: Notes, where: str) -> Iterator[Exported]:
        name = fields.identifier(row, "inference_id") or fields.identifier(row, "id")
        episode = fields.identifier(row, "episode_id")
        if name is None or episode is None or "input" not in row:
            notes.skip("row that is not an inference", where)
            return
        made = _UUID_7.match(name)
        told = row.get("timestamp") or (int(made[1] + made[2], 16) if made else None)
        began, took = source.time_us(told), count_of(row.get("processing_time_ms"))
        output, parameters = json_of(row.get("output")), json_of(row.get("tool_params"))
        raw = fields.text(output, "raw")
        available = fields.at(parameters, "tools_available")
        request = present({each: json_of(row.get(each)) or None for each in _KEPT_OF_INFERENCE})
        yield ExportedCall(
            id=name,
            began_us=began,
            ended_us=began + took * 1000 if took is not None else None,
            messages=messages_of(json_of(row.get("input"))),
            answer=answer_of(output if raw is None else raw),
            session=episode,
            tools=available or fields.at(parameters, "additional_tools"),
            facts={"call_id": name, "latency_ms": took, "request": request or None},
        )


_TYPES = ("SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING",
          "GUARDRAIL")  # fmt: skip
#: Fields of a call that are kept as they are.
_KEPT = ("name", "trace_name", "metadata", "version", "release", "environment", "tags", "level",
         "prompt_name", "prompt_version", "cost_details", "total_cost")  # fmt: skip
_CACHED = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read")


class LangfuseImporter(CallImporter):
    name = "langfuse"
    marks = (
        _names(b"parent_observation_id|parentObservationId"),
        _names(b"data_type|dataType", b"observation_id|observationId"),
    )
    columns = ({"trace_id", "parent_observation_id"}, {"trace_id", "observation_id", "data_type"})
    holders = ("data",)

    def calls(self, row: Row, source: Source, notes: Notes, where: str) -> Iterator[Exported]:
        observations = row.get("observations")
        if not isinstance(observations, list):
            yield from self._item(row, {}, source, notes, where)
            return
        trace = fields.mapping(row, "trace") or row
        for each in [*observations, *fields.items(row, "scores")]:
            if isinstance(each, dict):
                yield from self._item(each, trace, source, notes, where)

    def _item(
        self, row: Row, trace: Row, source: Source, notes: Notes, where: str
    ) -> Iterator[Exported]:
        kind, name = row.get("type"), fields.identifier(row, "id")
        told = (_of(row, "session_id"), _of(trace, "session_id"), _of(row, "trace_id"))
        owner = next((each for each in told if isinstance(each, str) and each), None)
        if name is None or owner is None:
            notes.skip("row without an id or a trace", where)
        elif kind == "GENERATION":
            yield _call(row, trace, source, name, owner)
        elif kind is None and _of(row, "data_type") is not None:
            yield self._score(row, source, name, owner)
        else:
            skip_other(notes, kind if kind in _TYPES else None, where)

    def _score(self, row: Row, source: Source, name: str, owner: str) -> ImportedEvent:
        text = _of(row, "string_value")
        return self.reward(
            owner,
            name,
            source.time_us(row.get("timestamp")),
            row.get("source") or "API",
            name=str(row.get("name")),
            value=text if isinstance(text, str) and text else row.get("value"),
            comment=fields.text(row, "comment"),
            call_id=_of(row, "observation_id") or None,
        )


def _call(row: Row, trace: Row, source: Source, name: str, owner: str) -> ExportedCall:
    began = source.time_us(_of(row, "start_time"))
    ended, first = (
        fields.moment_us(_of(row, each)) for each in ("end_time", "completion_start_time")
    )
    answer, calls = answer_of(json_of(row.get("output"))), fields.items(row, "tool_calls")
    if calls and not (answer and answer.calls):
        answer = answer or Message("assistant")
        answer.calls = [call_of(call) for call in map(arguments_of, calls) if call]
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=ended,
        messages=messages_of(json_of(row.get("input"))),
        answer=answer,
        session=owner,
        span=name,
        parent=fields.text(_of(row, "parent_observation_id")),
        user=fields.text(_of(row, "user_id") or _of(trace, "user_id")) or None,
        tools=_of(row, "tool_definitions"),
        error=_of(row, "status_message") or None,
        facts={
            "call_id": name,
            "model": _of(row, "provided_model_name") or row.get("model") or None,
            "usage": _usage(_of(row, "usage_details") or row.get("usage")),
            "sampling": json_of(_of(row, "model_parameters")) or None,
            "latency_ms": milliseconds(began, ended),
            "ttft_ms": milliseconds(began, first),
            "langfuse": present({each: _of(row, each) or None for each in _KEPT}) or None,
        },
    )


def _usage(details: object) -> dict[str, int] | None:
    """Sum up Langfuse's counts, in which each token has exactly one name."""
    if not isinstance(details, Mapping):
        return None
    counts = {str(name): count_of(value) or 0 for name, value in details.items()}
    parts = {"prompt": "input", "completion": "output", "thinking": "reasoning"}
    usage = {
        name: sum(count for other, count in counts.items() if part in other)
        for name, part in parts.items()
    }
    usage["cached"] = sum(counts.get(name, 0) for name in _CACHED)
    return {name: count for name, count in usage.items() if count} or None


def _of(row: Row, name: str) -> Any:
    first, *rest = name.split("_")
    return row.get(name, row.get(first + "".join(word.capitalize() for word in rest)))
