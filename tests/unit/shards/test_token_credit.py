"""Rewards of tokens: whose edit and whose turn each part of a reward was."""

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from penstock.shards.validation import ShardValidator
from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.shards.recipe import Tokens
from penstock_jobs.shards.rows.samples import SampleRows
from penstock_jobs.shards.rows.token_credit import (
    EditMark,
    edit_marks,
    rollout_rewards,
    span_credits,
)
from penstock_jobs.shards.selection.selection import CHOSEN_ROWS
from tests.support.shards.talks import SECOND, START_US, Talk, asks, tokens

DEFINITION = """
name = "two"
combine = "{combine}"
clip = [-1.0, 1.0]
[[reward]]
name = "edit_persistence"
weight = 3
horizon_s = 600
clip = [0.0, 1.0]
[[reward]]
name = "explicit_feedback"
weight = 1
"""
_PARTS = pa.schema(
    [
        *((name, pa.string()) for name in ("session_id", "target_kind", "target_id", "name")),
        ("horizon_s", pa.int32()),
        ("value", pa.float64()),
        ("weight", pa.float64()),
    ]
)


def chosen(reward: float, persistence: float, feedback: float, **fields: Any) -> pa.Table:
    components = [
        {"name": "edit_persistence", "value": persistence, "weight": 3.0},
        {"name": "explicit_feedback", "value": feedback, "weight": 1.0},
    ]
    row = {"session_id": "s-1", "chain": "s-1", "group_id": "s-1", "weight": 1.0}
    row |= {"reward": reward, "outcome": "scored", "components": components}
    return pa.Table.from_pylist([row | fields], CHOSEN_ROWS)


def part(*values: Any) -> dict[str, Any]:
    return dict(zip(_PARTS.names, ("s-1", *values), strict=True))


PARTS = pa.Table.from_pylist(
    [
        part("edit", "e1", "edit_persistence", 600, 1.0, 1.0),
        part("edit", "e2", "edit_persistence", 600, 0.0, 3.0),
        part("edit", "e1", "edit_persistence", 30, 0.5, 1.0),
        part("turn", "1", "edit_persistence", 600, 0.25, 4.0),
        part("turn", "2", "explicit_feedback", None, -1.0, 1.0),
        part("turn", "2", "latency", None, 9.0, 1.0),
    ],
    _PARTS,
)


@pytest.mark.parametrize(("combine", "edit", "turn"), [("mean", 0.1875, -0.25), ("sum", 0.75, -1)])
def test_edits_and_turns_add_up_to_the_reward(combine: str, edit: float, turn: float) -> None:
    definition = parse_definition(DEFINITION.format(combine=combine), "two")
    table = chosen(edit + turn, 0.25, -1.0)
    [credits] = span_credits(table, PARTS, definition, {"s-1": "s-1"}).to_pylist()
    assert credits == [
        {"kind": "edit", "target": "e1", "value": edit},
        {"kind": "edit", "target": "e2", "value": 0.0},
        {"kind": "turn", "target": "2", "value": turn},
    ]


def test_what_a_rule_decided_belongs_to_no_edit() -> None:
    definition = parse_definition(DEFINITION.format(combine="mean"), "two")
    ruled = chosen(-1.0, 0.25, -1.0, outcome="negative_by_rule")
    assert span_credits(ruled, PARTS, definition, {"s-1": "s-1"}).to_pylist() == [[]]


def test_a_chain_shares_its_reward_over_all_of_its_sessions() -> None:
    """Also with those that the query did not name: what they earned is not given to the others."""
    definition = parse_definition(DEFINITION.format(combine="mean"), "two")
    other = part("edit", "e9", "edit_persistence", 600, 1.0, 4.0) | {"session_id": "s-2"}
    rows = pa.concat_tables([PARTS, pa.Table.from_pylist([other], _PARTS)])
    chains = {"s-1": "s-1", "s-2": "s-1"}
    [credits] = span_credits(chosen(0.0, 0.625, -1.0), rows, definition, chains).to_pylist()
    assert [credit["value"] for credit in credits] == [3 / 4 / 8, 0.0, -0.25]


def talk() -> Talk:
    """Two turns; the edits e1 and e2 are of the two calls of the first."""
    told = Talk().user("go")
    told.model(calls=[asks("t1")], call_id="m1", tokens=tokens([1, 2], [3, 4])).result("t1")
    told.model(calls=[asks("t2")], call_id="m2", tokens=tokens([1, 2, 3, 4, 5], [6, 7]))
    told.result("t2").user("no")
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    return told.model("Sorry.", call_id="m3", tokens=tokens(prompt, [9]))


MARKS = {"s-1": [EditMark("e1", "t1", 0, None), EditMark("e2", "m2", 0, None)]}
CREDITS = {
    "s-1": [
        {"kind": "edit", "target": "e1", "value": 0.5},
        {"kind": "edit", "target": "e2", "value": -0.125},
        {"kind": "edit", "target": "nobody knows", "value": 7.0},
        {"kind": "turn", "target": "1", "value": -0.25},
    ]
}


def test_an_edit_is_paid_where_its_call_ends_and_the_rest_at_the_end() -> None:
    rows = SampleRows(Tokens("engine"))
    credit = partial(rollout_rewards, reward=1.0, credits=CREDITS, marks=MARKS)
    rows.add_chain([talk().conversation()], {}, credit=credit)
    table = rows.table()
    ShardValidator().check(table)
    assert table["token_rewards"].to_pylist() == [
        [{"pos": 3, "value": 0.5}, {"pos": 6, "value": -0.375}, {"pos": 8, "value": 0.875}]
    ]


def test_rows_of_a_rollout_share_its_reward() -> None:
    """The last call forks: what the session was worth beside its edits stands in the last row."""
    told = talk().user("again").model("b", call_id="m4", tokens=tokens([1, 8], [5]))
    rows = SampleRows(Tokens("engine"))
    credit = partial(rollout_rewards, reward=1.0, credits=CREDITS, marks=MARKS)
    rows.add_chain([told.conversation()], {}, credit=credit)
    first, second = rows.table()["token_rewards"].to_pylist()
    assert [reward["pos"] for reward in first] == [3, 6]
    assert second == [{"pos": 2, "value": 0.875}]


def test_without_a_reward_there_is_none_for_tokens() -> None:
    rows = SampleRows(Tokens("engine"))
    rows.add_chain([talk().conversation()], {})
    assert rows.table()["token_rewards"].to_pylist() == [None]


def test_an_edit_that_names_no_call_is_of_the_last_before_it() -> None:
    conversation = talk().conversation()
    moments = {"s-1": [EditMark("e1", None, START_US + 3 * SECOND, 3)]}
    rows = SampleRows(Tokens("engine"))
    credit = partial(rollout_rewards, reward=0.5, credits=CREDITS, marks=moments)
    rows.add_chain([conversation], {}, credit=credit)
    [own] = rows.table()["token_rewards"].to_pylist()
    assert own[0] == {"pos": 3, "value": 0.5}


def test_edits_have_the_names_that_rewards_give_them() -> None:
    columns = {
        "session_id": ["s", "s", "s"],
        "type": ["edit", "user_message", "edit"],
        "seq": [4, 1, None],
        "event_id": ["x", "y", None],
        "ts": pa.array([20, 10, 5], pa.timestamp("us", "UTC")),
        "payload": ['{"edit_id": "e", "call_id": "c", "after": "a"}', "{}", '{"edit_id": "e"}'],
    }
    assert edit_marks(pa.table(columns)) == {
        "s": [EditMark("e", None, 5, None), EditMark("e#2", "c", 20, 4)]
    }
