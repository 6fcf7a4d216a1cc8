"""tinker: data for the training calls of Tinker, a JSON object a line.

Files: `train-00000.jsonl`, `eval-00000.jsonl`: one for each part and split of the shard.

| column of the shard | becomes |
|---|---|
| `input_ids` without the last | `model_input`: one chunk of `encoded_text` |
| `input_ids` without the first | `loss_fn_inputs`: `target_tokens`, int64 |
| `rollout_logprobs`, likewise | `logprobs`, float32 |
| `advantage` times `loss_weight` | `advantages`, float32: 0.0 where nothing is trained |
| `loss_mask`, likewise | `mask`, 1.0 or 0.0 |

A line is what `tinker.Datum` is made of: `ModelInput(**line["model_input"])`, and a
`TensorData(**values)` for each of its `loss_fn_inputs`. Of a row without log-probabilities or
without an advantage there are `target_tokens` and `weights` (the mask, times `loss_weight`), for
the loss `cross_entropy`; the others are for `importance_sampling` and `ppo`, which take no `mask`:
drop it as the cookbook does.

Alignment: shifted by one, as Tinker has it: what stands at i is of the token behind `model_input`
i. The first token of a row is never trained.

Lost: rewards, versions, temperatures, experts, lineage.

Left out: `not_trained`, `no_prompt`. Counted: `policy_gradient`, `cross_entropy`: rows of each.

Written for tinker 0.38 and its cookbook of 2026-08.
"""

from typing import Any

import msgspec
import numpy as np

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource

_COLUMNS = (
    "split", "input_ids", "loss_mask", "rollout_logprobs", "advantage", "prompt_len", "n_tokens",
    *WEIGHING,
)  # fmt: skip


def write(source: ShardSource, output: ExportOutput) -> None:
    for file, table in source.splits(_COLUMNS, output, "not_trained", "no_prompt"):
        rows = Rows(table)
        ids, logprobs = rows.lists("input_ids"), rows.lists("rollout_logprobs")
        id_values, logprob_values = ids.numbers(), logprobs.numbers()
        advantages, weights = rows.numbers("advantage"), rows.numbers("loss_weight")
        scored = logprobs.valid & rows.present("advantage")
        for row in range(rows.count):
            inside = slice(rows.offsets[row], rows.offsets[row + 1])
            tokens, mask = id_values[inside], rows.mask[inside].astype(np.float32)[1:]
            inputs: dict[str, Any] = {"target_tokens": _tensor(tokens[1:], "int64")}
            if scored[row]:
                own = slice(logprobs.offsets[row], logprobs.offsets[row + 1])
                gains = mask * np.float32(advantages[row]) * weights[row]
                inputs["logprobs"] = _tensor(logprob_values[own][1:], "float32")
                inputs["advantages"] = _tensor(gains, "float32")
                inputs["mask"] = _tensor(mask, "float32")
            else:
                inputs["weights"] = _tensor(mask * weights[row], "float32")
            output.counted["policy_gradient" if scored[row] else "cross_entropy"] += 1
            chunk = {"type": "encoded_text", "tokens": tokens[:-1].tolist()}
            datum = {"model_input": {"chunks": [chunk]}, "loss_fn_inputs": inputs}
            output.line(f"{file}.jsonl", msgspec.json.encode(datum))
        output.rows += rows.count


def _tensor(values: np.ndarray, kind: str) -> dict[str, Any]:
    return {"data": values.tolist(), "dtype": kind, "shape": [len(values)]}


EXPORTER = Exporter("tinker", 1, "tinker 0.38", write)
