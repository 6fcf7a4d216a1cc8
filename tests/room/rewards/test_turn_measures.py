"""The rewards that count what happened in a turn, each worked by hand."""

from math import sqrt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.definition import all_rewards
from penstock_jobs.rewards.measures.leftovers import comment_chars
from penstock_jobs.rewards.measures.turns import asks, bent
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, edited, said, tool

PLAN = '{"plan": [{"step": "read", "status": "done"}]}'
Found = dict[tuple[str, str], tuple[float | None, str, str | None]]


def rewards(directory: Path, name: str, events: list[Event], **parameters: object) -> Found:
    """(value, state, reason) by (kind, target)."""
    reward = all_rewards()[name]
    rows = reward.compute(bucket_of(directory, events), reward.parameters(**parameters))
    return by_target(rows, name)


def by_target(rows: pa.Table, name: str) -> Found:
    return {
        (row["target_kind"], row["target_id"]): (row["value"], row["state"], row["reason"])
        for row in rows.to_pylist()
        if row["name"] == name
    }


def scored(value: float) -> tuple[Any, str, None]:
    return pytest.approx(value, abs=1e-12), "scored", None


def test_invalid_tool_calls_are_negatives_and_not_left_out(tmp_path: Path) -> None:
    bad: dict[str, Any] = {"ok": False, "error_class": "invalid_arguments"}
    away: dict[str, Any] = {"ok": False, "error_class": "timeout"}
    events = [
        said(1), *tool(2, "read", **bad), *tool(3, "read"), *tool(4, "read", **away),
        *tool(5, "read", **bad), said(6), *tool(7, "read"), said(8), answered(9, text="done"),
    ]  # fmt: skip
    # Two of four in turn 1, none of one in turn 2: (4 · −1/2 + 1 · 0) / 5.
    assert rewards(tmp_path, "invalid_tool_calls", events) == {
        ("turn", "1"): scored(-0.5),
        ("turn", "2"): scored(0.0),
        ("session", "s"): scored(-0.4),
    }


def test_explicit_feedback_counts_what_was_said_outright(tmp_path: Path) -> None:
    def feedback(number: int, **payload: object) -> Event:
        return make_event("s", number, "feedback", payload=payload)

    events = [
        said(1), feedback(2, kind="accept"), feedback(3, kind="thumbs", value="down"),
        feedback(4, kind="undo"), feedback(5, kind="rating", value=5), said(6), answered(7),
        said(8), feedback(9, kind="thumbs", value="up"),
    ]  # fmt: skip
    # Turn 1: one for, two against. The session: (3 · −1/3 + 1 · 1) / 4 = 0.
    assert rewards(tmp_path, "explicit_feedback", events) == {
        ("turn", "1"): scored(-1 / 3),
        ("turn", "3"): scored(1.0),
        ("session", "s"): scored(0.0),
    }


def test_tests_passing_is_the_last_result(tmp_path: Path) -> None:
    def tests(number: int, **payload: object) -> Event:
        return make_event("s", number, "test_result", payload=payload)

    events = [
        said(1), tests(2, passed=0, failed=4), tests(3, passed=3, failed=1, skipped=9),
        said(4), tests(5, ok=False), said(6), tests(7, command="make test"),
    ]  # fmt: skip
    assert rewards(tmp_path, "tests_passing", events) == {
        ("turn", "1"): scored(0.75),
        ("turn", "2"): scored(0.0),
        ("turn", "3"): (None, "censored", "nothing_ran"),
        ("session", "s"): (None, "censored", "nothing_ran"),
    }


def test_length_penalty_weighs_six_lengths_and_bends_them(tmp_path: Path) -> None:
    usage = {"completion": 150, "thinking": 100}
    events = [
        said(1),
        *tool(2, "read", output="x" * 400, call={"usage": usage}),
        answered(3, text="done", usage={"completion": 30, "thinking": 10}),
    ]
    weights = {"weight_output": 0.5, "weight_calls": 7.0, "weight_rounds": 3.0}
    reward = all_rewards()["length_penalty"]
    rows = reward.compute(bucket_of(tmp_path, events), reward.parameters(k=1.0, q=0.5, **weights))
    lengths = {"thinking": 110, "calling": 50, "output": 100, "final": 20, "calls": 1, "rounds": 2}
    for name, length in lengths.items():
        assert by_target(rows, f"length_{name}")["turn", "1"] == scored(length), name
    # x = 110 + 50 + 0.5 · 100 + 20 + 7 · 1 + 3 · 2 = 243; C = (√244 − 1) / 0.5.
    value = -2 * (sqrt(244) - 1)
    assert by_target(rows, "length_penalty")["turn", "1"] == scored(value)


@pytest.mark.parametrize(
    ("x", "q", "value"),
    [
        (100, 0.5, 97.6), (1_000, 0.5, 828.4), (10_000, 0.5, 4_633), (100_000, 0.5, 18_100),
        (100, 1.5, 93), (1_000, 1.5, 586), (10_000, 1.5, 1_397), (100_000, 1.5, 1_801),
    ],
)  # fmt: skip
def test_the_bend_has_its_published_shape(x: float, q: float, value: float) -> None:
    assert bent(x, 1e-3, q) == pytest.approx(value, rel=1e-3)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-4, 1), st.floats(0, 3))
def test_more_never_costs_less(x: float, more: float, k: float, q: float) -> None:
    assert bent(0, k, q) == 0
    assert bent(x + more, k, q) >= bent(x, k, q) * (1 - 1e-9)
    assert bent(x, k, q) <= x * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(
    ("text", "is_question"),
    [
        ("Which one?", True), ("**Which one?**", True), ("どちらですか\uff1f", True),
        ("ما هو؟", True),
        ("Is it this? I took it to be so.", False), ("Done.", False), ("", False),
        ("Look:\n```js\na ? b : c?\n```", False), ("Right?\n```\nx\n```\n", True),
    ],
)  # fmt: skip
def test_a_question_ends_the_message(text: str, is_question: bool) -> None:
    assert asks(text) is is_question


def test_open_todos_is_the_list_as_it_last_stood(tmp_path: Path) -> None:
    def todos(*statuses: str) -> dict[str, object]:
        return {"todos": [{"content": "x", "status": status} for status in statuses]}

    refused: dict[str, Any] = {"ok": False, "error_class": "invalid_arguments"}
    events = [
        *tool(1, "TodoWrite", arguments=todos("pending", "pending", "pending")),
        *tool(2, "TodoWrite", arguments=todos("completed", "cancelled", "in_progress")),
        *tool(3, "TodoWrite", arguments=todos("completed"), **refused),
        *tool(4, "TodoWrite", session="text", arguments="not JSON"),
        *tool(5, "update_plan", session="plan", arguments=PLAN),
        *tool(6, "read", session="without", arguments=todos("pending")),
    ]  # fmt: skip
    assert rewards(tmp_path, "open_todos", events) == {
        ("session", "s"): scored(-1 / 3),
        ("session", "text"): (None, "censored", "unreadable"),
        ("session", "plan"): scored(0.0),
    }


def test_reasoning_in_comments_costs_what_is_beyond_the_free_share(tmp_path: Path) -> None:
    code, comment = "value = compute(1)\n", "# I think that this\n"  # 18 and 19 characters
    events = [
        edited(1, "a.py", "", 20 * code),
        edited(2, "b.py", code, code + 20 * comment),
        edited(3, "c.py", "", 10 * code + 10 * comment),
        edited(4, "README.md", "", 30 * comment),
        edited(5, "d.py", "", comment),
    ]
    found = rewards(tmp_path, "reasoning_in_comments", events, free_share=0.2)
    half = -(190 / 370 - 0.2) / 0.8
    assert found["edit", "e1"] == scored(0.0)
    assert found["edit", "e2"] == scored(-1.0)
    assert found["edit", "e3"] == scored(half)
    assert set(found) == {("edit", "e1"), ("edit", "e2"), ("edit", "e3"), ("session", "s")}
    whole = (360 * 0 + 380 * -1 + 370 * half) / (360 + 380 + 370)
    assert found["session", "s"] == scored(whole)


@pytest.mark.parametrize(
    ("before", "after", "start", "counts"),
    [
        ("", "x = 1  # why\n", "#", (0, 12)),
        ("# a\n", "# a\n# a\n", "#", (3, 3)),
        ("", '"""\nwords\n"""\nx = 1\n', "#", (11, 16)),
        ("", "/* a\n * b\n */\nint x;\n", "//", (9, 15)),
        ("-- a\n", "", "--", (0, 0)),
    ],
)
def test_comment_chars(before: str, after: str, start: str, counts: tuple[int, int]) -> None:
    assert comment_chars(before, after, start) == counts


@pytest.mark.parametrize("name", sorted(all_rewards()))
def test_every_reward_has_a_page(name: str) -> None:
    page = all_rewards()[name].page()
    assert page.startswith(f"{name}: ")
    for part in ("Measures", "Formula", "Range", "pending", "censored", "To game it"):
        assert part in page, part


@pytest.mark.parametrize("name", [one.name for one in all_rewards().values() if not one.check])
def test_every_reward_that_needs_nothing_takes_an_empty_bucket(tmp_path: Path, name: str) -> None:
    reward = all_rewards()[name]
    found = reward.compute(bucket_of(tmp_path, []), reward.parameters())
    assert found.num_rows == 0
