"""prime-rl: batches that its trainer reads in an orchestrator's place (its transport of 2026-10).

A step is whole groups of the split `train`: as many as make 128 samples or a million tokens,
whichever comes first, as a list of micro batches in msgpack. A micro batch is as many samples
behind each other as are no longer than the longest sample of the shard, which the trainer has to
hold anyway; it holds either samples with experts or samples without. All of them are the first
rank's; examples/trainers/prime_rl_ranks.py deals them out to several. Experts that do not begin
with the first token are left out; a last token without any has zeros.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import (
    ROUTES,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    exported_rows,
    sample_routes,
    token_values,
)

STEP_SAMPLES = 128
STEP_TOKENS = 1_000_000
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


class _Steps:
    """Collects the samples of a micro batch, and the micro batches of a step."""

    def __init__(self, output: ExportOutput, micro_batch_tokens: int) -> None:
        self._output = output
        self._tokens_max = micro_batch_tokens
        self._micro_batch: list[pa.Table] = []
        self._done: list[msgspec.Raw] = []
        self._samples = self._tokens = self._length = self._step = 0
        self._group: str | None = None
        self._routes: list[np.ndarray] = []

    def add(self, group: str, length: int, sample: pa.Table, routes: np.ndarray | None) -> None:
        """The group and the tokens of a sample, its row, and its experts."""
        full = self._samples >= STEP_SAMPLES or self._tokens >= STEP_TOKENS
        if full and group != self._group:
            self.end()
        self._group = group
        too_long = self._length + length > self._tokens_max
        if self._micro_batch and (too_long or _form(routes) != _form(*self._routes[:1])):
            self._end_micro_batch()
        self._micro_batch.append(sample)
        self._routes += [] if routes is None else [routes]
        self._samples += 1
        self._tokens += length
        self._length += length

    def _end_micro_batch(self) -> None:
        if not self._micro_batch:
            return
        joined = _joined(Rows(pa.concat_tables(self._micro_batch)), self._routes)
        self._done.append(msgspec.Raw(msgspec.msgpack.encode(joined)))
        counted = self._output.counted
        counted["micro_batches"] += 1
        counted["micro_batch_tokens"] = max(counted["micro_batch_tokens"], self._length)
        self._micro_batch, self._routes, self._length = [], [], 0

    def end(self) -> None:
        self._end_micro_batch()
        if not self._done:
            return
        self._step += 1
        content = msgspec.msgpack.encode(self._done)
        self._output.file(f"batches/step_{self._step}/rank_0.bin", [content])
        self._output.rows += self._samples
        self._output.counted["steps"] += 1
        self._done = []
        self._samples = self._tokens = 0


def write(source: ShardSource, output: ExportOutput) -> None:
    longest = (pc.max(table["n_tokens"]).as_py() for table in source.all_tables(("n_tokens",)))
    steps = _Steps(output, max(longest, default=0))
    for table in source.all_tables((*_COLUMNS, *ROUTES) if source.routed else _COLUMNS):
        rows = exported_rows(table, output, *_REASONS)
        samples = rows.select(_COLUMNS)
        facts = zip(rows["group_id"].to_pylist(), rows["n_tokens"].to_pylist(), strict=True)
        for at, (group, length) in enumerate(facts):
            routes = _routes(rows, at, length) if source.routed else None
            steps.add(group, length, samples.slice(at, 1), routes)
    steps.end()


def _routes(rows: pa.Table, at: int, length: int) -> np.ndarray | None:
    """For each token; PyTorch knows no uint16 to reckon with."""
    routes = sample_routes(rows, at)
    if routes is None:
        return None
    kind = np.int32 if routes.dtype == np.uint16 else routes.dtype
    filled = np.zeros((length, *routes.shape[1:]), kind)
    filled[: len(routes)] = routes
    return filled


def _form(routes: np.ndarray | None = None) -> tuple[object, ...] | None:
    return None if routes is None else (routes.shape[1:], routes.dtype)


def _joined(rows: Rows, routes: Sequence[np.ndarray]) -> MicroBatch:
    lengths, mask, weights = (
        rows.tokens.tolist(),
        rows.mask.astype(bool),
        rows.numbers("loss_weight"),
    )
    advantages = np.repeat(rows.numbers("advantage"), lengths)
    sources = [source or _UNKNOWN_SOURCE for source in rows.column("source_system").to_pylist()]
    return MicroBatch(
        input_ids=rows.lists("input_ids").numbers().tolist(),
        loss_mask=mask.tolist(),
        advantages=np.where(mask, advantages, 0.0).tolist(),
        inference_logprobs=rows.lists("rollout_logprobs").numbers().tolist(),
        position_ids=[place for length in lengths for place in range(length)],
        sequence_lengths=lengths,
        temperatures=_temperatures(rows).tolist(),
        env_names=np.repeat(np.array(sources, object), lengths).tolist(),
        seq_lens=lengths,
        routed_experts=_encoded(np.concatenate(routes)) if routes else None,
        rl_weights=np.repeat(weights, lengths).tolist() if (weights != 1).any() else None,
    )


def _temperatures(rows: Rows) -> np.ndarray:
    single = np.repeat(rows.numbers("temperature"), rows.tokens)
    runs = rows.lists("temperature_runs").lengths > 0
    return np.where(
        np.repeat(runs, rows.tokens), token_values(rows, "temperature_runs", "temperature"), single
    )


def _encoded(routes: np.ndarray) -> RoutedExperts:
    return RoutedExperts(routes.tobytes(), [*routes.shape], routes.dtype.name)


EXPORTER = Exporter("prime-rl", 3, "prime-rl, transport of 2026-10", write)
