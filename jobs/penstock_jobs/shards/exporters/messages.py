"""Conversations: OpenAI's format as JSON lines or Parquet, ATIF documents, and shared helpers.

OpenAI's fine-tuning leaves an assistant's message with `weight` 0 out of the loss; other trainers
do not know the key. In Parquet, missing fields of a message are null.

atif: a document for each row, in Harbor's Agent Trajectory Interchange Format, ATIF 1.8. The n-th
sampled span of `turn_spans` is the n-th trained answer. An untrained answer has `is_copied_context`
and no metrics. Subagents have their own documents, as `extra.rl` says.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.events.messages import present
from penstock.shards.manifest import PartFile
from penstock_jobs.shards.conversation.conversation import OpenAiMessage
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource, token_rows
from penstock_jobs.shards.rows.preferences import Preference

DialogueRefusal = Literal[
    "no_messages", "unknown_message_form", "no_trained_answer", "no_prompt", "untrained_answer"
]


def _texts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.string())


_FUNCTION = pa.struct(_texts("name", "arguments"))
_CALLS = pa.list_(pa.struct(_texts("id", "type") | {"function": _FUNCTION}))
_FIELDS = _texts("role", "content", "reasoning_content") | {"tool_calls": _CALLS}
_FIELDS |= _texts("tool_call_id", "name")
#: A message has all fields; missing ones are null.
MESSAGES = pa.list_(pa.struct(_FIELDS))
WEIGHTED_MESSAGES = pa.list_(pa.struct(_FIELDS | {"weight": pa.int8()}))
_decoder = msgspec.json.Decoder(list[OpenAiMessage])


class DialogueSplit(NamedTuple):
    """A dialogue, split before its first trained answer."""

    prompt: list[OpenAiMessage]
    completion: list[OpenAiMessage]


def read_dialogue(text: str) -> list[OpenAiMessage] | DialogueRefusal:
    try:
        return _decoder.decode(text) or "no_messages"
    except msgspec.MsgspecError:
        return "unknown_message_form"


def read_split(text: str, *, all_trained: bool = True) -> DialogueSplit | DialogueRefusal:
    """Split a dialogue. `all_trained` refuses untrained answers in the completion."""
    messages = read_dialogue(text)
    if isinstance(messages, str):
        return messages
    first = next((at for at, message in enumerate(messages) if message.trained), None)
    if first is None:
        return "no_trained_answer"
    if first == 0:
        return "no_prompt"
    if all_trained and has_untrained(messages[first:]):
        return "untrained_answer"
    return DialogueSplit(messages[:first], messages[first:])


_preferences_decoder = msgspec.json.Decoder(list[Preference])


def read_preferences(text: str | None) -> list[Preference]:
    """Read preferences that have messages before them."""
    known = _preferences_decoder.decode(text) if text else []
    return [preference for preference in known if preference.prompt]


def read_pairs(row: dict[str, Any]) -> list[tuple[Preference, list[OpenAiMessage]]]:
    """Read preferences of a row, each with the messages before it."""
    known = read_preferences(row["preferences"])
    told = read_dialogue(row["messages"]) if known else "no_messages"
    return [] if isinstance(told, str) else [(each, told[: each.prompt]) for each in known]


def read_dialogues(
    rows: pa.Table, output: ExportOutput
) -> Iterator[tuple[dict[str, Any], list[OpenAiMessage]]]:
    """Yield rows with their messages. Others are counted."""
    for row in rows.to_pylist():
        messages = read_dialogue(row["messages"])
        if isinstance(messages, str):
            output.leave_out(messages)
        else:
            yield row, messages


def has_untrained(messages: Sequence[OpenAiMessage]) -> bool:
    """Whether an answer is untrained."""
    return any(message.role == "assistant" and not message.trained for message in messages)


def stripped(messages: Sequence[OpenAiMessage]) -> list[dict[str, Any]]:
    """Return messages without weights."""
    return plain([msgspec.structs.replace(message, weight=None) for message in messages])


def plain(messages: Sequence[OpenAiMessage]) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = msgspec.to_builtins(messages)
    return values


# Exporters


_COLUMNS = ("split", "messages", "tools", *WEIGHING)
_PARQUET_SCHEMA = pa.schema({"messages": WEIGHTED_MESSAGES, "tools": pa.large_string()})


def _write_jsonl(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained"):
        for row, _ in read_dialogues(rows, output):
            texts = {name: _one_line(row[name]) for name in ("messages", "tools") if row[name]}
            output.line(f"{file}.jsonl", msgspec.json.encode(texts))
            output.rows += 1


def _one_line(text: str) -> msgspec.Raw:
    """Remove line breaks of JSON; those inside strings are escaped."""
    content = text.encode()
    return msgspec.Raw(msgspec.json.format(content, indent=-1) if b"\n" in content else content)


JSONL = Exporter("messages-jsonl", 1, "OpenAI chat messages, 2026-10", _write_jsonl)


def _write_parquet(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained"):
        exported = [
            {"messages": plain(messages), "tools": row["tools"]}
            for row, messages in read_dialogues(rows, output)
        ]
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _PARQUET_SCHEMA))
        output.rows += len(exported)


PARQUET = Exporter("messages-parquet", 1, "datasets 5.2", _write_parquet)


_ATIF_VERSION = "ATIF-v1.8"
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
_ATIF_TOKENS = ("input_ids", "rollout_logprobs")
_NAMES = ("session_id", "trajectory_id", "source_system", "model_name")
_ATIF_COLUMNS = tuple(dict.fromkeys((*_STEP_COLUMNS, *_RL, *_NAMES, *_ATIF_TOKENS)))
_Objects = list[dict[str, Any]]
_SpannedSteps = list[tuple[dict[str, Any], dict[str, Any] | None]]


def _write_atif(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
        continued = _continued(source, part)
        rows = (row for table in source.tables(part, _ATIF_COLUMNS) for row in token_rows(table))
        for at, row in enumerate(rows):
            trajectory = _read_trajectory(row)
            if isinstance(trajectory, str):
                output.leave_out(trajectory)
                continue
            document = _document(row, *trajectory, continued.get(row["sample_id"]))
            output.file(f"part-{number:05d}/{at:06d}.json", document)
            output.rows += 1


def _continued(source: ShardSource, part: PartFile) -> dict[str, str]:
    """Find the document that continues each sample."""
    continued: dict[str, str] = {}
    tables = source.tables(part, _STEP_COLUMNS)
    for at, row in enumerate(row for table in tables for row in table.to_pylist()):
        parent = row["parent_sample_id"]
        goes_on = parent not in (None, *continued) and row["link_kind"] in ("compaction", "resume")
        if goes_on and not isinstance(_read_trajectory(row), str):
            continued[parent] = f"{at:06d}.json"
    return continued


def _read_trajectory(row: dict[str, Any]) -> tuple[_SpannedSteps, _Objects | None] | str:
    """Return steps and tools, or why there are none."""
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
            # The last step must have called for this result.
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
    """Make a step. Raises MsgspecError if arguments of a tool call are no object."""
    if message.role != "assistant":
        return {"step_id": number, "source": message.role, "message": message.content or ""}
    step = {"step_id": number, "source": "agent", "message": message.content or ""}
    step |= present({"reasoning_content": message.reasoning_content})
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
    """Encode a document step by step: each step holds all previous tokens."""
    agent = {"name": row["source_system"] or _UNKNOWN, "version": _UNKNOWN}
    agent |= present({"model_name": row["model_name"], "tool_definitions": tools})
    head = {"schema_version": _ATIF_VERSION}
    head |= {name: row[name] for name in ("session_id", "trajectory_id")} | {"agent": agent}
    tail = present({"continued_trajectory_ref": continued_in}) | {
        "final_metrics": {"total_steps": len(steps)},
        "extra": {"rl": present({name: row[name] for name in _RL})},
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
    rl = present({"turn": span["turn"], "event_seq": span["event_seq"]})
    return {"metrics": metrics, "extra": {"rl": rl}}


ATIF = Exporter("atif", 2, "ATIF 1.8", _write_atif)
