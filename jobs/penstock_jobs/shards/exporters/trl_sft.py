"""trl-sft: supervised fine-tuning with TRL.

Files: `tokens/train-00000.parquet` and `messages/train-00000.parquet`, or `eval-…`, for each part
and split of the shard. TRL takes one of the two forms at a time.

| column of the shard | becomes |
|---|---|
| `input_ids` | `tokens/…`: `input_ids`, unpadded |
| `input_ids` and `loss_mask` | `tokens/…`: `labels`, the same ids, and -100 where the mask is 0 |
| `messages` | `messages/…`: `messages`, a list of structs; fields that do not apply are null |
| `tools` | `messages/…`: `tools`, the same JSON text, or null |

A row is written once. What an engine read and wrote goes to `tokens`, for it is exact. Rendered
text goes to `messages`, so that the trainer's own template renders it; where the messages cannot
say what is trained, because TRL knows no weight of a message, its ids go to `tokens` too.

Alignment: `labels[i]` is of `input_ids[i]`; results of tools inside are -100. TRL takes labels as
they are; a `completion_mask` beside ids it would ignore without a word, unless
`completion_only_loss=True` is set. With messages set `assistant_only_loss=True`: every answer in
them is to be trained.

Lost: log-probabilities, policy versions, rewards, advantages, loss weights other than 0, lineage.

Left out: `not_trained`.

Written for TRL 1.16.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource, whole_lists
from penstock_jobs.shards.exporters.dialogue import MESSAGES, has_untrained, plain, read_dialogue

_COLUMNS = (
    "split", "token_source", "input_ids", "loss_mask", "n_tokens", "messages", "tools", *WEIGHING,
)  # fmt: skip
_TOKENS = pa.schema({"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32())})
#: What the loss of PyTorch passes over.
_IGNORED = -100
_MESSAGES = pa.schema({"messages": MESSAGES, "tools": pa.large_string()})


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, rows in source.splits(_COLUMNS, output, "not_trained"):
        as_messages = np.zeros(rows.num_rows, bool)
        exported = []
        rendered = pc.equal(rows["token_source"], "renderer").to_numpy()
        for at in np.flatnonzero(rendered).tolist():
            messages = read_dialogue(rows["messages"][at].as_py())
            if not isinstance(messages, str) and not has_untrained(messages):
                as_messages[at] = True
                exported.append({"messages": plain(messages), "tools": rows["tools"][at].as_py()})
        output.table(f"messages/{file}.parquet", pa.Table.from_pylist(exported, _MESSAGES))
        others = rows.filter(pa.array(~as_messages))
        output.table(f"tokens/{file}.parquet", _tokens(Rows(others)))
        output.rows += rows.num_rows


def _tokens(rows: Rows) -> pa.Table:
    ids, mask = whole_lists(rows, "input_ids"), whole_lists(rows, "loss_mask")
    values = np.where(mask.values.to_numpy(), ids.values.to_numpy(), np.int32(_IGNORED))
    labels = pa.ListArray.from_arrays(ids.offsets, pa.array(values))
    return pa.Table.from_arrays([ids, labels], schema=_TOKENS)


EXPORTER = Exporter("trl-sft", 2, "TRL 1.16", write)
