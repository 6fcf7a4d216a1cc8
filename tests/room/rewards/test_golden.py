"""Every reward by cases small enough to check on paper; beside those of its own test file.

Lengths of edits are without white space, except those of the published forms. The texts:

    alpha=10 has 8 characters, bravo=20 has 8, charlie=30 has 10: 26 together.
"""

from math import log
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.definition import all_rewards, combine, parse_definition
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.measures.edits import edit_no_revert, edit_persistence
from penstock_jobs.rewards.rows import Standing
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


OLD, NEW = "mnopqrst\n", "uvwxyz12\n"
MOVED = "delta = compute(everything_else)\n"
SUM, SUM_FROM = "sum = total(rows)\nx = 1\n", "sum = total(rows, start)\nx = 1\n"
LONGER, OTHER, MIDDLE = "0123456789a\n", "ABCDEFGHIJK\n", "middle()\n"
IN_PART = "alpha = 2\n" + TAIL

EDITS: dict[str, tuple[str, Story, float]] = {
    # charlie=31: nine characters are left of ten, `charlie=3`. They have 6 grams, as written 7;
    # 6 are in both: 12 / 13. (8 + 9 · 12/13) / 26 = 212 / 338.
    "one line kept, one gone, one changed": (
        "edit_persistence", wrote(ALPHA + "charlie = 31\n"), 212 / 338
    ),
    # Of charlie=30 `charlie` is left: 4 grams, as written 7, 4 in both: 8 / 11.
    # (8 + 8 + 7 · 8/11) / 26 = 232 / 286.
    "a line cut short": ("edit_persistence", wrote(ALPHA + BRAVO + "charlie\n"), 232 / 286),
    # 10 of 26 are there again.
    "a deletion of which a line came back": ("edit_persistence", took(CHARLIE), 1 - 10 / 26),
    # charlie=31: nine characters of 26 came back, by 12 / 13 as they were.
    "a deletion of which a line came back otherwise": (
        "edit_persistence", took("charlie = 31\n"), 1 - 9 * (12 / 13) / 26
    ),
    # bravo is the agent's own doing, alpha the user's: 10 / (26 − 8).
    "what the agent replaced is left out": (
        "edit_persistence",
        Story().edit(0, HEAD + TAIL, HEAD + WRITTEN + TAIL)
        .edit(1, HEAD + WRITTEN + TAIL, HEAD + ALPHA + CHARLIE + TAIL)
        .look(32, HEAD + CHARLIE + TAIL),
        10 / 18,
    ),
    # A fourth line of more than 20 characters goes to the end of the file. alpha and that one
    # are there, bravo is changed, charlie is gone: 2 / 4.
    "lines kept, changed, gone and moved": (
        "line_survival",
        Story().edit(0, HEAD + TAIL, HEAD + WRITTEN + MOVED + TAIL)
        .look(31, HEAD + ALPHA + "bravo = 21\n" + TAIL + MOVED),
        2 / 4,
    ),
    # Two lines were written, and a blank one between them; one of the two is left.
    "blank lines do not count": ("line_survival", wrote(ALPHA, ALPHA + "\n" + BRAVO), 1 / 2),
    # total(rows) became total(rows, start): one line, and it is changed again; then not.
    "a line written in part and changed": (
        "line_survival", replaced(SUM, SUM_FROM, SUM_FROM.replace("sum", "all")), 0
    ),
    "a line written in part": (
        "line_survival", replaced(SUM, SUM_FROM, SUM_FROM.replace("x = 1", "x = 2")), 1
    ),
    # Both have 6 grams, line end included, and none in common: 0. Now mnopWXYZ: 6 grams, of
    # which mnop was there before: 2 / 12. 1 − (1/6 − 0) / (1 − 0).
    "a line that goes half back": (
        "edit_no_revert",
        replaced(HEAD + OLD + TAIL, HEAD + NEW + TAIL, HEAD + "mnopWXYZ\n" + TAIL),
        5 / 6,
    ),
    # 9 units go back, 12 do not: (9 · 0 + 12 · 1) / 21. What was only put in has no weight.
    "two stretches by what each replaced": (
        "edit_no_revert",
        replaced(
            HEAD + OLD + MIDDLE + LONGER + TAIL,
            HEAD + NEW + MIDDLE + OTHER + TAIL + ALPHA,
            HEAD + OLD + MIDDLE + OTHER + TAIL,
        ),
        12 / 21,
    ),
    # `alpha = 10\n`: 8 grams; `alpha = 19\n` has all but `= 10` and ` 10\n`: 12 / 16.
    "a range of which one character changed": (
        "four_gram_range", wrote("alpha = 19\n", ALPHA), 12 / 16
    ),
    # 11 units stay, 13 are gone: 11 / 24.
    "two ranges by their lengths": (
        "four_gram_range",
        replaced(HEAD + TAIL, HEAD + ALPHA + TAIL + CHARLIE, HEAD + ALPHA + TAIL),
        11 / 24,
    ),
    # `x = 1\n` before it joins the range: 11 units with 8 grams became 17 with 14, 8 in both:
    # 16 / 22.
    "text at the edge of a range": ("four_gram_range", wrote("x = 1\n" + ALPHA, ALPHA), 16 / 22),
    # `alpha = 2\n` stands elsewhere: alph lpha `pha ` `ha =` `a = ` of 8 grams.
    "a deleted line that the file has in part": (
        "four_gram_presence", replaced(IN_PART, IN_PART + ALPHA, IN_PART), 5 / 8
    ),
    # `alpha = 10\n` is there and weighs 8; `Q\n` has no gram, is not there, and weighs 1.
    "two pieces by their grams": (
        "four_gram_presence",
        replaced(HEAD + TAIL, HEAD + ALPHA + TAIL + "Q\n", HEAD + ALPHA + TAIL),
        8 / 9,
    ),
    # After the edit `keep it\n`: keep `eep ` `ep i` `p it` ` it\n`; now `keep in\n`, which has
    # the first three: 6 / 10.
    "nothing written: how alike the files are": (
        "four_gram_presence", replaced("keep it\n" + ALPHA, "keep it\n", "keep in\n"), 6 / 10
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit(name: str) -> None:
    reward, told, expected = EDITS[name]
    assert value(reward, told) == pytest.approx(expected)


def test_rework_of_a_deletion_that_the_agent_takes_back_in_part() -> None:
    # Of 26 characters the agent brings back 10; the other 16 are away.
    told = Story().edit(0, HEAD + WRITTEN + TAIL, HEAD + TAIL)
    told.edit(1, HEAD + TAIL, HEAD + CHARLIE + TAIL).look(32, HEAD + CHARLIE + TAIL)
    assert value("self_rework", told) == pytest.approx(10 / 26)
    assert value("edit_persistence", told) == 1


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
    files = [found(rows, path, 30, "file")["value"] for path in ("1.py", "2.py", "3.py")]
    assert files == [1, 0, 1]


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


def says(
    directory: Path, reward: str, events: list[Event], name: str = "", **parameters: object
) -> dict[str, Any]:
    """By target: the value, or why there is none."""
    one = all_rewards()[reward]
    rows = one.compute(bucket_of(directory, events), one.parameters(**parameters)).to_pylist()
    return {
        row["target_id"]: row["reason"]
        if row["value"] is None
        else pytest.approx(row["value"], abs=1e-12)
        for row in rows
        if row["name"] == (name or reward)
    }


def event(number: int, type_: str, /, **payload: Any) -> Event:
    return make_event("s", number, type_, payload=payload)


def todos(*statuses: str) -> dict[str, object]:
    return {"todos": [{"status": status} for status in statuses]}


AWAY: dict[str, Any] = {"ok": False, "error_class": "unexpected_environment"}
BROKEN: dict[str, Any] = {"ok": False, "error_class": "invalid_arguments"}
COMMENT, CODE = "// twenty character.\n", "twenty = characters1\n"  # 20 without the line end

NEXT = "Great, thanks. Next, let the exporter write CSV files."

TURNS: dict[str, tuple[str, list[Event], dict[str, Any]]] = {
    # 10 to 14.5; the second message came before there was an answer to the first; 21 to 29.
    "latency ends with an edit after the last word": (
        "latency",
        [
            said(10), answered(12, text="x"),
            edited(14, "a.py", "", "x = 1\n") | {"ts": "2026-11-21T00:00:14.500Z"},
            said(20), said(21), answered(29, text="y"),
        ],
        {"1": 4.5, "2": "no_answer", "3": 8.0, "s": (4.5 + 8) / 2},
    ),
    "latency of what came before the first message": (
        "latency",
        [answered(1, text="Hello."), said(5), answered(5, text="x") | {"event_id": "m"}],
        {"1": 0.0, "s": 0.0},
    ),
    "calls that nobody answered or that failed otherwise": (
        "invalid_tool_calls",
        [
            said(1), answered(2, tool_calls=[{"id": "open", "name": "read", "arguments": {}}]),
            *tool(3, "read", **AWAY), said(4),
        ],
        {"1": 0.0, "s": 0.0},
    ),
    "feedback of kinds that do not count": (
        "explicit_feedback",
        [
            said(1), event(2, "feedback", kind="comment", comment="very good"),
            event(3, "feedback", kind="rating", value=1), said(4),
            event(5, "feedback", kind="accept"),
        ],
        {"1": 1.0, "s": 1.0},
    ),
    # 3 of 4 in the first; the second tested nothing; 2 of 8 in the third. Each has ten words or
    # less.
    "the last test result of each request": (
        "tests_passing",
        [
            said(1, "Fix the parser of dates."), event(2, "test_result", passed=2, failed=6),
            said(3, "go on"), answered(4, text="x"),
            event(5, "test_result", passed=3, failed=1, skipped=2),
            said(6, NEXT), answered(7, text="Done."), said(8, NEXT),
            answered(9, text="Done."), event(10, "test_result", passed=2, failed=6),
        ],
        {"1": 3 / 4, "2": 2 / 8, "s": 1 / 2},
    ),
    # Two of five, as the list last stood; the last one was refused. One of one.
    "to-dos of two sessions": (
        "open_todos",
        [
            *tool(1, "todo_write", arguments=todos("pending")),
            *tool(2, "todo_write", arguments=todos(
                "done", "in_progress", "pending", "canceled", "Complete")),
            *tool(3, "todo_write", arguments=todos("done"), **BROKEN),
            *tool(4, "update_plan", session="other", arguments={"plan": todos("x")["todos"]}),
        ],
        {"s": -2 / 5, "other": -1.0},
    ),
    "a list of to-dos that was emptied": (
        "open_todos",
        [*tool(1, "TodoWrite", arguments=todos("pending")),
         *tool(2, "TodoWrite", arguments=todos())],
        {},
    ),
    # 20 comments were there; 9 more and 1 of code are new: 180 / 200 = 0.9; 0.5 / 0.6. An edit of
    # 180 characters is too short to be judged, and prose has no comments.
    "comments that are new": (
        "reasoning_in_comments",
        [edited(1, "a.js", 20 * COMMENT, 29 * COMMENT + CODE), edited(2, "b.js", "", 9 * COMMENT),
         edited(3, "README.md", "", 30 * COMMENT)],
        {"e1": -0.5 / 0.6, "s": -0.5 / 0.6},
    ),
    "only a terminal, from the fourth call": (
        "only_terminal",
        [said(1), *(one for n in (2, 3, 4) for one in tool(n, "shell")),
         said(11), *(one for n in (12, 13, 14, 15) for one in tool(n, "exec_command"))],
        {"2": -1.0, "s": -1.0},
    ),
    "a terminal and another tool": (
        "only_terminal",
        [said(1), *(one for n in (2, 3, 4, 5) for one in tool(n, "bash")),
         said(11), *(one for n in (12, 13, 14) for one in tool(n, "bash")), *tool(15, "grep")],
        {"1": -1.0, "2": 0.0, "s": -1 / 2},
    ),
    # The last turn has no answer and is left out: (1 + 0 + 1) / 3.
    "asked instead": (
        "asked_instead",
        [
            said(1), answered(2, text="Which one?"), answered(3, text=""),
            said(4), answered(5, text="This one? I took it."),
            said(6), answered(7, text="Both?"), said(8),
        ],
        {"1": 1.0, "2": 0.0, "3": 1.0, "4": "no_answer", "s": 2 / 3},
    ),
    "asked with an edit, and with a tool alone": (
        "asked_instead",
        [
            said(1), edited(2, "a.py", "", "x = 1\n"),
            said(3), *tool(4, "read"), said(5), answered(6, text="Why not?\n```\nx\n```"),
        ],
        {"1": 0.0, "2": "no_answer", "3": 1.0, "s": 1 / 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TURNS)
def test_a_turn(name: str, tmp_path: Path) -> None:
    reward, events, expected = TURNS[name]
    assert says(tmp_path, reward, events) == expected


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
    weights: dict[str, Any] = {"weight_output": 1.0, "weight_calls": 2.0, "weight_rounds": 1.0}
    assert says(tmp_path, "length_penalty", events, k=1.0, q=q, **weights) == {
        "1": -first,
        "2": -second,
        "s": -(first + second) / 2,
    }
    lengths = {"thinking": 5, "calling": 2, "output": 2, "final": 2, "calls": 1, "rounds": 2}
    for name, length in lengths.items():
        found = says(tmp_path / name, "length_penalty", events, f"length_{name}")
        assert found["2"] == length, name


def doubt(text: str, previous: str = "fix it", agent: str = "Done.") -> float:
    """What the judge sees in it."""
    [judged] = LocalJudge().judge([Message(text=text, agent=agent, previous=previous)])
    return judged.dissatisfied


def test_dissatisfied_is_the_worst_of_two_messages(tmp_path: Path) -> None:
    thanks, reproach = "thanks, perfect", "no, that is wrong, revert it"
    events = [
        said(1, "fix it"), answered(2, text="Done."), said(3, thanks), said(4, reproach),
        answered(5, text="Done."), said(6, thanks),
    ]  # fmt: skip
    # Nobody wants anything new: all of it is one request.
    worst = max(doubt(thanks), doubt(reproach, thanks, agent=""), doubt(thanks, reproach))
    assert worst > 0.8
    assert says(tmp_path, "dissatisfied_follow_up", events) == {"1": -worst, "s": -worst}


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
