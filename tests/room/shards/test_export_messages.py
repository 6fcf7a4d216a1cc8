"""Exports that keep messages: conversations, single answers, pairs and prompts."""

import json
from collections import defaultdict
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given

from tests.support.export_rows import (
    EXAMPLES,
    SPLITS,
    Row,
    exported,
    in_order,
    in_table,
    is_trained,
    of_split,
    shard_rows,
    stripped,
    talked,
    trained_of,
)


def group_of(row: Row) -> str:
    return str(row["group_id"])


def said(row: Row) -> list[Row]:
    found: list[Row] = json.loads(row["messages"])
    return found


def parted(row: Row) -> tuple[list[Row], list[Row]]:
    """Before the first trained answer, and from it on. In a prompt there are no weights."""
    messages = said(row)
    first = 4 if messages[2].get("weight") == 0 else 2
    for one in messages:
        one.pop("weight", None)
    return messages[:first], messages[first:]


@EXAMPLES
@given(shard_rows())
def test_lines_are_the_messages_of_the_shard(rows: list[Row]) -> None:
    with exported(rows, "messages-jsonl") as (out, _):
        for split in SPLITS:
            files = sorted(out.glob(f"{split}-*.jsonl"))
            lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
            assert lines == [
                f'{{"messages":{row["messages"]}'
                + (f',"tools":{row["tools"]}}}' if row["tools"] else "}")
                for row in of_split(rows, split)
                if is_trained(row)
            ]


@EXAMPLES
@given(shard_rows())
def test_a_column_of_messages_is_the_messages_of_the_shard(rows: list[Row]) -> None:
    with exported(rows, "messages-parquet") as (out, _):
        for split in SPLITS:
            kept = trained_of(rows, split)
            found = in_table(out, split)
            assert [stripped(one["messages"]) for one in found] == [said(row) for row in kept]
            assert [one["tools"] for one in found] == [row["tools"] for row in kept]


@EXAMPLES
@given(shard_rows())
def test_kto_labels_by_the_sign_of_the_reward(rows: list[Row]) -> None:
    with exported(rows, "trl-kto") as (out, told):
        trained = [row for row in rows if is_trained(row)]
        nulls = sum(row["reward"] is None for row in trained)
        zeros = sum(row["reward"] == 0 for row in trained)
        assert told.left_out.get("no_reward", 0) == nulls
        assert told.left_out.get("reward_0", 0) == zeros
        for split in SPLITS:
            kept = [row for row in of_split(trained, split) if row["reward"]]
            found = in_table(out, split)
            assert [(stripped(one["prompt"]), stripped(one["completion"])) for one in found] == [
                parted(row) for row in kept
            ]
            assert [one["label"] for one in found] == [row["reward"] > 0 for row in kept]
            assert [one["tools"] for one in found] == [row["tools"] for row in kept]


@EXAMPLES
@given(shard_rows())
def test_dpo_pairs_the_best_with_the_worst_of_a_prompt(rows: list[Row]) -> None:
    with exported(rows, "trl-dpo") as (out, told):
        expected: dict[str, list[Row]] = {split: [] for split in SPLITS}
        alone = 0
        for _, members in groupby(rows, group_of):
            pairs = pairs_of(list(members))
            alone += not pairs
            for split, pair in pairs:
                expected[split].append(pair)
        for split in SPLITS:
            assert [plain_pair(one) for one in in_table(out, split)] == expected[split]
        count = sum(map(len, expected.values()))
        assert told.rows == 2 * count
        if count:
            counted = {"groups_without_pair": alone, "pairs": count, "pairs_group": count}
            assert told.counted == counted


def pairs_of(group: list[Row]) -> list[tuple[str, Row]]:
    rivals = defaultdict(list)
    for row in group:
        if is_trained(row) and row["reward"] is not None:
            prompt, completion = parted(row)
            rivals[json.dumps(prompt), row["tools"]].append((row, completion))
    pairs = []
    for (prompt_text, tools), answers in rivals.items():
        best = max(answers, key=lambda one: one[0]["reward"])
        worst = min(answers, key=lambda one: one[0]["reward"])
        if best[0]["reward"] > worst[0]["reward"] and best[1] != worst[1]:
            pair = {"prompt": json.loads(prompt_text), "chosen": best[1], "rejected": worst[1]}
            pairs.append((best[0]["split"], pair | {"tools": tools}))
    return pairs


def plain_pair(one: Row) -> Row:
    texts = {name: stripped(one[name]) for name in ("prompt", "chosen", "rejected")}
    return texts | {"tools": one["tools"]}


def test_dpo_counts_what_is_in_no_pair() -> None:
    rewards: dict[str, list[float | None]] = {
        "a": [1.0, 0.5, -1.0, 0.5],
        "b": [1.0],
        "c": [0.5, 0.5],
        "d": [None, 1.0],
        "e": [None],  # alone: a reward would make no pair of it
    }
    rows = [
        talked(group, rollout, reward=reward)
        for group, some in rewards.items()
        for rollout, reward in enumerate(some)
    ]
    with exported(in_order(rows), "trl-dpo") as (out, told):
        assert told.left_out == {"between": 2, "no_pair": 5, "no_reward": 1}
        assert told.counted == {"groups_without_pair": 4, "pairs": 1, "pairs_group": 1}
        (pair,) = in_table(out, "train")
        assert pair["chosen"][0]["content"] == "I look, a-r0#0"
        assert pair["rejected"][0]["content"] == "I look, a-r2#0"


@EXAMPLES
@given(shard_rows())
def test_verl_asks_each_prompt_of_a_group_once(rows: list[Row]) -> None:
    with exported(rows, "verl") as (out, told):
        indices: list[int] = []
        for split in SPLITS:
            expected: list[Row] = []
            for _, members in groupby(of_split(rows, split), group_of):
                first: dict[Any, Row] = {}
                for row in members:
                    first.setdefault((json.dumps(parted(row)[0]), row["tools"]), row)
                expected += first.values()
            found = in_table(out, split, "prompts")
            assert [stripped(one["prompt"]) for one in found] == [
                parted(one)[0] for one in expected
            ]
            for one, row in zip(found, expected, strict=True):
                assert one["data_source"] == (row["source_system"] or "penstock")
                assert one["reward_model"] == {"style": "rule", "ground_truth": ""}
                indices.append(one["extra_info"].pop("index"))
                names = ("split", "group_id", "session_id", "sample_id", "tools")
                assert one["extra_info"] == {name: row[name] for name in names}
        assert sorted(indices) == list(range(told.counted["prompts"]))


OTHER_FORMS = {
    "[]": "no_messages",
    "{": "unknown_message_form",
    '[{"role":"user","content":[{"type":"text","text":"in parts"}]}]': "unknown_message_form",
    '[{"role":"user","content":"so","audio":{}}]': "unknown_message_form",
    '[{"role":"user","content":"nobody answers"}]': "no_trained_answer",
    '[{"role":"assistant","content":"unasked"}]': "no_prompt",
    '[{"role":"user","content":"go"},{"role":"assistant","content":"a"},'
    '{"role":"assistant","content":"b","weight":0}]': "untrained_answer",
}


@pytest.mark.parametrize(("messages", "reason"), OTHER_FORMS.items())
@pytest.mark.parametrize("target", ["trl-kto", "trl-dpo"])
def test_what_the_form_cannot_hold_is_left_out(target: str, messages: str, reason: str) -> None:
    rows = [talked("g", 0), talked("g", 1, reward=-0.5), talked("g", 2, messages=messages)]
    with exported(rows, target) as (_, told):
        assert told.left_out == {reason: 1}
        assert told.rows == 2


@pytest.mark.parametrize("target", ["messages-jsonl", "messages-parquet"])
def test_rows_without_messages_are_left_out(target: str) -> None:
    with exported([talked("g", 0), talked("g", 1, messages="[]")], target) as (_, told):
        assert told.left_out == {"no_messages": 1}


def test_a_line_is_a_line_however_the_json_was_broken() -> None:
    rows = [talked("g", 0, messages='[\n{"role": "user",\n"content": "a\\nb"}]', tools="[\n]")]
    with exported(rows, "messages-jsonl") as (out, _):
        (line,) = (out / "train-00000.jsonl").read_text().splitlines()
        assert json.loads(line) == {"messages": [{"role": "user", "content": "a\nb"}], "tools": []}
