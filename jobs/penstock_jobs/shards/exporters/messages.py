"""Conversations in OpenAI's form: an object a line, and a dataset of Hugging Face; and the messages
of a row, in the one form that exported columns of messages have.

OpenAI's fine-tuning leaves an assistant's message with `weight` 0 out of the loss; other trainers
do not know the key. In Parquet, fields that a message does not have are null.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from penstock_jobs.shards.conversation.conversation import OpenAiMessage
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource
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
#: A message has all fields; those that do not apply are null.
MESSAGES = pa.list_(pa.struct(_FIELDS))
WEIGHTED_MESSAGES = pa.list_(pa.struct(_FIELDS | {"weight": pa.int8()}))
_decoder = msgspec.json.Decoder(list[OpenAiMessage])


class DialogueSplit(NamedTuple):
    """What the model was asked, and all from its first trained answer on."""

    prompt: list[OpenAiMessage]
    completion: list[OpenAiMessage]


def read_dialogue(text: str) -> list[OpenAiMessage] | DialogueRefusal:
    try:
        return _decoder.decode(text) or "no_messages"
    except msgspec.MsgspecError:
        return "unknown_message_form"


def read_split(text: str, *, all_trained: bool = True) -> DialogueSplit | DialogueRefusal:
    """With `all_trained` the completion may have no other answer."""
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
    """Read those that have messages before them."""
    known = _preferences_decoder.decode(text) if text else []
    return [preference for preference in known if preference.prompt]


def read_dialogues(
    rows: pa.Table, output: ExportOutput
) -> Iterator[tuple[dict[str, Any], list[OpenAiMessage]]]:
    """Give each row that has messages, with them; count the others."""
    for row in rows.to_pylist():
        messages = read_dialogue(row["messages"])
        if isinstance(messages, str):
            output.leave_out(messages)
        else:
            yield row, messages


def has_untrained(messages: Sequence[OpenAiMessage]) -> bool:
    """Whether the model said something in it that is not to be trained."""
    return any(message.role == "assistant" and not message.trained for message in messages)


def stripped(messages: Sequence[OpenAiMessage]) -> list[dict[str, Any]]:
    """Without weights."""
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
    """Take out line breaks; those inside strings are always escaped."""
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
