"""Preferences: of two answers to the same messages, the one that was wanted."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.shards.manifest import read_rows
from penstock.shards.validation import ShardValidator, verify_shard
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.recipe import Tokens, load_recipe
from penstock_jobs.shards.rows.rendered_branches import ChatTemplate, Renderer
from penstock_jobs.shards.rows.samples import SampleRows
from tests.support.export_rows import exported, in_table, stripped, talked
from tests.support.lakes import hand_lake, make_event
from tests.support.shards.talks import Talk, tokens
from tests.support.tokenizer_files import PLAIN, tokenizer_json

Row = dict[str, Any]
PairsOf = Callable[..., dict[str, list[Row]]]


def row_pairs(row: Row) -> list[Row]:
    found: list[Row] = json.loads(row["preferences"] or "[]")
    return found


def rows_of(talk: Talk, rows: SampleRows) -> list[Row]:
    rows.add_chain([talk.conversation()], {})
    ShardValidator().check(rows.table())
    return list(rows.table().to_pylist())


@cache
def renderer() -> Renderer:
    return Renderer(ChatTemplate(PLAIN, "here"), tokenizer_json(), "made")


def rendered_rows(talk: Talk) -> list[Row]:
    return rows_of(talk, SampleRows(Tokens("render"), renderer()))


def said(row: Row) -> list[str]:
    return [message["content"] for message in json.loads(row["messages"])]


def answers(pair: Row, side: str) -> list[str]:
    return [message["content"] for message in pair[side]]


# Answers that were asked for again


def asked_twice() -> Talk:
    """The engine was given the prompt of the second turn again."""
    talk = Talk().user("one").model("fine", tokens=tokens([1], [2])).user("two")
    talk.model("first try", call_id="a", tokens=tokens([1, 2, 3], [4, 5]))
    talk.model("second try", call_id="b", tokens=tokens([1, 2, 3], [6]))
    return talk.user("three").model("done", tokens=tokens([1, 2, 3, 6, 7], [8]))


def test_a_try_that_was_taken_back_is_not_in_the_prompt_of_its_replacement() -> None:
    tried, replaced = rows_of(asked_twice(), SampleRows(Tokens("engine")))
    assert said(tried) == ["one", "fine", "two", "first try"]
    assert said(replaced) == ["one", "fine", "two", "second try", "three", "done"]
    [pair] = row_pairs(tried)
    assert (pair["kind"], pair["prompt"]) == ("regenerated", 3)
    assert answers(pair, "chosen") == ["second try"]
    assert answers(pair, "rejected") == ["first try"]
    assert replaced["preferences"] is None


def test_text_that_was_refused_is_not_rendered_before_what_took_its_place() -> None:
    talk = Talk().user("go").model("bad", call_id="a")
    talk.add("feedback", {"kind": "reject", "target": "a"}).model("good", call_id="b")
    [row] = rendered_rows(talk)
    assert said(row) == ["go", "good"]
    assert row["mask_reason"] == "regenerated"
    [pair] = row_pairs(row)
    assert (pair["prompt"], answers(pair, "chosen")) == (1, ["good"])
    assert answers(pair, "rejected") == ["bad"]


def test_each_try_before_the_last_is_refused() -> None:
    talk = Talk().user("go").model("a", call_id="1").model("b", call_id="2", regenerates="1")
    talk.model("c", call_id="3", regenerates="1")
    [row] = rendered_rows(talk)
    assert said(row) == ["go", "c"]
    pairs = row_pairs(row)
    assert [answers(pair, "rejected") for pair in pairs] == [["a"], ["b"]]
    assert [answers(pair, "chosen") for pair in pairs] == [["c"], ["c"]]


def test_a_try_is_all_that_was_done_in_it() -> None:
    talk = Talk().user("go").model(calls=["c1"], call_id="1").result("c1", "no").model("sorry")
    talk.model(calls=["c2"], call_id="2", regenerates="1").result("c2", "yes").model("done")
    [row] = rendered_rows(talk)
    [pair] = row_pairs(row)
    assert [message["role"] for message in pair["rejected"]] == ["assistant", "tool", "assistant"]
    assert answers(pair, "rejected")[1:] == ["no", "sorry"]
    assert answers(pair, "chosen")[1:] == ["yes", "done"]


def test_answers_in_a_row_are_no_tries_unless_somebody_says_so() -> None:
    for talk in (
        Talk().user("go").model("a").model("b"),
        Talk().user("go").model("a").add("feedback", {"kind": "accept"}).model("b"),
        Talk().user("go").model("a").add("feedback", {"kind": "undo", "target": "e1"}).model("b"),
        Talk().user("go").model("a").add("feedback", {"kind": "reject"}).user("so").model("b"),
    ):
        [row] = rendered_rows(talk)
        assert {"a", "b"} <= set(said(row))
        assert row_pairs(row) == []
    # What was cut short is in no pair.
    cut = Talk().user("go").model("a", call_id="1", finish_reason="length")
    [row] = rendered_rows(cut.model("b", regenerates="1"))
    assert (said(row), row_pairs(row)) == (["go", "b"], [])


# Exports


PAIR: Row = {
    "kind": "regenerated",
    "prompt": 4,
    "chosen": [{"role": "assistant", "content": "better"}],
    "rejected": [{"role": "assistant", "content": "worse"}],
}


def test_dpo_has_the_pairs_of_rows_without_any_rival() -> None:
    rows = [talked("g", preferences=json.dumps([PAIR])), talked("h")]
    with exported(rows, "trl-dpo") as (out, told):
        [pair] = in_table(out, "train")
        messages = json.loads(rows[0]["messages"])
        assert stripped(pair["prompt"]) == messages[:4]
        assert stripped(pair["chosen"]) == PAIR["chosen"]
        assert stripped(pair["rejected"]) == PAIR["rejected"]
        assert pair["tools"] == rows[0]["tools"]
        assert (told.rows, told.left_out) == (1, {"no_pair": 1})
        assert told.counted == {"pairs": 1, "pairs_regenerated": 1, "groups_without_pair": 2}


def test_kto_labels_a_try_that_was_taken_back_false() -> None:
    """Where the try stands in the row itself, the row ends before it."""
    row = talked("g", reward=1.0)
    own = json.loads(row["messages"])[4:]
    inside = row | {"preferences": json.dumps([PAIR | {"rejected": own}])}
    beside = talked("h", reward=1.0, preferences=json.dumps([PAIR]))
    worthless = talked("i", reward=0.0, preferences=json.dumps([PAIR]))
    with exported([inside, beside, worthless], "trl-kto") as (out, told):
        found = in_table(out, "train")
        assert [one["label"] for one in found] == [False, True, False, True, False]
        assert stripped(found[0]["completion"]) == own
        assert [one["role"] for one in found[1]["completion"]] == ["assistant"]
        assert stripped(found[2]["completion"]) == PAIR["rejected"]
        assert len(found[3]["completion"]) == 3
        assert (told.rows, told.counted) == (3, {"asked_again": 3})


# What users made of edits


OLD = "a = 1\n"
NEW = "a = 1\nb = compute(2)\nc = b + 1\n"
LEFT = "a = 1\nb = compute(3, strict=True)\nc = b + 1\n"
RECIPE = """
name = "pairs"
query = "all.sql"
[tokens]
source = "engine"
[exclude]
consent = "not_denied"
[preferences]
edits = true
horizon_s = 300
"""


def edited(session: str, arguments: Any, *later: Any, text: str | None = None) -> list[Row]:
    """An edit by the call of a tool, and what was seen of the file later."""
    call = {"id": "t1", "name": "write", "arguments": arguments}
    answer: Row = {"call_id": "m1", "text": text, "tool_calls": [call]}
    answer["tokens"] = tokens([1, 2], [3, 4]) | {"tokenizer": "t" * 64}
    edit = {"path": "a.py", "before": OLD, "after": NEW, "edit_id": "e1", "call_id": "t1"}
    seen = [
        make_event(session, 310 + number, "file_observed", payload={"path": "a.py", "text": state})
        for number, state in enumerate(later)
    ]
    return [
        make_event(session, 1, payload={"text": "add b"}),
        make_event(session, 2, "model_call", payload=answer),
        make_event(session, 3, "edit", payload=edit),
        *seen,
    ]


@pytest.fixture
def pairs_of(tmp_path: Path) -> PairsOf:
    """By session the preferences in a shard that is built of these events."""

    def build(*sessions: list[Row], recipe: str = RECIPE) -> dict[str, list[Row]]:
        (tmp_path / "all.sql").write_text("select session_id from sessions")
        (tmp_path / "pairs.toml").write_text(recipe)
        with hand_lake(tmp_path / "data") as lake:
            for events in sessions:
                lake.send(events)
            lake.writer().drain()
            loaded = load_recipe(tmp_path / "pairs.toml")
            built = build_shard(lake.lake, InlineExecutor(), loaded, tenant="default")
            assert verify_shard(built.stored).problems == []
            tables = read_rows(built.stored)
            rows = [row for table in tables for row in table.to_pylist()]
        return {row["session_id"]: row_pairs(row) for row in rows}

    return build


def asked(pair: Row, side: str) -> str:
    """The arguments of the first call of a tool."""
    arguments: str = pair[side][0]["tool_calls"][0]["function"]["arguments"]
    return arguments


def test_what_the_user_left_is_chosen_over_what_the_agent_wrote(pairs_of: PairsOf) -> None:
    whole = json.dumps({"path": "a.py", "text": NEW})
    part = '{"new":  "b = compute(2)\\nc = b + 1", "old": ""}'
    found = pairs_of(
        edited("whole", whole, LEFT),
        edited("part", part, LEFT),
        edited("elsewhere", '{"path": "a.py"}', LEFT),
        edited("said", "{}", LEFT, text=f"I wrote\n{NEW}"),
    )
    [pair] = found["whole"]
    assert (pair["kind"], pair["prompt"]) == ("edited", 1)
    assert json.loads(asked(pair, "chosen")) == {"path": "a.py", "text": LEFT}
    assert asked(pair, "rejected") == whole
    [pair] = found["part"]
    assert asked(pair, "chosen") == part.replace("compute(2)", "compute(3, strict=True)")
    assert asked(pair, "rejected") == part
    assert [pair["files"] for own in found.values() for pair in own] == [[LEFT], [LEFT]]
    # Bare code behind a chat prompt is no answer of an agent: it has to stand in a call.
    assert (found["elsewhere"], found["said"]) == ([], [])


def test_what_is_no_correction_makes_no_pair(pairs_of: PairsOf) -> None:
    whole = json.dumps({"text": NEW})
    reformatted = NEW.replace("b + 1", "b  +  1")
    again = edited("again", whole, LEFT)
    rewritten = {"path": "a.py", "before": NEW, "after": LEFT, "edit_id": "e2"}
    again.insert(3, make_event("again", 4, "edit", payload=rewritten))
    found = pairs_of(
        edited("kept", whole, NEW),
        edited("undone", whole, OLD),
        edited("unseen", whole),
        edited("reformatted", whole, reformatted),
        edited("longer", whole, NEW + "def theirs():\n    return 7\n"),
        again,
    )
    assert not any(found.values())
    assert len(found) == 6


def test_what_the_user_left_may_be_seen_in_what_the_session_went_on_in(pairs_of: PairsOf) -> None:
    start = {"parent_session": "first", "link": "compaction"}
    seen = {"path": "a.py", "text": LEFT}
    child = [
        make_event("next", 20, "session_start", payload=start),
        make_event("next", 310, "file_observed", payload=seen),
    ]
    sessions = edited("first", json.dumps({"text": NEW})), child
    [pair] = pairs_of(*sessions)["first"]
    assert pair["kind"] == "edited"
    quiet = RECIPE.replace("edits = true", "edits = false")
    assert pairs_of(recipe=quiet)["first"] == []


# Answers of forks


def forked(session: str, answer: str, *, parent: str | None, more: str | None = None) -> list[Row]:
    """A question and its answer; a fork tells the question again."""
    start = {} if parent is None else {"parent_session": parent, "link": "fork"}
    completion = [ord(letter) for letter in answer]
    engine = tokens([1, 2], completion) | {"tokenizer": "t" * 64}
    # A fork of an editor tells an event again under the key that it had.
    told = {"source": "editor", "source_key": "question", "event_id": None}
    said_first = {"text": "what is it?"}
    events = [
        make_event(session, 1, "session_start", payload=start),
        make_event(session, 2, payload=said_first) | told,
        make_event(
            session, 3, "model_call", payload={"call_id": "m", "text": answer, "tokens": engine}
        ),
    ]
    return events + ([make_event(session, 4, payload={"text": more})] if more else [])


def test_an_answer_of_a_fork_is_chosen_over_the_one_that_it_left(pairs_of: PairsOf) -> None:
    found = pairs_of(forked("first", "no", parent=None), forked("second", "yes", parent="first"))
    assert found["first"] == []
    [pair] = found["second"]
    assert (pair["kind"], pair["prompt"]) == ("regenerated", 1)
    assert (answers(pair, "chosen"), answers(pair, "rejected")) == (["yes"], ["no"])
