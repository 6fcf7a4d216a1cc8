"""How sessions end: each rule by hand, and that no session is ever without an outcome."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.definition import UNKNOWN
from penstock_jobs.rewards.measures.work_left import WorkParameters
from penstock_jobs.rewards.outcomes import RULES, Outcome, RuleFacts, decide, outcomes
from penstock_jobs.rewards.rows import Standing
from tests.support.lakes import START_US, Event, make_event
from tests.support.reward_events import answered, bucket_of, edited, said, tool

BROKEN: dict[str, Any] = {"ok": False, "error_class": "invalid_arguments"}
GOOD = Standing("scored", 0.5)
KINDS = {"scored", "negative_by_rule", "censored", "excluded", "pending"}


def ended(directory: Path, events: list[Event], standing: Standing = GOOD) -> tuple[str, Any]:
    """The kind and the reason of the session s."""
    [found] = outcomes(bucket_of(directory, events), {"s": standing}, {})
    return found.kind, found.reason


def end(number: int, reason: str = "completed") -> Event:
    return make_event("s", number, "session_end", payload={"reason": reason})


def stop(number: int) -> Event:
    return make_event("s", number, "interrupt", payload={"reason": "user_stop"})


def seen(number: int, text: str) -> Event:
    return make_event("s", number, "file_observed", payload={"path": "a.py", "text": text})


def test_without_a_rule_it_is_the_standing(tmp_path: Path) -> None:
    done = answered(2, text="done") | {"checkpoint": "c1"}
    bucket = bucket_of(tmp_path, [said(1), done])
    for standing, kind, reason, value in (
        (GOOD, "scored", None, 0.5),
        (Standing("censored", reason="unobserved"), "censored", "unobserved", None),
        (Standing("pending", reason="latency"), "pending", "latency", None),
        (Standing("invalid", reason="undecodable"), "censored", "invalid: undecodable", None),
    ):
        found = outcomes(bucket, {"s": standing}, {})
        assert found == [Outcome("s", kind, reason, value, "c1")]  # type: ignore[arg-type]
    assert outcomes(bucket, {}, {}) == [Outcome("s", "censored", UNKNOWN.reason, None, "c1")]
    partly = Standing("scored", 0.5, "without latency")
    [one] = outcomes(bucket, {"s": partly}, {})
    assert (one.kind, one.reason, one.without) == ("scored", None, "without latency")


def test_who_said_no_is_left_out_whatever_happened(tmp_path: Path) -> None:
    bucket = bucket_of(tmp_path / "told", [said(1), *tool(2, "read", **BROKEN)])
    for consents, kind in (
        ({"s": "no_train"}, "excluded"),
        ({"s": "train"}, "negative_by_rule"),
        ({}, "negative_by_rule"),
    ):
        assert outcomes(bucket, {"s": GOOD}, consents)[0].kind == kind
    start = make_event("s", 0, "session_start", payload={"consent": "no_train"})
    events = [start, said(1), answered(2, text="done")]
    bucket = bucket_of(tmp_path / "rows", events)
    [found] = outcomes(bucket, {"s": GOOD}, {"s": "train"})
    assert (found.kind, found.reason, found.value) == ("excluded", "no_train", None)


def test_without_an_agent_there_is_nothing_to_reward(tmp_path: Path) -> None:
    assert ended(tmp_path, [said(1), said(2)]) == ("excluded", "no_agent")


@pytest.mark.parametrize(
    ("events", "negative"),
    [
        ([*tool(2, "read", **BROKEN)], True),
        ([*tool(2, "read", **BROKEN), answered(3, text="I cannot.")], True),
        ([*tool(2, "read", **BROKEN), *tool(3, "read", **BROKEN)], True),
        ([*tool(2, "read"), *tool(3, "edit", **BROKEN)], True),
        ([*tool(2, "read"), edited(3, "a.py", "", "x"), *tool(4, "edit", **BROKEN)], True),
        ([*tool(2, "read"), *tool(3, "edit", **BROKEN), edited(4, "a.py", "", "x")], False),
        ([*tool(2, "read", **BROKEN), edited(4, "a.py", "", "x")], True),
        ([*tool(2, "read", **BROKEN), *tool(3, "read")], False),
        ([*tool(2, "read", ok=False, error_class="timeout")], False),
        ([answered(2, text="done")], False),
    ],
)
def test_broken_tool_calls_are_a_negative(
    tmp_path: Path, events: list[Event], negative: bool
) -> None:
    expected = ("negative_by_rule", "invalid_tool_calls") if negative else ("scored", None)
    assert ended(tmp_path, [said(1), *events]) == expected


@pytest.mark.parametrize(
    ("events", "negative"),
    [
        # Stopped before anything was written.
        ([answered(2, text="well"), stop(3)], True),
        ([answered(2, text="well"), end(3, "user_stop")], True),
        # What was cut off may be told after it.
        ([stop(2), answered(3, text="we")], True),
        # The user went on, and the agent did.
        ([answered(2, text="well"), stop(3), said(4), answered(5, text="done")], False),
        ([answered(2, text="well"), end(3, "completed")], False),
        ([answered(2, text="well"), end(3, "crash")], False),
        # Written, and taken back.
        ([edited(2, "a.py", "", "value = 1\n"), stop(3), seen(40, "")], True),
        ([edited(2, "a.py", "", "value = 1\n"), seen(40, ""), end(50, "user_stop")], True),
        # Written, and kept.
        ([edited(2, "a.py", "", "value = 1\n"), stop(3), seen(40, "value = 1\n")], False),
        # Nothing but white space was written.
        ([edited(2, "a.py", "x\n", "x\n\n"), stop(3), seen(700, "x\n\n")], True),
    ],
)
def test_what_the_user_stopped_and_did_not_keep_is_a_negative(
    tmp_path: Path, events: list[Event], negative: bool
) -> None:
    expected = ("negative_by_rule", "abandoned") if negative else ("scored", None)
    assert ended(tmp_path, [said(1), *events]) == expected


@pytest.mark.parametrize(
    ("path", "text"), [("NOTES.md", "All is well.\n"), ("b.py", "# All is well.\n")]
)
def test_notes_that_stay_are_nothing_that_was_kept(tmp_path: Path, path: str, text: str) -> None:
    """By the rules of a definition with work_left; by those before they saved a session."""
    notes = make_event(
        "s", 620, "file_observed", payload={"path": path, "text": text}, event_id="n"
    )
    events = [said(1), edited(2, "a.py", "", "x = compute()\n"), edited(3, path, "", text)]
    events += [stop(4), end(5, "user_stop"), seen(610, ""), notes]
    bucket = bucket_of(tmp_path, events)
    [found] = outcomes(bucket, {"s": GOOD}, {}, work=WorkParameters())
    assert (found.kind, found.reason) == ("negative_by_rule", "abandoned")
    [found] = outcomes(bucket, {"s": GOOD}, {})
    assert found.kind == "scored"


def test_an_edit_at_which_nobody_looked_is_not_called_abandoned(tmp_path: Path) -> None:
    events = [said(1), edited(2, "a.py", "", "value = 1\n"), stop(3)]
    unknown = Standing("censored", reason="edit_persistence: unobserved")
    assert ended(tmp_path, events, unknown) == ("censored", unknown.reason)


def test_a_negative_is_worth_minus_one_or_less(tmp_path: Path) -> None:
    bucket = bucket_of(tmp_path, [said(1), *tool(2, "read", **BROKEN)])
    for standing, value in (
        (GOOD, -1.0),
        (Standing("scored", -3.0), -3.0),
        (Standing("censored", reason="unobserved"), -1.0),
        (Standing("pending"), -1.0),
    ):
        [found] = outcomes(bucket, {"s": standing}, {})
        assert (found.kind, found.value) == ("negative_by_rule", value)


def test_an_open_session_may_still_turn_out_well(tmp_path: Path) -> None:
    events = [said(1), *tool(2, "read", **BROKEN), *tool(60, "read"), *tool(70, "x", **BROKEN)]
    bucket = bucket_of(tmp_path, [*events, end(80)])
    for seconds, kind, reason in (
        (0, "pending", "still_open"),
        (1, "pending", "still_open"),
        (3, "pending", "still_open"),
        (65, "scored", None),
        (75, "pending", "still_open"),
        (80, "negative_by_rule", "invalid_tool_calls"),
    ):
        then = replace(bucket, as_of_us=START_US + seconds * 1_000_000)
        [found] = outcomes(then, {"s": GOOD}, {})
        assert (found.kind, found.reason) == (kind, reason), seconds
    early = replace(bucket, as_of_us=START_US + 3_000_000)
    [found] = outcomes(early, {"s": GOOD}, {"s": "no_train"})
    assert (found.kind, found.reason) == ("excluded", "no_train")


FACTS = st.builds(
    RuleFacts,
    consent=st.sampled_from(["train", "no_train", "unknown"]),
    over=st.booleans(),
    acted=st.booleans(),
    calls=st.lists(st.booleans(), max_size=3).map(tuple),
    edited_after_last_call=st.booleans(),
    stopped=st.booleans(),
    may_be_kept=st.booleans(),
)
STANDINGS = st.one_of(
    st.builds(Standing, st.just("scored"), st.floats(-5, 5)),
    # Only a scored reward has a value.
    st.builds(
        Standing,
        st.sampled_from(["pending", "censored", "invalid"]),
        value=st.none(),
        reason=st.text(),
    ),
)


@given(FACTS, STANDINGS)
def test_the_first_rule_that_holds_decides(facts: RuleFacts, standing: Standing) -> None:
    kind, reason, value = decide(facts, standing)
    assert kind in KINDS
    assert (value is not None) == (kind in ("scored", "negative_by_rule"))
    assert reason is not None or kind == "scored"
    holding = [rule for rule in RULES if rule.holds(facts)]
    if holding and facts.over:
        assert (kind, reason) == (holding[0].kind, holding[0].reason)
    if facts.consent == "no_train":
        assert kind == "excluded"
    if kind != "pending" and not facts.over:
        # Nothing that a later event could take back.
        assert reason == "no_train" or decide(replace(facts, over=True), standing)[0] == kind
