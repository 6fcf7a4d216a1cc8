"""NeMo-Gym's rollouts: a line each, a task given and a response of OpenAI's Responses API; also a
response alone. The items of a response are its model's calls and the results of tools between them.

Keys of tokens whose lists are empty stand in many rollouts: those are text only.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import joined, message_of, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import (
    SessionDraft,
    digest_of,
    engine_tokens,
    moment_us,
    present,
    run_name,
)

_RESPONSE = re.compile(rb'"object"\s*:\s*"response"')
_RESULTS = ("function_call_output", "custom_tool_call_output")
_TAKEN = frozenset(("responses_create_params", "response", "reward", "model_patch"))
_Items = list[dict[str, Any]]


class NemoGymImporter(Importer):
    name = "nemo-gym"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.name.endswith(".jsonl"):
            rows = candidate.first_rows
            if rows:
                return "responses_create_params" in rows[0] and "response" in rows[0]
            begins = candidate.beginning[:256]
            return b'"responses_create_params"' in begins
        return candidate.name.endswith(".json") and bool(_RESPONSE.search(candidate.beginning))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        if source.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
            rows: Iterator[tuple[int, dict[str, Any]]] = source.rows(notes)
        else:
            document = source.document()
            rows = iter([(1, _rollout_of(document))])
        for number, row in rows:
            response = row.get("response")
            if not isinstance(response, dict) or not isinstance(response.get("output"), list):
                notes.skip("rollout without a response", f"line {number}")
                continue
            yield from _GymRollout(row, source, notes).events()


def _rollout_of(document: object) -> dict[str, Any]:
    found = document if isinstance(document, dict) else {}
    for response in (found, *found.values()):
        if isinstance(response, dict) and response.get("object") == "response":
            return {"response": response}
    raise SourceUnfit("it holds no response")


class _GymRollout(SessionDraft):
    def __init__(self, row: Row, source: Source, notes: Notes) -> None:
        self._row, self._notes = row, notes
        self._response: Row = row["response"]
        self._params = fields.mapping(row, "responses_create_params")
        metadata = fields.mapping(self._params, "metadata")
        task = metadata.get("instance_id") or row.get("task_id") or row.get("problem_id")
        agent_name = fields.mapping(row, "agent_ref").get("name")
        created = moment_us(self._response.get("created_at")) or source.changed_us()
        super().__init__(run_name(task or "rollout", row), "nemo-gym", created)
        self.model = self._response.get("model")
        self.start = {
            "client": agent_name or "nemo-gym",
            "task_id": None if task is None else str(task),
            "group_id": self._group(agent_name),
            "system": self._params.get("instructions") or self._response.get("instructions"),
            "tools": self._params.get("tools") or self._response.get("tools") or None,
            "metadata": metadata or None,
        }

    def _group(self, agent: str | None) -> str | None:
        """Rollouts of one task by one agent: the same input under the same number."""
        index = self._row.get("_ng_task_index")
        if index is None:
            return None
        given = {name: self._params.get(name) for name in ("input", "metadata", "instructions")}
        return f"{agent or 'rollouts'}:{index}:{digest_of(given)[:12]}"

    def events(self) -> list[ImportedEvent]:
        given = self._params.get("input")
        if isinstance(given, str):
            self.asked(given, "input-0")
        for at, item in enumerate(given if isinstance(given, list) else []):
            if isinstance(item, dict):
                self.told({"role": "user"} | item, f"input-{at}")
        self._take_output(fields.rows(self._response, "output"))
        self._finish()
        return self.finished()

    def _take_output(self, items: _Items) -> None:
        calls = list(_model_calls(items))
        usage = usage_of(self._response.get("usage"))
        sampled = [call for call in calls if call[1]]
        for at, call, results in calls:
            if call:
                self._take_call(f"output-{at}", call, usage if len(sampled) == 1 else None)
            for nth, result in enumerate(results):
                key = f"output-{at}:result:{nth}"
                self.returned(result.get("call_id"), result.get("output"), key)
        if len(sampled) != 1:
            self.add_run_usage(usage)

    def _take_call(self, key: str, items: _Items, usage: dict[str, Any] | None) -> None:
        said = joined(message_of(item) for item in items)
        tokens = [
            engine_tokens(
                item.get("prompt_token_ids"),
                item.get("generation_token_ids"),
                item.get("generation_log_probs"),
                self._notes,
            )
            for item in items
        ]
        temperature = self._params.get("temperature")
        self.answered(
            key,
            tool_calls=said.calls,
            text=said.text,
            thinking=said.thinking,
            usage=usage,
            tokens=next(filter(None, tokens), None),
            sampling={"temperature": temperature} if temperature is not None else None,
        )

    def _finish(self) -> None:
        row = self._row
        patch = row.get("model_patch")
        if isinstance(patch, str) and patch:
            self.changes.add_final_patch(patch, "model-patch")
        rest = {name: row[name] for name in row.keys() - _TAKEN}
        if rest := present(rest):
            self.add("x_rollout", rest, "rollout")
        self.add_reward("reward", row.get("reward"), "nemo-gym", "reward")
        if row:
            timed_out = row.get("agent_timed_out") or row.get("container_timed_out")
            failed = row.get("error_kind") or self._response.get("error")
            reason = "timeout" if timed_out else "crash" if failed else "completed"
            self.add("session_end", {"reason": reason}, "end")


def _model_calls(items: Sequence[dict[str, Any]]) -> Iterator[tuple[int, _Items, _Items]]:
    """The number of the first item, the items that one call sampled, and the results behind them.
    A call ends with the item that has its tokens, and before a result."""
    first, ended = 0, False
    sampled: _Items = []
    results: _Items = []
    for at, item in enumerate(items):
        if item.get("type") in _RESULTS:
            results.append(item)
            continue
        if results or ended:
            yield first, sampled, results
            first, sampled, results = at, [], []
        sampled.append(item)
        ended = bool(item.get("generation_token_ids")) or (
            item.get("type") == "message" and "generation_token_ids" in item
        )
        ended = ended and not _goes_on(items, at)
    if sampled or results:
        yield first, sampled, results


def _goes_on(items: Sequence[dict[str, Any]], at: int) -> bool:
    behind = items[at + 1] if at + 1 < len(items) else {}
    return behind.get("type") == "function_call" and "generation_token_ids" not in behind


IMPORTER = NemoGymImporter()
