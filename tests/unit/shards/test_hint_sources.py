"""Sources of hints: what they say, and which call they are about."""

import json
from typing import Any

import pytest

from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.shards.hints.finder import holds_answer
from penstock_jobs.shards.hints.hint import (
    CallFacts,
    CallPlace,
    Hint,
    Report,
    ToldChain,
    faulty_call,
    names_in,
)
from penstock_jobs.shards.hints.sources import SOURCES, correcting_words, shortened
from penstock_jobs.shards.rows.hint_rows import cut_at_clause
from penstock_jobs.shards.rows.token_credit import EditMark
from tests.support.shards.talks import Talk, asks


def call(at: int, arguments: str = "", *, acted: bool = False, edited: bool = False) -> CallFacts:
    return CallFacts(at, 1, arguments, acted or edited, edited)


LOOK = call(1, '{"path": "src/a.py"}')
EDIT_A = call(2, '{"path": "src/a.py"}', edited=True)
EDIT_B = call(3, '{"path": "src/b.py"}', edited=True)
RUN = call(4, '{"command": "make"}', acted=True)
SAYS = call(5)


@pytest.mark.parametrize(
    ("text", "calls", "last", "expected"),
    [
        ("no, src/a.py was right", [LOOK, EDIT_A, EDIT_B, RUN, SAYS], 0, EDIT_A),
        ("no, that is wrong", [LOOK, EDIT_A, EDIT_B, RUN, SAYS], 0, EDIT_B),
        ("no, that is wrong", [LOOK, RUN, SAYS], 0, RUN),
        ("no, that is wrong", [LOOK, SAYS], 0, SAYS),
        ("no, that is wrong", [EDIT_A, RUN, SAYS], 2, EDIT_A),
        ("src/c.py breaks", [EDIT_A, SAYS], 0, EDIT_A),
    ],
)
def test_the_faulty_call_is_what_is_named_else_the_last_edit_act_or_call(
    text: str, calls: list[CallFacts], last: int, expected: CallFacts
) -> None:
    assert calls[faulty_call(calls, last, text)] == expected


def test_a_tool_that_only_looks_does_not_act() -> None:
    looks = ("read_file", "ReadFile", "webSearch", "ls", "file_search", "mcp__fs__list")
    acts = ("edit_file", "tools", "Bash", "concatenate", "apply_patch")
    for name in (*looks, *acts):
        [own] = Talk().user("go").model("a", calls=[asks("t", name)]).conversation().calls
        assert CallFacts.of(own, edited=False).acted == (name in acts)


def test_names_in_code_are_told_from_words() -> None:
    text = "No! `total sum` in src/app.py and parse_row, not fetchAll v2; see line 3 (etc.)."
    assert names_in(text) == {"total sum", "src/app.py", "parse_row", "fetchAll"}


def test_of_a_follow_up_only_what_corrects_is_said() -> None:
    text = "No, that is the wrong endpoint. Thanks for the quick work!\n```\nlong = paste\n```"
    said = Message(text=text, agent="It calls the endpoint now.", edited=True)
    assert correcting_words(said) == "No, that is the wrong endpoint."
    assert correcting_words(Message(text="wrong `Endpoint`")) == "wrong `Endpoint`"


def test_an_output_is_shortened_to_the_lines_that_say_what_failed() -> None:
    lines = [*(f"collected {n}" for n in range(50)), "E   AssertionError: 3 != 4", "bye", ""]
    assert shortened("\n".join(lines)) == "E   AssertionError: 3 != 4"
    assert shortened("\n".join(map(str, range(50)))).split("\n") == [*map(str, range(38, 50))]


def test_a_long_text_is_cut_at_the_end_of_a_clause() -> None:
    text = "Use the other one, please. It has the orders. And a third."
    assert cut_at_clause(text, lambda text: len(text) < 99) == text
    assert cut_at_clause(text, lambda text: len(text) < 50) == text[:45]
    assert cut_at_clause(text, lambda text: len(text) < 20) is None
    assert cut_at_clause(text, lambda text: len(text) < 5) is None


def test_a_later_answer_is_found_in_a_hint_unless_it_was_known_before() -> None:
    line, known = "return fetch(orders, limit=10)", "raise ValueError('limit')"
    talk = Talk().user(f"why {known}?").model("so", calls=[asks("t1", "edit", "{}")])
    talk.model("better", calls=[asks("t2", "edit", {"new": f"{line}\n{known}"})])
    chain = ToldChain({"s-1": talk.conversation()})

    def answer_free(text: str) -> bool:
        hint = Hint(text, "label", CallPlace("s-1", 0), "s-1", None)
        return holds_answer(hint, chain).answer_free

    assert answer_free("use a limit")
    assert answer_free(f"it fails: {known}")
    assert not answer_free(f"write {line} instead")


def told(*reports: tuple[str, dict[str, Any]]) -> ToldChain:
    """A look, an edit, and an answer, with reports on them."""
    talk = Talk().user("go").model("a", calls=[asks("t1")])
    talk.model("b", calls=[asks("t2", "edit", {"path": "src/a.py"})], call_id="b").model("done")
    events = [
        Report("s-1", talk.events[-1].ts_us + n, 10 + n, f"r{n}", kind, payload)
        for n, (kind, payload) in enumerate(reports)
    ]
    mark = EditMark("t2#1", "t2", talk.events[2].ts_us, 3)
    return ToldChain({"s-1": talk.conversation()}, reports=events, edits={"s-1": [mark]})


def found(source: str, chain: ToldChain) -> list[tuple[str, int, str | None]]:
    return [(hint.text, hint.call.number, hint.event_id) for hint in SOURCES[source].find(chain)]


def test_a_tools_error_is_about_its_call_unless_nobody_could_have_known() -> None:
    refused = {"call_id": "t1", "ok": False, "tool": "read", "output": "no such file"}
    others = [refused | {"error_class": name} for name in ("timeout", "user_aborted")]
    results = [("tool_result", each) for each in (refused, *others, refused | {"ok": True})]
    text = "The call of read in this answer fails: no such file"
    assert found("tool_error", told(*results)) == [(text, 0, "r0")]


def test_a_failing_test_is_about_an_edit_before_it() -> None:
    failing = {"ok": False, "failed": 2, "output": "FAILED test_a.py::test_one"}
    [hint] = found("test_failure", told(("test_result", failing), ("test_result", {"ok": True})))
    text = "After the edit in this answer tests fail: FAILED test_a.py::test_one"
    assert hint == (text, 1, "r0")
    early = told(("test_result", failing))
    begun = early.reports[0]._replace(ts_us=early.calls[0][1].ts_us + 1)
    assert found("test_failure", ToldChain(early.conversations, reports=[begun])) == []


@pytest.mark.parametrize(
    ("feedback", "call_number"),
    [
        ({"kind": "thumbs", "value": "down", "comment": "too slow", "target": "b"}, 1),
        ({"kind": "reject", "comment": "too slow", "target": "t2#1"}, 1),
        ({"kind": "undo", "comment": "too slow"}, 1),
        ({"kind": "comment", "comment": "this is wrong, it still fails", "target": "t1"}, 0),
        ({"kind": "thumbs", "value": "up", "comment": "too slow"}, None),
        ({"kind": "comment", "comment": "perfect, thank you"}, None),
        ({"kind": "thumbs", "value": "down"}, None),
    ],
)
def test_a_label_with_a_comment_is_about_its_target(
    feedback: dict[str, Any], call_number: int | None
) -> None:
    hints = found("label", told(("feedback", feedback)))
    assert [number for _, number, _ in hints] == ([] if call_number is None else [call_number])
    assert all(json.dumps(feedback["comment"])[1:-1] in text for text, *_ in hints)
