"""Codex's rollouts: what stands twice, what a fork copies, and the forms that patches had."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.session_sources import events_of, payloads, report_of

Row = dict[str, Any]
SESSION = "019efa28-63ad-76a2-8e9b-8a653170604e"
PATCH = """*** Begin Patch
*** Update File: src/app.py
@@ def total():
 a = 1
-b = 2
+b = 3
@@
-x
+y
@@
 the same
-z
+z
*** Add File: new.py
+one
+two
*** Delete File: old.py
*** End Patch
"""


def line(number: int, kind: str, **payload: Any) -> Row:
    clock = f"2026-11-20T09:{number // 60:02}:{number % 60:02}.000Z"
    return {"timestamp": clock, "type": kind, "payload": payload}


def head(session: str = SESSION, **more: Any) -> Row:
    return line(0, "session_meta", id=session, cwd="/code/shop", cli_version="0.150.0", **more)


def item(number: int, kind: str, **payload: Any) -> Row:
    return line(number, "response_item", type=kind, **payload)


def event(number: int, kind: str, **payload: Any) -> Row:
    return line(number, "event_msg", type=kind, **payload)


def says(number: int, role: str, text: str) -> Row:
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return item(number, "message", role=role, content=[part])


def tokens(number: int, prompt: int, completion: int, **last: int) -> Row:
    total = {"input_tokens": prompt, "output_tokens": completion}
    return event(number, "token_count", info={"total_token_usage": total, "last_token_usage": last})


def write(folder: Path, *rows: Row, session: str = SESSION) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"rollout-2026-11-20T09-00-00-{session}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_a_call_ends_with_its_tokens_and_a_repeated_count_adds_none(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        head(),
        line(1, "turn_context", model="gpt-5.5", cwd="/code/shop"),
        says(2, "user", "Fix it"),
        item(3, "reasoning", summary=[{"type": "summary_text", "text": "Where?"}]),
        says(4, "assistant", "I look."),
        item(5, "function_call", name="shell", arguments='{"cmd": "ls"}', call_id="c1"),
        tokens(6, 100, 10),
        tokens(7, 100, 10),
        item(8, "function_call_output", call_id="c1", output="Exit code: 1\nOutput:\nno"),
        says(9, "assistant", "Done."),
        tokens(10, 250, 15),
    )
    events = events_of(file)
    first, second = payloads(events, "model_call")
    assert (first["text"], first["thinking"], first["model"]) == ("I look.", "Where?", "gpt-5.5")
    assert first["tool_calls"] == [{"id": "c1", "name": "shell", "arguments": {"cmd": "ls"}}]
    assert [call["usage"]["prompt"] for call in (first, second)] == [100, 150]
    assert [call["usage"]["completion"] for call in (first, second)] == [10, 5]
    [result] = payloads(events, "tool_result")
    assert (result["tool"], result["ok"]) == ("shell", False)
    assert len({each["seq"] for each in events}) == len(events)


@pytest.mark.parametrize("first", ["item", "event"])
def test_what_stands_as_an_item_and_as_an_event_is_said_once(tmp_path: Path, first: str) -> None:
    said = [
        (says(1, "user", "Go"), event(1, "user_message", message="Go")),
        (says(2, "assistant", "Yes"), event(2, "agent_message", message="Yes")),
        (says(3, "user", "Go"), event(3, "user_message", message="Go")),
        (says(4, "assistant", "Yes"), event(4, "agent_message", message="Yes")),
    ]
    rows = [row for pair in said for row in (pair if first == "item" else pair[::-1])]
    events = events_of(write(tmp_path, head(), *rows))
    assert [payload["text"] for payload in payloads(events, "user_message")] == ["Go", "Go"]
    assert [payload["text"] for payload in payloads(events, "model_call")] == ["Yes", "Yes"]


def test_a_paginated_thread_says_it_by_completed_items(tmp_path: Path) -> None:
    done = {"type": "FileChange", "id": "c1", "status": "completed"}
    changes = {"a.py": {"type": "update", "unified_diff": "@@ -1 +1 @@\n-a\n+b\n"}}
    file = write(
        tmp_path,
        head(history_mode="paginated"),
        says(1, "user", "Go"),
        event(2, "item_completed", item={"type": "UserMessage", "id": "i1", "content": [
            {"type": "text", "text": "Go"}]}),
        event(3, "item_completed", item={"type": "AgentMessage", "id": "i2", "content": [
            {"type": "Text", "text": "Alone"}]}),
        event(4, "item_completed", item=done | {"changes": changes}),
        event(5, "item_completed", item={"type": "Plan", "id": "i3", "text": "First"}),
    )  # fmt: skip
    events = events_of(file)
    assert [payload["text"] for payload in payloads(events, "user_message")] == ["Go"]
    assert [payload["text"] for payload in payloads(events, "model_call")] == ["Alone"]
    [edit] = payloads(events, "edit")
    assert (edit["path"], edit["before"], edit["after"]) == ("/code/shop/a.py", "a\n", "b\n")
    assert [payload["kind"] for payload in payloads(events, "x_context")] == ["item plan"]


@pytest.mark.parametrize(
    "call",
    [
        item(1, "custom_tool_call", name="apply_patch", input=PATCH, call_id="c1"),
        item(1, "function_call", name="apply_patch", arguments=json.dumps({"input": PATCH}),
             call_id="c1"),
        item(1, "function_call", name="shell", call_id="c1", arguments=json.dumps(
            {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF"]})),
        item(1, "local_shell_call", call_id="c1", action={"command": ["apply_patch", PATCH]}),
    ],
)  # fmt: skip
def test_a_patch_is_edits_in_whatever_form_it_was_asked(tmp_path: Path, call: Row) -> None:
    output = item(2, "function_call_output", call_id="c1", output="Success. Updated")
    edits = payloads(events_of(write(tmp_path, head(), call, output)), "edit")
    assert [(edit["path"], edit["before"], edit["after"]) for edit in edits] == [
        ("/code/shop/src/app.py", "a = 1\nb = 2\n", "a = 1\nb = 3\n"),
        ("/code/shop/src/app.py", "x\n", "y\n"),
        ("/code/shop/new.py", "", "one\ntwo\n"),
        ("/code/shop/old.py", "", ""),
    ]
    assert len({edit["edit_id"] for edit in edits}) == 4
    refused = item(2, "function_call_output", call_id="c1", output={"success": False})
    assert payloads(events_of(write(tmp_path, head(), call, refused)), "edit") == []


def test_what_the_client_says_of_a_patch_stands_for_it(tmp_path: Path) -> None:
    changes = {"/code/shop/old.py": {"type": "delete", "content": "gone\n"}}
    file = write(
        tmp_path,
        head(),
        item(1, "custom_tool_call", name="apply_patch", input=PATCH, call_id="c1"),
        event(2, "patch_apply_end", call_id="c1", success=True, changes=changes),
        item(3, "custom_tool_call_output", call_id="c1", output="Done"),
    )
    [edit] = payloads(events_of(file), "edit")
    assert (edit["before"], edit["after"], edit["deleted"]) == ("gone\n", "", True)


def test_a_fork_copies_history_with_other_times_and_the_same_keys(tmp_path: Path) -> None:
    def history(start: int) -> list[Row]:
        return [
            says(start, "user", "Fix it"),
            says(start + 1, "assistant", "Fixed."),
            item(start + 2, "function_call", name="shell", arguments="{}", call_id="c1"),
            item(start + 3, "function_call_output", call_id="c1", output="ok"),
        ]

    original = events_of(write(tmp_path / "a", head(), *history(1)))
    fork = "019f0000-0000-7000-8000-000000000002"
    copied = write(
        tmp_path / "b",
        head(fork, forked_from_id=SESSION),
        head(),
        *history(300),
        says(400, "user", "Another way"),
        session=fork,
    )
    events = events_of(copied)
    [start] = payloads(events, "session_start")
    assert (start["parent_session"], start["link"]) == (SESSION, "fork")
    keys = {each["source_key"] for each in original}
    mine = [each["source_key"] in keys for each in events if each["type"] != "session_start"]
    assert mine == [True, True, True, False]
    agent = {"subagent": {"thread_spawn": {"parent_thread_id": SESSION, "depth": 1}}}
    [start] = payloads(events_of(write(tmp_path, head(fork, source=agent))), "session_start")
    assert (start["parent_session"], start["link"]) == (SESSION, "subagent")


def test_history_that_a_compaction_repeats_is_left_out(tmp_path: Path) -> None:
    repeated = [says(1, "user", "Fix it")["payload"]] * 50
    file = write(
        tmp_path,
        head(),
        says(1, "user", "Fix it"),
        line(2, "compacted", message="In short", replacement_history=repeated),
        event(3, "turn_aborted", reason="interrupted"),
        event(4, "thread_rolled_back", num_turns=2),
        line(5, "dream_state", anything={"a": 1}),
    )
    events = events_of(file)
    assert len(payloads(events, "user_message")) == 1
    assert payloads(events, "compaction") == [{"summary": "In short"}]
    assert payloads(events, "interrupt") == [{"reason": "interrupted"}]
    assert payloads(events, "feedback")[0]["kind"] == "undo"
    assert payloads(events, "x_context")[0]["codex"] == {"anything": {"a": 1}}
    assert "history that a compaction repeats" in report_of(file).formats["codex"].skipped


def test_a_compressed_rollout_gives_the_same_events(tmp_path: Path) -> None:
    plain = write(tmp_path / "a", head(), says(1, "user", "Fix it"))
    packed = tmp_path / f"{plain.name}.zst"
    packed.write_bytes(pa.compress(plain.read_bytes(), "zstd", asbytes=True))
    assert events_of(packed) == events_of(plain)


def test_what_the_client_puts_in_is_no_message_of_the_user(tmp_path: Path) -> None:
    context = "<environment_context>\n<cwd>/work</cwd>\n</environment_context>"
    rows = [says(1, "user", context), says(2, "user", "# AGENTS.md instructions for /work")]
    rows += [says(3, "developer", "You are"), says(4, "user", "Use <b>bold</b> here")]
    events = events_of(write(tmp_path, head(), *rows))
    assert [payload["text"] for payload in payloads(events, "user_message")] == [
        "Use <b>bold</b> here"
    ]
    kinds = [payload["kind"] for payload in payloads(events, "x_context")]
    assert kinds == ["client", "client", "developer"]


def test_the_first_rollouts_had_no_envelope(tmp_path: Path) -> None:
    first = {"id": SESSION, "timestamp": "2025-06-01T10:00:00Z", "instructions": None}
    bare = says(1, "user", "Fix it")["payload"]
    events = events_of(write(tmp_path, first, bare))
    assert [each["type"] for each in events] == ["session_start", "user_message"]
