"""prime-rl: batches that its trainer reads in an orchestrator's place (its transport of 2026-10).

A step is whole groups of the split `train`, as a list of micro batches in msgpack. A micro batch is
as many samples as are no longer than the longest of the shard, which the trainer has to hold
anyway. All of them are the first rank's; examples/trainers/prime_rl_ranks.py deals them out to
several. Experts that do not begin with the first token are left out; missing ones are zeros.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from penstock_jobs.shards.export import (
    TOKENS,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
)

Row = dict[str, Any]
_UNKNOWN_SOURCE = "penstock"
_COLUMNS = (
    "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs", "temperature",
    "temperature_runs", "advantage", "source_system", "prompt_len", "n_tokens", *WEIGHING,
)  # fmt: skip
_REASONS = (
    "not_trained", "eval_split", "no_logprobs", "no_temperature", "no_advantage", "no_prompt",
)  # fmt: skip


class RoutedExperts(msgspec.Struct, array_like=True, frozen=True):
    data: bytes
    #: Tokens, layers, experts of a token.
    shape: list[int]
    dtype: str


class MicroBatch(msgspec.Struct, array_like=True, frozen=True):
    """What one forward pass takes. Fields that stay None hold the places of those behind them."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]
    ref_logprobs: None = None
    routed_experts: RoutedExperts | None = None
    mm_refs: None = None
    mm_token_type_ids: None = None
    rl_weights: list[float] | None = None


def write(source: ShardSource, output: ExportOutput) -> None:
    longest = (pc.max(table["n_tokens"]).as_py() for table in source.all_tables(("n_tokens",)))
    tokens_max = max(longest, default=0)
    for number, rows in enumerate(source.steps(_COLUMNS, output, *_REASONS), start=1):
        for row in rows:
            row["routed_experts"] = _filled(row["routed_experts"], row["n_tokens"])
        batches = [_joined(batch) for batch in _micro_batches(rows, tokens_max)]
        output.file(f"batches/step_{number}/rank_0.bin", [msgspec.msgpack.encode(batches)])
        output.rows += len(rows)
        counted = output.counted
        counted["steps"] += 1
        counted["micro_batches"] += len(batches)
        lengths = (len(batch.input_ids) for batch in batches)
        counted["micro_batch_tokens"] = max(counted["micro_batch_tokens"], *lengths)


def _filled(experts: np.ndarray | None, length: int) -> np.ndarray | None:
    """For each token; PyTorch knows no uint16 to reckon with."""
    if experts is None:
        return None
    kind = np.int32 if experts.dtype == np.uint16 else experts.dtype
    filled = np.zeros((length, *experts.shape[1:]), kind)
    filled[: len(experts)] = experts
    return filled


def _micro_batches(rows: Sequence[Row], tokens_max: int) -> Iterator[list[Row]]:
    """A micro batch is no longer than the longest sample, and its experts are of one form."""
    batch: list[Row] = []
    length = 0
    for row in rows:
        too_long = length + row["n_tokens"] > tokens_max
        if batch and (too_long or _form(row) != _form(batch[0])):
            yield batch
            batch, length = [], 0
        batch.append(row)
        length += row["n_tokens"]
    yield batch


def _form(row: Row) -> tuple[object, ...] | None:
    experts = row["routed_experts"]
    return None if experts is None else (experts.shape[1:], experts.dtype)


def _joined(rows: Sequence[Row]) -> MicroBatch:
    lengths = [row["n_tokens"] for row in rows]
    ids, mask, logprobs = (np.concatenate([row[name] for row in rows]) for name in TOKENS)
    advantages = np.repeat([row["advantage"] for row in rows], lengths)
    sources = [row["source_system"] or _UNKNOWN_SOURCE for row in rows]
    weights = np.array([row["loss_weight"] for row in rows])
    experts = [row["routed_experts"] for row in rows if row["routed_experts"] is not None]
    return MicroBatch(
        input_ids=ids.tolist(),
        loss_mask=mask.astype(bool).tolist(),
        advantages=np.where(mask, advantages, 0.0).tolist(),
        inference_logprobs=logprobs.tolist(),
        position_ids=[place for length in lengths for place in range(length)],
        sequence_lengths=lengths,
        temperatures=[value for row in rows for value in _temperatures(row)],
        env_names=np.repeat(np.array(sources, object), lengths).tolist(),
        seq_lens=lengths,
        routed_experts=_encoded(np.concatenate(experts)) if experts else None,
        rl_weights=np.repeat(weights, lengths).tolist() if (weights != 1).any() else None,
    )


def _temperatures(row: Row) -> list[float]:
    """Tokens before the first run have that of the first."""
    runs = row["temperature_runs"] or [{"start": 0, "temperature": row["temperature"]}]
    starts = [0, *(run["start"] for run in runs[1:]), row["n_tokens"]]
    return np.repeat([run["temperature"] for run in runs], np.diff(starts)).tolist()


def _encoded(experts: np.ndarray) -> RoutedExperts:
    return RoutedExperts(experts.tobytes(), [*experts.shape], experts.dtype.name)


EXPORTER = Exporter("prime-rl", 3, "prime-rl, transport of 2026-10", write)
