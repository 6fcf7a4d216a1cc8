"""TensorZero: inferences as its gateway lists them (`list_inferences`, `get_inferences`), and rows
of its table ChatInference. An episode is a session."""

import re
from collections.abc import Iterator
from typing import Any

from penstock.events.messages import Message, answer_of, count_of, messages_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.model_calls import CallImporter, ExportedCall, Score
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import Row, is_export, rows_of
from penstock_jobs.importers.transcript import json_of, moment_us, present

_MARKS = [re.compile(rb'"%s"\s*:' % name)
          for name in (b"episode_id", b"function_name", b"variant_name")]  # fmt: skip
_KEPT = ("function_name", "variant_name", "tags", "inference_params", "dispreferred_outputs",
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
            yield _call(row, source, name, episode)


def _call(row: Row, source: Source, name: str, episode: str) -> ExportedCall:
    parameters, took = json_of(row.get("tool_params")), count_of(row.get("processing_time_ms"))
    began = moment_us(row.get("timestamp")) or _made_us(name) or source.changed_us()
    tools = parameters if isinstance(parameters, dict) else {}
    request = present({each: json_of(row.get(each)) or None for each in _KEPT})
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


IMPORTER = TensorZeroImporter()
