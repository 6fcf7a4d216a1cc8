"""trl-grpo: what TRL's GRPO takes from a rollout, from a shard.

Files: `train-00000.parquet`, `eval-00000.parquet`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `input_ids` before `prompt_len` | `prompt_ids` |
| `input_ids` from `prompt_len` on | `completion_ids`: answers, and results of tools between them |
| `rollout_logprobs` from `prompt_len` on | `logprobs`, 0.0 where the model wrote nothing |
| `loss_mask` from `prompt_len` on | `env_mask`: 1 the model's own, 0 the environment's |
| `advantage` | `advantage` |

Alignment: `completion_ids`, `logprobs` and `env_mask` have one length; nothing is shifted or
padded. Rows of a group follow each other.

Lost: groups' and sessions' names, rewards and their parts, policy versions, temperature, loss
weights other than 0.

Left out: `not_trained`, `no_logprobs`, `no_advantage`, `no_prompt`.

Written for TRL 1.16: the keys that a `rollout_func` returns (`prompt_ids`, `completion_ids`,
`logprobs`, and `env_mask`), and `advantage` as asynchronous GRPO has it.

`GRPOTrainer` makes advantages of its own, and heeds `logprobs` with vLLM alone:
examples/trainers/trl_grpo.py puts both back.
"""

import pyarrow as pa

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource, cut_lists

_COLUMNS = (
    "split", "input_ids", "loss_mask", "rollout_logprobs", "prompt_len", "n_tokens", "advantage",
    *WEIGHING,
)  # fmt: skip
_REASONS = ("not_trained", "no_logprobs", "no_advantage", "no_prompt")
_SCHEMA = pa.schema(
    {
        "prompt_ids": pa.list_(pa.int32()),
        "completion_ids": pa.list_(pa.int32()),
        "logprobs": pa.list_(pa.float32()),
        "env_mask": pa.list_(pa.uint8()),
        "advantage": pa.float32(),
    }
)


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, table in source.splits(_COLUMNS, output, *_REASONS):
        rows = Rows(table)
        first = rows.numbers("prompt_len").astype("int64")
        completion = ("input_ids", "rollout_logprobs", "loss_mask")
        columns = [
            cut_lists(rows, "input_ids", 0 * first, first),
            *(cut_lists(rows, name, first, rows.tokens) for name in completion),
            rows.column("advantage"),
        ]
        output.table(f"{file}.parquet", pa.Table.from_arrays(columns, schema=_SCHEMA))
        output.rows += table.num_rows


EXPORTER = Exporter("trl-grpo", 1, "TRL 1.16", write)
