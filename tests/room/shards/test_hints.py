"""Hint rows: what the model sampled, and what a later event says of it, with its place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.shards.validation import verify_shard
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.recipe import load_recipe
from tests.support.engine_lake import built, rows_of
from tests.support.lakes import HandLake, hand_lake
from tests.support.shards.hinted import encoded, faulty, text_of, write_recipe

Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path / "data") as lake:
        lake.store(faulty().events)
        yield lake


def build(lake: HandLake, folder: Path, hints: str = "", **more: str) -> ShardBuild:
    return built(lake, load_recipe(write_recipe(folder / "recipes", hints, **more)))


def about(row: Row) -> str:
    return text_of(row["input_ids"][row["hint_start"] : row["hint_end"]])


def test_each_row_is_a_call_with_the_hint_that_is_about_it(lake: HandLake, tmp_path: Path) -> None:
    shard = build(lake, tmp_path)
    assert verify_shard(shard.stored).problems == []
    rows = {row["hint_kind"]: row for row in rows_of(lake, shard)}
    assert rows.keys() == {"follow_up", "tool_error"}
    said, failed = rows["follow_up"], rows["tool_error"]
    assert said["hint"] == "The user said of this answer: No, that is the wrong endpoint."
    assert (said["hint_session_id"], said["hint_answer_free"]) == ("s", True)
    assert "/users" in about(said)
    assert "nowhere" in about(failed)
    assert shard.manifest.counts.hints == {
        "another_hint": 1, "follow_up": 1, "no_hint": 3, "tool_error": 1,
    }  # fmt: skip


def test_the_teacher_reads_one_more_message_before_the_same_completion(
    lake: HandLake, tmp_path: Path
) -> None:
    for row in rows_of(lake, build(lake, tmp_path)):
        place, prompt = row["hint_position"], row["prompt_len"]
        ids, mask = np.array(row["input_ids"]), np.array(row["loss_mask"])
        assert mask[:prompt].sum() == 0
        assert mask[prompt:].all()
        taught = [*ids[:place], *row["hint_ids"], *ids[place:]]
        message = f"<|im_start|>user\n{row['hint']}<|im_end|>\n<|im_start|>assistant\n"
        assert text_of(taught[place : prompt + len(row["hint_ids"])]) == message
        assert taught == encoded(text_of(taught))
        assert [at for at, value in enumerate(row["rollout_logprobs"]) if value] == [
            *range(prompt, len(ids))
        ]
