"""NeMo-Gym's rollouts: a task and a response of OpenAI's Responses API per line, or one response.
The response's items are the model's calls, and results of tools between them. Rollouts with empty
lists of tokens are text only.

verifiers: `results.jsonl` of evaluations, a rollout per line; since version 1 `traces.jsonl`, an
episode per line with the traces of its agents.

A trace is a graph of messages. Each path to an end is what the model saw. The longest is the
session; others become sessions that fork from it, with copies of the shared part. A node holds the
tokens that it adds; the prompt is all tokens before it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.events.messages import joined, message_of, messages_of, present, usage_of
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import Row, digest_of, milliseconds
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft, engine_tokens, run_name

_RESPONSE = re.compile(rb'"object"\s*:\s*"response"')
_RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
_TAKEN_OF_ROLLOUT = ("responses_create_params", "response", "reward", "model_patch")
_Items = list[dict[str, Any]]


class NemoGymImporter(Importer):
    name = "nemo-gym"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.is_lines:
            return candidate.first_rows[0].keys() >= {"responses_create_params", "response"}
        begins = candidate.beginning
        return b'"responses_create_params"' in begins[:256] or bool(_RESPONSE.search(begins))

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        for number, record in source.records(notes):
            row = _rollout_of(record)
            if isinstance(fields.at(row, "response", "output"), list):
                yield from _GymRollout(row, source, notes).events()
            else:
                notes.skip("rollout without a response", f"line {number}")


def _rollout_of(document: object) -> dict[str, Any]:
    found = fields.mapping(document)
    if "responses_create_params" in found:
        return found
    for response in (found, *found.values()):
        if fields.at(response, "object") == "response":
            return {"response": response}
    raise SourceUnfit("it holds no response")


class _GymRollout(SessionDraft):
    def __init__(self, row: Row, source: Source, notes: Notes) -> None:
        self._row = row
        self._response: Row = row["response"]
        self._params = fields.mapping(row, "responses_create_params")
        metadata = fields.mapping(self._params, "metadata")
        task = metadata.get("instance_id") or fields.first(row, "task_id", "problem_id")
        created = source.time_us(self._response.get("created_at"))
        super().__init__(run_name(task or "rollout", row), "nemo-gym", created, notes)
        agent, params = fields.at(row, "agent_ref", "name"), self._params
        self.model = self._response.get("model")
        self.start = {
            "client": agent or "nemo-gym",
            "task_id": None if task is None else str(task),
            "group_id": self._group(agent),
            "system": params.get("instructions") or self._response.get("instructions"),
            "tools": params.get("tools") or self._response.get("tools") or None,
            "metadata": metadata or None,
        }

    def _group(self, agent: str | None) -> str | None:
        """The group of rollouts with the same agent, number and input."""
        index = self._row.get("_ng_task_index")
        if index is None:
            return None
        given = {name: self._params.get(name) for name in ("input", "metadata", "instructions")}
        return f"{agent or 'rollouts'}:{index}:{digest_of(given)[:12]}"

    def events(self) -> list[ImportedEvent]:
        for at, message in enumerate(messages_of(self._params.get("input"))):
            # An answer in the input was not sampled here.
            facts = {"assistant": {"is_copied_context": True}, "tool": {"copied": True}}
            self.add_message(message, f"input-{at}", **facts.get(message.role, {}))
        self._take_output(fields.rows(self._response, "output"))
        self._finish()
        return self.finished()

    def _take_output(self, items: _Items) -> None:
        calls = list(_model_calls(items))
        usage = usage_of(self._response.get("usage"))
        is_single = sum(bool(call) for _, call, _ in calls) == 1
        for at, call, results in calls:
            if call:
                self._take_call(f"output-{at}", call, usage if is_single else None)
            for nth, result in enumerate(results):
                key = f"output-{at}:result:{nth}"
                if result.get("role") == "user":
                    self.add_message(result, key)
                else:
                    self.add_result(result.get("call_id"), result.get("output"), key)
        if not is_single:
            self.add_run_usage(usage)

    def _take_call(self, key: str, items: _Items, usage: dict[str, Any] | None) -> None:
        said = joined(message_of(item) for item in items)
        tokens = [
            engine_tokens(
                item.get("prompt_token_ids"),
                item.get("generation_token_ids"),
                item.get("generation_log_probs"),
                self.notes,
            )
            for item in items
        ]
        temperature = self._params.get("temperature")
        self.add_answer(
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
        self.add_final_patch(row.get("model_patch"), "model-patch")
        if rest := present(fields.without(row, *_TAKEN_OF_ROLLOUT)):
            self.add("x_rollout", rest, "rollout")
        self.add_reward("reward", row.get("reward"), "nemo-gym", "reward")
        timed_out = row.get("agent_timed_out") or row.get("container_timed_out")
        failed = row.get("error_kind") or self._response.get("error")
        _end(self, timed_out=timed_out, failed=failed)


def _end(draft: SessionDraft, *, timed_out: object, failed: object) -> None:
    reason = "timeout" if timed_out else "crash" if failed else "completed"
    draft.add("session_end", {"reason": reason}, "end")


def _model_calls(items: Sequence[dict[str, Any]]) -> Iterator[tuple[int, _Items, _Items]]:
    """Split items into calls: the first item's number, the call's items, and the results after it,
    or what a user said.

    A call ends with the item that has its tokens, or before a result."""
    first, ended = 0, False
    sampled: _Items = []
    results: _Items = []
    for at, item in enumerate(items):
        if item.get("type") in _RESULT_ITEMS or item.get("role") == "user":
            results.append(item)
            continue
        if results or ended:
            yield first, sampled, results
            first, sampled, results = at, [], []
        sampled.append(item)
        is_message = item.get("type") == "message" and "generation_token_ids" in item
        ended = bool(item.get("generation_token_ids")) or is_message
        behind = items[at + 1] if at + 1 < len(items) else {}
        goes_on = behind.get("type") == "function_call" and "generation_token_ids" not in behind
        ended = ended and not goes_on
    if sampled or results:
        yield first, sampled, results


_RESULT = {"example_id", "prompt", "completion", "reward"}
_TAKEN = ("prompt", "completion", "reward", "tool_defs", "token_usage", "trajectory")
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens",
           "context_length", "harness_timeout")  # fmt: skip


class VerifiersImporter(Importer):
    name = "verifiers"

    def recognises(self, candidate: Candidate) -> bool:
        if candidate.first_rows:
            row = candidate.first_rows[0]
            return row.keys() >= _RESULT or bool(_traces_of(row))
        begins = candidate.beginning
        return begins.startswith(b"{") and (
            (b'"nodes"' in begins and b'"sampled"' in begins)
            or (begins.startswith(b'{"example_id"') and b'"completion"' in begins)
        )

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        for number, row in source.rows(notes):
            if traces := _traces_of(row):
                for trace in traces:
                    yield from _Trace(trace, row, source, notes).events()
            elif row.keys() >= _RESULT:
                yield from _result(row, source, notes)
            else:
                notes.skip("line that is neither a rollout nor an episode", f"line {number}")


def _traces_of(row: Row) -> list[dict[str, Any]]:
    traces = fields.rows(row, "traces") if "traces" in row else [dict(row)]
    return [trace for trace in traces if isinstance(trace.get("nodes"), list)]


def _result(row: Row, source: Source, notes: Notes) -> list[ImportedEvent]:
    example, task = row.get("example_id"), row.get("task")
    name = run_name(f"example-{example}", row)
    draft = SessionDraft(name, "verifiers", source.changed_us(), notes)
    draft.start |= {
        "task_id": f"{task or 'example'}-{example}",
        "group_id": f"{task or 'rollouts'}:{example}:{digest_of(row.get('prompt'))[:12]}",
        "tools": row.get("tool_defs") or None,
    }
    for part in ("prompt", "completion"):
        told = row.get(part)
        messages = [{"role": "user", "content": told}] if isinstance(told, str) else told
        for at, message in enumerate(messages if isinstance(messages, list) else []):
            if isinstance(message, dict):
                given = part == "prompt" and message.get("role") == "assistant"
                facts = {"is_copied_context": True} if given else {}
                draft.add_message(message, f"{part}-{at}", **facts)
    draft.add_run_usage(usage_of(row.get("token_usage")))
    draft.add_reward("reward", row.get("reward"), "verifiers", "reward-reward")
    draft.add("x_rollout", fields.without(row, *_TAKEN), "rollout")
    _end(draft, timed_out=row.get("is_truncated"), failed=row.get("error"))
    return draft.finished()


class _Trace:
    def __init__(self, trace: Row, episode: Row, source: Source, notes: Notes) -> None:
        self._trace, self._episode, self._notes = trace, episode, notes
        self._nodes = fields.rows(trace, "nodes")
        self._name = fields.text(trace, "id") or digest_of(trace)
        self._clock_us = source.time_us(fields.at(trace, "timing", "start"))
        calls = fields.rows(trace, "calls")
        self._calls = {call["node"]: call for call in calls if isinstance(call.get("node"), int)}

    def events(self) -> Iterator[ImportedEvent]:
        told: set[int] = set()
        paths = sorted(_paths(self._nodes), key=len, reverse=True)
        for at, path in enumerate(paths):
            yield from self._branch(path, told, at)
            told.update(path)

    def _branch(self, path: Sequence[int], told: set[int], at: int) -> list[ImportedEvent]:
        name = f"{self._name}/{at}" if at else self._name
        draft = SessionDraft(name, "verifiers", self._clock_us, self._notes)
        draft.start |= self._start(at)
        prompt: list[int] = []
        for number in path:
            node = self._nodes[number]
            message = fields.mapping(node, "message")
            facts: dict[str, Any] = {"is_copied_context": True} if number in told else {}
            if node.get("sampled") and number not in told:
                call = self._calls.get(number, {})
                facts |= self._sampled(node, call, prompt)
                draft.at(fields.at(call, "time", "end"))
            elif message.get("role") == "assistant":
                facts["is_copied_context"] = True  # given, not sampled here
            if message.get("role") == "tool" and facts:
                facts = {"copied": True}
            draft.add_message(message, f"node-{number}", **facts)
            prompt += [each for each in fields.items(node, "token_ids") if isinstance(each, int)]
        if not at:
            self._finish(draft)
        return draft.finished()

    def _start(self, branch: int) -> dict[str, Any]:
        trace = self._trace
        task = fields.mapping(trace, "task") or fields.mapping(self._episode, "task")
        data = fields.mapping(task, "data")
        name = next((data[key] for key in ("id", "idx", "name", "example_id") if key in data), None)
        environment = fields.text(self._episode, "env") or task.get("type")
        return {
            "client_version": fields.at(trace, "verifiers", "version"),
            "task_id": None if name is None else f"{environment}-{name}",
            "group_id": f"{environment}:{digest_of(data)[:16]}" if data else None,
            "tools": trace.get("tools") or None,
            "role": trace.get("role"),
            "trainable": trace.get("trainable"),
            "parent_session": self._name if branch else None,
            "link": "fork" if branch else None,
        }

    def _sampled(self, node: Row, call: Row, prompt: Sequence[int]) -> dict[str, Any]:
        ids, mask = fields.items(node, "token_ids"), fields.items(node, "mask")
        scaffold = next((at for at, own in enumerate(mask) if own), len(ids))
        tokens = engine_tokens(
            [*prompt, *ids[:scaffold]], ids[scaffold:], node.get("logprobs"), self._notes
        )
        began, ended = (fields.moment(call, "time", name) for name in ("start", "end"))
        return {
            "model": call.get("model") or fields.at(self._trace, "agent", "model"),
            "usage": usage_of(call.get("usage")),
            "tokens": tokens,
            "sampling": fields.mapping(call, "sampling") or None,
            "finish_reason": call.get("finish_reason") or node.get("finish_reason"),
            "latency_ms": milliseconds(began, ended),
        }

    def _finish(self, draft: SessionDraft) -> None:
        trace = self._trace
        for name, value in fields.mapping(trace, "rewards").items():
            draft.add_reward(str(name), value, "verifiers", f"reward-{name}")
        names = ("metrics", "info", "stop_condition", "errors", "run", "runtime")
        if rest := present({name: trace.get(name) for name in names}):
            draft.add("x_rollout", rest, "rollout")
        timed_out, failed = trace.get("stop_condition") in _LIMITS, trace.get("errors")
        if timed_out or failed or trace.get("is_completed"):
            _end(draft, timed_out=timed_out, failed=failed)


def _paths(nodes: Sequence[Row]) -> Iterator[list[int]]:
    parents = [node.get("parent") for node in nodes]
    for end in sorted(set(range(len(nodes))) - {at for at in parents if isinstance(at, int)}):
        path: list[int] = []
        at: Any = end
        while isinstance(at, int) and 0 <= at < len(nodes) and (not path or at < path[-1]):
            path.append(at)
            at = parents[at]
        yield path[::-1]
