"""trl-kto: single answers that were wanted or not, for TRL's KTO.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `messages` before the first trained answer | `prompt`, a list of structs |
| `messages` from there on | `completion`, likewise |
| `reward` | `label`: true above 0, false below |
| `tools` | `tools`, the same JSON text, or null |

Alignment: none, there are no tokens; fields that a message does not have are null.

Lost: tokens and masks: TRL takes its loss over the whole completion, results of tools in it
included. How large a reward is, its parts, policy versions, loss weights other than 0, lineage.

Left out: `not_trained`, `no_reward`, `reward_0`, `no_messages`, `unknown_message_form`,
`no_trained_answer`, `no_prompt`, `untrained_answer`.

Written for TRL 1.16.
"""

import pyarrow as pa

from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource
from penstock_jobs.shards.exporters.dialogue import MESSAGES, plain, read_split

_COLUMNS = ("split", "messages", "tools", "reward", *WEIGHING)
_SCHEMA = pa.schema(
    {"prompt": MESSAGES, "completion": MESSAGES, "label": pa.bool_(), "tools": pa.large_string()}
)


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained", "no_reward", "reward_0"):
        exported = []
        for row in rows.to_pylist():
            parts = read_split(row["messages"])
            if isinstance(parts, str):
                output.leave_out(parts)
                continue
            texts = {name: plain(messages) for name, messages in parts._asdict().items()}
            exported.append(texts | {"label": row["reward"] > 0, "tools": row["tools"]})
        output.table(f"{file}.parquet", pa.Table.from_pylist(exported, _SCHEMA))
        output.rows += len(exported)


EXPORTER = Exporter("trl-kto", 1, "TRL 1.16", write)
