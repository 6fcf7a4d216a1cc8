"""Conversations in OpenAI's form: an object a line, and a dataset of Hugging Face.

OpenAI's fine-tuning leaves an assistant's message with `weight` 0 out of the loss; other trainers
do not know the key. In Parquet, fields that a message does not have are null.
"""

import msgspec
import pyarrow as pa

from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource
from penstock_jobs.shards.exporters.dialogue import WEIGHTED_MESSAGES, plain, read_dialogues

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
