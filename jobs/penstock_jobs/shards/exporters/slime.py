"""slime: rollouts that its trainer (of 2026-08) reads instead of sampling.

A file is what `--save-debug-rollout-data` writes, with whole groups of the split `train`. What is
of the response begins with its first token. The files are pickles of plain values in the older of
the two forms that `torch.load` reads, so that PyTorch is not needed to write them.
"""

import pickle
from typing import Any

from penstock_jobs.shards.export import (
    TOKENS,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
)

_COLUMNS = (
    "sample_id", "session_id", "rollout_id", "group_id", "task_id", "checkpoint_id", "split",
    "input_ids", "loss_mask", "rollout_logprobs", "policy_version_runs", "prompt_len", "n_tokens",
    "reward", "advantage", "status", *WEIGHING,
)  # fmt: skip
_REASONS = ("not_trained", "eval_split", "no_logprobs", "no_reward", "no_prompt")
_STATUSES = ("completed", "truncated", "aborted", "failed")
#: What the older form of PyTorch's files begins with: a mark, its version, and the machine's sizes.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_SYSTEM = {
    "protocol_version": _PROTOCOL,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
_PICKLE = 2


def write(source: ShardSource, output: ExportOutput) -> None:
    groups = rollouts = -1
    group = rollout = None
    for number, rows in enumerate(source.steps(_COLUMNS, output, *_REASONS)):
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


EXPORTER = Exporter("slime", 1, "slime, 2026-08", write)
