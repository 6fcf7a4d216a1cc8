"""prime-rl: batches that its trainer's packer reads.

Files: `rollouts/step_0/rollouts.bin`, `rollouts/step_1/…`: a batch each, as msgpack. A batch is
whole groups of the split `train`: as many as make 128 samples or a million tokens, whichever comes
first. Set prime-rl's `output_dir` to the directory; ranks are its packer's work.

| column of the shard | becomes |
|---|---|
| `input_ids` | `token_ids` |
| `loss_mask` | `mask`, true or false |
| `rollout_logprobs` | `logprobs`, as long as the ids, 0.0 off the mask |
| `temperature` | `temperatures`, the same for each token |
| `source_system` | `env_name`; `penstock` where it is not known |
| `advantage` | `advantages`, the same for each trained token, 0.0 for the others |
| `loss_weight` | `rl_weights`, the same for each token; not there where it is 1 |

Alignment: all of them have one length, and value i is of token i; nothing is shifted or padded.

Lost: rewards and their parts, groups' and sessions' names, policy versions, routed experts, the
split `eval`. A group stays in one batch.

Left out: `not_trained`; `eval_split`; `no_logprobs` (rendered text has none); `no_temperature`;
`no_advantage`. Counted: `steps`.

Written for prime-rl's transport of 2026-10: `TrainingBatch` of `TrainingSample`, structs as arrays
whose order is that of `Sample` and `Batch` below.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow.compute as pc

from penstock.shards.rules import Rows
from penstock_jobs.shards.exporters.outputs import Output
from penstock_jobs.shards.exporters.reading import WEIGHING, Source, keep, missing, untrained
from penstock_jobs.shards.exporting import Exporter

STEP_SAMPLES = 128
STEP_TOKENS = 1_000_000
_UNKNOWN_SOURCE = "penstock"
_COLUMNS = (
    "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs", "temperature", "advantage",
    "source_system", "n_tokens", *WEIGHING,
)  # fmt: skip


class Sample(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    """A trainable sequence. Fields that stay None hold the places of those behind them."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    ref_logprobs: None = None
    mm_kwargs: None = None
    mm_refs: None = None
    routed_experts: None = None
    mm_token_type_ids: None = None
    rl_weights: list[float] | None = None
    ce_weights: None = None
    ref_kl_weights: None = None
    advantages: list[float] | None = None


class Batch(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    #: Samples that are msgpack already.
    examples: list[msgspec.Raw]
    step: int
    run_idx: int | None = None


class _Steps:
    """Collects the samples of a step, as they will be written."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._samples: list[msgspec.Raw] = []
        self._tokens = 0
        self._step = 0
        self._group: str | None = None

    def add(self, group: str, sample: Sample) -> None:
        full = len(self._samples) >= STEP_SAMPLES or self._tokens >= STEP_TOKENS
        if full and group != self._group:
            self.end()
        self._group = group
        self._samples.append(msgspec.Raw(msgspec.msgpack.encode(sample)))
        self._tokens += len(sample.token_ids)

    def end(self) -> None:
        if not self._samples:
            return
        content = msgspec.msgpack.encode(Batch(self._samples, self._step))
        self._output.file(f"rollouts/step_{self._step}/rollouts.bin", [content])
        self._output.rows += len(self._samples)
        self._output.counted["steps"] += 1
        self._samples, self._tokens = [], 0
        self._step += 1


def write(source: Source, output: Output) -> None:
    steps = _Steps(output)
    for _, part in source.parts():
        for table in source.tables(part, _COLUMNS):
            kept = keep(
                table,
                output,
                ("not_trained", untrained(table)),
                ("eval_split", pc.equal(table["split"], "eval").to_numpy()),
                ("no_logprobs", missing(table, "rollout_logprobs")),
                ("no_temperature", missing(table, "temperature")),
                ("no_advantage", missing(table, "advantage")),
            )
            for group, sample in _samples(Rows(kept)):
                steps.add(group, sample)
    steps.end()


def _samples(rows: Rows) -> Iterator[tuple[str, Sample]]:
    ids, logprobs = (rows.lists(name).numbers() for name in ("input_ids", "rollout_logprobs"))
    temperatures, advantages, weights = (
        rows.numbers(name).tolist() for name in ("temperature", "advantage", "loss_weight")
    )
    groups, sources = (rows.column(name).to_pylist() for name in ("group_id", "source_system"))
    for at, count in enumerate(rows.tokens.tolist()):
        inside = slice(int(rows.offsets[at]), int(rows.offsets[at + 1]))
        mask = rows.mask[inside].astype(bool)
        yield (
            groups[at],
            Sample(
                token_ids=ids[inside].tolist(),
                mask=mask.tolist(),
                logprobs=logprobs[inside].tolist(),
                temperatures=[temperatures[at]] * count,
                env_name=sources[at] or _UNKNOWN_SOURCE,
                rl_weights=None if weights[at] == 1 else [weights[at]] * count,
                advantages=np.where(mask, advantages[at], 0.0).tolist(),
            ),
        )


EXPORTER = Exporter("prime-rl", 1, "prime-rl, transport of 2026-10", write)
