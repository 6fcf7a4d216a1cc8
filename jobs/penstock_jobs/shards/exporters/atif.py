"""atif: a document for each row, in Harbor's Agent Trajectory Interchange Format.

Files: `part-00000/000000.json` and on: the part of the shard, and the row in it.

| column of the shard | becomes |
|---|---|
| `session_id`, `trajectory_id` | `session_id`, `trajectory_id` |
| `source_system`, `model_name`, `tools` | `agent`: `name`, `model_name`, `tool_definitions` |
| `messages` | `steps`; results of tools are the `observation` of the step that called them |
| `input_ids` before an answer | its `metrics.prompt_token_ids` |
| `input_ids`, `rollout_logprobs` of an answer | its `completion_token_ids`, `logprobs` |
| `turn_spans` of an answer | its `extra.rl`: `turn`, `event_seq` |
| `parent_sample_id`, `link_kind` | `continued_trajectory_ref` of what was compacted or resumed |
| lineage, rewards, versions, status, consent | `extra.rl` of the document, by their own names |

Alignment: the n-th sampled span of `turn_spans` is the n-th trained answer. `logprobs[i]` is of
`completion_token_ids[i]`. An answer's prompt is all before it, so documents grow with the square of
the number of answers. An answer that is not trained has `is_copied_context`, and no metrics.

Lost: tokens behind the last answer, routed experts; how arguments of tool calls were written; the
names of tools in their results. Subagents are documents of their own, and say so in `extra.rl`.

Left out: `no_messages`, `unknown_message_form`; `arguments_no_object` (a broken tool call: the
format has room for objects alone); `result_without_call` (of a tool that the step before did not
call); `turns_differ` (there are not as many trained answers as sampled spans); `tools_no_list`.

Written for ATIF 1.8.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.shards.manifest import PartFile
from penstock.shards.schema import Rows
from penstock_jobs.shards.export import Exporter, ExportOutput, ShardSource
from penstock_jobs.shards.exporters.dialogue import Dialogue, DialogueMessage, read_dialogue

_VERSION = "ATIF-v1.8"
_UNKNOWN = "unknown"
#: What goes on where the session or context before it ended.
_CONTINUES = ("compaction", "resume")

_STEP_COLUMNS = ("sample_id", "parent_sample_id", "link_kind", "messages", "tools", "turn_spans")
_RL = (
    "sample_id", "rollout_id", "group_id", "task_id", "branch_index", "n_branches", "chain_pos",
    "is_last_step", "parent_sample_id", "link_kind", "prompt_len", "n_tokens", "n_trainable",
    "policy_version_runs", "min_policy_version", "max_policy_version", "temperature", "advantage",
    "reward", "reward_components", "token_rewards", "status", "stop_reason", "mask_reason",
    "error_kind", "loss_weight", "token_source", "tokenizer_sha256", "template_sha256",
    "checkpoint_id", "split", "consent", "created_at",
)  # fmt: skip
_COLUMNS = tuple(
    dict.fromkeys(
        (*_STEP_COLUMNS, *_RL, "session_id", "trajectory_id", "source_system", "model_name",
         "input_ids", "rollout_logprobs")
    )
)  # fmt: skip
_object = msgspec.json.Decoder(dict[str, Any])
_objects = msgspec.json.Decoder(list[dict[str, Any]])


class _Trajectory(NamedTuple):
    steps: list[dict[str, Any]]
    #: For each step the span that it is of.
    spans: list[dict[str, Any] | None]
    tools: list[dict[str, Any]] | None


def write(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        continued = _continued(source, part)
        at = 0
        for table in source.tables(part, _COLUMNS):
            for row in _rows(table):
                steps = _read_steps(row)
                if isinstance(steps, str):
                    output.leave_out(steps)
                else:
                    then = continued.get(row["sample_id"])
                    name = f"part-{number:05d}/{_name(at)}"
                    output.file(name, _document(row, steps, None if then is None else _name(then)))
                    output.rows += 1
                at += 1


def _name(row: int) -> str:
    return f"{row:06d}.json"


def _continued(source: ShardSource, part: PartFile) -> dict[str, int]:
    """Which row goes on where a sample ended, of those that become documents."""
    found: dict[str, int] = {}
    at = 0
    for table in source.tables(part, _STEP_COLUMNS):
        for row in table.to_pylist():
            parent = row["parent_sample_id"]
            going_on = parent is not None and row["link_kind"] in _CONTINUES
            if going_on and parent not in found and not isinstance(_read_steps(row), str):
                found[parent] = at
            at += 1
    return found


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """With tokens as arrays."""
    rows = Rows(table)
    ids, logprobs = rows.lists("input_ids"), rows.lists("rollout_logprobs")
    all_ids, all_logprobs = ids.numbers(), logprobs.numbers()
    others = table.drop_columns(["input_ids", "rollout_logprobs"])
    for at, row in enumerate(others.to_pylist()):
        row["input_ids"] = all_ids[ids.offsets[at] : ids.offsets[at + 1]]
        inside = slice(int(logprobs.offsets[at]), int(logprobs.offsets[at + 1]))
        row["rollout_logprobs"] = all_logprobs[inside] if logprobs.valid[at] else None
        yield row


def _read_steps(row: dict[str, Any]) -> _Trajectory | str:
    """The steps, or why there can be none."""
    dialogue = read_dialogue(row["messages"])
    if not isinstance(dialogue, Dialogue):
        return dialogue
    try:
        tools = _objects.decode(row["tools"]) if row["tools"] else None
    except msgspec.MsgspecError:
        return "tools_no_list"
    steps: list[dict[str, Any]] = []
    spans: list[dict[str, Any] | None] = []
    sampled = iter([span for span in row["turn_spans"] if span["sampled"]])
    for message in dialogue.messages:
        if message.role == "tool":
            if not _observe(steps, message):
                return "result_without_call"
            continue
        step = _step(message, len(steps) + 1)
        if step is None:
            return "arguments_no_object"
        steps.append(step)
        spans.append(next(sampled, None) if message.trained else None)
        if message.trained and spans[-1] is None:
            return "turns_differ"
    return "turns_differ" if next(sampled, None) else _Trajectory(steps, spans, tools)


def _step(message: DialogueMessage, number: int) -> dict[str, Any] | None:
    agent = message.role == "assistant"
    step: dict[str, Any] = {
        "step_id": number,
        "source": "agent" if agent else message.role,
        "message": message.content or "",
    }
    if not agent:
        return step
    if message.reasoning_content is not None:
        step["reasoning_content"] = message.reasoning_content
    if not message.trained:
        step["is_copied_context"] = True
    try:
        calls = [
            {
                "tool_call_id": call.id,
                "function_name": call.function.name,
                "arguments": _object.decode(call.function.arguments),
            }
            for call in message.tool_calls or ()
        ]
    except msgspec.MsgspecError:
        return None
    return step | ({"tool_calls": calls} if calls else {})


def _observe(steps: list[dict[str, Any]], message: DialogueMessage) -> bool:
    """Whether the last step called for this result, which is added to it."""
    calls = steps[-1].get("tool_calls", ()) if steps else ()
    if message.tool_call_id not in [call["tool_call_id"] for call in calls]:
        return False
    result = {"source_call_id": message.tool_call_id, "content": message.content}
    steps[-1].setdefault("observation", {"results": []})["results"].append(result)
    return True


def _document(row: dict[str, Any], trajectory: _Trajectory, then: str | None) -> Iterator[bytes]:
    """In pieces, a step at a time: a step holds the tokens of all before it."""
    agent = {"name": row["source_system"] or _UNKNOWN, "version": _UNKNOWN}
    agent |= _present(model_name=row["model_name"], tool_definitions=trajectory.tools)
    head = {
        "schema_version": _VERSION,
        "session_id": row["session_id"],
        "trajectory_id": row["trajectory_id"],
        "agent": agent,
    }
    tail = _present(continued_trajectory_ref=then) | {
        "final_metrics": {"total_steps": len(trajectory.steps)},
        "extra": {"rl": _present(**{name: row[name] for name in _RL})},
    }
    yield msgspec.json.encode(head)[:-1] + b',"steps":['
    for number, (step, span) in enumerate(zip(trajectory.steps, trajectory.spans, strict=True)):
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


EXPORTER = Exporter("atif", 1, "ATIF 1.8", write)
