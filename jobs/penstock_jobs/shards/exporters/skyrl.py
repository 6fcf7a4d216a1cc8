"""skyrl: SkyRL's pretokenized Parquet.

Files: `train/train-00000.parquet`, `eval/eval-00000.parquet`: one for each part and split of the
shard. SkyRL takes a folder as one dataset. Files that are named one by one are datasets of their
own to it, of which it draws equally often, however many rows they have.

| column of the shard | becomes |
|---|---|
| `input_ids` | `input_ids`, unpadded |
| `loss_mask` | `loss_mask`, as long as they are |

Alignment: `loss_mask[i]` is of `input_ids[i]`, nothing is shifted.

Lost: everything else: log-probabilities, rewards, advantages, loss weights, lineage. The branches
of a session stay neighbours.

Left out: `not_trained`; `no_prompt`: SkyRL takes the log-probability of a token from the place
before it, and a first token that is trained has none.

Written for SkyRL 0.4, whose form has exactly these two columns.
"""

import pyarrow as pa

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource, whole_lists

_COLUMNS = ("split", "input_ids", "loss_mask", "prompt_len", "n_tokens", *WEIGHING)
_SCHEMA = pa.schema({"input_ids": pa.list_(pa.int32()), "loss_mask": pa.list_(pa.uint8())})


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, table in source.splits(_COLUMNS, output, "not_trained", "no_prompt"):
        rows = Rows(table)
        columns = [whole_lists(rows, name) for name in _SCHEMA.names]
        path = f"{file.split('-')[0]}/{file}.parquet"
        output.table(path, pa.Table.from_arrays(columns, schema=_SCHEMA))
        output.rows += rows.count


EXPORTER = Exporter("skyrl", 2, "SkyRL 0.4, pretokenized", write)
