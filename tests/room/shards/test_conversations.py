"""A session's events as messages: every message where it belongs, and where it came from."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock_jobs.shards.conversation.conversation import openai_message, order_chain
from penstock_jobs.shards.conversation.reader import read_conversation
from penstock_jobs.shards.conversation.session_events import events_by_session
from tests.support.lakes import hand_lake, make_event
from tests.support.shards.talks import START_US, Talk, asks, told


def test_messages_know_the_events_that_they_came_from() -> None:
    talk = Talk().start(system="Be brief.", task_id="t", group_id="g")
    talk.user("read it").model("I read.", calls=["c1"], call_id="m1", thinking="hm", model="m")
    talk.result("c1", {"lines": 2}).model("Two lines.").add("session_end", {"reason": "completed"})
    found = talk.conversation()
    assert told(found) == [
        [
            ("system", "Be brief."),
            ("user", "read it"),
            ("assistant", "I read."),
            ("tool", '{"lines": 2}'),
            ("assistant", "Two lines."),
        ]
    ]
    assert [(one.seq, one.event_id, one.turn) for one in found.messages] == [
        (1, "e1", 0), (2, "e2", 1), (3, "e3", 1), (4, "e4", 1), (5, "e5", 1),
    ]  # fmt: skip
    assert (found.start.task_id, found.start.group_id, found.end_reason) == ("t", "g", "completed")
    first, second = found.calls
    assert (first.payload.call_id, first.payload.model) == ("m1", "m")
    assert (first.after, first.after_seq) == ("user", 2)
    assert (second.payload.call_id, second.after, second.after_seq) == (None, "tool", 4)


def test_openai_s_form_keeps_arguments_as_they_were_sent() -> None:
    raw = '{"b":  1, "a": 1.0}'
    broken = '{"b": '
    talk = Talk().user("go").model(
        calls=[
            asks("c1", arguments=raw), asks("c2", arguments=broken),
            asks("c3", arguments={"z": 1, "a": [2]}), {"id": "c4", "name": "stop"},
        ],
        thinking="hm",
    )  # fmt: skip
    message = talk.conversation().messages[1]
    assert [one.arguments for one in message.tool_calls] == [
        raw,
        broken,
        '{"z": 1, "a": [2]}',
        "{}",
    ]
    form = msgspec.to_builtins(openai_message(message))
    assert list(form) == ["role", "content", "reasoning_content", "tool_calls"]
    assert form["tool_calls"][0] == {
        "id": "c1", "type": "function", "function": {"name": "read", "arguments": raw},
    }  # fmt: skip
    untrained = openai_message(message, trained=False)
    assert msgspec.to_builtins(untrained) == form | {"weight": 0}


def calling(*calls: Any) -> Talk:
    return Talk().user("go").model(calls=calls)


#: What was told, and what stands behind the call: contents, the calls that they answer, and flags.
RESULTS: dict[str, tuple[Talk, list[tuple[str, str | None, str]]]] = {
    "in the order of the calls": (
        calling("c1", "c2").result("c2", "two").result("c1", "one").model("done"),
        [("one", "c1", ""), ("two", "c2", ""), ("done", None, "")],
    ),
    "late": (
        calling("c1").model("meanwhile").result("c1", "one").user("ok"),
        [("one", "c1", "late"), ("meanwhile", None, ""), ("ok", None, "")],
    ),
    "an empty one where something follows": (
        calling("c1", "c2").result("c2", "two").user("and?"),
        [("", "c1", "synthetic"), ("two", "c2", ""), ("and?", None, "")],
    ),
    "none at the end": (calling("c1", "c2").result("c2", "two"), [("two", "c2", "")]),
    "of no known call": (
        Talk().user("go").model("<run>").result(None, "a.py").result("c9", "b.py").model("done"),
        [("a.py", None, "orphan"), ("b.py", "c9", "orphan"), ("done", None, "")],
    ),
    "without an id": (
        calling(asks("c1", "read"), asks("c2", "run"), asks("c3", "run"))
        .result(None, "run 1", tool="run").result(None, "read", tool="read").result("", "run 2"),
        [("read", "c1", ""), ("run 1", "c2", ""), ("run 2", "c3", "")],
    ),
    "of an id that is used again": (
        calling("c").result("c", "1").model("next", calls=["c"]).result("c", "2"),
        [("1", "c", ""), ("next", None, ""), ("2", "c", "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RESULTS)
def test_results_stand_behind_their_calls(case: str) -> None:
    talk, expected = RESULTS[case]
    found = talk.conversation().messages[2:]
    assert [(one.content, one.tool_call_id, " ".join(one.flags)) for one in found] == expected


@pytest.mark.parametrize("late", [False, True])
def test_a_compaction_begins_a_context_with_the_summary(late: bool) -> None:
    talk = Talk().start(system="Be brief.").user("go").model("a")
    if not late:
        talk.model("It went well.", call_id="sum")
    talk.add("compaction", {"summary_call_id": "sum"})
    if late:
        talk.model("It went well.", call_id="sum")
    found = talk.user("and now?").model("b").conversation()
    assert told(found) == [
        [("system", "Be brief."), ("user", "go"), ("assistant", "a"),
         ("assistant", "It went well.")],
        [("system", "Be brief."), ("user", "It went well."), ("user", "and now?"),
         ("assistant", "b")],
    ]  # fmt: skip
    written, shown = found.contexts[0][3], found.contexts[1][1]
    assert written.flags == {"summary"}
    assert written.written
    assert shown.flags == {"summary", "synthetic"}
    assert [call.context for call in found.calls] == [0, 0, 1]


def test_a_compaction_without_a_summary_begins_an_empty_context() -> None:
    talk = Talk().user("go").model("a").add("compaction", {"summary_call_id": "lost"}).model("b")
    found = talk.add("compaction", {"summary": "It went well."}).model("c").conversation()
    assert told(found)[1:] == [
        [("assistant", "b")],
        [("user", "It went well."), ("assistant", "c")],
    ]


def test_who_wrote_a_message() -> None:
    talk = Talk().user("old").model("old answer").user("note", synthetic=True)
    talk.model("No response requested.", model="<synthetic>").model("new", is_copied_context=True)
    talk.model("mine", call_id="m").model("mine", call_id="m").model("other", call_id="m")
    found = talk.conversation(copied=frozenset({"e1", "e2"}))
    assert [(one.content, set(one.flags), one.written) for one in found.messages] == [
        ("old", {"copied"}, False),
        ("old answer", {"copied"}, False),
        ("note", {"synthetic"}, False),
        ("No response requested.", {"synthetic"}, False),
        ("new", {"copied"}, False),
        ("mine", set(), True),
        ("mine", {"copied"}, False),  # the same call under another event
        ("other", set(), True),
    ]


def test_copies_are_known_by_whatever_name_an_event_has() -> None:
    talk = Talk().add("model_call", {"text": "a"}, event_id=None, source_key="k")
    talk.add("model_call", {"text": "b"}, event_id=None)
    names = ["by-hand\0k", f"\0{START_US + 2_000_000}\0002"]
    for copied in names:
        flags = [one.flags for one in talk.conversation(copied=frozenset({copied})).messages]
        assert flags == [{"copied"} if name == copied else set() for name in names]


def test_interrupts_are_known_of_the_call_that_they_stopped() -> None:
    talk = Talk().user("go").model("a", calls=["c1"], call_id="m1").add("interrupt", {})
    found = talk.conversation()
    assert found.messages[1].flags == {"interrupted"}
    assert found.calls[0].flags == {"interrupted"}
    assert found.ending == "interrupt"
    talk = talk.user("no").model("b", call_id="m2").add("interrupt", {"call_id": "c1"}).user("?")
    assert [call.flags for call in talk.conversation().calls] == [{"interrupted"}, set()]
    assert talk.conversation().ending is None
    assert Talk().user("go").add("interrupt", {}).conversation().messages[0].flags == frozenset()
    assert Talk().user("go").model("a").add("error", {}).conversation().ending == "error"


def test_tools_are_those_that_were_offered_first_as_sent() -> None:
    raw = '[{"type": "function",  "function": {"name": "read"}}]'
    talk = Talk().add("session_start", '{"tools": 3}').user("go")
    talk.add("model_call", f'{{"text": "a", "tools": {raw}}}').model("b", tools=[{"other": 1}])
    assert talk.conversation().tools == raw


def test_what_cannot_be_read_is_a_problem_and_costs_nothing_else() -> None:
    talk = Talk().add("session_start", "[]").user("go").add("model_call", '{"text": 3}')
    talk.add("tool_result", "nonsense").add("x_own", "nonsense").model("a")
    found = talk.conversation()
    assert told(found) == [[("user", "go"), ("assistant", "a")]]
    assert [(one.kind, one.event_id) for one in found.problems] == [
        ("payload_unreadable", "e1"), ("payload_unreadable", "e3"), ("payload_unreadable", "e4"),
    ]  # fmt: skip


def test_chains_are_in_the_order_of_their_work() -> None:
    def session(name: str, start: int, parent: str | None, link: str | None = None) -> Talk:
        return Talk(name, start).start(parent_session=parent, link=link).user("go")

    talks = [
        session("root", 10, "unknown"),
        session("after", 90, "root", "compaction"),
        session("helper", 5, "root", "subagent"),  # its clock is off
        session("grandchild", 30, "helper", "subagent"),
    ]
    places = order_chain(talk.conversation() for talk in talks)
    assert [(one.conversation.session_id, one.chain_pos, one.parent) for one in places] == [
        ("root", 0, None), ("helper", 1, "root"), ("grandchild", 2, "helper"),
        ("after", 3, "root"),
    ]  # fmt: skip


def test_a_ring_has_a_beginning() -> None:
    talks = [Talk("b", 1).start(parent_session="a"), Talk("a", 2).start(parent_session="b")]
    places = order_chain(talk.conversation() for talk in talks)
    assert [(one.conversation.session_id, one.parent) for one in places] == [
        ("b", None), ("a", "b"),
    ]  # fmt: skip


def test_sessions_come_from_segments_in_order_and_say_what_was_redacted(tmp_path: Path) -> None:
    mask = "[SECRET:aws_key:0123456789abcdef]"
    events = [
        make_event("b", 1, payload={"text": "go"}),
        make_event("b", 3, "edit", payload={"path": "a", "before": "", "after": "x"}),
        make_event("b", 2, "model_call", payload={"text": "é", "call_id": "m"}),
        make_event("b", 2, event_id="no-seq", seq=None, payload={"text": "later"}),
        make_event("a", 1, payload={"text": "it says [SECRET:] here"}),
        make_event("a", 2, "edit", payload={"path": "a", "before": "", "after": f"x {mask}"}),
        make_event("c", 5, payload={"text": mask.replace("SECRET", "PERSONAL")}),
        make_event("d", 6, "model_call", payload={"text": "x", "tokens": {"redacted": True}}),
    ]
    with hand_lake(tmp_path) as lake:
        lake.store(events)
        snap = current(lake.lake.database)
        [rows] = [read_bucket(lake.lake, one) for one in plan_buckets(lake.lake, snap)]
    sessions = events_by_session(rows)
    assert list(sessions) == ["a", "b", "c", "d"]
    assert [event.event_id for event in sessions["b"]] == ["e1", "e2", "no-seq"]
    found = read_conversation("b", sessions["b"])
    assert told(found) == [[("user", "go"), ("assistant", "é"), ("user", "later")]]
    redacted = {name: [event.redacted for event in sessions[name]] for name in "acd"}
    assert redacted == {"a": [False, True], "c": [True], "d": [False]}
    conversation = read_conversation("a", sessions["a"])
    assert conversation.redacted_from_us == sessions["a"][1].ts_us


STEPS = st.lists(
    st.sampled_from(["user", "model", "call", "result", "orphan", "compaction", "interrupt"]),
    max_size=25,
)


def _tell(steps: list[str]) -> Talk:
    talk = Talk()
    for number, step in enumerate(steps):
        match step:
            case "user":
                talk.user(f"u{number}")
            case "model":
                talk.model(f"a{number}", call_id=f"m{number}")
            case "call":
                talk.model(f"c{number}", calls=["x", f"c{number}"])
            case "result":
                talk.result("x", f"r{number}")
            case "orphan":
                talk.result(None, f"o{number}")
            case "compaction":
                talk.add("compaction", {"summary_call_id": f"m{number - 1}"})
            case "interrupt":
                talk.add("interrupt", {"call_id": "x"})
    return talk


@settings(max_examples=60)
@given(STEPS, st.randoms(use_true_random=False))
def test_nothing_that_was_said_is_lost_or_said_twice_in_any_order(
    steps: list[str], chance: Any
) -> None:
    talk = _tell(steps)
    found = talk.conversation()
    chance.shuffle(talk.events)
    assert talk.conversation() == found
    said = [one.event_id for one in found.messages if "synthetic" not in one.flags]
    assert len(said) == len(set(said))
    expected = {f"e{at}" for at, step in enumerate(steps, 1) if step in ("user", "model", "call")}
    assert expected <= set(said)
    for context in found.contexts:  # each call has its results at once, or is the last
        waiting: set[str | None] = set()
        for message in context:
            if message.role == "tool" and "orphan" not in message.flags:
                assert message.tool_call_id in waiting
                continue
            waiting = {call.id for call in message.tool_calls}
