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

Left out of the rollouts: `not_trained`, `no_logprobs` (rendered text has none), `no_reward`,
`no_prompt`. Counted: `prompts`; `rows_without_prompt`, those that no prompt could be taken of;
`prompt_width`, `response_width`.

Written for verl 0.9, and run with 0.9.1.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import MIB
from penstock.shards.schema import Rows
from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    by_split,
    cut_values,
    file_stem,
    kept_rows,
)
from penstock_jobs.shards.exporters.dialogue import MESSAGES, DialogueSplit, plain, read_dialogue

_UNKNOWN_SOURCE = "penstock"
_ABILITY = "coding"
#: Padded rows are made in pieces of so many bytes.
_PIECE_BYTES = 16 * MIB
#: Of a token of the prompt, and of the response.
_PROMPT_BYTES, _RESPONSE_BYTES = 9, 18

_ASKED = (
    "sample_id", "group_id", "task_id", "session_id", "source_system", "split", "messages", "tools",
)  # fmt: skip
_ROLLED = (
    "sample_id", "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs", "prompt_len",
    "n_tokens", "reward", "min_policy_version", "max_policy_version", "temperature", "advantage",
    *WEIGHING,
)  # fmt: skip
#: One value a row, in the order of the schema.
_OF_ROWS = (
    "group_id", "min_policy_version", "max_policy_version", "temperature", "advantage", "sample_id",
)  # fmt: skip
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
_ROLLOUTS = pa.schema(
    {
        "prompts": pa.list_(pa.int64()),
        "responses": pa.list_(pa.int64()),
        "attention_mask": pa.list_(pa.uint8()),
        "response_mask": pa.list_(pa.uint8()),
        "rollout_log_probs": pa.list_(pa.float32()),
        "rm_scores": pa.list_(pa.float32()),
        "uid": pa.string(),
        "min_global_steps": pa.int64(),
        "max_global_steps": pa.int64(),
        "temperature": pa.float32(),
        "advantage": pa.float32(),
        "sample_id": pa.string(),
    }
)


def write(source: ShardSource, output: ExportOutput) -> None:
    widths = _widths(source)
    output.counted["prompt_width"], output.counted["response_width"] = widths
    for number, part in enumerate(source.manifest.files):
        prompts = _Prompts(output, number)
        for table in source.tables(part, _ASKED):
            for row in table.to_pylist():
                prompts.add(row)
        for table in source.tables(part, _ROLLED):
            _roll_out(table, output, number, widths)
        output.end_files()


def _widths(source: ShardSource) -> tuple[int, int]:
    prompt = response = 0
    for table in source.all_tables(("prompt_len", "n_tokens")):
        lengths = pc.subtract(table["n_tokens"], table["prompt_len"])
        prompt = max(prompt, pc.max(table["prompt_len"]).as_py())
        response = max(response, pc.max(lengths).as_py())
    return prompt, response


class _Prompts:
    """The prompts of a part. Knows those of the group that is being read."""

    def __init__(self, output: ExportOutput, part: int) -> None:
        self._output = output
        self._part = part
        self._group: str | None = None
        self._known: set[str] = set()

    def add(self, row: dict[str, Any]) -> None:
        if row["group_id"] != self._group:
            self._group, self._known = row["group_id"], set()
        dialogue = read_dialogue(row["messages"])
        parts = dialogue if isinstance(dialogue, str) else dialogue.split(all_trained=False)
        if not isinstance(parts, DialogueSplit):
            self._output.counted["rows_without_prompt"] += 1
            return
        key = repr((row["split"], row["tools"], parts.prompt))
        if key in self._known:
            return
        self._known.add(key)
        prompt = {
            "data_source": row["source_system"] or _UNKNOWN_SOURCE,
            "prompt": plain(parts.prompt),
            "ability": _ABILITY,
            "reward_model": {"style": "rule", "ground_truth": row["task_id"] or ""},
            "extra_info": {"index": self._output.counted["prompts"]}
            | {name: row[name] for name in _EXTRA},
        }
        self._output.counted["prompts"] += 1
        name = f"prompts/{file_stem(row['split'], self._part)}.parquet"
        self._output.table(name, pa.Table.from_pylist([prompt], _PROMPTS))


def _roll_out(table: pa.Table, output: ExportOutput, part: int, widths: tuple[int, int]) -> None:
    reasons = ("not_trained", "no_logprobs", "no_reward", "no_prompt")
    for split, some in by_split(kept_rows(table, output, *reasons)):
        path = f"rollouts/{file_stem(split, part)}.parquet"
        for piece in _in_pieces(some, widths):
            output.table(path, _padded(Rows(piece), *widths))
        output.rows += some.num_rows


def _in_pieces(rows: pa.Table, widths: tuple[int, int]) -> Iterator[pa.Table]:
    row_bytes = widths[0] * _PROMPT_BYTES + widths[1] * _RESPONSE_BYTES
    count = max(1, _PIECE_BYTES // row_bytes)
    for start in range(0, rows.num_rows, count):
        yield rows[start : start + count]


def _padded(rows: Rows, prompt_width: int, response_width: int) -> pa.Table:
    first, length = rows.numbers("prompt_len").astype(np.int64), rows.tokens
    answered = length - first
    read = np.arange(prompt_width) >= prompt_width - first[:, None]
    written = np.arange(response_width) < answered[:, None]
    scores = np.zeros(written.shape, np.float32)
    scores[np.arange(rows.count), answered - 1] = rows.numbers("reward")
    columns = {
        "prompts": _laid(read, cut_values(rows, "input_ids", 0 * first, first), np.int64),
        "responses": _laid(written, cut_values(rows, "input_ids", first, length), np.int64),
        "attention_mask": np.concatenate([read, written], axis=1).astype(np.uint8),
        "response_mask": _laid(written, cut_values(rows, "loss_mask", first, length), np.uint8),
        "rollout_log_probs": _laid(
            written, cut_values(rows, "rollout_logprobs", first, length), np.float32
        ),
        "rm_scores": scores,
    }
    arrays = [_lists(one) for one in columns.values()]
    arrays += [
        rows.column(name).cast(field.type)
        for name, field in zip(_OF_ROWS, list(_ROLLOUTS)[len(columns) :], strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=_ROLLOUTS)


def _laid(where: np.ndarray, values: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """Values where there is no padding."""
    laid = np.zeros(where.shape, kind)
    laid[where] = values
    return laid


def _lists(values: np.ndarray) -> pa.ListArray:
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


EXPORTER = Exporter("verl", 2, "verl 0.9", write)
