"""Claude Code's sessions: what its files repeat, split, interleave and hide."""

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock_jobs.importers import fields
from tests.support.claude_code_rows import (
    SESSION,
    Row,
    answers,
    asks,
    result,
    row,
    said,
    uses,
    write,
)
from tests.support.session_sources import events_of, payloads, report_of


def test_an_answer_over_several_rows_is_one_call_with_its_last_usage(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        asks(0, "Fix the total"),
        answers(1, "msg_1", {"type": "thinking", "thinking": "Where?", "signature": "x"}, usage=1),
        answers(2, "msg_1", said("I look."), usage=2),
        answers(3, "msg_1", uses("t1", "Bash", command="ls"), usage=3),
        result(4, "t1", "a.py"),
        answers(5, "msg_1", uses("t2", "Bash", command="pwd"), usage=40),
        result(6, "t2", "/code/shop"),
        answers(7, "msg_2", said("Done."), usage=5),
    )
    events = events_of(file)
    calls = payloads(events, "model_call")
    assert [call["usage"]["completion"] for call in calls] == [40, 5]
    assert calls[0]["usage"]["prompt"] == 105
    assert (calls[0]["text"], calls[0]["thinking"]) == ("I look.", "Where?")
    assert [call["id"] for call in calls[0]["tool_calls"]] == ["t1", "t2"]
    in_order = sorted(events, key=lambda event: event["seq"])
    assert [event["type"] for event in in_order] == [
        "session_start", "user_message", "model_call", "tool_result", "tool_result", "model_call",
    ]  # fmt: skip
    assert len({event["seq"] for event in events}) == len(events)


def test_a_row_that_comes_late_adds_no_tokens(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        answers(0, "msg_1", said("one"), usage=7),
        answers(1, "msg_2", said("two"), usage=8),
        answers(2, "msg_1", said("late"), usage=7),
    )
    calls = payloads(events_of(file), "model_call")
    assert [call.get("usage", {}).get("completion") for call in calls] == [7, 8, None]


def test_rows_of_subagents_are_sessions_of_their_own(tmp_path: Path) -> None:
    inside = write(
        tmp_path / "old",
        answers(0, "msg_1", uses("t1", "Task", prompt="Look"), uses("t2", "Task", prompt="Find")),
        asks(1, "Look", isSidechain=True, parentUuid=None),
        asks(2, "Find", isSidechain=True, parentUuid=None),
        answers(3, "msg_2", said("looked"), isSidechain=True, parentUuid="u1"),
        answers(4, "msg_3", said("found"), isSidechain=True, parentUuid="u2"),
        result(5, "t1", "looked"),
    )
    agent: Row = {"isSidechain": True, "agentId": "a7"}
    beside = write(
        tmp_path / "new" / SESSION / "subagents",
        asks(0, "Look", **agent),
        answers(1, "msg_2", said("looked"), **agent),
        name="agent-a7.jsonl",
    )
    for path, agents in ((inside, {"u1", "u2"}), (beside, {"a7"})):
        starts = {
            event["session_id"]: event["payload"]
            for event in events_of(path)
            if event["type"] == "session_start"
        }
        for name in agents:
            start = starts[f"{SESSION}.agent-{name}"]
            assert (start["parent_session"], start["link"]) == (SESSION, "subagent")
    texts = {
        event["session_id"]: event["payload"]["text"]
        for event in events_of(inside)
        if event["type"] == "model_call" and "text" in event["payload"]
    }
    assert texts == {f"{SESSION}.agent-u1": "looked", f"{SESSION}.agent-u2": "found"}


def test_a_branch_is_a_fork_whose_copies_keep_their_keys(tmp_path: Path) -> None:
    history = [asks(0, "Fix it"), answers(1, "msg_1", said("Fixed."))]
    original = write(tmp_path / "a", *history, asks(2, "Thanks"))
    forked = {"sessionId": "branch", "forkedFrom": {"sessionId": SESSION, "messageUuid": "u1"}}
    copies = [each | forked for each in history]
    branch = write(
        tmp_path / "b", *copies, asks(9, "Another way", sessionId="branch"), name="branch.jsonl"
    )
    events = events_of(branch)
    start = payloads(events, "session_start")[0]
    assert (start["parent_session"], start["link"]) == (SESSION, "fork")
    keys = {event["source_key"] for event in events_of(original)}
    copied = [event["source_key"] in keys for event in events if event["type"] != "session_start"]
    assert copied == [True, True, False]


def test_a_resume_that_copied_history_leaves_it_in_its_session(tmp_path: Path) -> None:
    resumed = "9a000000-0000-4000-8000-000000000002"
    file = write(
        tmp_path,
        asks(0, "Fix it"),
        answers(1, "msg_1", said("Fixed.")),
        asks(2, "Go on", sessionId=resumed),
        name=f"{resumed}.jsonl",
    )
    events = events_of(file)
    starts = {e["session_id"]: e["payload"] for e in events if e["type"] == "session_start"}
    assert (starts[resumed]["parent_session"], starts[resumed]["link"]) == (SESSION, "resume")
    assert "parent_session" not in starts[SESSION]


def test_what_the_client_writes_is_no_message_of_the_user(tmp_path: Path) -> None:
    clear = "<command-name>/clear</command-name>\n<command-args></command-args>"
    custom = (
        "<command-message>ship is running…</command-message>\n<command-name>/ship</command-name>"
    )
    file = write(
        tmp_path,
        asks(0, clear),
        asks(1, f"{custom}\n<command-args>today</command-args>"),
        asks(2, [said("The whole prompt of the command")], isMeta=True),
        asks(3, "<task-notification>done</task-notification>"),
        asks(4, [said("<system-reminder>Mind it</system-reminder>"), said("And the tests?")]),
        row("system", 5, subtype="compact_boundary", compactMetadata={"trigger": "auto",
            "preTokens": 160_000}, logicalParentUuid="u4", parentUuid=None),
        asks(6, "This session is being continued", isCompactSummary=True),
        asks(7, [said("[Request interrupted by user]")]),
        row("attachment", 8, attachment={"type": "queued_command", "prompt": "Also the docs"}),
        row("attachment", 9, attachment={"type": "system_prompt", "content": "You are"}),
        row("file-history-snapshot", 10),
    )  # fmt: skip
    events = events_of(file)
    said_by_user = [payload["text"] for payload in payloads(events, "user_message")]
    assert said_by_user == ["/ship today", "And the tests?", "Also the docs"]
    assert payloads(events, "compaction")[0]["tokens_before"] == 160_000
    assert len(payloads(events, "interrupt")) == 1
    kinds = [payload["kind"] for payload in payloads(events, "x_context")]
    assert kinds == ["client", "client", "client", "compaction_summary", "attachment"]
    [skipped] = report_of(file).formats["claude-code"].skipped
    assert skipped == "row of the client: file-history-snapshot"


def test_going_back_and_refusing_say_what_the_user_thought(tmp_path: Path) -> None:
    refusal = "The user doesn't want to proceed with this tool use."
    file = write(
        tmp_path,
        asks(0, "Fix it"),
        answers(1, "msg_1", uses("t1", "Bash", command="rm -r /")),
        result(2, "t1", refusal, "Error: refused", is_error=True),
        asks(3, "Use a loop", parentUuid="u1"),
        asks(4, "Use a map", parentUuid="u1"),
    )
    events = events_of(file)
    assert [payload["kind"] for payload in payloads(events, "feedback")] == ["reject", "undo"]
    assert payloads(events, "tool_result")[0]["error_class"] == "user_aborted"


@pytest.mark.parametrize(
    ("record", "before", "after"),
    [
        ({"filePath": "/w/a.py", "oldString": "1", "newString": "2", "originalFile": "x = 1\n",
          "replaceAll": False}, "x = 1\n", "x = 2\n"),
        ({"filePath": "/w/a.py", "oldString": "1", "newString": "2", "originalFile": "1 1\n",
          "replaceAll": True}, "1 1\n", "2 2\n"),
        ({"filePath": "/w/a.py", "oldString": "1", "newString": "2", "originalFile": None},
         "1", "2"),
        ({"filePath": "/w/a.py", "originalFileContents": "a b\n", "edits": [
            {"old_string": "a", "new_string": "c"}, {"old_string": "c b", "new_string": "d"}]},
         "a b\n", "d\n"),
        ({"type": "create", "filePath": "/w/a.py", "content": "new\n"}, "", "new\n"),
        ({"type": "update", "filePath": "/w/a.py", "content": "a\nc\n", "structuredPatch": [
            {"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 2,
             "lines": [" a", "-b", "+c"]}]}, "a\nb\n", "a\nc\n"),
        ({"filePath": "/w/a.py", "oldString": "1", "newString": "2", "originalFile": "x = 1\n",
          "userModified": True, "structuredPatch": [{"oldStart": 1, "lines": [
              "-x = 1", "+x = 3"]}]}, "x = 1\n", "x = 3\n"),
        ({"notebook_path": "/w/a.ipynb", "new_source": "y", "original_file": "{1}",
          "updated_file": "{2}"}, "{1}", "{2}"),
    ],
)  # fmt: skip
def test_an_edit_has_both_texts_however_it_was_written(
    tmp_path: Path, record: Row, before: str, after: str
) -> None:
    file = write(tmp_path, answers(0, "m", uses("t1", "Edit")), result(1, "t1", record=record))
    [edit] = payloads(events_of(file), "edit")
    assert (edit["before"], edit["after"], edit["call_id"]) == (before, after, "t1")


def test_a_call_without_a_record_gives_the_region_of_its_arguments(tmp_path: Path) -> None:
    arguments = {"file_path": "/w/a.py", "old_string": "1", "new_string": "2"}
    good = [answers(0, "m1", uses("t1", "Edit", **arguments)), result(1, "t1")]
    bad = [answers(2, "m2", uses("t2", "Edit", **arguments)), result(3, "t2", is_error=True)]
    [edit] = payloads(events_of(write(tmp_path, *good, *bad)), "edit")
    assert (edit["before"], edit["after"], edit["is_region"]) == ("1", "2", True)


def test_a_file_read_as_a_whole_is_an_observation(tmp_path: Path) -> None:
    def seen(lines: int, total: int) -> Row:
        file = {"filePath": "/w/a.py", "content": "x\n", "numLines": lines, "startLine": 1}
        return {"type": "text", "file": file | {"totalLines": total}}

    file = write(tmp_path, result(0, "t1", record=seen(1, 1)), result(1, "t2", record=seen(1, 9)))
    events = events_of(file)
    assert payloads(events, "file_observed") == [{"path": "/w/a.py", "text": "x\n"}]
    assert len(payloads(events, "tool_result")) == 2


def test_a_live_file_gives_its_last_answer_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [asks(0, "Hello"), answers(1, "msg_1", said("Hel")), answers(2, "msg_1", said("lo"))]
    with monkeypatch.context() as now:
        now.setattr(fields, "is_recent", lambda *_: True)
        half = write(tmp_path, *rows[:2])
        assert payloads(events_of(half), "model_call") == []
        assert report_of(half).formats["claude-code"].growing == 1
    whole = events_of(write(tmp_path, *rows))
    assert payloads(whole, "model_call")[0]["text"] == "Hel\nlo"


def test_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    file = write(tmp_path, asks(0, "Hello"))
    file.write_bytes(file.read_bytes() + b'{"type":"user","uuid":"u1","mess')
    report = report_of(file).formats["claude-code"]
    assert report.taken.counts["user_message"] == 1
    assert list(report.skipped) == ["last line that is torn or still being written"]


def test_the_web_export_is_read(tmp_path: Path) -> None:
    lines = [{"type": "user", "timestamp": "2026-11-20T09:00:00Z", "message": {"content": "Hi"}}]
    file = tmp_path / "export.json"
    file.write_text(json.dumps({"loglines": lines}))
    assert Counter(event["type"] for event in events_of(file)) == {
        "session_start": 1, "user_message": 1,
    }  # fmt: skip
