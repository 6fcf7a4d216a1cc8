"""verl: prompts to roll out again, and rollouts as its batches have them.

Files: `prompts/train-00000.parquet` and `rollouts/train-00000.parquet`, or `eval-…`, for each part
and split of the shard.

| column of the shard | becomes, in `prompts` |
|---|---|
| `source_system` | `data_source`; `penstock` where it is not known |
| `messages` before the first trained answer | `prompt`, a list of structs |
| – | `ability`: `coding` |
| `task_id` | `reward_model`: `style` is `rule`, `ground_truth` the task or empty |
| `split`, `group_id`, `session_id`, `sample_id`, `tools` | `extra_info`, with an `index` |

| column of the shard | becomes, in `rollouts` |
|---|---|
| `input_ids` before `prompt_len` | `prompts`, padded on the left with 0 |
| `input_ids` from `prompt_len` on | `responses`, padded on the right with 0 |
| – | `attention_mask` over both: 1 for what is no padding |
| `loss_mask` from `prompt_len` on | `response_mask` |
| `rollout_logprobs` from `prompt_len` on | `rollout_log_probs`, 0.0 off the mask |
| `reward` | `rm_scores`: at the last token of the response that is no padding, 0.0 elsewhere |
| `group_id` | `uid` |
| `min_policy_version`, `max_policy_version` | `min_global_steps`, `max_global_steps`, or null |
| `temperature`, `advantage` | `temperature`, `advantage`: one a row, or null |
| `sample_id` | `sample_id` |

A prompt is written once for each group that has it. Widths are one for the whole shard: its longest
prompt and response, also if the longest is left out; `counted` in `export.json` says them.

Alignment: those of the response begin with its first token, nothing is shifted. `input_ids` is
`prompts` and `responses` behind each other; positions are the running sum of `attention_mask` less
one, and no less than 0.

verl's engines divide logits by `temperature`, and want one in each batch. `advantages` of its
batches are `advantage` at each token of `response_mask`, or what verl makes of `rm_scores` and
`uid`; to its GRPO each branch is a member of the group, and the only one has its reward as
advantage.

Lost: parts of rewards, rewards of single tokens, single runs of policy versions, loss weights other
than 0, routed experts.

Left out of the rollouts: `not_trained`, `no_logprobs`, `no_reward`, `no_prompt`. Counted:
`prompts`; `rows_without_prompt`; `prompt_width`, `response_width`.

Written for verl 0.9, and run with 0.9.1.
"""

from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import MIB
from penstock.shards.manifest import PartFile
from penstock.shards.schema import Rows
from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    by_split,
    cut_values,
    exported_rows,
    file_stem,
)
from penstock_jobs.shards.exporters.dialogue import MESSAGES, plain, read_split

#: Padded rows are made in pieces of so many bytes.
_PIECE_BYTES = 16 * MIB
#: Of a token of the prompt, and of the response.
_PROMPT_BYTES, _RESPONSE_BYTES = 9, 18

_PROMPT_COLUMNS = (
    "sample_id", "group_id", "task_id", "session_id", "source_system", "split", "messages", "tools",
)  # fmt: skip
_ROLLOUT_COLUMNS = (
    "sample_id", "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs", "prompt_len",
    "n_tokens", "reward", "min_policy_version", "max_policy_version", "temperature", "advantage",
    *WEIGHING,
)  # fmt: skip
_REASONS = ("not_trained", "no_logprobs", "no_reward", "no_prompt")
_EXTRA = ("split", "group_id", "session_id", "sample_id", "tools")
_PROMPTS = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": MESSAGES,
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct({"index": pa.int64()} | dict.fromkeys(_EXTRA, pa.string())),
    }
)
#: Columns with one value a row: the shard's name for it, verl's, and its type.
_PLAIN = (
    ("group_id", "uid", pa.string()),
    ("min_policy_version", "min_global_steps", pa.int64()),
    ("max_policy_version", "max_global_steps", pa.int64()),
    ("temperature", "temperature", pa.float32()),
    ("advantage", "advantage", pa.float32()),
    ("sample_id", "sample_id", pa.string()),
)


def write(source: ShardSource, output: ExportOutput) -> None:
    prompt_width = response_width = 0
    for table in source.all_tables(("prompt_len", "n_tokens")):
        lengths = pc.subtract(table["n_tokens"], table["prompt_len"])
        prompt_width = max(prompt_width, pc.max(table["prompt_len"]).as_py())
        response_width = max(response_width, pc.max(lengths).as_py())
    output.counted.update(prompt_width=prompt_width, response_width=response_width)
    row_bytes = prompt_width * _PROMPT_BYTES + response_width * _RESPONSE_BYTES
    piece_rows = max(1, _PIECE_BYTES // row_bytes)
    for number, part in enumerate(source.manifest.files):
        _write_prompts(source, part, output, number)
        for table in source.tables(part, _ROLLOUT_COLUMNS):
            for split, rows in by_split(exported_rows(table, output, *_REASONS)):
                path = f"rollouts/{file_stem(split, number)}.parquet"
                for start in range(0, rows.num_rows, piece_rows):
                    piece = Rows(rows[start : start + piece_rows])
                    output.table(path, _padded(piece, prompt_width, response_width))
                output.rows += rows.num_rows
        output.end_files()


def _write_prompts(source: ShardSource, part: PartFile, output: ExportOutput, number: int) -> None:
    tables = source.tables(part, _PROMPT_COLUMNS)
    rows = (row for table in tables for row in table.to_pylist())
    for _, group in groupby(rows, lambda row: row["group_id"]):
        known: set[str] = set()
        for row in group:
            parts = read_split(row["messages"], all_trained=False)
            if isinstance(parts, str):
                output.counted["rows_without_prompt"] += 1
                continue
            key = repr((row["split"], row["tools"], parts.prompt))
            if key in known:
                continue
            known.add(key)
            index = {"index": output.counted["prompts"]}
            prompt = {
                "data_source": row["source_system"] or "penstock",
                "prompt": plain(parts.prompt),
                "ability": "coding",
                "reward_model": {"style": "rule", "ground_truth": row["task_id"] or ""},
                "extra_info": index | {name: row[name] for name in _EXTRA},
            }
            output.counted["prompts"] += 1
            name = f"prompts/{file_stem(row['split'], number)}.parquet"
            output.table(name, pa.Table.from_pylist([prompt], _PROMPTS))


def _padded(rows: Rows, prompt_width: int, response_width: int) -> pa.Table:
    first, length = rows.numbers("prompt_len").astype(np.int64), rows.tokens
    answered = length - first
    read = np.arange(prompt_width) >= prompt_width - first[:, None]
    written = np.arange(response_width) < answered[:, None]
    scores = np.zeros(written.shape, np.float32)
    scores[np.arange(rows.count), answered - 1] = rows.numbers("reward")
    logprobs = cut_values(rows, "rollout_logprobs", first, length)
    columns = {
        "prompts": _laid_out(read, cut_values(rows, "input_ids", 0 * first, first), np.int64),
        "responses": _laid_out(written, cut_values(rows, "input_ids", first, length), np.int64),
        "attention_mask": _lists(np.concatenate([read, written], axis=1).astype(np.uint8)),
        "response_mask": _laid_out(written, cut_values(rows, "loss_mask", first, length), np.uint8),
        "rollout_log_probs": _laid_out(written, logprobs, np.float32),
        "rm_scores": _lists(scores),
    }
    columns |= {name: rows.column(column).cast(kind) for column, name, kind in _PLAIN}
    return pa.table(columns)


def _laid_out(where: np.ndarray, values: np.ndarray, kind: type[np.generic]) -> pa.ListArray:
    """Values where there is no padding."""
    laid_out = np.zeros(where.shape, kind)
    laid_out[where] = values
    return _lists(laid_out)


def _lists(values: np.ndarray) -> pa.ListArray:
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


EXPORTER = Exporter("verl", 2, "verl 0.9", write)
