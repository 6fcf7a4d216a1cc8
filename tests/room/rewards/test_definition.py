"""Definitions: what they say, what is refused, and how rewards make up that of a session."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock_jobs.rewards import definition as definitions
from penstock_jobs.rewards.definition import (
    Definition,
    all_rewards,
    combine,
    find_definition,
    parse_definition,
)
from penstock_jobs.rewards.outcomes import standings
from penstock_jobs.rewards.rows import REWARD_ROWS, Standing
from tests.support.repository import ROOT

EXAMPLES = ROOT / "examples" / "rewards"
TEXT = """
name = "two"
combine = "mean"
clip = [-1, 1]

[[reward]]
name = "tests_passing"
weight = 3
clip = [0, 1]
missing = "censor"

[[reward]]
name = "latency"
weight = -1
clip = [0, 60]

[[reward]]
name = "only_terminal"
parameters = { calls_min = 2 }
"""


def definition(text: str = TEXT) -> Definition:
    return parse_definition(text, "two.toml")


def test_its_version_is_that_of_what_is_computed() -> None:
    version = definition().version
    assert definition("# a comment\n" + TEXT.replace("[0, 1]", "[0.0, 1.0]")).version == version
    parts = TEXT.split("[[reward]]")
    assert definition("[[reward]]".join([parts[0], *reversed(parts[1:])])).version == version
    for other in (
        TEXT.replace("weight = 3", "weight = 2"),
        TEXT.replace("calls_min = 2", "calls_min = 3"),
        TEXT.replace("[0, 60]", "[0, 61]"),
        TEXT.replace('"mean"', '"sum"'),
        TEXT.replace('missing = "censor"', ""),
        TEXT.replace("clip = [-1, 1]", ""),
    ):
        assert definition(other).version != version, other


def test_what_a_definition_leaves_out_is_as_its_class_says() -> None:
    # msgspec gives a field that a dataclass inherits the default of the class above.
    for reward in all_rewards().values():
        assert msgspec.convert({}, reward.parameters) == reward.parameters(), reward.name


def test_a_default_that_is_made_stands_in_place_of_an_inherited_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass(frozen=True)
    class Above:
        judge: str = "first"

    @dataclass(frozen=True)
    class Below(Above):
        judge: str = field(default_factory=lambda: "newest")

    own = replace(all_rewards()["latency"], parameters=Below)
    monkeypatch.setattr(definitions, "all_rewards", lambda: {"latency": own})
    text = 'name = "own"\n[[reward]]\nname = "latency"\nweight = 1\n'
    said = text + 'parameters = { judge = "another" }\n'
    judges = [definition(each).terms[0].parameters.judge for each in (text, said)]
    assert judges == ["newest", "another"]


def test_shared_parameters_are_for_all_that_have_them() -> None:
    text = TEXT.replace(
        '[[reward]]\nname = "tests', '[parameters]\ncalls_min = 9\n[[reward]]\nname = "tests'
    )
    assert definition(text).terms[2].parameters.calls_min == 2
    text = text.replace("parameters = { calls_min = 2 }", "")
    assert definition(text).terms[2].parameters.calls_min == 9


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("latency", "latancy", "did you mean latency"),
        ("weight = 3", "wieght = 3", "did you mean weight"),
        ("calls_min = 2", "call_min = 2", "did you mean calls_min"),
        ("calls_min = 2", 'calls_min = "2"', "Expected `int`"),
        ("combine", "combin", "did you mean combine"),
        ('"mean"', '"average"', "not mean or sum"),
        ('"censor"', '"zero"', "not leave_out or censor"),
        ("weight = 3", 'weight = "3"', "weight has to be a number"),
        ("weight = 3", "weight = inf", "weight has to be a number"),
        ("weight = 3", "weight = true", "weight has to be a number"),
        ("[0, 60]", "[60, 0]", "are reversed"),
        ("[0, 60]", "[0]", "low, high"),
        ('"latency"', '"tests_passing"', "twice"),
        ('name = "latency"', 'name = "latency"\nhorizon_s = -1', "must be seconds"),
        ('name = "two"', "", "name has to be a text"),
        ('name = "two"', 'name = "two', "at line 2"),
        (TEXT, 'name = "none"', "it names no reward"),
        ("weight", "#", "no reward has a weight"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(old: str, new: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        definition(TEXT.replace(old, new))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither a file nor one of comparing, default"):
        find_definition(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_can_be_used(path: Path) -> None:
    assert find_definition(str(path)).counted()


def scored(value: float) -> Standing:
    return Standing("scored", value)


def test_nothing_is_worth_zero_because_nobody_looked() -> None:
    away = Standing("censored", reason="unobserved")
    waiting = Standing("pending")
    both = {"tests_passing": scored(1), "latency": away}
    assert combine(definition(), both) == Standing("scored", 1.0, "without latency")
    assert combine(definition(), {"tests_passing": away, "latency": scored(1)}) == Standing(
        "censored", reason="tests_passing: unobserved"
    )
    assert combine(definition(), {"tests_passing": scored(1), "latency": waiting}) == Standing(
        "pending", reason="latency"
    )
    assert combine(definition(), {}).state == "censored"
    text = TEXT.replace('missing = "censor"', "")
    assert combine(definition(text), {"tests_passing": away, "latency": away}) == Standing(
        "censored", reason="latency: unobserved; tests_passing: unobserved"
    )


def test_the_rows_of_sessions_at_the_horizon_that_counts() -> None:
    text = 'name = "one"\n[[reward]]\nname = "edit_persistence"\nweight = 1\nhorizon_s = 600\n'
    rows = [
        row_of("a", "session", 0, 1.0),
        row_of("a", "session", 600, 0.25),
        row_of("a", "turn", 600, 0.9),
        row_of("b", "session", None, 0.5),
    ]
    found = standings(definition(text), pa.Table.from_pylist(rows, REWARD_ROWS), {})
    assert found == {
        "a": Standing("scored", 0.25),
        "b": Standing("censored", reason="edit_persistence: no_rows"),
    }


def row_of(session: str, kind: str, horizon_s: int | None, value: float) -> dict[str, object]:
    return {
        "session_id": session,
        "target_kind": kind,
        "target_id": session,
        "name": "edit_persistence",
        "horizon_s": horizon_s,
        "value": value,
        "state": "scored",
        "weight": 1.0,
    }


def test_a_session_of_which_nothing_is_known_that_counts_is_censored() -> None:
    text = 'needs_any = ["tests_passing"]\n' + TEXT.replace('missing = "censor"', "")
    needy = definition(text)
    assert needy.version != definition(TEXT.replace('missing = "censor"', "")).version
    away = Standing("censored", reason="nothing_ran")
    assert combine(needy, {"tests_passing": away, "latency": scored(1)}) == Standing(
        "censored", reason="tests_passing: nothing_ran"
    )
    assert combine(needy, {"tests_passing": scored(1)}).state == "scored"
    with pytest.raises(InvalidInput, match="did you mean tests_passing"):
        definition(text.replace('["tests_passing"]', '["test_passing"]'))
    with pytest.raises(InvalidInput, match="listed has to be true or false"):
        definition("listed = 1\n" + text)
    with pytest.raises(InvalidInput, match="a list of texts"):
        definition(text.replace('["tests_passing"]', "[1]"))


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_it_stays_within_its_bounds_and_grows_with_what_is_good(one: float, more: float) -> None:
    low, high = sorted((one, more))
    worse = combine(definition(), {"tests_passing": scored(low), "latency": scored(5)})
    better = combine(definition(), {"tests_passing": scored(high), "latency": scored(5)})
    assert worse.value is not None
    assert better.value is not None
    assert -1 <= worse.value <= better.value <= 1
