"""Langfuse: its exports to a bucket (`observations_v2/`, `observations/`, `scores/`), of a table of
its pages, and the download of a trace.

An observation of the type GENERATION is a call of a model. The calls of a session, or of a trace
that belongs to none, are chained to sessions of Penstock.

TensorZero: inferences as its gateway lists them (`list_inferences`, `get_inferences`), and rows of
its table ChatInference. An episode is a session."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.events.messages import Message, answer_of, call_of, count_of, messages_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import arguments_of
from penstock_jobs.importers.model_calls import CallImporter, ExportedCall, Score, skip_other
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import Row, columns_of, is_export, rows_of
from penstock_jobs.importers.transcript import json_of, milliseconds, moment_us, present

_MARKS = [re.compile(rb'"%s"\s*:' % name)
          for name in (b"episode_id", b"function_name", b"variant_name")]  # fmt: skip
_KEPT_OF_INFERENCE = (
    "function_name", "variant_name", "tags", "inference_params", "dispreferred_outputs",
    "output_schema", "extra_body", "snapshot_hash")  # fmt: skip
_UUID_7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-")


class TensorZeroImporter(CallImporter):
    name = "tensorzero"

    def recognises(self, candidate: Candidate) -> bool:
        return is_export(candidate) and all(mark.search(candidate.beginning) for mark in _MARKS)

    def calls(self, source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
        return _calls(source, notes)


def _calls(source: Source, notes: Notes) -> Iterator[ExportedCall]:
    for where, row in rows_of(source, notes, "inferences", "data"):
        name = fields.identifier(row, "inference_id") or fields.identifier(row, "id")
        episode = fields.identifier(row, "episode_id")
        if name is None or episode is None or "input" not in row:
            notes.skip("row that is no inference", where)
        else:
            yield _inference(row, source, name, episode)


def _inference(row: Row, source: Source, name: str, episode: str) -> ExportedCall:
    parameters, took = json_of(row.get("tool_params")), count_of(row.get("processing_time_ms"))
    began = moment_us(row.get("timestamp")) or _made_us(name) or source.changed_us()
    tools = parameters if isinstance(parameters, dict) else {}
    request = present({each: json_of(row.get(each)) or None for each in _KEPT_OF_INFERENCE})
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=began + took * 1000 if took is not None else None,
        messages=messages_of(json_of(row.get("input"))),
        answer=_answer(json_of(row.get("output"))),
        session=episode,
        tools=tools.get("tools_available") or tools.get("additional_tools"),
        facts={"call_id": name, "latency_ms": took, "request": request or None},
    )


def _answer(output: Any) -> Message | None:
    if isinstance(output, dict) and isinstance(output.get("raw"), str):
        return answer_of(output["raw"])
    return answer_of(output)


def _made_us(name: str) -> int | None:
    match = _UUID_7.match(name)
    return moment_us(int(match[1] + match[2], 16)) if match else None


_OBSERVATION = re.compile(rb'"(?:parent_observation_id|parentObservationId)"\s*:')
_SCORE = re.compile(rb'"(?:data_type|dataType)"\s*:')
_OF_SCORE = re.compile(rb'"(?:observation_id|observationId)"\s*:')
_TYPES = ("SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING",
          "GUARDRAIL")  # fmt: skip
#: What is kept of a call beside what has a field of its own.
_KEPT = ("name", "trace_name", "metadata", "version", "release", "environment", "tags", "level",
         "prompt_name", "prompt_version", "cost_details", "total_cost")  # fmt: skip


class LangfuseImporter(CallImporter):
    name = "langfuse"

    def recognises(self, candidate: Candidate) -> bool:
        if not is_export(candidate):
            return False
        begins = candidate.beginning
        if _OBSERVATION.search(begins) or (_SCORE.search(begins) and _OF_SCORE.search(begins)):
            return True
        columns = columns_of(candidate)
        return {"trace_id", "parent_observation_id"} <= columns or (
            {"trace_id", "observation_id", "data_type"} <= columns
        )

    def calls(self, source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
        return _items(source, notes)


def _items(source: Source, notes: Notes) -> Iterator[ExportedCall | Score]:
    for where, row in rows_of(source, notes, "data"):
        observations = row.get("observations")
        if not isinstance(observations, list):
            yield from _item(row, {}, source, notes, where)
            continue
        trace = fields.mapping(row, "trace") or row
        for each in [*observations, *fields.items(row, "scores")]:
            if isinstance(each, dict):
                yield from _item(each, trace, source, notes, where)


def _item(
    row: Row, trace: Row, source: Source, notes: Notes, where: str
) -> Iterator[ExportedCall | Score]:
    kind, name = row.get("type"), fields.identifier(row, "id")
    owner = _owner(row, trace)
    if name is None or owner is None:
        notes.skip("row without an id or a trace", where)
    elif kind == "GENERATION":
        yield _call(row, trace, source, name, owner)
    elif kind is None and _of(row, "data_type") is not None:
        yield _score(row, source, name, owner)
    else:
        skip_other(notes, kind if kind in _TYPES else None, where)


def _owner(row: Row, trace: Row) -> str | None:
    told = (_of(row, "session_id"), _of(trace, "session_id"), _of(row, "trace_id"))
    return next((each for each in told if isinstance(each, str) and each), None)


def _call(row: Row, trace: Row, source: Source, name: str, owner: str) -> ExportedCall:
    began = moment_us(_of(row, "start_time")) or source.changed_us()
    ended, first = (moment_us(_of(row, each)) for each in ("end_time", "completion_start_time"))
    parameters = json_of(_of(row, "model_parameters"))
    answer, calls = answer_of(json_of(row.get("output"))), fields.items(row, "tool_calls")
    if calls and not (answer and answer.calls):
        answer = answer or Message("assistant")
        answer.calls = [call_of(call) for call in map(arguments_of, calls) if call]
    user = fields.text({"": _of(row, "user_id") or _of(trace, "user_id")}, "")
    return ExportedCall(
        id=name,
        began_us=began,
        ended_us=ended,
        messages=messages_of(json_of(row.get("input"))),
        answer=answer,
        session=owner,
        span=name,
        parent=fields.text({"id": _of(row, "parent_observation_id")}, "id"),
        user=user or None,
        tools=_of(row, "tool_definitions"),
        error=_of(row, "status_message") or None,
        facts={
            "call_id": name,
            "model": _of(row, "provided_model_name") or row.get("model") or None,
            "usage": _usage(_of(row, "usage_details") or row.get("usage")),
            "sampling": parameters or None,
            "latency_ms": milliseconds(began, ended),
            "ttft_ms": milliseconds(began, first),
            "langfuse": present({each: _of(row, each) or None for each in _KEPT}) or None,
        },
    )


def _score(row: Row, source: Source, name: str, owner: str) -> Score:
    text = _of(row, "string_value")
    return Score(
        id=name,
        session=owner,
        name=str(row.get("name")),
        value=text if isinstance(text, str) and text else row.get("value"),
        given_by=f"langfuse:{str(row.get('source') or 'API').lower()}",
        ts_us=moment_us(row.get("timestamp")) or source.changed_us(),
        comment=fields.text(row, "comment"),
        call_id=_of(row, "observation_id") or None,
    )


def _usage(details: object) -> dict[str, int] | None:
    """Langfuse counts each token under one name: all that the model read is their sum."""
    if not isinstance(details, Mapping):
        return None
    counts = {str(name): count_of(value) or 0 for name, value in details.items()}
    usage = {
        "prompt": sum(count for name, count in counts.items() if "input" in name),
        "completion": sum(count for name, count in counts.items() if "output" in name),
        "cached": sum(counts.get(name, 0) for name in
                      ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read")),
        "thinking": sum(count for name, count in counts.items() if "reasoning" in name),
    }  # fmt: skip
    return {name: count for name, count in usage.items() if count} or None


def _of(row: Row, name: str) -> Any:
    first, *rest = name.split("_")
    return row.get(name, row.get(first + "".join(word.capitalize() for word in rest)))


IMPORTERS = TensorZeroImporter(), LangfuseImporter()
