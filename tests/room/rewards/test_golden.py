"""Every reward by cases small enough to check on paper; beside those of its own test file.

Lengths of edits are without white space, except those of the published forms. The texts:

    alpha=10 has 8 characters, bravo=20 has 8, charlie=30 has 10: 26 together.
"""

from math import log
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.definition import Standing, all_rewards, combine, parse_definition
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.measures.edits import edit_no_revert, edit_persistence
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, edited, said, tool
from tests.support.rewards.measures import value
from tests.support.rewards.stories import Story, bucket, found

ALPHA, BRAVO, CHARLIE = "alpha = 10\n", "bravo = 20\n", "charlie = 30\n"
WRITTEN = ALPHA + BRAVO + CHARLIE
HEAD, TAIL = "head()\n", "tail()\n"


def wrote(now: str, written: str = WRITTEN) -> Story:
    """An edit that puts lines between two others; what stands between them after 31 s."""
    return Story().edit(0, HEAD + TAIL, HEAD + written + TAIL).look(31, HEAD + now + TAIL)


def took(now: str, gone: str = WRITTEN) -> Story:
    return Story().edit(0, HEAD + gone + TAIL, HEAD + TAIL).look(31, HEAD + now + TAIL)


def replaced(before: str, after: str, now: str) -> Story:
    """A file that was looked at before it was edited, and 31 s after."""
    return Story().look(-1, before).edit(0, before, after).look(31, now)


# edit_persistence


def test_persistence_of_one_line_kept_one_gone_and_one_changed() -> None:
    # charlie=31: nine characters are left of ten, `charlie=3`. They have 6 grams, as written 7;
    # 6 are in both: 12 / 13. (8 + 9 · 12/13) / 26 = 212 / 338.
    told = wrote(ALPHA + "charlie = 31\n")
    assert value("edit_persistence", told) == pytest.approx(212 / 338)


def test_persistence_of_a_line_that_was_cut_short() -> None:
    # Of charlie=30 `charlie` is left: 4 grams, as written 7, 4 in both: 8 / 11.
    # (8 + 8 + 7 · 8/11) / 26 = 232 / 286.
    told = wrote(ALPHA + BRAVO + "charlie\n")
    assert value("edit_persistence", told) == pytest.approx(232 / 286)


def test_persistence_of_a_deletion_of_which_one_line_came_back() -> None:
    # 10 of 26 are there again.
    assert value("edit_persistence", took(CHARLIE)) == pytest.approx(1 - 10 / 26)


def test_persistence_of_a_deletion_of_which_a_line_came_back_otherwise() -> None:
    # charlie=31: nine characters of 26 came back, by 12 / 13 as they were.
    told = took("charlie = 31\n")
    assert value("edit_persistence", told) == pytest.approx(1 - 9 * (12 / 13) / 26)


def test_persistence_leaves_out_what_the_agent_replaced() -> None:
    # bravo is the agent's own doing, alpha the user's: 10 / (26 − 8).
    told = Story().edit(0, HEAD + TAIL, HEAD + WRITTEN + TAIL)
    told.edit(1, HEAD + WRITTEN + TAIL, HEAD + ALPHA + CHARLIE + TAIL).look(
        32, HEAD + CHARLIE + TAIL
    )
    assert value("edit_persistence", told) == pytest.approx(10 / 18)


# self_rework


def test_rework_of_a_deletion_that_the_agent_takes_back_in_part() -> None:
    # Of 26 characters the agent brings back 10; the other 16 are away.
    told = Story().edit(0, HEAD + WRITTEN + TAIL, HEAD + TAIL)
    told.edit(1, HEAD + TAIL, HEAD + CHARLIE + TAIL).look(32, HEAD + CHARLIE + TAIL)
    assert value("self_rework", told) == pytest.approx(10 / 26)
    assert value("edit_persistence", told) == 1


# line_survival


def test_survival_of_lines_kept_changed_gone_and_moved() -> None:
    # A fourth line of more than 20 characters goes to the end of the file. alpha and that one
    # are there, bravo is changed, charlie is gone: 2 / 4.
    moved = "delta = compute(everything_else)\n"
    told = Story().edit(0, HEAD + TAIL, HEAD + WRITTEN + moved + TAIL)
    told.look(31, HEAD + ALPHA + "bravo = 21\n" + TAIL + moved)
    assert value("line_survival", told) == pytest.approx(2 / 4)


def test_survival_does_not_count_blank_lines() -> None:
    # Two lines were written, and a blank one between them; one of the two is left.
    told = wrote(ALPHA, ALPHA + "\n" + BRAVO)
    assert value("line_survival", told) == pytest.approx(1 / 2)


def test_survival_of_a_line_of_which_the_edit_wrote_a_part() -> None:
    # total(rows) became total(rows, start): one line, and it is changed again; then not.
    before, after = "sum = total(rows)\nx = 1\n", "sum = total(rows, start)\nx = 1\n"
    assert value("line_survival", replaced(before, after, after.replace("sum", "all"))) == 0
    assert value("line_survival", replaced(before, after, after.replace("x = 1", "x = 2"))) == 1


# edit_no_revert

OLD, NEW = "mnopqrst\n", "uvwxyz12\n"


def test_no_revert_of_a_line_that_goes_half_back() -> None:
    # Both have 6 grams, line end included, and none in common: 0. Now mnopWXYZ: 6 grams, of
    # which mnop was there before: 2 / 12. 1 − (1/6 − 0) / (1 − 0).
    told = replaced(HEAD + OLD + TAIL, HEAD + NEW + TAIL, HEAD + "mnopWXYZ\n" + TAIL)
    assert value("edit_no_revert", told) == pytest.approx(5 / 6)


def test_no_revert_of_two_stretches_by_what_each_replaced() -> None:
    # 9 units go back, 12 do not: (9 · 0 + 12 · 1) / 21. What was only put in has no weight.
    longer, other = "0123456789a\n", "ABCDEFGHIJK\n"
    before = HEAD + OLD + "middle()\n" + longer + TAIL
    after = HEAD + NEW + "middle()\n" + other + TAIL + ALPHA
    now = HEAD + OLD + "middle()\n" + other + TAIL
    assert value("edit_no_revert", replaced(before, after, now)) == pytest.approx(12 / 21)


# four_gram_range


def test_range_of_a_line_of_which_one_character_changed() -> None:
    # `alpha = 10\n`: 8 grams; `alpha = 19\n` has all but `= 10` and ` 10\n`: 12 / 16.
    assert value("four_gram_range", wrote("alpha = 19\n", ALPHA)) == pytest.approx(12 / 16)


def test_range_of_two_stretches_by_their_lengths() -> None:
    # 11 units stay, 13 are gone: 11 / 24.
    before = HEAD + TAIL
    after = HEAD + ALPHA + TAIL + CHARLIE
    told = replaced(before, after, HEAD + ALPHA + TAIL)
    assert value("four_gram_range", told) == pytest.approx(11 / 24)


def test_range_of_text_at_the_edge() -> None:
    # `x = 1\n` before it joins the range: 11 units with 8 grams became 17 with 14, 8 in both:
    # 16 / 22.
    told = wrote("x = 1\n" + ALPHA, ALPHA)
    assert value("four_gram_range", told) == pytest.approx(16 / 22)


# four_gram_presence


def test_presence_of_a_deleted_line_that_the_file_has_in_part() -> None:
    # `alpha = 2\n` stands elsewhere: alph lpha `pha ` `ha =` `a = ` of 8 grams.
    file = "alpha = 2\n" + TAIL
    told = replaced(file, file + ALPHA, file)
    assert value("four_gram_presence", told) == pytest.approx(5 / 8)


def test_presence_of_two_pieces_by_their_grams() -> None:
    # `alpha = 10\n` is there and weighs 8; `Q\n` has no gram, is not there, and weighs 1.
    before, after = HEAD + TAIL, HEAD + ALPHA + TAIL + "Q\n"
    told = replaced(before, after, HEAD + ALPHA + TAIL)
    assert value("four_gram_presence", told) == pytest.approx(8 / 9)


def test_presence_where_nothing_was_written_is_the_likeness_of_the_files() -> None:
    # After the edit `keep it\n`: keep `eep ` `ep i` `p it` ` it\n`; now `keep in\n`, which has
    # the first three: 6 / 10.
    told = replaced("keep it\n" + ALPHA, "keep it\n", "keep in\n")
    assert value("four_gram_presence", told) == pytest.approx(6 / 10)


# Turns and sessions


def three_turns() -> Story:
    """Of 16, 9 and 4 characters in 4, 3 and 2 lines; the second is gone, the third half so."""
    story = Story().turn(-1).edit(0, None, "a1=1\nb2=2\nc3=3\nd4=4\n", "1.py")
    story.look(31, "a1=1\nb2=2\nc3=3\nd4=4\n", "1.py")
    story.turn(99).edit(100, None, "e=1\nf=2\ng=3\n", "2.py").look(131, "", "2.py")
    story.turn(199).edit(200, None, "hi\njk\n", "3.py").look(231, "hi\n", "3.py")
    return story


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        # Weights 4, 3 and 2: (4 · 1 + 3 · 0 + 2 · 0.5) / 9.
        (0.5, 5 / 9),
        # 16, 9 and 4: (16 + 0 + 2) / 29.
        (1.0, 18 / 29),
        # Each alike: (1 + 0 + 0.5) / 3.
        (0.0, 1.5 / 3),
    ],
)
def test_a_session_by_its_characters(exponent: float, expected: float) -> None:
    rows = edit_persistence(bucket(three_turns()), EditParameters(weight_exponent=exponent))
    row = found(rows, "s-1", 30, "session")
    assert row["value"] == pytest.approx(expected)
    assert row["weight"] == pytest.approx(16**exponent + 9**exponent + 4**exponent)


def test_two_edits_of_a_turn_and_one_of_another() -> None:
    # Turn 1: 16 characters stay, 9 do not: 4 / 7, and weighs 7. Turn 2: 4 that stay weigh 2.
    # The session: (7 · 4/7 + 2 · 1) / 9; not the mean of 4/7 and 1.
    story = Story().turn(-1).edit(0, None, "abcdefghijklmnop\n", "1.py")
    story.edit(1, None, "abcdefghi\n", "2.py")
    story.look(31, "abcdefghijklmnop\n", "1.py").look(32, "", "2.py")
    story.turn(99).edit(100, None, "wxyz\n", "3.py").look(131, "wxyz\n", "3.py")
    rows = edit_persistence(bucket(story), EditParameters())
    assert found(rows, "1", 30, "turn")["value"] == pytest.approx(4 / 7)
    assert found(rows, "s-1", 30, "session")["value"] == pytest.approx(6 / 9)


def test_edits_that_weigh_nothing() -> None:
    # Two insertions replaced nothing: each is 1 and weighs 0, and so their turn is 1 and weighs
    # 0. In the next turn 9 units are put back: 0, and weighs 3. The session: (0 · 1 + 3 · 0) / 3.
    story = Story().turn(-1).edit(0, None, ALPHA, "1.py").edit(1, None, BRAVO, "2.py")
    story.look(31, "", "1.py").look(32, "", "2.py")
    story.turn(98).look(99, HEAD + OLD + TAIL, "3.py")
    story.edit(100, HEAD + OLD + TAIL, HEAD + NEW + TAIL, "3.py")
    rows = edit_no_revert(bucket(story.look(131, HEAD + OLD + TAIL, "3.py")), EditParameters())
    first = found(rows, "1", 30, "turn")
    assert (first["value"], first["weight"]) == (1, 0)
    second = found(rows, "2", 30, "turn")
    assert (second["value"], second["weight"]) == (0, 3)
    assert found(rows, "s-1", 30, "session")["value"] == 0


# Rewards of turns

Says = dict[tuple[str, str], Any]


def says(directory: Path, reward: str, events: list[Event], **parameters: object) -> Says:
    """By (kind, target): the value, or why there is none."""
    one = all_rewards()[reward]
    rows = one.compute(bucket_of(directory, events), one.parameters(**parameters)).to_pylist()
    return {
        (row["target_kind"], row["target_id"]): row["reason"]
        if row["value"] is None
        else pytest.approx(row["value"], abs=1e-12)
        for row in rows
        if row["name"] == reward
    }


def event(number: int, type_: str, /, **payload: Any) -> Event:
    return make_event("s", number, type_, payload=payload)


def test_latency_ends_with_an_edit_after_the_last_word(tmp_path: Path) -> None:
    # 10 to 14.5; the second message came before there was an answer to the first; 21 to 29.
    late = edited(14, "a.py", "", "x = 1\n") | {"ts": "2026-11-21T00:00:14.500Z"}
    events = [said(10), answered(12, text="x"), late, said(20), said(21), answered(29, text="y")]
    assert says(tmp_path, "latency", events) == {
        ("turn", "1"): 4.5,
        ("turn", "2"): "no_answer",
        ("turn", "3"): 8.0,
        ("session", "s"): (4.5 + 8) / 2,
    }


def test_latency_of_what_came_before_the_first_message(tmp_path: Path) -> None:
    events = [answered(1, text="Hello."), said(5), answered(5, text="x") | {"event_id": "m"}]
    assert says(tmp_path, "latency", events) == {("turn", "1"): 0.0, ("session", "s"): 0.0}


def test_invalid_tool_calls_that_nobody_answered_or_that_failed_otherwise(tmp_path: Path) -> None:
    call = {"id": "open", "name": "read", "arguments": {}}
    away: dict[str, Any] = {"ok": False, "error_class": "unexpected_environment"}
    events = [said(1), answered(2, tool_calls=[call]), *tool(3, "read", **away), said(4)]
    assert says(tmp_path, "invalid_tool_calls", events) == {
        ("turn", "1"): 0.0,
        ("session", "s"): 0.0,
    }


def test_explicit_feedback_of_kinds_that_do_not_count(tmp_path: Path) -> None:
    events = [
        said(1), event(2, "feedback", kind="comment", comment="very good"),
        event(3, "feedback", kind="rating", value=1), said(4), event(5, "feedback", kind="accept"),
    ]  # fmt: skip
    assert says(tmp_path, "explicit_feedback", events) == {
        ("turn", "2"): 1.0,
        ("session", "s"): 1.0,
    }


def test_tests_passing_takes_the_last_of_a_turn_and_of_a_session(tmp_path: Path) -> None:
    events = [
        said(1), event(2, "test_result", passed=9, failed=1),
        event(3, "test_result", passed=2, failed=6, skipped=2),
        said(4), event(5, "test_result", passed=3, failed=1), said(6), answered(7, text="x"),
    ]  # fmt: skip
    # 2 of 8, then 3 of 4; the last turn tested nothing.
    assert says(tmp_path, "tests_passing", events) == {
        ("turn", "1"): 2 / 8,
        ("turn", "2"): 3 / 4,
        ("session", "s"): 3 / 4,
    }


@pytest.mark.parametrize(
    ("q", "first", "second"),
    [
        # x = 3 and x = 15, by k = 1. ln 4 and ln 16.
        (1.0, log(4), log(16)),
        # (4^½ − 1) / ½ = 2; (16^½ − 1) / ½ = 6.
        (0.5, 2.0, 6.0),
        # (4^−1 − 1) / −1 = 3/4; 15/16.
        (2.0, 3 / 4, 15 / 16),
        # Not bent: x.
        (0.0, 3.0, 15.0),
    ],
)
def test_length_penalty_of_two_turns(q: float, first: float, second: float, tmp_path: Path) -> None:
    # Turn 1: 2 tokens at the end, and a round. Turn 2: 4 of thinking, 2 of 6 − 4 at the end, a
    # call that completed 3, of which 1 thought, put out 8 characters, 2 tokens: with the weights
    # below 5 + 2 + 2 + 2 + 1 + 2 · 1 + 1 = 15.
    usage = {"completion": 3, "thinking": 1}
    events = [
        said(1), answered(2, text="x", usage={"completion": 2}),
        said(3), *tool(4, "read", output="12345678", call={"usage": usage}),
        answered(5, text="y", usage={"completion": 6, "thinking": 4}),
    ]  # fmt: skip
    weights = {"weight_output": 1.0, "weight_calls": 2.0, "weight_rounds": 1.0}
    assert says(tmp_path, "length_penalty", events, k=1.0, q=q, **weights) == {
        ("turn", "1"): -first,
        ("turn", "2"): -second,
        ("session", "s"): -(first + second) / 2,
    }


def test_open_todos_of_two_sessions(tmp_path: Path) -> None:
    items = [{"status": one} for one in ("done", "in_progress", "pending", "canceled", "Complete")]
    other = [{"step": "x", "status": "pending"}]
    events = [*tool(1, "todo_write", arguments={"items": items})]
    events += tool(2, "update_plan", session="other", arguments={"plan": other})
    # Two of five, one of one.
    assert says(tmp_path, "open_todos", events) == {
        ("session", "s"): -2 / 5,
        ("session", "other"): -1.0,
    }


def test_open_todos_of_an_empty_list_and_of_one_that_was_emptied(tmp_path: Path) -> None:
    events = [*tool(1, "TodoWrite", arguments={"todos": [{"status": "pending"}]})]
    events += tool(2, "TodoWrite", arguments={"todos": []})
    assert says(tmp_path, "open_todos", events) == {}


COMMENT, CODE = "# twenty characters.\n", "twenty = characters1\n"  # 20 without the line end


def test_reasoning_in_comments_of_what_is_new(tmp_path: Path) -> None:
    # 20 comments were there; 9 more and 1 of code are new: 180 / 200 = 0.9; 0.5 / 0.6. An edit of
    # 180 characters is too short to be judged.
    comment = COMMENT.replace("#", "//").replace("characters", "character")
    events = [
        edited(1, "a.js", 20 * comment, 29 * comment + CODE),
        edited(2, "b.js", "", 9 * comment),
    ]
    assert says(tmp_path, "reasoning_in_comments", events) == {
        ("edit", "e1"): -0.5 / 0.6,
        ("session", "s"): -0.5 / 0.6,
    }


def test_only_terminal_from_the_fourth_call(tmp_path: Path) -> None:
    three = [one for n in (2, 3, 4) for one in tool(n, "shell")]
    four = [one for n in (12, 13, 14, 15) for one in tool(n, "exec_command")]
    events = [said(1), *three, said(11), *four]
    assert says(tmp_path, "only_terminal", events) == {
        ("turn", "2"): -1.0,
        ("session", "s"): -1.0,
    }


def test_only_terminal_of_two_turns(tmp_path: Path) -> None:
    one = [call for n in (2, 3) for call in tool(n, "bash")]
    two = [*tool(12, "bash"), *tool(13, "grep")]
    found = says(tmp_path, "only_terminal", [said(1), *one, said(11), *two], calls_min=2)
    assert found == {("turn", "1"): -1.0, ("turn", "2"): 0.0, ("session", "s"): -1 / 2}


def test_asked_instead_of_three_turns(tmp_path: Path) -> None:
    events = [
        said(1), answered(2, text="Which one?"), answered(3, text=""),
        said(4), answered(5, text="This one? I took it."),
        said(6), answered(7, text="Both?"), said(8),
    ]  # fmt: skip
    # The last turn has no answer and is left out: (1 + 0 + 1) / 3.
    assert says(tmp_path, "asked_instead", events) == {
        ("turn", "1"): 1.0,
        ("turn", "2"): 0.0,
        ("turn", "3"): 1.0,
        ("turn", "4"): "no_answer",
        ("session", "s"): 2 / 3,
    }


def test_asked_instead_with_an_edit_and_with_a_tool_alone(tmp_path: Path) -> None:
    events = [
        said(1), edited(2, "a.py", "", "x = 1\n"),
        said(3), *tool(4, "read"), said(5), answered(6, text="Why not?\n```\nx\n```"),
    ]  # fmt: skip
    assert says(tmp_path, "asked_instead", events) == {
        ("turn", "1"): 0.0,
        ("turn", "2"): "no_answer",
        ("turn", "3"): 1.0,
        ("session", "s"): 1 / 2,
    }


def doubt(text: str, previous: str = "fix it") -> float:
    """What the judge sees in it."""
    [judged] = LocalJudge().judge([Message(text=text, agent="Done.", previous=previous)])
    return judged.dissatisfied


def test_dissatisfied_is_the_worst_of_two_messages(tmp_path: Path) -> None:
    thanks, reproach = "thanks, perfect", "no, that is wrong, revert it"
    events = [
        said(1, "fix it"), answered(2, text="Done."), said(3, thanks), said(4, reproach),
        answered(5, text="Done."), said(6, thanks),
    ]  # fmt: skip
    # Both messages are about turn 1, the agent said nothing between them; turn 3 is the third's.
    first = max(doubt(thanks), doubt(reproach, thanks))
    third = doubt(thanks, reproach)
    assert says(tmp_path, "dissatisfied_follow_up", events) == {
        ("turn", "1"): -first,
        ("turn", "3"): -third,
        ("session", "s"): -(first + third) / 2,
    }


def test_dissatisfied_of_who_stops_and_of_who_is_silent(tmp_path: Path) -> None:
    thanks = "thanks, perfect"
    told = [said(1, "fix it"), answered(2, text="Done."), said(3, thanks), answered(4, text="x")]
    first = -doubt(thanks)
    stop = event(5, "interrupt")
    assert says(tmp_path / "stopped", "dissatisfied_follow_up", [*told, stop]) == {
        ("turn", "1"): first,
        ("turn", "2"): -1.0,
        ("session", "s"): (first - 1) / 2,
    }
    assert says(tmp_path / "silent", "dissatisfied_follow_up", told) == {
        ("turn", "1"): first,
        ("turn", "2"): "silence",
        ("session", "s"): first,
    }


# The session's reward

FOUR = """
name = "four"
{more}
[[reward]]
name = "edit_persistence"
weight = 4
horizon_s = 600
[[reward]]
name = "dissatisfied_follow_up"
weight = 2
[[reward]]
name = "latency"
weight = -0.5
clip = [0, 2]
[[reward]]
name = "asked_instead"
"""


def four(more: str = "", **values: float) -> Standing:
    found = {name: Standing("scored", value) for name, value in values.items()}
    for name in ("edit_persistence", "dissatisfied_follow_up", "latency"):
        found.setdefault(name, Standing("censored", reason="nobody"))
    return combine(parse_definition(FOUR.format(more=more), "four.toml"), found)


def test_a_mean_by_absolute_weights() -> None:
    # (4 · 0.75 + 2 · −0.5 − 0.5 · 2) / 6.5: nine seconds count as two; what has no weight, nothing.
    got = four(edit_persistence=0.75, dissatisfied_follow_up=-0.5, latency=9, asked_instead=1)
    assert got.value == pytest.approx(1 / 6.5)


def test_a_mean_over_what_is_known() -> None:
    # (2 · −0.5 − 0.5 · 1) / 2.5.
    got = four(dissatisfied_follow_up=-0.5, latency=1)
    assert got.value == pytest.approx(-0.6)
    assert got.reason == "without edit_persistence"


def test_a_sum_and_its_bounds() -> None:
    # 4 · 0.75 + 2 · −0.5 − 0.5 · 2 = 1; 4 · 1 + 2 · 0 − 0.5 · 0 = 4, and no more than 3.
    total = 'combine = "sum"\nclip = [-1, 3]'
    got = four(total, edit_persistence=0.75, dissatisfied_follow_up=-0.5, latency=9)
    assert got.value == pytest.approx(1)
    got = four(total, edit_persistence=1, dissatisfied_follow_up=0, latency=0)
    assert got.value == 3
