"""Rollouts for RL trainers: prime-rl, slime and NeMo-RL. docs/training.md says what each holds.

prime-rl: batches that its trainer reads in place of an orchestrator (transport of 2026-10). A step
is whole groups of the split `train`, as a list of micro batches in msgpack. A micro batch holds
samples up to the length of the shard's longest one, which the trainer must hold anyway. All are for
the first rank; examples/trainers/prime_rl_ranks.py distributes them. Experts that do not begin with
the first token are left out; missing ones are zeros.

slime: rollouts that its trainer (of 2026-08) reads instead of sampling. A file is like one of
`--save-debug-rollout-data`, with whole groups of the split `train`. Response fields begin with the
first response token. Files are pickles of plain values in the older format of `torch.load`, so that
writing needs no PyTorch.

nemo-rl: message logs with their tokens (a `DatumSpec`), and preferences, for NeMo-RL of 2026-08.
The concatenated tokens of a message log are `input_ids`; a message is a span of `turn_spans`.
`generation_logprobs` mark trained tokens; they are 0.0 in rendered rows, which are for SFT. Lists
of numbers become tensors before `add_grpo_token_loss_masks_and_generation_logprobs`.
"""

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from penstock.shards.schema import ROLES
from penstock_jobs.shards.export import (
    TOKENS,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    token_rows,
)
from penstock_jobs.shards.exporters.messages import read_pairs, stripped

Row = dict[str, Any]
_UNKNOWN_SOURCE = "penstock"
_PRIME_COLUMNS = (
    "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs", "temperature",
    "temperature_runs", "advantage", "source_system", "prompt_len", "n_tokens", *WEIGHING,
)  # fmt: skip
_PRIME_REASONS = (
    "not_trained", "eval_split", "no_logprobs", "no_temperature", "no_advantage", "no_prompt",
)  # fmt: skip


class RoutedExperts(msgspec.Struct, array_like=True, frozen=True):
    data: bytes
    #: Tokens, layers, experts of a token.
    shape: list[int]
    dtype: str


class MicroBatch(msgspec.Struct, array_like=True, frozen=True):
    """The input of one forward pass. Fields that stay None keep the positions of later ones."""

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


def _write_prime_rl(source: ShardSource, output: ExportOutput) -> None:
    longest = (pc.max(table["n_tokens"]).as_py() for table in source.all_tables(("n_tokens",)))
    tokens_max = max(longest, default=0)
    for number, rows in enumerate(source.steps(_PRIME_COLUMNS, output, *_PRIME_REASONS), start=1):
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
    """Fill experts up for all tokens. PyTorch cannot compute with uint16."""
    if experts is None:
        return None
    kind = np.int32 if experts.dtype == np.uint16 else experts.dtype
    filled = np.zeros((length, *experts.shape[1:]), kind)
    filled[: len(experts)] = experts
    return filled


def _micro_batches(rows: Sequence[Row], tokens_max: int) -> Iterator[list[Row]]:
    """Yield micro batches of one form of experts, no longer than the longest sample."""
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
    """Expand temperatures to tokens. Tokens before the first run get its value."""
    runs = row["temperature_runs"] or [{"start": 0, "temperature": row["temperature"]}]
    starts = [0, *(run["start"] for run in runs[1:]), row["n_tokens"]]
    return np.repeat([run["temperature"] for run in runs], np.diff(starts)).tolist()


def _encoded(experts: np.ndarray) -> RoutedExperts:
    return RoutedExperts(experts.tobytes(), [*experts.shape], experts.dtype.name)


PRIME_RL = Exporter("prime-rl", 3, "prime-rl, transport of 2026-10", _write_prime_rl)


_SLIME_COLUMNS = (
    "sample_id", "session_id", "rollout_id", "group_id", "task_id", "checkpoint_id", "split",
    "input_ids", "loss_mask", "rollout_logprobs", "policy_version_runs", "prompt_len", "n_tokens",
    "reward", "advantage", "status", *WEIGHING,
)  # fmt: skip
_SLIME_REASONS = ("not_trained", "eval_split", "no_logprobs", "no_reward", "no_prompt")
_STATUSES = ("completed", "truncated", "aborted", "failed")
#: The head of PyTorch's older files: a magic number, the version, and sizes of the machine.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_SYSTEM = {
    "protocol_version": _PROTOCOL,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
_PICKLE = 2


def _write_slime(source: ShardSource, output: ExportOutput) -> None:
    groups = rollouts = -1
    group = rollout = None
    for number, rows in enumerate(source.steps(_SLIME_COLUMNS, output, *_SLIME_REASONS)):
        samples = []
        for row in rows:
            groups += row["group_id"] != group
            rollouts += row["rollout_id"] != rollout
            group, rollout = row["group_id"], row["rollout_id"]
            places = {"group_index": groups, "rollout_id": rollouts, "index": output.rows}
            samples.append(places | _sample(row))
            output.rows += 1
        content = {"rollout_id": number, "samples": samples}
        parts: tuple[object, ...] = (_MAGIC, _PROTOCOL, _SYSTEM, content, [])
        pickles = (pickle.dumps(part, _PICKLE) for part in parts)
        output.file(f"rollouts/{number}.pt", pickles)
        output.counted["files"] += 1


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    ids, mask, logprobs = (row[name] for name in TOKENS)
    first, read, experts = row["prompt_len"], len(ids) - 1, row["routed_experts"]
    whole = experts is not None and len(experts) >= read
    return {
        "prompt": "",
        "tokens": ids.tolist(),
        "response": "",
        "response_length": len(ids) - first,
        "label": None,
        "reward": {name: row[name] for name in ("reward", "advantage") if row[name] is not None},
        "loss_mask": mask[first:].tolist(),
        "weight_versions": [str(run["version"]) for run in row["policy_version_runs"] or ()],
        "rollout_log_probs": logprobs[first:].tolist(),
        "rollout_routed_experts": experts[:read].tolist() if whole else None,
        "remove_sample": False,
        "status": row["status"] if row["status"] in _STATUSES else "failed",
        "metadata": {name: row[name] for name in ("sample_id", "task_id", "checkpoint_id")},
        "session_id": row["session_id"],
    }


SLIME = Exporter("slime", 1, "slime, 2026-08", _write_slime)


_NEMO_FACTS = (
    "reward", "advantage", "group_id", "sample_id", "min_policy_version", "max_policy_version",
    "token_source",
)  # fmt: skip
_NEMO_COLUMNS = (
    "split", "input_ids", "loss_mask", "rollout_logprobs", "turn_spans", "n_tokens", "task_id",
    "source_system", "messages", "preferences", *_NEMO_FACTS, *WEIGHING,
)  # fmt: skip


def _write_nemo_rl(source: ShardSource, output: ExportOutput) -> None:
    counts: Counter[str] = Counter()
    for file, table in source.splits(_NEMO_COLUMNS, output, "not_trained"):
        for row in token_rows(table):
            datum = {
                "message_log": list(_message_log(row)),
                "length": row["n_tokens"],
                "loss_multiplier": row["loss_weight"],
                "idx": counts[file],
                "task_name": row["task_id"] or row["source_system"] or "penstock",
                "extra_env_info": {name: row[name] for name in _NEMO_FACTS},
            }
            counts[file] += 1
            output.line(f"message_logs/{file}.jsonl", msgspec.json.encode(datum))
            _write_preferences(row, output, f"preferences/{file}.jsonl")
        output.rows += table.num_rows


def _message_log(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield messages, cut where training begins or ends. Tokens between spans are one too."""
    ids, mask, logprobs = (row[name] for name in TOKENS)
    roles = np.full(len(ids), ROLES.index("user"))
    edges = {0, len(ids), *(np.flatnonzero(np.diff(mask)) + 1).tolist()}
    for span in row["turn_spans"]:
        roles[span["start"] : span["end"]] = span["role"]
        edges |= {span["start"], span["end"]}
    for start, end in pairwise(sorted(edges)):
        message = {"role": ROLES[roles[start]], "content": "", "token_ids": ids[start:end].tolist()}
        if mask[start]:
            own = np.zeros(end - start) if logprobs is None else logprobs[start:end]
            message["generation_logprobs"] = own.tolist()
        yield message


def _write_preferences(row: dict[str, Any], output: ExportOutput, name: str) -> None:
    for preference, before in read_pairs(row):
        sides = enumerate((preference.chosen, preference.rejected))
        pair = {
            "context": stripped(before),
            "completions": [{"rank": n, "completion": stripped(side)} for n, side in sides],
        }
        output.line(name, msgspec.json.encode(pair))
        output.counted["preferences"] += 1


NEMO_RL = Exporter("nemo-rl", 1, "NeMo-RL, 2026-08", _write_nemo_rl)
