"""Selection: each session of a query is chosen, or left out for a reason."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.shards.recipe import RewardChoice, RewardTarget, at_horizon, read_target
from penstock_jobs.shards.selection.selection import (
    CHOSEN_ROWS,
    LEFT_OUT_ROWS,
    KnownSessions,
    RewardsPending,
    Selection,
    read_answer,
    select,
)

DEFINITION = parse_definition(
    """
    name = "two"
    [[reward]]
    name = "edit_persistence"
    weight = 3
    horizon_s = 600
    [[reward]]
    name = "explicit_feedback"
    weight = 1
    [[reward]]
    name = "latency"
    """,
    "two",
)
DUE = datetime(2026, 11, 21, 10, tzinfo=UTC)
_TIME = pa.timestamp("us", "UTC")
_OUTCOMES = pa.schema(
    [
        *((name, pa.string()) for name in ("session_id", "outcome", "reason")),
        ("value", pa.float64()),
        ("due_at", _TIME),
    ]
)
_REWARDS = pa.schema(
    [
        *((name, pa.string()) for name in ("session_id", "target_kind", "target_id", "name")),
        ("horizon_s", pa.int32()),
        ("value", pa.float64()),
        *((name, pa.string()) for name in ("state", "reason")),
        ("weight", pa.float64()),
        ("due_at", _TIME),
    ]
)


def outcome(session: str, kind: str = "scored", value: float | None = None, **more: Any) -> Any:
    return {"session_id": session, "outcome": kind, "value": value} | more


def reward(session: str, name: str, value: float | None, **more: Any) -> dict[str, Any]:
    target = {"session_id": session, "target_kind": "session", "target_id": session}
    row: dict[str, Any] = {**target, "name": name, "value": value}
    horizon = 600 if name == "edit_persistence" else None
    state = "pending" if value is None else "scored"
    return row | {"state": state, "horizon_s": horizon, "weight": 1.0} | more


def known(chains: Mapping[str, str], outcomes: list[Any], rewards: list[Any]) -> KnownSessions:
    sessions = {"session_id": list(chains), "chain": list(chains.values())}
    return KnownSessions(
        pa.table(sessions, pa.schema([("session_id", pa.string()), ("chain", pa.string())])),
        pa.Table.from_pylist(outcomes, _OUTCOMES),
        pa.Table.from_pylist(rewards, _REWARDS),
    )


def asked(*sessions: str, **columns: list[Any]) -> pa.Table:
    table = pa.table({"session_id": pa.array(sessions, pa.string()), **columns})
    return read_answer(table, "none")


def left_out(selection: Selection) -> dict[str, tuple[str, str | None]]:
    rows = selection.left_out.to_pylist()
    return {row["session_id"]: (row["reason"], row["detail"]) for row in rows}


def test_each_is_chosen_or_left_out_for_a_reason() -> None:
    facts = known(
        {name: name for name in "abcdefg"},
        [
            outcome("a", value=0.5),
            outcome("b", "negative_by_rule", -1.0, reason="invalid_tool_calls"),
            outcome("c", "censored", reason="silence"),
            outcome("d", "excluded", reason="no_train"),
            outcome("e", "pending", reason="edit_persistence", due_at=DUE),
            outcome("g", value=float("nan")),
        ],
        [reward("a", "edit_persistence", 0.25), reward("a", "explicit_feedback", 1.0)],
    )
    found = select(asked(*"gfedcbaz"), facts, RewardTarget(DEFINITION, "drop"))
    assert found.chosen.to_pylist() == [
        {
            "session_id": "a", "chain": "a", "group_id": "a", "stratum": None, "weight": 1.0,
            "reward": 0.5, "outcome": "scored",
            "components": [
                {"name": "edit_persistence", "value": 0.25, "weight": 3.0},
                {"name": "explicit_feedback", "value": 1.0, "weight": 1.0},
            ],
        },
        {
            "session_id": "b", "chain": "b", "group_id": "b", "stratum": None, "weight": 1.0,
            "reward": -1.0, "outcome": "negative_by_rule", "components": [],
        },
    ]  # fmt: skip
    assert left_out(found) == {
        "c": ("censored", "silence"),
        "d": ("excluded", "no_train"),
        "e": ("pending", "edit_persistence"),
        "f": ("no_reward", None),
        "g": ("censored", "the value is no number"),
        "z": ("not_in_lake", None),
    }
    assert found.chosen.schema == CHOSEN_ROWS
    assert found.left_out.schema == LEFT_OUT_ROWS


def test_pending_waits_or_is_dropped() -> None:
    outcomes = [
        outcome("a", value=1.0),
        outcome("b", "pending", due_at=DUE),
        outcome("c", "pending", due_at=DUE.replace(hour=12)),
    ]
    facts = known({"a": "a", "b": "b", "c": "c"}, outcomes, [])
    with pytest.raises(RewardsPending, match=r"(?s)2 of 3 .*two; the last is due at .*T12:00"):
        select(asked(*"abc"), facts, RewardTarget(DEFINITION, "wait"))
    outcomes[1]["due_at"] = None
    facts = known({"a": "a", "b": "b", "c": "c"}, outcomes, [])
    with pytest.raises(RewardsPending, match="at an unknown time"):
        select(asked(*"abc"), facts, RewardTarget(DEFINITION, "wait"))
    # What is not asked for may be pending as long as it likes.
    assert select(asked("a"), facts, RewardTarget(DEFINITION, "wait")).chosen.num_rows == 1


def test_only_rewards_that_count_at_their_horizons_are_parts() -> None:
    facts = known(
        {"a": "a"},
        [outcome("a", value=0.3)],
        [
            reward("a", "edit_persistence", 0.3, horizon_s=300),
            reward("a", "edit_persistence", 0.5),
            reward("a", "latency", 0.5),  # without a weight
        ],
    )
    [row] = select(asked("a"), facts, RewardTarget(DEFINITION, "wait")).chosen.to_pylist()
    assert row["components"] == [{"name": "edit_persistence", "value": 0.5, "weight": 3.0}]


def test_without_rewards_all_that_is_there_is_chosen() -> None:
    facts = KnownSessions(known({"a": "a", "b": "a"}, [], []).sessions)
    found = select(asked("b", "c", weight=[0.5, 1.0]), facts, None)
    [row] = found.chosen.to_pylist()
    assert (row["session_id"], row["chain"], row["weight"]) == ("b", "a", 0.5)
    assert (row["reward"], row["outcome"], row["components"]) == (None, None, [])
    assert Counter(found.left_out["reason"].to_pylist()) == {"not_in_lake": 1}


def test_a_chain_is_in_one_group_and_one_stratum() -> None:
    facts = KnownSessions(known({"a": "a", "b": "a", "c": "a", "d": "d"}, [], []).sessions)
    rows = asked(*"dcba", group_id=[None, None, "g", None], stratum=["other", "c's", "b's", "a's"])
    chosen = select(rows, facts, None).chosen.to_pylist()
    assert [(row["session_id"], row["group_id"], row["stratum"]) for row in chosen] == [
        ("d", "d", "other"),
        *((name, "g", "a's") for name in "abc"),  # as its first session has it
    ]
    without_first = asked("c", "b", "a", stratum=["c's", "b's", None])
    chosen = select(without_first, facts, None).chosen.to_pylist()
    assert [row["stratum"] for row in chosen] == ["b's"] * 3
    # Where a query falls back on the session or on its chain, a subagent has the chain's group.
    for fallen in (["b", "g", "c", "d"], ["a", "g", "a", "d"]):
        rows = asked(*"bacd", group_id=fallen)
        chosen = select(rows, facts, None).chosen.to_pylist()
        assert [row["group_id"] for row in chosen] == ["d", "g", "g", "g"]
    chosen = select(asked(*"bad", group_id=[*"bad"]), facts, None).chosen.to_pylist()
    assert [row["group_id"] for row in chosen] == ["a", "a", "d"]
    with pytest.raises(InvalidInput, match="chain of a is in two groups, g and h"):
        select(asked("a", "b", group_id=["h", "g"]), facts, None)


def test_the_parts_of_a_chain_are_put_together() -> None:
    facts = known(
        {"a": "a", "b": "a"},
        [outcome("a", value=0.7), outcome("b", value=0.7)],
        [
            reward("a", "edit_persistence", 1.0, weight=3.0),
            reward("b", "edit_persistence", 0.0, weight=1.0),
            reward("b", "explicit_feedback", 0.5),
        ],
    )
    for row in select(asked("a", "b"), facts, RewardTarget(DEFINITION, "wait")).chosen.to_pylist():
        assert row["components"] == [
            {"name": "edit_persistence", "value": 0.75, "weight": 3.0},
            {"name": "explicit_feedback", "value": 0.5, "weight": 1.0},
        ]


def test_at_another_horizon_the_reward_is_put_together_anew() -> None:
    sooner = at_horizon(DEFINITION, 120)
    assert at_horizon(DEFINITION, None) is DEFINITION
    assert at_horizon(DEFINITION, 600) is DEFINITION
    assert {term.horizon_s for term in sooner.counted()} == {120, None}
    names = ("a", "b", "c", "d", "e", "f")
    facts = known(
        {**{name: name for name in names}, "g": "a"},
        [
            outcome("a", "pending", reason="edit_persistence", due_at=DUE),
            outcome("b", "negative_by_rule", -1.0, reason="abandoned"),
            outcome("c", "pending", reason="still_open", due_at=DUE),
            outcome("d", "excluded", reason="no_train"),
            outcome("e", value=0.9),
        ],
        [
            # (3 · (1 · 1 + 1 · 0.5) / 2 + 1 · −1) / 4
            reward("a", "edit_persistence", 1.0, horizon_s=120),
            reward("g", "edit_persistence", 0.5, horizon_s=120),
            reward("g", "edit_persistence", None),
            reward("a", "explicit_feedback", -1.0),
            *(reward(name, "edit_persistence", 0.5, horizon_s=120) for name in "bcd"),
            reward("e", "edit_persistence", 0.5),  # nobody looked after two minutes
        ],
    )
    found = select(asked(*names), facts, RewardTarget(sooner, "drop", recombined=True))
    worth = {row["session_id"]: row["reward"] for row in found.chosen.to_pylist()}
    assert worth == {"a": pytest.approx((3 * 0.75 - 1) / 4), "b": -1.0}
    assert {name: why[0] for name, why in left_out(found).items()} == {
        "c": "pending", "d": "excluded", "e": "censored", "f": "no_reward",
    }  # fmt: skip


def test_a_definition_lies_beside_the_recipe_or_comes_with_penstock(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(DEFINITION.text)
    mine = read_target(RewardChoice("wait", "mine.toml"), tmp_path)
    assert mine == RewardTarget(DEFINITION, "wait")
    sooner = read_target(RewardChoice("drop", "default", 30), tmp_path)
    assert (sooner.definition.name, sooner.recombined) == ("default", True)
    with pytest.raises(InvalidInput, match="neither a file nor one of"):
        read_target(RewardChoice("wait", "none.toml"), tmp_path)
    with pytest.raises(InvalidInput, match="two computes edit_persistence at 0, 5, 30"):
        at_horizon(DEFINITION, 86_400)
    text = 'name = "one"\n[[reward]]\nname = "latency"\nweight = 1\n'
    with pytest.raises(InvalidInput, match=r"no counted reward .* has a horizon"):
        at_horizon(parse_definition(text, "one"), 600)


@pytest.mark.parametrize(
    ("columns", "kind", "why"),
    [
        ({"id": ["a"]}, "none", "lacks session_id; its columns are id"),
        ({"session_id": ["a"], "wieght": [1.0]}, "none", "did you mean weight"),
        ({"session_id": [1]}, "none", "session_id must be a text, but is int64"),
        ({"session_id": [None]}, "none", "session_id must be a text, but is null"),
        ({"session_id": ["a", None]}, "none", "row 2 has no session_id"),
        ({"session_id": ["a", "b", "a"]}, "none", "names the session a 2 times"),
        ({"session_id": ["a"], "weight": ["1"]}, "none", "weight must be a number"),
        ({"session_id": ["a"], "weight": [True]}, "none", "weight must be a number"),
        ({"session_id": ["b", "a"], "weight": [1, None]}, "none", "0 or more, but is None"),
        ({"session_id": ["a"], "weight": [-1]}, "none", "0 or more, but is -1.0"),
        ({"session_id": ["a"], "weight": [float("nan")]}, "none", "0 or more, but is nan"),
        ({"session_id": ["a"], "group_id": [0.5]}, "none", "group_id must be a text"),
        ({"session_id": ["a"], "stratum": [[1]]}, "none", "stratum must be a text"),
        ({"session_id": ["a"]}, "group", "by group needs the column group_id"),
        ({"session_id": ["a"]}, "stratum", "by stratum needs the column stratum"),
    ],
)
def test_an_answer_that_cannot_be_meant(columns: dict[str, Any], kind: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_answer(pa.table(columns), kind)


def test_what_a_database_may_answer() -> None:
    table = pa.table(
        {
            "session_id": pa.array(["a", "b"]).dictionary_encode(),
            "weight": pa.array([Decimal("0.5"), Decimal("2.0")]),
            "group_id": pa.array([7, None]),
            "stratum": pa.nulls(2),
        }
    )
    assert read_answer(table, "group").to_pylist() == [
        {"session_id": "a", "weight": 0.5, "group_id": "7", "stratum": None},
        {"session_id": "b", "weight": 2.0, "group_id": None, "stratum": None},
    ]
    with pytest.raises(InvalidInput, match="a column twice"):
        read_answer(pa.Table.from_arrays([["a"], ["b"]], ["session_id", "session_id"]), "none")


_KINDS = ("scored", "negative_by_rule", "censored", "excluded", "pending", None, "absent")


@settings(max_examples=40)
@given(st.lists(st.sampled_from(_KINDS), max_size=20), st.randoms(use_true_random=False))
def test_counts_add_up_to_the_query_in_any_order(kinds: list[str | None], random: Any) -> None:
    names = [f"s{place:02}" for place in range(len(kinds))]
    there = {name: name for name, kind in zip(names, kinds, strict=True) if kind != "absent"}
    rows = [
        outcome(name, kind, 0.5)
        for name, kind in zip(names, kinds, strict=True)
        if kind not in (None, "absent")
    ]
    wanted = RewardTarget(DEFINITION, "drop")
    found = select(asked(*names), known(there, rows, []), wanted)
    assert found.chosen.num_rows + found.left_out.num_rows == len(kinds)
    assert found.chosen.num_rows == sum(kind in _KINDS[:2] for kind in kinds)
    mixed = random.sample(names, len(names))
    random.shuffle(rows)
    again = select(asked(*mixed), known(there, rows, []), wanted)
    assert (again.chosen, again.left_out) == (found.chosen, found.left_out)
