"""Exports of token ids for SkyRL, Tinker, AReaL and a loss of one's own.

docs/training.md says which columns each has.

skyrl reads a folder as one dataset. It takes a token's log-probability from the previous place, so
the first token cannot be trained (`no_prompt`).

tinker: a line holds the fields of a `tinker.Datum`. Value i belongs to token i + 1. Without
log-probabilities or an advantage, `weights` (the mask times `loss_weight`) serve cross entropy.

areal: datasets as `save_to_disk` writes them, an Arrow stream for each part of the shard. Version
-1 means untrained or unknown. AReaL's trainers shift tokens, and compute advantages from `rewards`.

hints-jsonl: a line for each row with a hint. The recorded completion is `input_ids` from
`prompt_len` on; a teacher reads `input_ids[:p] + hint_ids + input_ids[p:]`, where p is
`hint_position`.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.shards.schema import HINT_COLUMNS, Rows
from penstock_jobs.shards.export import (
    TOKENS,
    WEIGHING,
    Exporter,
    ExportOutput,
    ShardSource,
    token_rows,
    whole_lists,
)

# skyrl


_SKYRL_COLUMNS = ("split", "input_ids", "loss_mask", "prompt_len", "n_tokens", *WEIGHING)
_SKYRL_SCHEMA = pa.schema({"input_ids": pa.list_(pa.int32()), "loss_mask": pa.list_(pa.uint8())})


def _write_skyrl(source: ShardSource, output: ExportOutput) -> None:
    for file, table in source.splits(_SKYRL_COLUMNS, output, "not_trained", "no_prompt"):
        rows = Rows(table)
        columns = [whole_lists(rows, name) for name in _SKYRL_SCHEMA.names]
        path = f"{file.split('-')[0]}/{file}.parquet"
        output.table(path, pa.Table.from_arrays(columns, schema=_SKYRL_SCHEMA))
        output.rows += rows.count


SKYRL = Exporter("skyrl", 2, "SkyRL 0.4, pretokenized", _write_skyrl)


# tinker


_TINKER_COLUMNS = (
    "split", "input_ids", "loss_mask", "rollout_logprobs", "advantage", "prompt_len", "n_tokens",
    *WEIGHING,
)  # fmt: skip


def _write_tinker(source: ShardSource, output: ExportOutput) -> None:
    for file, table in source.splits(_TINKER_COLUMNS, output, "not_trained", "no_prompt"):
        for row in token_rows(table):
            tokens, mask = row["input_ids"], row["loss_mask"].astype(np.float32)[1:]
            logprobs, weight = row["rollout_logprobs"], np.float32(row["loss_weight"])
            inputs: dict[str, Any] = {"target_tokens": _tensor(tokens[1:], "int64")}
            scored = logprobs is not None and row["advantage"] is not None
            if scored:
                gains = mask * np.float32(row["advantage"]) * weight
                inputs["logprobs"] = _tensor(logprobs[1:], "float32")
                inputs["advantages"] = _tensor(gains, "float32")
                inputs["mask"] = _tensor(mask, "float32")
            else:
                inputs["weights"] = _tensor(mask * weight, "float32")
            output.counted["policy_gradient" if scored else "cross_entropy"] += 1
            chunk = {"type": "encoded_text", "tokens": tokens[:-1].tolist()}
            datum = {"model_input": {"chunks": [chunk]}, "loss_fn_inputs": inputs}
            output.line(f"{file}.jsonl", msgspec.json.encode(datum))
        output.rows += table.num_rows


def _tensor(values: np.ndarray, kind: str) -> dict[str, Any]:
    return {"data": values.tolist(), "dtype": kind, "shape": [len(values)]}


TINKER = Exporter("tinker", 1, "tinker 0.38", _write_tinker)


# areal


_AREAL_COLUMNS = (
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
_NO_VERSION = -1


def _write_areal(source: ShardSource, output: ExportOutput) -> None:
    files: dict[str, list[str]] = {}
    for file, table in source.splits(_AREAL_COLUMNS, output, "not_trained"):
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
    versions = np.where(rows.mask, _versions(rows), _NO_VERSION).astype(np.int32)
    columns = [
        ids,
        mask,
        whole_lists(rows, "rollout_logprobs"),
        pa.ListArray.from_arrays(ids.offsets, pa.array(versions)),
        *(rows.column(name) for name in ("reward", "advantage", "group_id", "sample_id")),
    ]
    return pa.Table.from_arrays(columns, schema=_ROLLOUTS)


def _versions(rows: Rows) -> np.ndarray:
    """Return the policy version of each token."""
    runs = rows.lists("policy_version_runs")
    starts = rows.offsets[runs.rows] + runs.numbers("start")
    ends = np.append(starts[1:], rows.offsets[-1])
    ends = np.minimum(ends, rows.offsets[runs.rows + 1])
    versions = np.full(int(rows.offsets[-1]), _NO_VERSION)
    for start, end, version in zip(starts, ends, runs.numbers("version"), strict=True):
        versions[start:end] = version
    return versions


def _describe(output: ExportOutput, shard: str, folder: str, names: list[str]) -> None:
    """Write the metadata that `load_from_disk` reads. The fingerprint names a cache."""
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


AREAL = Exporter("areal", 1, "AReaL, 2026-05", _write_areal)


# hints-jsonl


_HINT_COLUMNS = (
    "sample_id", "session_id", "split", "messages", "tools", *TOKENS, "prompt_len", "n_tokens",
    "min_policy_version", "max_policy_version", "temperature", "reward", "advantage",
    *HINT_COLUMNS, *WEIGHING,
)  # fmt: skip


def _write_hints(source: ShardSource, output: ExportOutput) -> None:
    encode: Callable[[object], bytes] = msgspec.json.Encoder(enc_hook=np.ndarray.tolist).encode
    for file, rows in source.splits(_HINT_COLUMNS, output, "not_trained", "no_hint"):
        for row in token_rows(rows):
            for name in ("messages", "tools"):
                row[name] = msgspec.json.decode(row[name] or "null")
            del row["split"], row["routed_experts"], row["n_trainable"]
            output.line(f"{file}.jsonl", encode(row))
        output.rows += rows.num_rows


HINTS = Exporter("hints-jsonl", 1, "lines of JSON", _write_hints)
