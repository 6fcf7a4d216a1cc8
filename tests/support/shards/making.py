"""Makes shards from synthetic rows that keep every rule."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.backends.storage.object_store import ObjectStore
from penstock.events.event import TENANT_DEFAULT
from penstock.shards.manifest import (
    Counts,
    Manifest,
    StoredShard,
    copy_part,
    files_of,
    write_manifest,
)
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS, SORTED_BY
from penstock.shards.shard import shard_folder
from penstock.shards.writer import PartLimits, PartWriter

SMALL = PartLimits(part_bytes_target=60_000, part_rows_target=60, row_group_bytes_max=12_000)
VOCABULARY = 1000
_TOKENIZER = "5e" * 32


def make_row(
    group: str,
    rollout: int = 0,
    *,
    branch: int = 0,
    branches: int = 1,
    tokens: int = 12,
    version: int = 3,
    rng: np.random.Generator | None = None,
) -> dict[str, Any]:
    """A sequence of a prompt and answers with results of tools between them."""
    rng = rng or np.random.default_rng(tokens)
    session = f"{group}-r{rollout}"
    spans = _spans(tokens)
    mask = np.zeros(tokens, np.uint8)
    for span in spans:
        mask[span["start"] : span["end"]] = span["sampled"]
    logprobs = np.where(mask, -rng.exponential(0.3, tokens), 0).astype(np.float32)
    return {
        "sample_id": f"{session}#{branch}",
        "trajectory_id": f"{session}#{branch}",
        "rollout_id": session,
        "group_id": group,
        "task_id": None,
        "session_id": session,
        "branch_index": branch,
        "n_branches": branches,
        "chain_pos": 0,
        "is_last_step": branch == branches - 1,
        "input_ids": rng.integers(0, VOCABULARY, tokens).astype(np.int32),
        "loss_mask": mask,
        "prompt_len": spans[1]["start"],
        "n_tokens": tokens,
        "n_trainable": int(mask.sum()),
        "rollout_logprobs": logprobs,
        "policy_version_runs": [{"start": spans[1]["start"], "version": version}],
        "min_policy_version": version,
        "max_policy_version": version,
        "temperature": 1.0,
        "advantage": 0.25,
        "reward": 0.5,
        "reward_components": [{"name": "persistence", "value": 0.5, "weight": 1.0}],
        "token_rewards": [{"pos": tokens - 1, "value": 0.5}],
        "turn_spans": [
            {**span, "turn": number, "event_seq": 100 * branch + number}
            for number, span in enumerate(spans)
        ],
        "status": "completed",
        "loss_weight": 1.0,
        "token_source": "engine",
        "tokenizer_sha256": _TOKENIZER,
        "split": "train",
        "consent": "train",
        "created_at": 1_700_000_000_000_000,
        "messages": '[{"role":"user","content":"make the tests pass"}]',
    }


def _spans(tokens: int) -> list[dict[str, Any]]:
    """A prompt, and then by turns what the model wrote and what a tool said."""
    edges = sorted({tokens * part // 6 for part in (2, 4, 5, 6)})
    spans: list[dict[str, Any]] = [{"start": 0, "end": edges[0], "role": 1, "sampled": False}]
    for number, (start, end) in enumerate(pairwise(edges)):
        sampled = number % 2 == 0
        spans.append({"start": start, "end": end, "role": 2 if sampled else 3, "sampled": sampled})
    return spans


def make_groups(
    count: int, *, seed: int = 0, rollouts: Sequence[int] = (1, 2, 4), tokens: int = 60
) -> list[dict[str, Any]]:
    """Rows of groups of several sizes, in order; some sessions have two branches."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        for rollout in range(int(rng.choice(rollouts))):
            branches = 2 if rng.random() < 0.2 else 1
            for branch in range(branches):
                length = int(rng.integers(6, tokens))
                rows.append(
                    make_row(
                        f"s{seed}-g{number:05d}",
                        rollout,
                        branch=branch,
                        branches=branches,
                        tokens=length,
                        rng=rng,
                    )
                )
    return sorted(rows, key=lambda row: tuple(row[name] for name in SORTED_BY))


def table_of(rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SHARD_ROWS)


def make_routes(rows: pa.Table, *, layers: int = 2, topk: int = 2, experts: int = 8) -> pa.Table:
    """Experts for each row, with no expert twice for a token."""
    routes = []
    for row in rows.select(["sample_id", "n_tokens", "routed_rows"]).to_pylist():
        count = row["n_tokens"] if row["routed_rows"] is None else row["routed_rows"]
        first = np.arange(count * layers).reshape(-1, layers, 1) % experts
        chosen = (first + np.arange(topk)) % experts
        routes.append(
            {
                "sample_id": row["sample_id"],
                "routed_experts": chosen.astype(np.uint8).tobytes(),
                "layers": layers,
                "topk": topk,
                "dtype": "uint8",
                "start": 0,
            }
        )
    return pa.Table.from_pylist(routes, schema=ROUTE_ROWS)


def with_routes(rows: pa.Table) -> pa.Table:
    """The same rows, which say how many rows of routes they have."""
    at = rows.column_names.index("routed_rows")
    return rows.set_column(at, SHARD_ROWS.field("routed_rows"), rows["n_tokens"])


def make_shard(
    store: ObjectStore,
    rows: pa.Table | list[dict[str, Any]],
    *,
    name: str = "made",
    limits: PartLimits = SMALL,
    routes: pa.Table | None = None,
) -> Manifest:
    """A shard in the store."""
    table = rows if isinstance(rows, pa.Table) else table_of(rows)
    with PartWriter(store, f"staging/{name}", limits, routed=routes is not None) as writer:
        writer.write(table, routes)
    counts = Counts(
        status={"completed": table.num_rows},
        sessions=len(set(table["session_id"].to_pylist())),
        samples=table.num_rows,
        tokens=sum(one.tokens for one in writer.files),
        trainable=sum(one.trainable for one in writer.files),
    )
    manifest = Manifest(name=name, files=writer.files, counts=counts)
    publish(store, f"staging/{name}", store, manifest)
    return manifest


def publish(staging: ObjectStore, folder: str, target: ObjectStore, manifest: Manifest) -> None:
    """Copy the files of a finished shard to where its id says, and its manifest last."""
    for part in files_of(manifest):
        to = stored_in(target, manifest).path(part)
        copy_part(staging, f"{folder}/{part.name}", target, to, part)
    write_manifest(target, own_folder(manifest.id), manifest)


def own_folder(shard_id: str) -> str:
    return shard_folder(TENANT_DEFAULT, shard_id)


def stored_in(store: ObjectStore, manifest: Manifest) -> StoredShard:
    return StoredShard(store, own_folder(manifest.id), manifest)
