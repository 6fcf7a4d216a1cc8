"""Exports of hint rows: prompts with hints, and all that a loss needs."""

import json
from pathlib import Path

import pytest

from penstock_jobs.shards.export import EXPORT_NAME
from tests.support.export_rows import (
    Row,
    exported,
    floats,
    hinted,
    in_order,
    in_table,
    stripped,
    talked,
)


def rows() -> list[Row]:
    return in_order(
        [
            hinted(talked("a")),
            hinted(talked("b", split="eval"), hint="no: “b.py”", hint_answer_free=False),
            hinted(talked("c", said_before=True)),
            hinted(talked("d", loss_weight=0.0)),
            hinted(talked("e", messages="[]")),
            talked("f"),
            hinted(talked("g", rendered=True)),
        ]
    )


@pytest.mark.parametrize("target", ["trl-sdpo", "trl-sdft"])
def test_a_prompt_ends_with_the_user_and_has_its_hint(target: str) -> None:
    with exported(rows(), target) as (out, told):
        [first, rendered] = in_table(out, "train")
        [held_out] = in_table(out, "eval")
        assert stripped(first["prompt"]) == json.loads(rows()[0]["messages"])[:2]
        assert [each["privileged_context"] for each in (first, rendered)] == ["the other file"] * 2
        assert held_out["privileged_context"] == "no: “b.py”"
        assert set(first) == {"prompt", "privileged_context"}
        left_out = {"no_hint": 1, "no_messages": 1, "no_user_last": 1, "not_trained": 1}
        assert (told.rows, told.left_out) == (3, left_out)


def test_the_export_says_what_the_trainer_ignores() -> None:
    for target, trap in (("sdpo", "include_environment_feedback=True"), ("sdft", "teacher's too")):
        with exported(rows(), f"trl-{target}") as (out, told):
            assert trap in told.note
            assert "generates anew" in told.note
            assert json.loads(Path(out, EXPORT_NAME).read_text("utf-8"))["note"] == told.note


def test_a_line_has_all_that_a_loss_needs() -> None:
    [row, *_] = rows()
    with exported(rows(), "hints-jsonl") as (out, told):
        lines = [json.loads(line) for line in (out / "train-00000.jsonl").read_text().splitlines()]
        assert (told.rows, told.left_out) == (5, {"no_hint": 1, "not_trained": 1})
    line = lines[0]
    assert line["input_ids"] == row["input_ids"].tolist()
    assert line["loss_mask"] == row["loss_mask"].tolist()
    assert floats(line["rollout_logprobs"]) == floats(row["rollout_logprobs"])
    assert line["messages"] == json.loads(row["messages"])
    names = ("hint", "hint_ids", "hint_position", "hint_start", "hint_end", "hint_answer_free")
    for name in (*names, "prompt_len", "min_policy_version", "reward", "sample_id"):
        assert line[name] == row[name]


def test_a_shard_without_hints_gives_no_export() -> None:
    with exported([talked("a")], "trl-sdpo") as (_, told):
        assert told.left_out == {"no_hint": 1}
