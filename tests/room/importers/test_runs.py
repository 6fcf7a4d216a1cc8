"""Runs of harnesses: what each format hides, and what becomes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.session_sources import FIXTURES, Event, events_of, payloads, report_of


def calls(events: list[Event]) -> list[dict[str, Any]]:
    return payloads(events, "model_call")


@pytest.mark.parametrize(
    ("case", "edits"),
    [
        # Lines have the text that the window showed; of a command's file the final patch tells.
        ("swe-agent/windowed", [("/toy/note.py", "", "x = 1\ny = 2\n"),
                                ("/toy/note.py", "y = 2\n", "y = 3\n"),
                                ("made.txt", "old\n", "new\n")]),
        ("mini-swe-agent/version-2", [("note.txt", "", "b is 2\n"),
                                      ("b.py", "b = 1\n", "b = 2\n")]),
        ("messages/anthropic", [("f.py", "f = 1", "f = 2")]),  # another failed
        ("cline/xml", [("o.py", "", "o = 1\n")]),
        ("cline/roo", [("p.py", "p = 1\n", "p = 2\n")]),
        ("vscode-chat/log", [("/code/n.py", "n = 1", "n = 2")]),
        ("cursor/database", [("q.py", "q = 1\n", "q = 2\n")]),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_edits_have_their_texts(case: str, edits: list[tuple[str, str, str]]) -> None:
    made = payloads(events_of(FIXTURES / case), "edit")
    assert [(each["path"], each["before"], each["after"]) for each in made] == edits


# ATIF


def test_atif_keeps_tokens_of_an_engine_and_takes_empty_lists_for_text() -> None:
    first, second, third, of_subagent = calls(events_of(FIXTURES / "atif/document"))
    assert first["tokens"] == {
        "prompt_ids": [1, 2, 3],
        "completion_ids": [7, 8, 9, 10],
        "logprobs": [-0.25, -0.5, 0.0, -1e-7],
    }
    assert "tokens" not in second
    assert "tokens" not in third
    assert "tokens" not in of_subagent
    assert second["model"] == "<synthetic>"  # no call of a model
    assert third["extra"] == {"mood": "calm"}


def test_atif_continuation_goes_on_from_its_session_and_marks_what_is_copied() -> None:
    events = events_of(FIXTURES / "atif/continuation")
    sessions = {event["session_id"]: event["payload"] for event in events if event["seq"] == 0}
    (first,) = [name for name, start in sessions.items() if "parent_session" not in start]
    start = sessions[f"{first}.cont-1"]
    assert (start["parent_session"], start["link"]) == (first, "compaction")
    later = [event for event in events if event["session_id"] != first]
    assert [call.get("is_copied_context") for call in calls(later)] == [True, None]
    assert [user.get("is_copied_context") for user in payloads(later, "user_message")] == [True]
    assert payloads(later, "edit") == []


def test_runs_that_share_a_placeholder_for_their_name_are_apart() -> None:
    events = events_of(FIXTURES / "atif/continuation", FIXTURES / "atif/same-run-name")
    assert len({event["session_id"] for event in events}) == 3


def test_trial_of_harbor_is_one_source_with_its_reward() -> None:
    events = events_of(FIXTURES / "atif/harbor-job")
    assert payloads(events, "x_reward") == [{"name": "reward", "value": 0.5, "given_by": "harbor"}]
    assert payloads(events, "session_end") == [{"reason": "timeout"}]
    assert payloads(events, "session_start")[0]["task_id"] == "fix-build"
    assert payloads(events, "session_start")[0]["group_id"] == "night:fix-build"


# SWE-agent and mini-swe-agent


def test_demonstration_is_nobodys_message() -> None:
    messages = payloads(events_of(FIXTURES / "swe-agent/windowed"), "user_message")
    assert [message.get("synthetic") for message in messages] == [True, None]


def test_run_that_still_goes_on_is_taken_once_it_has_ended(tmp_path: Path) -> None:
    run = json.loads((FIXTURES / "swe-agent/functions/toy__toy-2.traj").read_text())
    file = tmp_path / "toy.traj"
    file.write_text(json.dumps(run | {"info": {}}))
    report = report_of(tmp_path).formats["swe-agent"]
    assert (report.growing, report.taken.counts) == (1, {})
    file.write_text(json.dumps(run))
    assert report_of(tmp_path).formats["swe-agent"].taken.counts["edit"] == 1


def test_an_interruption_is_a_message() -> None:
    events = events_of(FIXTURES / "mini-swe-agent/version-2")
    assert [user["text"] for user in payloads(events, "user_message")][1] == "Do not write notes."


# OpenHands


@pytest.mark.parametrize("case", ["openhands-v0/conversation", "openhands/conversation"])
def test_parallel_calls_of_one_answer_are_one_model_call(case: str) -> None:
    events = events_of(FIXTURES / case)
    assert len(calls(events)[0]["tool_calls"]) == 2
    (edit,) = payloads(events, "edit")
    assert (edit["before"], edit["after"]) in [("", "a = 1\n"), ("d = 1\n", "d = 2\n")]
    (refused,) = payloads(events, "feedback")
    assert refused["kind"] == "reject"
    assert refused["target"] in [result["call_id"] for result in payloads(events, "tool_result")]


def test_tokens_that_are_told_behind_a_call_belong_to_it() -> None:
    first, second = calls(events_of(FIXTURES / "openhands/conversation"))
    assert first["tokens"] == {"prompt_ids": [1, 2, 3], "completion_ids": [4, 5]}
    assert first["usage"] == {"prompt": 100, "completion": 2}
    assert second["usage"] == {"prompt": 200, "completion": 28}


# Messages


def test_logs_of_calls_say_each_message_once() -> None:
    events = events_of(FIXTURES / "messages/call-logs")
    kinds = [event["type"] for event in events]
    assert kinds == ["session_start", "user_message", "model_call", "tool_result", "model_call"]
    assert [call["latency_ms"] for call in calls(events)] == [1500, 1500]


def test_failed_edit_is_none() -> None:
    events = events_of(FIXTURES / "messages/anthropic")
    assert [result.get("ok") for result in payloads(events, "tool_result")] == [None, False]
    assert payloads(events, "session_start")[0]["system"] == "Be brief."


# NeMo-Gym


def test_token_keys_without_tokens_are_text_only() -> None:
    events = events_of(FIXTURES / "nemo-gym/rollouts")
    tokens = [call.get("tokens") for call in calls(events)]
    assert tokens[0] == {
        "prompt_ids": [1, 2],
        "completion_ids": [5, 6, 7],
        "logprobs": [-0.1234567, -1.5, 0.0],
    }
    assert tokens[1:6] == [None] * 5
    assert tokens[6] is not None
    assert tokens[6]["logprobs_decimals"] == 4  # rounded by whoever wrote them


def test_rollouts_of_a_task_are_a_group_and_each_is_a_session() -> None:
    starts = payloads(events_of(FIXTURES / "nemo-gym/rollouts"), "session_start")
    assert len({start["group_id"] for start in starts}) == 1
    assert {start["task_id"] for start in starts} == {"sum-1"}
    reasons = [
        end["reason"] for end in payloads(events_of(FIXTURES / "nemo-gym/rollouts"), "session_end")
    ]
    assert reasons == ["completed", "crash", "timeout", "completed"]


# verifiers


def test_branches_of_a_trace_are_sessions_that_fork() -> None:
    events = events_of(FIXTURES / "verifiers/traces")
    main = [event for event in events if event["session_id"] == "tr1"]
    fork = [event for event in events if event["session_id"] == "tr1/1"]
    assert [call["text"] for call in calls(main)] == ["Left.", "Back."]
    assert calls(main)[1]["tokens"] == {
        "prompt_ids": [1, 2, 3, 4, 5, 6, 7],
        "completion_ids": [8],
        "logprobs": [-1.5],
    }
    assert payloads(fork, "session_start")[0]["link"] == "fork"
    assert [user.get("is_copied_context") for user in payloads(fork, "user_message")] == [True]
    assert {reward["name"]: reward["value"] for reward in payloads(main, "x_reward")} == {
        "exit": 0.5,
        "steps": -0.1,
    }
