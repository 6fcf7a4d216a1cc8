"""atif: a document for each row, in Harbor's Agent Trajectory Interchange Format, ATIF 1.8.

The n-th sampled span of `turn_spans` is the n-th trained answer. An answer that is not trained has
`is_copied_context`, and no metrics. Subagents are documents of their own, and say so in `extra.rl`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from penstock.shards.manifest import PartFile
from penstock_jobs.shards.conversation.conversation import OpenAiMessage
from penstock_jobs.shards.export import Exporter, ExportOutput, ShardSource, token_rows
from penstock_jobs.shards.exporters.messages import read_dialogue

_VERSION = "ATIF-v1.8"
_UNKNOWN = "unknown"
_STEP_COLUMNS = ("sample_id", "parent_sample_id", "link_kind", "messages", "tools", "turn_spans")
_RL = (
    "sample_id", "rollout_id", "group_id", "task_id", "branch_index", "n_branches", "chain_pos",
    "is_last_step", "parent_sample_id", "link_kind", "prompt_len", "n_tokens", "n_trainable",
    "policy_version_runs", "min_policy_version", "max_policy_version", "temperature",
    "temperature_runs", "advantage", "reward", "reward_components", "token_rewards", "status",
    "stop_reason", "mask_reason",
    "error_kind", "loss_weight", "token_source", "tokenizer_id", "tokenizer_sha256",
    "template_sha256", "checkpoint_id", "license", "split", "consent", "created_at",
)  # fmt: skip
_TOKENS = ("input_ids", "rollout_logprobs")
_NAMES = ("session_id", "trajectory_id", "source_system", "model_name")
_COLUMNS = tuple(dict.fromkeys((*_STEP_COLUMNS, *_RL, *_NAMES, *_TOKENS)))
_Objects = list[dict[str, Any]]
_SpannedSteps = list[tuple[dict[str, Any], dict[str, Any] | None]]


def write(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        continued = _continued(source, part)
        rows = (row for table in source.tables(part, _COLUMNS) for row in token_rows(table))
        for at, row in enumerate(rows):
            trajectory = _read_trajectory(row)
            if isinstance(trajectory, str):
                output.leave_out(trajectory)
                continue
            document = _document(row, *trajectory, continued.get(row["sample_id"]))
            output.file(f"part-{number:05d}/{_name(at)}", document)
            output.rows += 1


def _name(row: int) -> str:
    return f"{row:06d}.json"


def _continued(source: ShardSource, part: PartFile) -> dict[str, str]:
    """Find which document goes on where a sample ended."""
    continued: dict[str, str] = {}
    tables = source.tables(part, _STEP_COLUMNS)
    for at, row in enumerate(row for table in tables for row in table.to_pylist()):
        parent = row["parent_sample_id"]
        goes_on = parent not in (None, *continued) and row["link_kind"] in ("compaction", "resume")
        if goes_on and not isinstance(_read_trajectory(row), str):
            continued[parent] = _name(at)
    return continued


def _read_trajectory(row: dict[str, Any]) -> tuple[_SpannedSteps, _Objects | None] | str:
    """Give the steps and the tools, or why there can be none."""
    messages = read_dialogue(row["messages"])
    if isinstance(messages, str):
        return messages
    try:
        tools = msgspec.json.decode(row["tools"], type=_Objects) if row["tools"] else None
    except msgspec.MsgspecError:
        return "tools_no_list"
    steps: _SpannedSteps = []
    sampled = iter([span for span in row["turn_spans"] if span["sampled"]])
    for message in messages:
        if message.role == "tool":
            # The last step has to have called for this result.
            calls = steps[-1][0].get("tool_calls", ()) if steps else ()
            if message.tool_call_id not in [call["tool_call_id"] for call in calls]:
                return "result_without_call"
            result = {"source_call_id": message.tool_call_id, "content": message.content}
            steps[-1][0].setdefault("observation", {"results": []})["results"].append(result)
            continue
        try:
            step = _step(message, len(steps) + 1)
        except msgspec.MsgspecError:
            return "arguments_no_object"
        span = next(sampled, None) if message.trained else None
        if message.trained and span is None:
            return "turns_differ"
        steps.append((step, span))
    return "turns_differ" if next(sampled, None) else (steps, tools)


def _step(message: OpenAiMessage, number: int) -> dict[str, Any]:
    """Raises MsgspecError where the arguments of a tool call are no object."""
    if message.role != "assistant":
        return {"step_id": number, "source": message.role, "message": message.content or ""}
    step = {"step_id": number, "source": "agent", "message": message.content or ""}
    step |= _present(reasoning_content=message.reasoning_content)
    if not message.trained:
        step["is_copied_context"] = True
    if message.tool_calls:
        step["tool_calls"] = [
            {
                "tool_call_id": call.id,
                "function_name": call.function.name,
                "arguments": msgspec.json.decode(call.function.arguments, type=dict[str, Any]),
            }
            for call in message.tool_calls
        ]
    return step


def _document(
    row: dict[str, Any],
    steps: _SpannedSteps,
    tools: list[dict[str, Any]] | None,
    continued_in: str | None,
) -> Iterator[bytes]:
    """In pieces, a step at a time: a step holds the tokens of all before it."""
    agent = {"name": row["source_system"] or _UNKNOWN, "version": _UNKNOWN}
    agent |= _present(model_name=row["model_name"], tool_definitions=tools)
    head = {"schema_version": _VERSION}
    head |= {name: row[name] for name in ("session_id", "trajectory_id")} | {"agent": agent}
    tail = _present(continued_trajectory_ref=continued_in) | {
        "final_metrics": {"total_steps": len(steps)},
        "extra": {"rl": _present(**{name: row[name] for name in _RL})},
    }
    yield msgspec.json.encode(head)[:-1] + b',"steps":['
    for number, (step, span) in enumerate(steps):
        shown = step if span is None else step | _of_tokens(row, span)
        yield (b"," if number else b"") + msgspec.json.encode(shown)
    yield b"]," + msgspec.json.encode(tail)[1:] + b"\n"


def _of_tokens(row: dict[str, Any], span: dict[str, Any]) -> dict[str, Any]:
    ids, logprobs = row["input_ids"], row["rollout_logprobs"]
    inside = slice(span["start"], span["end"])
    metrics: dict[str, Any] = {
        "prompt_tokens": span["start"],
        "completion_tokens": span["end"] - span["start"],
        "prompt_token_ids": ids[: span["start"]].tolist(),
        "completion_token_ids": ids[inside].tolist(),
    }
    if logprobs is not None:
        metrics["logprobs"] = np.asarray(logprobs[inside], np.float64).tolist()
    rl = _present(turn=span["turn"], event_seq=span["event_seq"])
    return {"metrics": metrics, "extra": {"rl": rl}}


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


EXPORTER = Exporter("atif", 2, "ATIF 1.8", write)
