"""Choices of one answer (`n` > 1): samples of a group, each with its own reward and advantage."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.shards.validation import verify_shard
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.engine_lake import DAY_US, built, rows_of, tokens
from tests.support.lakes import START_US, Event, HandLake, make_event
from tests.support.reward_events import answered, said

_REWARDS = [1.0, 0.0, 0.5]


def choice(number: int, session: str, call_id: str, prompt: list[int], own: list[int]) -> Event:
    ids = {"prompt_ids": prompt, "completion_ids": own, "logprobs": [-0.5] * len(own)}
    return answered(number, session, call_id=call_id, text=f"say {own}", tokens=tokens(ids))


def chosen(session: str, task: int) -> list[Event]:
    """Three choices, the second of which the conversation goes on from, with two choices more."""
    prompt, later = [1, 2, task], [1, 2, task, 8, 3]
    events = [
        said(1, f"do {session}", session),
        *(choice(2 + n, session, f"a:{n}", prompt, [7 + n]) for n in range(3)),
        said(5, "go on", session),
        *(choice(6 + n, session, f"b:{n}", later, [9]) for n in range(2)),
    ]
    for number, value in enumerate(_REWARDS):
        told = {"name": "tests", "value": value, "call_id": f"a:{number}"}
        events.append(make_event(session, 8 + number, "x_reward", payload=told))
    return [one | {"project": "p", "checkpoint": "ckpt-1"} for one in events]


@pytest.fixture
def rows(lake: HandLake, recipe: Callable[..., Any]) -> list[dict[str, Any]]:
    for number in range(4):
        lake.send(chosen(f"choosing-{number}", 40 + number))
    lake.writer().drain()
    run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=START_US + DAY_US)
    shard = built(lake, recipe())
    assert verify_shard(shard.stored).problems == []
    found = rows_of(lake, shard)
    assert len(found) == 12 + 4 * 4
    return [row for row in found if row["session_id"] == "choosing-1"]


def test_each_choice_is_a_sample_of_the_group_of_its_answer(rows: list[dict[str, Any]]) -> None:
    first = [row for row in rows if row["group_id"] == "choosing-1  a"]
    assert [row["rollout_id"] for row in first] == [f"choosing-1  a:{n}" for n in range(3)]
    assert [row["input_ids"] for row in first] == [
        [1, 2, 41, 7], [1, 2, 41, 8, 3, 9], [1, 2, 41, 9],
    ]  # fmt: skip
    assert len({row["sample_id"] for row in rows}) == 4
    [other] = [row for row in rows if row not in first]
    assert other["group_id"] == "choosing-1  b"
    assert (other["rollout_id"], other["input_ids"]) == ("choosing-1  b:1", [1, 2, 41, 8, 3, 9])
    assert all(row["is_last_step"] for row in rows)


def test_it_has_its_own_reward_and_an_advantage_over_the_others(
    rows: list[dict[str, Any]], lake: HandLake
) -> None:
    known = lake.rows(
        """select target_id, value from rewards where session_id = 'choosing-1'
        and name = 'reward' and target_kind = 'model_call'"""
    )
    worth = {one["target_id"]: one["value"] for one in known}
    assert worth["a:0"] > worth["a:2"] > worth["a:1"]
    mean = sum(worth[f"a:{number}"] for number in range(3)) / 3
    for row in rows:
        name = row["rollout_id"].split()[-1]
        expected = worth[name] - mean if name.startswith("a") else 0.0
        assert row["reward"] == pytest.approx(worth[name])
        assert row["advantage"] == pytest.approx(expected, abs=1e-6)
        for placed in row["token_rewards"]:
            assert placed == {"pos": 5 if name == "b:1" else 3, "value": row["reward"]}


def test_its_messages_are_what_it_read(rows: list[dict[str, Any]]) -> None:
    said_in = {
        row["rollout_id"].split()[-1]: [
            (each["role"], each.get("weight", 1)) for each in json.loads(row["messages"])
        ]
        for row in rows
    }
    user, trained = ("user", 1), ("assistant", 1)
    assert said_in["a:0"] == said_in["a:2"] == [user, trained]
    assert said_in["a:1"] == [user, trained, user, trained]
    assert said_in["b:1"] == [user, ("assistant", 0), user, trained]
    assert all(row["preferences"] is None for row in rows)
