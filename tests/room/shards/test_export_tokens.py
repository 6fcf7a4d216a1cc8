"""Exports that keep tokens: what is read back is what the shard has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock_jobs.shards import export
from tests.support.export_rows import (
    EXAMPLES,
    SPLITS,
    Row,
    exported,
    floats,
    in_order,
    in_table,
    is_trained,
    library,
    shard_rows,
    stripped,
    talked,
    trained_of,
    unprompted,
)


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


def has(row: Row, name: str) -> bool:
    return row["rollout_logprobs"] is not None and row[name] is not None


@EXAMPLES
@given(shard_rows())
def test_skyrl_has_ids_and_masks(rows: list[Row]) -> None:
    with exported(rows, "skyrl") as (out, told):
        for split in SPLITS:
            assert in_table(out, split, split) == [
                {"input_ids": row["input_ids"].tolist(), "loss_mask": row["loss_mask"].tolist()}
                for row in trained_of(rows, split)
            ]
        left = sum(not is_trained(row) for row in rows)
        assert told.left_out == ({"not_trained": left} if left else {})


def test_skyrl_has_no_row_that_begins_with_a_trained_token() -> None:
    with exported([talked("g"), unprompted("h")], "skyrl") as (out, told):
        assert len(in_table(out, "train", "train")) == 1
        assert told.left_out == {"no_prompt": 1}


@EXAMPLES
@given(shard_rows())
def test_grpo_has_prompts_and_completions(rows: list[Row]) -> None:
    with exported(rows, "trl-grpo") as (out, _):
        for split in SPLITS:
            kept = [row for row in trained_of(rows, split) if has(row, "advantage")]
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
            kept = [row for row in trained_of(rows, split) if has(row, "reward")]
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
    assert (one["temperature"], one["advantage"]) == (row["temperature"], row["advantage"])


class RoutedExperts(msgspec.Struct, array_like=True):
    data: bytes
    shape: list[int]
    dtype: str


class MicroBatch(msgspec.Struct, array_like=True):
    """As prime-rl's transport lays it out; what comes behind these fields has defaults."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]
    ref_logprobs: list[float] | None = None
    routed_experts: RoutedExperts | None = None
    mm_refs: Any = None
    mm_token_type_ids: list[int] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    sampling_mask: Any = None
    trace_ids: list[str] | None = None
    branch_indices: list[int] | None = None


def steps_of(out: Path) -> list[list[MicroBatch]]:
    """Its trainer looks for step 1 first, and for the file of its rank."""
    found: list[list[MicroBatch]] = []
    while (path := out / f"batches/step_{len(found) + 1}/rank_0.bin").exists():
        found.append(msgspec.msgpack.decode(path.read_bytes(), type=list[MicroBatch]))
    return found


def cut(batch: MicroBatch) -> Iterator[Row]:
    """The streams of each sample of a micro batch, and its weight."""
    streams = {
        name: getattr(batch, name)
        for name in (
            "input_ids", "loss_mask", "advantages", "inference_logprobs", "position_ids",
            "temperatures", "env_names",
        )
    }  # fmt: skip
    streams["rl_weights"] = batch.rl_weights or [1.0] * len(batch.input_ids)
    assert batch.seq_lens == batch.sequence_lengths
    assert {len(values) for values in streams.values()} == {sum(batch.seq_lens)}
    start = 0
    for length in batch.seq_lens:
        yield {name: values[start : start + length] for name, values in streams.items()}
        start += length


@EXAMPLES
@given(shard_rows())
def test_prime_rl_has_full_length_streams(rows: list[Row]) -> None:
    with exported(rows, "prime-rl") as (out, told):
        kept = [row for row in trained_of(rows, "train") if has(row, "advantage")]
        batches = [batch for step in steps_of(out) for batch in step]
        found = [one for batch in batches for one in cut(batch)]
        assert len(found) == len(kept)
        for one, row in zip(found, kept, strict=True):
            count = row["n_tokens"]
            assert one == {
                "input_ids": row["input_ids"].tolist(),
                "loss_mask": row["loss_mask"].astype(bool).tolist(),
                "advantages": (row["loss_mask"] * row["advantage"]).tolist(),
                "inference_logprobs": floats(row["rollout_logprobs"]),
                "position_ids": list(range(count)),
                "temperatures": [1.0] * count,
                "env_names": [row["source_system"] or "penstock"] * count,
                "rl_weights": [row["loss_weight"]] * count,
            }
        longest = max((len(batch.input_ids) for batch in batches), default=0)
        assert longest <= max(row["n_tokens"] for row in rows)
        assert told.counted.get("micro_batch_tokens", 0) == longest
        assert told.counted.get("micro_batches", 0) == len(batches)


def test_a_step_of_prime_rl_is_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "STEP_SAMPLES", 7)
    rows = in_order([*some_rows(), unprompted("k")])
    with exported(rows, "prime-rl") as (out, told):
        samples = [[one for batch in step for one in cut(batch)] for step in steps_of(out)]
        assert [len(step) for step in samples] == [12, 6]
        assert told.counted["steps"] == 2
        assert told.left_out == {
            "eval_split": 6, "no_advantage": 1, "no_logprobs": 1, "no_prompt": 1
        }  # fmt: skip


def test_prime_rl_has_the_temperature_of_each_token() -> None:
    runs = [{"start": 4, "temperature": 0.5}, {"start": 10, "temperature": 1.5}]
    mixed = talked("a", tokens=14, temperature=None, temperature_runs=runs)
    unknown = talked("b", temperature=None)
    with exported([mixed, unknown, talked("c", tokens=3 * 6)], "prime-rl") as (out, told):
        [[first, second]] = steps_of(out)
        assert first.temperatures == [0.5] * 10 + [1.5] * 4
        assert second.temperatures == [1.0] * 18
        assert told.left_out == {"no_temperature": 1}


def routed_rows() -> list[Row]:
    """All tokens of the first, all but the last of the second; the third has no experts."""
    rows = [talked("a", rollout, tokens=tokens) for rollout, tokens in enumerate([12, 14])]
    rows[0]["routed_rows"], rows[1]["routed_rows"] = 12, 13
    return in_order(rows)


def experts(rows: int) -> np.ndarray:
    """As `make_routes` chooses them."""
    first = np.arange(rows * 2).reshape(-1, 2, 1) % 8
    return (first + np.arange(2)) % 8


def test_prime_rl_has_the_experts_of_each_token() -> None:
    with exported(routed_rows(), "prime-rl", routed=True) as (out, _):
        batches = [batch for step in steps_of(out) for batch in step]
        assert [batch.seq_lens for batch in batches] == [[12], [14]]
        for batch, count in zip(batches, (12, 13), strict=True):
            assert batch.routed_experts is not None
            assert batch.routed_experts.shape == [len(batch.input_ids), 2, 2]
            found = np.frombuffer(batch.routed_experts.data, batch.routed_experts.dtype)
            found = found.reshape(batch.routed_experts.shape)
            assert (found[:count] == experts(count)).all()
            assert not found[count:].any()


def test_verl_has_the_experts_where_the_tokens_are() -> None:
    rows = routed_rows()
    with exported(rows, "verl", routed=True) as (out, told):
        counted = told.counted
        assert (counted["routed_layers"], counted["routed_topk"]) == (2, 2)
        width = counted["prompt_width"] + counted["response_width"]
        for one, row in zip(in_table(out, "train", "rollouts"), rows, strict=True):
            found = np.frombuffer(one["routed_experts"], "<i2").reshape(width, 2, 2)
            start = counted["prompt_width"] - row["prompt_len"]
            end = start + row["routed_rows"]
            assert (found[start:end] == experts(row["routed_rows"])).all()
            assert not found[:start].any()
            assert not found[end:].any()


@EXAMPLES
@given(shard_rows())
def test_sft_has_ids_where_an_engine_gave_them(rows: list[Row]) -> None:
    with exported(rows, "trl-sft") as (out, told):
        assert told.rows == sum(is_trained(row) for row in rows)
        for split in SPLITS:
            kept = trained_of(rows, split)
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
        ("messages-parquet", "", ["messages", "tools"]),
        ("trl-dpo", "", ["prompt", "chosen", "rejected", "tools"]),
        ("trl-sft", "tokens", ["input_ids", "labels"]),
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
