"""verl: prompts to roll out again, and rollouts in the layout of its batches, for verl 0.9.

Each group's prompt is written once. Prompts are padded with 0 on the left and responses on the
right, to the widths of the whole shard, given by `counted` in `export.json`. Experts are laid out
like tokens, with padding: `np.frombuffer(…, "<i2").reshape(prompt_width + response_width,
routed_layers, routed_topk)`; null if the first tokens have none.
"""

from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.settings import MIB
from penstock.shards.schema import Rows
from penstock_jobs.shards.export import (
    ROUTES,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    cut_values,
    experts_of,
    file_stem,
)
from penstock_jobs.shards.exporters.messages import MESSAGES, plain, read_split

_PIECE_BYTES = 16 * MIB
#: Bytes per token of the prompt, and of the response.
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
_ROUTED = pa.field("routed_experts", pa.large_binary())
#: Columns with one value a row: name in the shard, name in verl, type.
_PLAIN = (
    ("group_id", "uid", pa.string()),
    ("min_policy_version", "min_global_steps", pa.int64()),
    ("max_policy_version", "max_global_steps", pa.int64()),
    ("temperature", "temperature", pa.float32()),
    ("advantage", "advantage", pa.float32()),
    ("sample_id", "sample_id", pa.string()),
)


class _Widths(NamedTuple):
    """Widths of the whole shard. The first experts define layers and topk."""

    prompt: int
    response: int
    layers: int
    topk: int

    @property
    def row_bytes(self) -> int:
        padded = self.prompt * _PROMPT_BYTES + self.response * _RESPONSE_BYTES
        return padded + 2 * (self.prompt + self.response) * self.layers * self.topk


def write(source: ShardSource, output: ExportOutput) -> None:
    widths = _widths(source)
    output.counted.update(prompt_width=widths.prompt, response_width=widths.response)
    if source.routed:
        output.counted.update(routed_layers=widths.layers, routed_topk=widths.topk)
    columns = (*_ROLLOUT_COLUMNS, *ROUTES) if source.routed else _ROLLOUT_COLUMNS
    piece_rows = max(1, _PIECE_BYTES // widths.row_bytes)
    _write_prompts(source, output)
    for file, rows in source.splits(columns, output, *_REASONS):
        for start in range(0, rows.num_rows, piece_rows):
            piece = rows[start : start + piece_rows]
            padded = _padded(Rows(piece.select(_ROLLOUT_COLUMNS)), widths)
            if source.routed:
                padded = padded.append_column(_ROUTED, [_padded_routes(piece, widths)])
            output.table(f"rollouts/{file}.parquet", padded)
        output.rows += rows.num_rows


def _widths(source: ShardSource) -> _Widths:
    prompt = response = layers = topk = 0
    names = ("prompt_len", "n_tokens", *(("layers", "topk") if source.routed else ()))
    for table in source.all_tables(names):
        lengths = pc.subtract(table["n_tokens"], table["prompt_len"])
        prompt = max(prompt, pc.max(table["prompt_len"]).as_py())
        response = max(response, pc.max(lengths).as_py())
        known = table.drop_null() if source.routed else table[:0]
        if known.num_rows and not layers:
            layers, topk = known["layers"][0].as_py(), known["topk"][0].as_py()
    return _Widths(prompt, response, layers, topk)


def _write_prompts(source: ShardSource, output: ExportOutput) -> None:
    for number, part in enumerate(source.manifest.files):
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
        output.end_files()


def _padded(rows: Rows, widths: _Widths) -> pa.Table:
    first, length = rows.numbers("prompt_len").astype(np.int64), rows.tokens
    answered = length - first
    read = np.arange(widths.prompt) >= widths.prompt - first[:, None]
    written = np.arange(widths.response) < answered[:, None]
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


def _padded_routes(rows: pa.Table, widths: _Widths) -> pa.Array:
    """Pad experts as verl's agent loop does, from the beginning of the prompt."""
    values: list[bytes | None] = []
    for row in rows.select(["prompt_len", *ROUTES]).to_pylist():
        experts = experts_of(row)
        if experts is None or experts.shape[1:] != (widths.layers, widths.topk):
            values.append(None)
            continue
        padded = np.zeros((widths.prompt + widths.response, *experts.shape[1:]), "<i2")
        padded[widths.prompt - row["prompt_len"] :][: len(experts)] = experts
        values.append(padded.tobytes())
    return pa.array(values, _ROUTED.type)


def _laid_out(where: np.ndarray, values: np.ndarray, kind: type[np.generic]) -> pa.ListArray:
    laid_out = np.zeros(where.shape, kind)
    laid_out[where] = values
    return _lists(laid_out)


def _lists(values: np.ndarray) -> pa.ListArray:
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


EXPORTER = Exporter("verl", 3, "verl 0.9", write)
