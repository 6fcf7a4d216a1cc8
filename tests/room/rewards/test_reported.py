"""Rewards from elsewhere: of a session, a turn, a call and each choice of a call."""

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.definition import find_definition, parse_definition
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, compute, said

Rows = dict[tuple[str, str], tuple[float | None, str | None]]


def reported(number: int, session: str = "s", **payload: Any) -> Event:
    return make_event(session, number, "x_reward", payload=payload)


def rated(number: int, value: object, target: str | None = None) -> Event:
    payload = {"kind": "rating", "value": value, "target": target}
    return make_event("s", number, "feedback", payload=payload)


def rows_of(directory: Path, events: list[Event], name: str = "reported_reward") -> Rows:
    text = f'name = "mine"\n[[reward]]\nname = "{name}"\nweight = 1.0\n'
    table = compute(bucket_of(directory, events), parse_definition(text, "mine"))
    return {
        (row["target_kind"], row["target_id"]): (row["value"], row["reason"])
        for row in table.to_pylist()
        if row["name"] == name
    }


def test_a_value_goes_to_the_session_the_turn_or_the_call_that_it_names(tmp_path: Path) -> None:
    choices = [answered(2, call_id="c-1:0"), answered(3, call_id="c-1:1")]
    events = [
        said(1), *choices,
        reported(4, name="tests", value=0.25, call_id="c-1:0"),
        reported(5, name="tests", value=True, call_id="c-1:1"),
        reported(6, name="tests", value=0.5, turn=1),
    ]  # fmt: skip
    rows = rows_of(tmp_path / "parts", events)
    assert rows == {
        ("model_call", "c-1:0"): (0.25, None),
        ("model_call", "c-1:1"): (1.0, None),
        ("turn", "1"): (0.5, None),
        ("session", "s"): (1.75 / 3, None),
    }
    whole = rows_of(tmp_path / "whole", [*events, reported(7, name="tests", value=0.1)])
    assert whole["session", "s"] == (0.1, None)


def test_the_last_value_under_a_name_counts_and_names_count_alike(tmp_path: Path) -> None:
    events = [
        said(1), answered(2, call_id="c-1"),
        reported(3, name="tests", value=0.0), reported(4, name="tests", value=1.0),
        reported(5, name="style", value=0.5), reported(6, name="cost", value=80), rated(7, 0.3),
    ]  # fmt: skip
    value, reason = rows_of(tmp_path / "all", events)["session", "s"]
    assert reason is None
    assert value == pytest.approx(0.6)
    for name, value in (("tests", 1.0), ("cost", 80.0), ("rating", 0.3)):
        rows = rows_of(tmp_path / name, events, f"reported_reward({name})")
        assert rows == {("session", "s"): (value, None)}


@pytest.mark.parametrize(
    ("value", "reason"), [("good", "no_number"), (None, "no_number"), (7, "other_scale")]
)
def test_what_is_no_reward_is_never_zero(tmp_path: Path, value: object, reason: str) -> None:
    events = [said(1), answered(2, call_id="c-1"), reported(3, name="grade", value=value)]
    assert rows_of(tmp_path, events) == {("session", "s"): (None, reason)}


def test_a_rating_of_a_call_is_that_calls(tmp_path: Path) -> None:
    events = [said(1), answered(2, call_id="c-1"), rated(3, 0.5, "c-1")]
    assert rows_of(tmp_path, events)["model_call", "c-1"] == (0.5, None)


def test_each_choice_is_worth_what_was_said_of_it(tmp_path: Path) -> None:
    choices = [answered(2, call_id="c-1:0"), answered(3, call_id="c-1:1"), answered(4, call_id="c")]
    events = [
        said(1), *choices, make_event("s", 7, "session_end", payload={"reason": "completed"}),
        reported(5, name="tests", value=1.0, call_id="c-1:0"),
        reported(6, name="tests", value=-0.5, call_id="c-1:1"),
    ]  # fmt: skip
    table = compute(bucket_of(tmp_path, events), find_definition("default"))
    worth = {
        (row["target_kind"], row["target_id"]): row["value"]
        for row in table.to_pylist()
        if row["name"] == "reward"
    }
    assert worth["session", "s"] == worth["model_call", "c"] == pytest.approx(0.25)
    assert worth["model_call", "c-1:0"] == pytest.approx(1.0)
    assert worth["model_call", "c-1:1"] == pytest.approx(-0.5)


def test_one_definition_takes_several_names() -> None:
    term = '[[reward]]\nname = "reported_reward({})"\nweight = 1.0\n'
    both = parse_definition('name = "m"\n' + term.format("tests") + term.format("style"), "m")
    assert [one.reward.name for one in both.terms] == [
        "reported_reward(tests)", "reported_reward(style)",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="twice"):
        parse_definition('name = "m"\n' + 2 * term.format("tests"), "m")
    with pytest.raises(InvalidInput, match="latency"):
        parse_definition('name = "m"\n[[reward]]\nname = "latency(tests)"\nweight = 1.0', "m")
