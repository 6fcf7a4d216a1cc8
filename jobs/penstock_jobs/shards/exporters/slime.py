"""slime: rollouts that its trainer (of 2026-08) reads instead of sampling.

A file is what `--save-debug-rollout-data` writes: whole groups of the split `train`, as many as
make 128 samples or a million tokens. What is of the response begins with its first token. Take
`--reward-key reward`; or `--reward-key advantage --disable-rewards-normalization` for the
advantages of the recipe. The files are pickles of plain values in the older of the two forms that
`torch.load` reads, so that PyTorch is not needed to write them.
"""

import pickle
from typing import Any

import numpy as np

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import (
    ROUTES,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    exported_rows,
    sample_routes,
)

FILE_SAMPLES = 128
FILE_TOKENS = 1_000_000
_COLUMNS = (
    "sample_id", "session_id", "rollout_id", "group_id", "task_id", "checkpoint_id", "split",
    "input_ids", "loss_mask", "rollout_logprobs", "policy_version_runs", "prompt_len", "n_tokens",
    "reward", "advantage", "status", *WEIGHING,
)  # fmt: skip
_REASONS = ("not_trained", "eval_split", "no_logprobs", "no_reward", "no_prompt")
_TOKENS = ("input_ids", "loss_mask", "rollout_logprobs")
_PLAIN = [name for name in _COLUMNS if name not in _TOKENS]
_STATUSES = ("completed", "truncated", "aborted", "failed")
#: What the older form of PyTorch's files begins with: a mark, its version, and the machine's sizes.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_SYSTEM = {
    "protocol_version": _PROTOCOL,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
#: Of pickles: what PyTorch writes.
_PICKLE = 2


class _Files:
    """Collects the samples of a file, and numbers them, their groups and their rollouts."""

    def __init__(self, output: ExportOutput) -> None:
        self._output = output
        self._samples: list[dict[str, Any]] = []
        self._tokens = self._file = 0
        self._group: str | None = None
        self._rollout: str | None = None
        self._groups = self._rollouts = -1

    def add(self, row: dict[str, Any], sample: dict[str, Any]) -> None:
        full = len(self._samples) >= FILE_SAMPLES or self._tokens >= FILE_TOKENS
        if row["group_id"] != self._group and full:
            self.end()
        self._groups += row["group_id"] != self._group
        self._rollouts += row["rollout_id"] != self._rollout
        self._group, self._rollout = row["group_id"], row["rollout_id"]
        numbers = {"group_index": self._groups, "rollout_id": self._rollouts}
        numbers["index"] = self._output.rows
        self._samples.append(numbers | sample)
        self._tokens += row["n_tokens"]
        self._output.rows += 1

    def end(self) -> None:
        if not self._samples:
            return
        content = {"rollout_id": self._file, "samples": self._samples}
        parts: tuple[object, ...] = (_MAGIC, _PROTOCOL, _SYSTEM, content, [])
        pickles = (pickle.dumps(part, _PICKLE) for part in parts)
        self._output.file(f"rollouts/{self._file}.pt", pickles)
        self._output.counted["files"] += 1
        self._file += 1
        self._samples, self._tokens = [], 0


def write(source: ShardSource, output: ExportOutput) -> None:
    files = _Files(output)
    for table in source.all_tables((*_COLUMNS, *ROUTES) if source.routed else _COLUMNS):
        exported = exported_rows(table, output, *_REASONS)
        rows = Rows(exported.select(_COLUMNS))
        columns = [(rows.lists(name), rows.lists(name).numbers()) for name in _TOKENS]
        for at, row in enumerate(exported.select(_PLAIN).to_pylist()):
            ids, mask, logprobs = (
                numbers[lists.offsets[at] : lists.offsets[at + 1]] for lists, numbers in columns
            )
            routes = sample_routes(exported, at) if source.routed else None
            files.add(row, _sample(row, ids, mask, logprobs, routes))
    files.end()


def _sample(
    row: dict[str, Any],
    ids: np.ndarray,
    mask: np.ndarray,
    logprobs: np.ndarray,
    routes: np.ndarray | None,
) -> dict[str, Any]:
    first, read = row["prompt_len"], len(ids) - 1
    versions = [str(run["version"]) for run in row["policy_version_runs"] or ()]
    rewards = {name: row[name] for name in ("reward", "advantage") if row[name] is not None}
    whole = routes is not None and len(routes) >= read
    return {
        "prompt": "",
        "tokens": ids.tolist(),
        "response": "",
        "response_length": len(ids) - first,
        "label": None,
        "reward": rewards,
        "loss_mask": mask[first:].tolist(),
        "weight_versions": versions,
        "rollout_log_probs": logprobs[first:].tolist(),
        "rollout_routed_experts": routes[:read].tolist() if routes is not None and whole else None,
        "remove_sample": False,
        "status": row["status"] if row["status"] in _STATUSES else "failed",
        "metadata": {name: row[name] for name in ("sample_id", "task_id", "checkpoint_id")},
        "session_id": row["session_id"],
    }


EXPORTER = Exporter("slime", 1, "slime, 2026-08", write)
