"""messages-parquet: conversations in OpenAI's form as a dataset of Hugging Face.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` | `messages`, a list of structs; fields that a message does not have are null |
| `tools` | `tools`, the same JSON text, or null |

A message has `role`, `content`, `reasoning_content`, `tool_calls`, `tool_call_id`, `name`,
`weight`; with `weight` 0 it is read and not trained.

Alignment: none, there are no tokens. Arguments of tool calls stay the text that the model wrote.
Row groups have at most 16 MiB, since readers of nested columns fail on large ones.

Lost: tokens, masks, log-probabilities, policy versions, rewards, advantages, loss weights, lineage;
the order of keys in a message.

Left out: `not_trained`, `no_messages`, `unknown_message_form`.

Written for datasets 5.2.
"""

import pyarrow as pa

from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource
from penstock_jobs.shards.exporters.dialogue import WEIGHTED_MESSAGES, plain, read_dialogues

_COLUMNS = ("split", "messages", "tools", *WEIGHING)
_SCHEMA = pa.schema({"messages": WEIGHTED_MESSAGES, "tools": pa.large_string()})


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained"):
        exported = [
            {"messages": plain(messages), "tools": row["tools"]}
            for row, messages in read_dialogues(rows, output)
        ]
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _SCHEMA))
        output.rows += len(exported)


EXPORTER = Exporter("messages-parquet", 1, "datasets 5.2", write)
