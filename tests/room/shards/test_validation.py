"""Rows that keep the rules pass; each way to break one is found by that rule, and named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.storage.object_store import FileStore
from penstock.shards.manifest import Counts, Manifest, PartFile
from penstock.shards.rules import RULES, SHAPES
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.shard import ShardDamaged, ShardInvalid
from penstock.shards.validation import DigestSet, ShardValidator, validate_shard
from penstock.shards.writer import PartLimits, PartWriter
from tests.support.shards.making import (
    make_groups,
    make_routes,
    make_row,
    make_shard,
    publish,
    stored_in,
    table_of,
    with_routes,
)

Row = dict[str, Any]
Change = Callable[[Row], object]


def check(rows: pa.Table, routes: pa.Table | None = None) -> None:
    validator = ShardValidator()
    validator.begin_file("part-00000.parquet")
    validator.check(rows, routes)


def broken(rows: pa.Table, routes: pa.Table | None = None) -> dict[str, Any]:
    with pytest.raises(ShardInvalid) as caught:
        check(rows, routes)
    return caught.value.facts


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), step=st.integers(1, 40))
def test_rows_that_keep_the_rules_pass(seed: int, step: int) -> None:
    rows = table_of(make_groups(12, seed=seed))
    validator = ShardValidator()
    for start in range(0, rows.num_rows, step):
        validator.check(rows.slice(start, step))


def put(name: str, value: object) -> Change:
    return lambda row: row.update({name: value})


def at(name: str, place: int, value: object) -> Change:
    def change(row: Row) -> None:
        row[name] = row[name].copy()
        row[name][place] = value

    return change


def part(name: str, number: int, field: str, value: object) -> Change:
    def change(row: Row) -> None:
        row[name][number] = row[name][number] | {field: value}

    return change


def shorter(name: str) -> Change:
    return lambda row: row.update({name: row[name][:-1]})


def train_what_a_tool_said(row: Row) -> None:
    tool = next(one for one in row["turn_spans"] if one["role"] == 3)
    row["loss_mask"] = row["loss_mask"].copy()
    row["loss_mask"][tool["start"]] = 1
    row["n_trainable"] += 1


def train_nothing(row: Row) -> None:
    row["loss_mask"] = np.zeros_like(row["loss_mask"])
    row["rollout_logprobs"] = np.zeros_like(row["rollout_logprobs"])
    row["n_trainable"] = 0


def versions(*runs: tuple[int, int]) -> Change:
    def change(row: Row) -> None:
        row["policy_version_runs"] = [{"start": start, "version": own} for start, own in runs]
        row["min_policy_version"] = min(own for _, own in runs)
        row["max_policy_version"] = max(own for _, own in runs)

    return change


def temperatures(*runs: tuple[int, float], stated: float | None = None) -> Change:
    def change(row: Row) -> None:
        row["temperature"] = stated
        row["temperature_runs"] = [{"start": start, "temperature": own} for start, own in runs]

    return change


def chosen(text: str, *, of: str = "a\n    run(b)\nc\n", **fields: object) -> Change:
    """A pair of what an agent wrote in a call, and what a user left of it."""

    def answer(text: str) -> Row:
        call = {"arguments": json.dumps({"path": "p", "text": text})}
        return {"role": "assistant", "tool_calls": [{"id": "t", "function": call}]}

    def change(row: Row) -> None:
        rejected = [answer("    subprocess.run([a, b], check=False)\n")]
        pair = {"kind": "edited", "prompt": 0, "chosen": [answer(text)], "rejected": rejected}
        row["messages"] = json.dumps(rejected)
        row["preferences"] = json.dumps([pair | {"files": [of]} | fields])

    return change


def hinted(**fields: Any) -> Change:
    """A hint about the first answer, broken by some field."""
    hint = {"hint": "no", "hint_kind": "follow_up", "hint_ids": [7], "hint_position": 2}
    hint |= {"hint_start": 4, "hint_end": 8, "hint_answer_free": True, "hint_session_id": "s"}
    return lambda row: row.update(hint | fields)


def test_a_hint_may_stand_in_the_prompt() -> None:
    row = make_row("a")
    hinted()(row)
    check(table_of([row]))


# A row of 12 tokens: a prompt of 4, then the model, a tool, the model, of 4, 2 and 2.
CORRUPTIONS: list[tuple[str, Change]] = [
    ("lengths", shorter("input_ids")),
    ("lengths", shorter("loss_mask")),
    ("lengths", shorter("rollout_logprobs")),
    ("lengths", put("n_tokens", 11)),
    (
        "lengths",
        lambda row: row.update(input_ids=[], loss_mask=[], rollout_logprobs=[], n_tokens=0),
    ),
    ("mask_values", at("loss_mask", 5, 2)),
    ("temperature_runs", temperatures((5, 0.5))),
    ("temperature_runs", temperatures((4, 0.5), (12, 1.0))),
    ("temperature_runs", temperatures((4, 0.5), (10, 1.0), (8, 0.5))),
    ("temperature_runs", temperatures((4, 0.5), stated=1.0)),
    ("finite_numbers", temperatures((4, float("nan")))),
    ("n_trainable", put("n_trainable", 7)),
    ("something_trained", train_nothing),
    ("prompt_len", put("prompt_len", 5)),
    ("prompt_len", put("prompt_len", -1)),
    ("logprobs", at("rollout_logprobs", 5, float("nan"))),
    ("logprobs", at("rollout_logprobs", 5, float("-inf"))),
    ("logprobs", at("rollout_logprobs", 5, 0.001)),
    ("logprobs", at("rollout_logprobs", 0, -0.5)),
    ("token_ids", at("input_ids", 3, -1)),
    ("spans", part("turn_spans", 0, "start", -1)),
    ("spans", part("turn_spans", 0, "end", 0)),
    ("spans", part("turn_spans", 3, "end", 13)),
    ("spans", part("turn_spans", 1, "start", 3)),
    ("spans", lambda row: row["turn_spans"].reverse()),
    ("spans", part("turn_spans", 0, "role", 4)),
    ("mask_on_sampled", train_what_a_tool_said),
    ("mask_on_sampled", part("turn_spans", 1, "sampled", False)),
    ("mask_on_sampled", lambda row: row["turn_spans"].pop()),
    ("version_runs", versions((5, 3))),
    ("version_runs", versions((0, 3), (12, 4))),
    ("version_runs", versions((-1, 3))),
    ("version_runs", versions((0, 3), (6, 4), (6, 5))),
    ("version_runs", versions((0, 4), (6, 3))),
    ("version_runs", put("policy_version_runs", [])),
    ("version_runs", put("min_policy_version", 2)),
    ("version_runs", put("max_policy_version", None)),
    ("version_runs", put("policy_version_runs", None)),
    ("token_rewards", part("token_rewards", 0, "pos", 12)),
    ("token_rewards", put("token_rewards", [{"pos": 5, "value": 1.0}, {"pos": 5, "value": 1.0}])),
    ("finite_numbers", put("advantage", float("inf"))),
    ("finite_numbers", put("reward", float("nan"))),
    ("finite_numbers", put("loss_weight", -1.0)),
    ("finite_numbers", part("reward_components", 0, "value", float("nan"))),
    ("finite_numbers", part("token_rewards", 0, "value", float("nan"))),
    ("known_words", put("status", "done")),
    ("known_words", put("token_source", "guessed")),
    ("known_words", put("split", "test")),
    ("consent", put("consent", "no_train")),
    ("branch_numbers", put("branch_index", 1)),
    ("branch_numbers", put("chain_pos", -1)),
    ("documents", lambda row: row.update(token_source="text")),
    ("documents", lambda row: row.update(documents=[{"path": "a", "sha256": "", "bytes": 1}])),
    ("preferences", chosen("    run(a,    subprocess.run([a, b], check=Fals=True)\n")),
    ("preferences", chosen("    run(b)\nd\n")),
    ("preferences", chosen("un(b)\nc")),
    ("preferences", chosen("run(b")),
    ("preferences", chosen("")),
    ("preferences", chosen("run(b)", files=[])),
    ("preferences", chosen("run(b)", prompt=2)),
    ("preferences", chosen("run(b)", rejected=[])),
    ("preferences", chosen("run(b)", chosen=[{"role": "assistant", "content": "run(b)"}])),
    ("preferences", chosen("run(b)", kind="regenerated", chosen=[], rejected=[])),
    ("preferences", put("preferences", '["edited"]')),
    ("hints", put("hint", "no")),
    ("hints", hinted(hint_session_id=None)),
    ("hints", hinted(hint_position=4)),
    ("hints", hinted(hint_start=3)),
    ("hints", hinted(hint_end=13)),
    ("hints", hinted(hint_end=4)),
    ("hints", hinted(hint_ids=[])),
    ("hints", hinted(hint_ids=[3, -1])),
    ("order", put("group_id", "a")),
    ("siblings", put("rollout_id", "b-r0")),
    ("sample_unique", put("sample_id", "b-r0#0")),
    ("branch_unique", put("session_id", "b-r0")),
]


def test_each_corruption_is_found_by_its_own_rule() -> None:
    for number, (rule, change) in enumerate(CORRUPTIONS):
        rows = [make_row(name) for name in ("b", "c", "d", "e", "f")]
        change(rows[3])
        found = broken(table_of(rows))
        assert (found["rule"], found["row"]) == (rule, 3), (number, found)
        assert found["sample"] == rows[3]["sample_id"]
        assert found["file"] == "part-00000.parquet"


def test_lines_of_the_file_are_a_chosen_text_with_or_without_their_indentation() -> None:
    for text in ("run(b)", "    run(b)", "run(b)\nc\n", "a\n    run(b)\nc"):
        row = make_row("b")
        chosen(text)(row)
        check(table_of([row]))


def test_every_rule_of_a_row_has_a_corruption() -> None:
    named = {rule for rule, _ in CORRUPTIONS}
    assert {one.__name__ for one in (*SHAPES, *RULES)} - named == {"required", "required_parts"}


def test_nulls_where_there_must_be_none() -> None:
    rows = table_of([make_row("a"), make_row("b")])
    place = SHARD_ROWS.names.index("consent")
    holed = rows.set_column(place, SHARD_ROWS.field("consent"), [["train", None]])
    assert broken(holed)["rule"] == "required"
    assert broken(holed)["row"] == 1
    ids = pa.array([[1] * 12, [1] * 11 + [None]], pa.large_list(pa.int32()))
    loose = pa.LargeListArray.from_arrays(
        ids.offsets, ids.values, type=SHARD_ROWS.field("input_ids").type
    )
    place = SHARD_ROWS.names.index("input_ids")
    holed = rows.set_column(place, SHARD_ROWS.field("input_ids"), loose)
    assert broken(holed)["rule"] == "required_parts"


def test_other_columns_are_refused() -> None:
    assert broken(table_of([make_row("a")]).drop_columns("split"))["rule"] == "schema"


def test_nothing_needs_to_be_trained_of_what_is_masked() -> None:
    row = make_row("a")
    train_nothing(row)
    check(table_of([row | {"status": "masked"}]))
    check(table_of([row | {"loss_weight": 0.0}]))


# Rules among rows


def test_a_turn_is_trained_once() -> None:
    rows = [make_row("a", branch=branch, branches=2) for branch in range(2)]
    for before, after in zip(rows[0]["turn_spans"], rows[1]["turn_spans"], strict=True):
        after["event_seq"] = before["event_seq"]
    found = broken(table_of(rows))
    assert (found["rule"], found["row"]) == ("trained_once", 1)


def test_a_turn_without_an_event_is_known_by_its_trajectory() -> None:
    rows = [make_row("a", branch=branch, branches=2) for branch in range(2)]
    for row in rows:
        for span in row["turn_spans"]:
            span["event_seq"] = None
    check(table_of(rows))
    rows[1]["trajectory_id"] = rows[0]["trajectory_id"]
    assert broken(table_of(rows))["rule"] == "trained_once"


@pytest.mark.parametrize(
    ("rule", "fields"), [("last_step", {"is_last_step": True}), ("branch_count", {"n_branches": 3})]
)
def test_rows_of_a_session_agree(rule: str, fields: Row) -> None:
    rows = [make_row("a", branch=branch, branches=2) for branch in range(2)]
    rows[0] |= fields
    assert broken(table_of(rows))["rule"] == rule


def test_what_is_repeated_is_found_however_far_apart() -> None:
    validator = ShardValidator()
    validator.begin_file("one")
    for number in range(50):
        validator.check(table_of([make_row(f"g{number:03d}")]))
    validator.begin_file("two")
    validator.check(table_of([make_row("h")]))
    with pytest.raises(ShardInvalid, match=r"two, row 1, sample g017-r0#0 breaks .* sample_unique"):
        validator.check(table_of([make_row("i") | {"sample_id": "g017-r0#0"}]))
    validator.begin_file("three")
    with pytest.raises(ShardInvalid, match="groups_in_one_file"):
        validator.check(table_of([make_row("h", 1)]))


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 60), max_size=8), max_size=12))
def test_seen_is_a_set(batches: list[list[int]]) -> None:
    seen, there = DigestSet(), set[int]()
    for batch in batches:
        first = next(
            (number for number, one in enumerate(batch) if one in there or one in batch[:number]),
            None,
        )
        assert seen.add(np.array(batch, np.uint64)) == first
        there |= set(batch)


# Routed experts


ROUTED = with_routes(table_of([make_row("a"), make_row("b")]))
ROUTES = make_routes(ROUTED)


def with_route(**facts: object) -> pa.Table:
    rows = ROUTES.to_pylist()
    rows[1] |= facts
    return pa.Table.from_pylist(rows, schema=ROUTES.schema)


def test_routes_that_keep_the_rules_pass() -> None:
    check(ROUTED, ROUTES)
    short = ROUTED.to_pylist()
    short[1]["routed_rows"] = 11
    check(table_of(short), with_route(routed_experts=ROUTES["routed_experts"][1].as_py()[:-4]))
    none = ROUTED.to_pylist()
    none[1]["routed_rows"] = None
    check(table_of(none), with_route(routed_experts=None, layers=None, topk=None, dtype=None))


@pytest.mark.parametrize(
    ("why", "facts"),
    [
        ("disagree", {"routed_experts": None}),
        ("bytes", {"routed_experts": b"\0\1" * 23}),
        ("of float8", {"dtype": "float8"}),
        ("below 0", {"routed_experts": b"\0\xff" * 48, "dtype": "int16"}),
        ("chooses an expert twice", {"routed_experts": b"\1\1" * 24}),
        ("tokens", {"start": 2}),
    ],
)
def test_broken_routes(why: str, facts: dict[str, object]) -> None:
    assert broken(ROUTED)["rule"] == broken(ROUTED, ROUTES.slice(1))["rule"] == "routes"
    found = broken(ROUTED, with_route(**facts))
    assert (found["rule"], found["row"]) == ("routes", 1)
    assert why in str(found["why"])


# A whole shard


def test_a_manifest_that_counts_otherwise_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    limits = PartLimits(10**9, 10**9, 10**6)
    with PartWriter(store, "staging", limits) as writer:
        writer.write(table_of(make_groups(5)))
    made = writer.files[0]
    rows = with_routes(table_of(make_groups(60)))
    whole = make_shard(store, rows, routes=make_routes(rows))
    assert validate_shard(stored_in(store, whole))["samples"] == rows.num_rows
    facts = {name: getattr(made, name) for name in made.__struct_fields__}
    for name, wrong in (("tokens", made.tokens + 1), ("groups", 4), ("last", "z")):
        wrong_file = PartFile(**(facts | {name: wrong}))
        manifest = Manifest(name=name, files=[wrong_file], counts=Counts())
        publish(store, "staging", store, manifest)
        with pytest.raises(ShardDamaged, match=f"{name}: "):
            validate_shard(stored_in(store, manifest))
