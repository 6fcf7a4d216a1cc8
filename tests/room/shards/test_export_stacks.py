"""Exports for slime, AReaL, NeMo-RL and Tinker. AReaL's are read by the library that AReaL reads
them with, the others by the layouts that their code documents; tests/trainers reads slime's with
PyTorch and Tinker's with its package."""

import json
import pickle
from itertools import chain, pairwise
from pathlib import Path

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
    is_trained,
    library,
    of_split,
    shard_rows,
    stripped,
    talked,
    trained_of,
    unprompted,
)


def lines_of(out: Path, split: str, below: str = "") -> list[Row]:
    files = sorted(Path(out, below).glob(f"{split}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def has_rollout(row: Row) -> bool:
    return row["rollout_logprobs"] is not None and row["reward"] is not None


# Tinker


def tensor(datum: Row, name: str) -> list[float]:
    own = datum["loss_fn_inputs"][name]
    assert own["shape"] == [len(own["data"])]
    values: list[float] = own["data"]
    return values


@EXAMPLES
@given(shard_rows())
def test_tinker_has_targets_one_token_behind_the_input(rows: list[Row]) -> None:
    with exported(rows, "tinker") as (out, told):
        for split in SPLITS:
            kept = trained_of(rows, split)
            found = lines_of(out, split)
            assert len(found) == len(kept)
            for datum, row in zip(found, kept, strict=True):
                ids, mask = row["input_ids"].tolist(), row["loss_mask"][1:]
                [chunk] = datum["model_input"]["chunks"]
                assert chunk == {"type": "encoded_text", "tokens": ids[:-1]}
                assert tensor(datum, "target_tokens") == ids[1:]
                if row["rollout_logprobs"] is None or row["advantage"] is None:
                    assert datum["loss_fn_inputs"].keys() == {"target_tokens", "weights"}
                    assert tensor(datum, "weights") == (mask * row["loss_weight"]).tolist()
                    continue
                assert tensor(datum, "logprobs") == floats(row["rollout_logprobs"][1:])
                assert tensor(datum, "mask") == mask.tolist()
                gains = mask * row["advantage"] * row["loss_weight"]
                assert tensor(datum, "advantages") == floats(gains)
        assert sum(told.counted.values()) == told.rows


# AReaL


@EXAMPLES
@given(shard_rows())
def test_areal_loads_trajectories_from_disk(rows: list[Row]) -> None:
    datasets = library("datasets")
    trained = [row for row in rows if is_trained(row)]
    with exported(rows, "areal") as (out, told):
        for kind, of_kind in (
            ("sft", trained),
            ("rollouts", [row for row in trained if has_rollout(row)]),
        ):
            if not of_kind:
                assert not (out / kind).exists()
                continue
            read = datasets.load_from_disk(str(out / kind))
            assert set(read) == {row["split"] for row in of_kind}
            for split in read:
                for one, row in zip(read[split], of_split(of_kind, split), strict=True):
                    assert one["input_ids"] == row["input_ids"].tolist()
                    assert one["loss_mask"] == row["loss_mask"].tolist()
                    if kind == "rollouts":
                        assert one["logprobs"] == floats(row["rollout_logprobs"])
                        assert one["rewards"] == row["reward"]
                        assert one["versions"] == np.where(row["loss_mask"], 3, -1).tolist()
        assert told.counted.get("rollouts", 0) == sum(map(has_rollout, trained))


def test_areal_has_the_version_of_each_token() -> None:
    runs = [{"start": 4, "version": 3}, {"start": 10, "version": 5}]
    row = talked("g", tokens=12, policy_version_runs=runs, max_policy_version=5)
    with exported([row, talked("h")], "areal") as (out, _):
        read = library("datasets").load_from_disk(str(out / "rollouts"))
        versions = np.array([-1] * 4 + [3] * 6 + [5] * 2)
        assert read["train"][0]["versions"] == np.where(row["loss_mask"], versions, -1).tolist()


# NeMo-RL


@EXAMPLES
@given(shard_rows())
def test_nemo_rl_has_a_message_for_each_span(rows: list[Row]) -> None:
    with exported(rows, "nemo-rl") as (out, _):
        for split in SPLITS:
            kept = trained_of(rows, split)
            found = lines_of(out, split, "message_logs")
            assert [datum["extra_env_info"]["sample_id"] for datum in found] == [
                row["sample_id"] for row in kept
            ]
            for datum, row in zip(found, kept, strict=True):
                assert_message_log(datum, row)


def assert_message_log(datum: Row, row: Row) -> None:
    """As NeMo-RL flattens it: what has log-probabilities is generated, and nothing else is."""
    log = datum["message_log"]
    assert [one for message in log for one in message["token_ids"]] == row["input_ids"].tolist()
    marks = [[int("generation_logprobs" in own)] * len(own["token_ids"]) for own in log]
    assert [*chain(*marks)] == row["loss_mask"].tolist()
    zeros = [[0.0] * len(own["token_ids"]) for own in log]
    logprobs = [own.get("generation_logprobs", zero) for own, zero in zip(log, zeros, strict=True)]
    expected = row["rollout_logprobs"]
    assert [*chain(*logprobs)] == (
        [0.0] * row["n_tokens"] if expected is None else floats(expected)
    )
    assert {own["role"] for own in log if "generation_logprobs" in own} == {"assistant"}
    assert (datum["length"], datum["loss_multiplier"]) == (row["n_tokens"], row["loss_weight"])
    assert datum["extra_env_info"]["reward"] == row["reward"]


def test_nemo_rl_ranks_the_answers_of_a_preference(tmp_path: Path) -> None:
    pair = {
        "kind": "regenerated",
        "prompt": 2,
        "chosen": [{"role": "assistant", "content": "better"}],
        "rejected": [{"role": "assistant", "content": "worse"}],
    }
    rows = [talked("g", preferences=json.dumps([pair])), talked("h")]
    with exported(rows, "nemo-rl") as (out, told):
        path = out / "preferences" / "train-00000.jsonl"
        read = library("datasets").load_dataset(
            "json", data_files=str(path), cache_dir=str(tmp_path)
        )
        [one] = read["train"]
        assert stripped(one["context"]) == json.loads(rows[0]["messages"])[:2]
        assert [own["rank"] for own in one["completions"]] == [0, 1]
        assert [own["completion"][0]["content"] for own in one["completions"]] == [
            "better", "worse"
        ]  # fmt: skip
        assert told.counted["preferences"] == 1


# slime


def samples_of(path: Path) -> list[Row]:
    """As `torch.load` reads the older form: a mark, its version, the sizes, the content."""
    with path.open("rb") as file:
        magic, protocol, _, content, storages = (pickle.load(file) for _ in range(5))
        assert not file.read()
    assert (magic, protocol, storages) == (0x1950A86A20F9469CFC6C, 1001, [])
    assert content["rollout_id"] == int(path.stem)
    found: list[Row] = content["samples"]
    return found


def all_samples(out: Path) -> list[Row]:
    files = sorted(out.glob("rollouts/*.pt"), key=lambda path: int(path.stem))
    return [sample for path in files for sample in samples_of(path)]


@EXAMPLES
@given(shard_rows())
def test_slime_has_responses_and_their_log_probabilities(rows: list[Row]) -> None:
    kept = [row for row in of_split(rows, "train") if is_trained(row) and has_rollout(row)]
    with exported(rows, "slime") as (out, _):
        found = all_samples(out)
        assert len(found) == len(kept)
        for number, (sample, row) in enumerate(zip(found, kept, strict=True)):
            first = row["prompt_len"]
            assert sample["tokens"] == row["input_ids"].tolist()
            assert sample["response_length"] == row["n_tokens"] - first
            assert sample["loss_mask"] == row["loss_mask"][first:].tolist()
            assert sample["rollout_log_probs"] == floats(row["rollout_logprobs"][first:])
            assert sample["weight_versions"] == ["3"]
            assert sample["reward"]["reward"] == row["reward"]
            assert sample["reward"].get("advantage") == row["advantage"]
            assert (sample["index"], sample["session_id"]) == (number, row["session_id"])
        for before, after in pairwise(zip(found, kept, strict=True)):
            for name, column in (("group_index", "group_id"), ("rollout_id", "rollout_id")):
                step = int(before[1][column] != after[1][column])
                assert after[0][name] - before[0][name] == step


def test_a_file_of_slime_is_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "STEP_SAMPLES", 3)
    rows = [talked(f"g{group}", rollout) for group in range(4) for rollout in range(2)]
    rows += [talked("h", split="eval"), unprompted("i"), talked("j", status="masked")]
    with exported(in_order(rows), "slime") as (out, told):
        files = sorted(path.name for path in out.glob("rollouts/*.pt"))
        assert files == ["0.pt", "1.pt", "2.pt"]
        sizes = [len(samples_of(out / "rollouts" / name)) for name in files]
        assert sizes == [4, 4, 1]
        assert told.left_out == {"eval_split": 1, "no_prompt": 1}
        assert all_samples(out)[-1]["status"] == "failed"


def test_slime_has_the_experts_of_all_but_the_last_token() -> None:
    rows = [talked("a", tokens=12), talked("b", tokens=12), talked("c", tokens=12)]
    rows[0]["routed_rows"], rows[1]["routed_rows"], rows[2]["routed_rows"] = 12, 11, 11
    with exported(in_order(rows), "slime", routed=True) as (out, _):
        shapes = [np.shape(sample["rollout_routed_experts"]) for sample in all_samples(out)]
        assert shapes == [(11, 2, 2)] * 3
