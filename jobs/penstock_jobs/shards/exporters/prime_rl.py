"""prime-rl: batches that its trainer reads instead of an orchestrator's.

Files: `batches/step_1/rank_0.bin`, `batches/step_2/…`: a step each, as msgpack: a list of micro
batches. A step is whole groups of the split `train`: as many as make 128 samples or a million
tokens, whichever comes first. Its micro batches are as many samples behind each other as are no
longer than the longest sample of the shard, which the trainer has to hold anyway. All of them are
the first rank's; examples/trainers/prime_rl_ranks.py deals them out to several.

| column of the shard | becomes |
|---|---|
| `input_ids` | `input_ids` |
| `loss_mask` | `loss_mask`, true or false |
| `advantage` | `advantages`, the same for each trained token, 0.0 for the others |
| `rollout_logprobs` | `inference_logprobs`, as long as the ids, 0.0 off the mask |
| – | `position_ids`, from 0 in each sample; `sequence_lengths` and `seq_lens`, one a sample |
| `temperature` | `temperatures`, the same for each token |
| `source_system` | `env_names`, the same for each token; `penstock` where it is not known |
| `loss_weight` | `rl_weights`, the same for each token; not there where all of them are 1 |

Alignment: value i is of token i; nothing is shifted or padded.

Lost: rewards and their parts, groups' and sessions' names, policy versions, routed experts, the
split `eval`. A group stays in one step.

Left out: `not_trained`, `eval_split`, `no_logprobs`, `no_temperature`, `no_advantage`,
`no_prompt`. Counted: `steps`; `micro_batches`; `micro_batch_tokens`, how long the longest is.

Written for prime-rl's transport of 2026-10: `list[MicroBatch]`, structs as arrays whose order is
that of `MicroBatch` below. Before 2026-08 it had another, which is not written any more.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import WEIGHING, Exporter, ExportOutput, ShardSource, kept_rows

STEP_SAMPLES = 128
STEP_TOKENS = 1_000_000
_UNKNOWN_SOURCE = "penstock"
_COLUMNS = (
    "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs", "temperature", "advantage",
    "source_system", "prompt_len", "n_tokens", *WEIGHING,
)  # fmt: skip
_REASONS = (
    "not_trained", "eval_split", "no_logprobs", "no_temperature", "no_advantage", "no_prompt",
)  # fmt: skip


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
    routed_experts: None = None
    mm_refs: None = None
    mm_token_type_ids: None = None
    rl_weights: list[float] | None = None


class _RolloutSample(NamedTuple):
    group: str
    env_name: str
    temperature: float
    advantage: float
    weight: float
    ids: np.ndarray
    mask: np.ndarray
    logprobs: np.ndarray


class _Steps:
    """Collects the samples of a micro batch, and the micro batches of a step."""

    def __init__(self, output: ExportOutput, micro_batch_tokens: int) -> None:
        self._output = output
        self._tokens_max = micro_batch_tokens
        self._micro_batch: list[_RolloutSample] = []
        self._done: list[msgspec.Raw] = []
        self._samples = self._tokens = self._step = 0
        self._group: str | None = None

    def add(self, sample: _RolloutSample) -> None:
        full = self._samples >= STEP_SAMPLES or self._tokens >= STEP_TOKENS
        if full and sample.group != self._group:
            self.end()
        self._group = sample.group
        if _length(self._micro_batch) + len(sample.ids) > self._tokens_max:
            self._end_micro_batch()
        self._micro_batch.append(sample)
        self._samples += 1
        self._tokens += len(sample.ids)

    def _end_micro_batch(self) -> None:
        if not self._micro_batch:
            return
        self._done.append(msgspec.Raw(msgspec.msgpack.encode(_joined(self._micro_batch))))
        counted, length = self._output.counted, _length(self._micro_batch)
        counted["micro_batches"] += 1
        counted["micro_batch_tokens"] = max(counted["micro_batch_tokens"], length)
        self._micro_batch = []

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
    for table in source.all_tables(_COLUMNS):
        for sample in _samples(Rows(kept_rows(table, output, *_REASONS))):
            steps.add(sample)
    steps.end()


def _samples(rows: Rows) -> Iterator[_RolloutSample]:
    ids, logprobs = (rows.lists(name).numbers() for name in ("input_ids", "rollout_logprobs"))
    temperatures, advantages, weights = (
        rows.numbers(name).tolist() for name in ("temperature", "advantage", "loss_weight")
    )
    groups, sources = (rows.column(name).to_pylist() for name in ("group_id", "source_system"))
    for at, group in enumerate(groups):
        inside = slice(int(rows.offsets[at]), int(rows.offsets[at + 1]))
        yield _RolloutSample(
            group=group,
            env_name=sources[at] or _UNKNOWN_SOURCE,
            temperature=temperatures[at],
            advantage=advantages[at],
            weight=weights[at],
            ids=ids[inside],
            mask=rows.mask[inside].astype(bool),
            logprobs=logprobs[inside],
        )


def _length(samples: Sequence[_RolloutSample]) -> int:
    return sum(len(sample.ids) for sample in samples)


def _joined(samples: Sequence[_RolloutSample]) -> MicroBatch:
    lengths = [len(sample.ids) for sample in samples]
    advantages = [np.where(sample.mask, sample.advantage, 0.0) for sample in samples]
    sources = [[sample.env_name] * len(sample.ids) for sample in samples]
    weights = [sample.weight for sample in samples]
    return MicroBatch(
        input_ids=np.concatenate([sample.ids for sample in samples]).tolist(),
        loss_mask=np.concatenate([sample.mask for sample in samples]).tolist(),
        advantages=np.concatenate(advantages).tolist(),
        inference_logprobs=np.concatenate([sample.logprobs for sample in samples]).tolist(),
        position_ids=[place for length in lengths for place in range(length)],
        sequence_lengths=lengths,
        temperatures=np.repeat([sample.temperature for sample in samples], lengths).tolist(),
        env_names=[name for names in sources for name in names],
        seq_lens=lengths,
        rl_weights=np.repeat(weights, lengths).tolist() if set(weights) != {1} else None,
    )


EXPORTER = Exporter("prime-rl", 2, "prime-rl, transport of 2026-10", write)
