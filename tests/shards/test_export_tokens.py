"""Exports that keep tokens: what is read back is what the shard has."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from penstock_jobs.shards.exporters import prime_rl
from tests.shards.export_making import (
    Row,
    exported,
    in_order,
    in_table,
    is_trained,
    library,
    of_split,
    shard_rows,
    stripped,
    talked,
)

SPLITS = ("train", "eval")
EXAMPLES = settings(max_examples=25, deadline=None)


def some_rows() -> list[Row]:
    """Groups of several rollouts and branches; one was rendered, one has no reward."""
    rows = [
        talked(f"g{group}", rollout, branch=branch, reward=rollout - 1.0, split=split)
        for group, split in enumerate(["train", "train", "eval", "train"])
        for rollout in range(3)
        for branch in range(2)
    ]
    rows.append(talked("h", rendered=True))
    rows.append(talked("i", reward=None, advantage=None))
    return in_order(rows)


def floats(values: Any) -> list[float]:
    found: list[float] = np.asarray(values, np.float32).astype(float).tolist()
    return found


def has_rollout(row: Row) -> bool:
    return is_trained(row) and row["rollout_logprobs"] is not None


@EXAMPLES
@given(shard_rows())
def test_skyrl_has_ids_and_masks(rows: list[Row]) -> None:
    with exported(rows, "skyrl") as (out, told):
        for split in SPLITS:
            assert in_table(out, split) == [
                {"input_ids": row["input_ids"].tolist(), "loss_mask": row["loss_mask"].tolist()}
                for row in of_split(rows, split)
                if is_trained(row)
            ]
        left = sum(not is_trained(row) for row in rows)
        assert told.left_out == ({"not_trained": left} if left else {})


@EXAMPLES
@given(shard_rows())
def test_grpo_has_prompts_and_completions(rows: list[Row]) -> None:
    with exported(rows, "trl-grpo") as (out, _):
        for split in SPLITS:
            kept = [
                row
                for row in of_split(rows, split)
                if has_rollout(row) and row["advantage"] is not None
            ]
            found = in_table(out, split)
            assert len(found) == len(kept)
            for one, row in zip(found, kept, strict=True):
                first = row["prompt_len"]
                assert one["prompt_ids"] + one["completion_ids"] == row["input_ids"].tolist()
                assert len(one["prompt_ids"]) == first
                assert one["env_mask"] == row["loss_mask"][first:].tolist()
                assert one["logprobs"] == floats(row["rollout_logprobs"][first:])
                assert one["advantage"] == row["advantage"]


@EXAMPLES
@given(shard_rows())
def test_verl_pads_prompts_left_and_responses_right(rows: list[Row]) -> None:
    with exported(rows, "verl") as (out, told):
        wide = max(row["prompt_len"] for row in rows)
        long = max(row["n_tokens"] - row["prompt_len"] for row in rows)
        assert (told.counted["prompt_width"], told.counted["response_width"]) == (wide, long)
        for split in SPLITS:
            kept = [
                row
                for row in of_split(rows, split)
                if has_rollout(row) and row["reward"] is not None
            ]
            found = in_table(out, split, "rollouts")
            assert [one["sample_id"] for one in found] == [row["sample_id"] for row in kept]
            for one, row in zip(found, kept, strict=True):
                assert_padded(one, row, wide, long)


def assert_padded(one: Row, row: Row, wide: int, long: int) -> None:
    first, count = row["prompt_len"], row["n_tokens"]
    answered = count - first
    behind = [0] * (long - answered)
    ids = row["input_ids"].tolist()
    assert one["prompts"] == [0] * (wide - first) + ids[:first]
    assert one["responses"] == ids[first:] + behind
    assert one["attention_mask"] == [0] * (wide - first) + [1] * count + behind
    assert one["response_mask"] == row["loss_mask"][first:].tolist() + behind
    assert one["rollout_log_probs"] == floats(row["rollout_logprobs"][first:]) + behind
    assert one["rm_scores"] == [0] * (answered - 1) + [row["reward"]] + behind
    assert one["uid"] == row["group_id"]
    assert one["min_global_steps"] == one["max_global_steps"] == 3


class TrainingSample(msgspec.Struct, array_like=True):
    """As prime-rl's transport lays it out."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    ref_logprobs: list[float] | None = None
    mm_kwargs: dict[str, Any] | None = None
    mm_refs: Any = None
    routed_experts: Any = None
    mm_token_type_ids: list[int] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    advantages: list[float] | None = None


class TrainingBatch(msgspec.Struct, array_like=True):
    examples: list[TrainingSample]
    step: int
    run_idx: int | None = None


def batches(out: Path) -> list[TrainingBatch]:
    found: list[TrainingBatch] = []
    while (path := out / f"rollouts/step_{len(found)}/rollouts.bin").exists():
        found.append(msgspec.msgpack.decode(path.read_bytes(), type=TrainingBatch))
    assert [one.step for one in found] == list(range(len(found)))
    return found


@EXAMPLES
@given(shard_rows())
def test_prime_rl_has_full_length_streams(rows: list[Row]) -> None:
    with exported(rows, "prime-rl") as (out, _):
        kept = [
            row
            for row in of_split(rows, "train")
            if has_rollout(row) and row["advantage"] is not None
        ]
        found = [one for batch in batches(out) for one in batch.examples]
        assert len(found) == len(kept)
        for one, row in zip(found, kept, strict=True):
            count = row["n_tokens"]
            assert one.token_ids == row["input_ids"].tolist()
            assert one.mask == row["loss_mask"].astype(bool).tolist()
            assert one.logprobs == floats(row["rollout_logprobs"])
            assert one.temperatures == [1.0] * count
            assert one.env_name == (row["source_system"] or "penstock")
            assert one.advantages == (row["loss_mask"] * row["advantage"]).tolist()
            weight = row["loss_weight"]
            assert one.rl_weights == (None if weight == 1 else [weight] * count)


def test_a_step_of_prime_rl_is_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime_rl, "STEP_SAMPLES", 7)
    with exported(some_rows(), "prime-rl") as (out, told):
        assert [len(one.examples) for one in batches(out)] == [12, 6]
        assert told.counted == {"steps": 2}
        assert told.left_out == {"eval_split": 6, "no_advantage": 1, "no_logprobs": 1}


@EXAMPLES
@given(shard_rows())
def test_sft_has_ids_where_an_engine_gave_them(rows: list[Row]) -> None:
    with exported(rows, "trl-sft") as (out, told):
        assert told.rows == sum(is_trained(row) for row in rows)
        for split in SPLITS:
            kept = [row for row in of_split(rows, split) if is_trained(row)]
            assert in_table(out, split, "tokens") == [
                {
                    "input_ids": row["input_ids"].tolist(),
                    "labels": np.where(row["loss_mask"], row["input_ids"], -100).tolist(),
                }
                for row in kept
                if not goes_as_messages(row)
            ]
            as_messages = [row for row in kept if goes_as_messages(row)]
            found = in_table(out, split, "messages")
            assert [one["tools"] for one in found] == [row["tools"] for row in as_messages]
            assert [stripped(one["messages"]) for one in found] == [
                json.loads(row["messages"]) for row in as_messages
            ]


def goes_as_messages(row: Row) -> bool:
    return row["token_source"] == "renderer" and '"weight":0' not in row["messages"]


@pytest.mark.parametrize(
    ("target", "below", "columns"),
    [
        ("skyrl", "", ["input_ids", "loss_mask"]),
        ("trl-sft", "tokens", ["input_ids", "labels"]),
        ("trl-sft", "messages", ["messages", "tools"]),
        ("trl-grpo", "", ["prompt_ids", "completion_ids", "logprobs", "env_mask", "advantage"]),
        ("verl", "prompts", ["data_source", "prompt", "ability", "reward_model", "extra_info"]),
        ("verl", "rollouts", ["prompts", "responses", "attention_mask", "response_mask"]),
    ],
)
def test_datasets_of_hugging_face_read_the_same(
    target: str, below: str, columns: list[str], tmp_path: Path
) -> None:
    datasets = library("datasets")
    with exported(some_rows(), target) as (out, _):
        files = sorted(str(path) for path in (out / below).glob("train-*.parquet"))
        read = datasets.Dataset.from_parquet(files, cache_dir=str(tmp_path))
        assert read.column_names[: len(columns)] == columns
        assert read.to_list() == in_table(out, "train", below)
