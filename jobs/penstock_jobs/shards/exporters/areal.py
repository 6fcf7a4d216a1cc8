"""areal: datasets as AReaL loads them from disk, and trajectories as its trainers take them.

Files: `sft/train/…` and `rollouts/train/…`, or `…/eval/…`: datasets of Hugging Face, as
`save_to_disk` writes them, with a file of Arrow's stream for each part of the shard.

| column of the shard | becomes |
|---|---|
| `input_ids`, `loss_mask` | in `sft`: the same names, unpadded; the `path` of AReaL's SFT |

| column of the shard | becomes, in `rollouts` |
|---|---|
| `input_ids` | `input_ids` |
| `loss_mask` | `loss_mask` |
| `rollout_logprobs` | `logprobs`, 0.0 off the mask |
| `policy_version_runs` | `versions`, one a token: −1 where nothing is trained, or nobody said it |
| `reward` | `rewards`: one a row |
| `advantage`, `group_id`, `sample_id` | the same names |

Alignment: value i is of token i; nothing is shifted: AReaL's trainers shift. A trajectory of a
workflow is a row of `rollouts` as tensors with a first dimension of 1, and an `attention_mask` of
ones; it has no `advantage`, which AReaL computes from `rewards`.

Lost: parts of rewards, rewards of tokens, temperatures, loss weights other than 0, experts,
lineage.

Left out: `not_trained`. Counted: `rollouts`; `rows_without_rollout`, those without
log-probabilities or a reward.

Written for AReaL of 2026-05.
"""

import json

import numpy as np
import pyarrow as pa

from penstock.shards.schema import Rows
from penstock_jobs.shards.export import (
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    token_values,
    whole_lists,
)

_COLUMNS = (
    "sample_id", "group_id", "split", "input_ids", "loss_mask", "rollout_logprobs",
    "policy_version_runs", "n_tokens", "reward", "advantage", *WEIGHING,
)  # fmt: skip
_INTS = pa.list_(pa.int32())
_SFT = pa.schema({"input_ids": _INTS, "loss_mask": _INTS})
_ROLLOUTS = pa.schema(
    {
        "input_ids": _INTS,
        "loss_mask": _INTS,
        "logprobs": pa.list_(pa.float32()),
        "versions": _INTS,
        "rewards": pa.float32(),
        "advantage": pa.float32(),
        "group_id": pa.string(),
        "sample_id": pa.string(),
    }
)
#: Of a token that no version is known for.
_NO_VERSION = -1


def write(source: ShardSource, output: ExportOutput) -> None:
    files: dict[str, list[str]] = {}
    for file, table in source.splits(_COLUMNS, output, "not_trained"):
        split, name = file.split("-")[0], f"data-{file.split('-')[1]}.arrow"
        known = (
            table["rollout_logprobs"].is_valid().to_numpy() & table["reward"].is_valid().to_numpy()
        )
        rollouts = table.filter(pa.array(known))
        for kind, rows in (("sft", _of_sft(Rows(table))), ("rollouts", _of_rl(Rows(rollouts)))):
            if rows.num_rows:
                output.table(f"{kind}/{split}/{name}", rows)
                names = files.setdefault(f"{kind}/{split}", [])
                names += [name] if name not in names else []
        output.rows += table.num_rows
        output.counted["rollouts"] += rollouts.num_rows
        output.counted["rows_without_rollout"] += table.num_rows - rollouts.num_rows
    for folder, names in files.items():
        _describe(output, source.manifest.id, folder, names)
    for kind in sorted({folder.split("/")[0] for folder in files}):
        splits = sorted(folder.split("/")[1] for folder in files if folder.startswith(f"{kind}/"))
        output.file(f"{kind}/dataset_dict.json", [json.dumps({"splits": splits}).encode()])


def _of_sft(rows: Rows) -> pa.Table:
    columns = [whole_lists(rows, name).cast(_INTS) for name in ("input_ids", "loss_mask")]
    return pa.Table.from_arrays(columns, schema=_SFT)


def _of_rl(rows: Rows) -> pa.Table:
    ids, mask = (whole_lists(rows, name).cast(_INTS) for name in ("input_ids", "loss_mask"))
    versions = token_values(rows, "policy_version_runs", "version", before=_NO_VERSION)
    versions = np.where(rows.mask, versions, _NO_VERSION).astype(np.int32)
    columns = [
        ids,
        mask,
        whole_lists(rows, "rollout_logprobs"),
        pa.ListArray.from_arrays(ids.offsets, pa.array(versions)),
        *(rows.column(name) for name in ("reward", "advantage", "group_id", "sample_id")),
    ]
    return pa.Table.from_arrays(columns, schema=_ROLLOUTS)


def _describe(output: ExportOutput, shard: str, folder: str, names: list[str]) -> None:
    """What `load_from_disk` reads beside the rows. The fingerprint names the cache of what is made
    of them."""
    state: dict[str, object] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": f"{shard.removeprefix('sha256:')[:16]}{folder.replace('/', '')}",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": folder.split("/")[1],
    }
    for name, content in (("state.json", state), ("dataset_info.json", {})):
        output.file(f"{folder}/{name}", [json.dumps(content, indent=2).encode()])


EXPORTER = Exporter("areal", 1, "AReaL, 2026-05", write)
