"""Agents in terminals and editors: what each store hides, and what becomes of it."""

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.importers.edits import FileEdit, ToolUse, edits_of, has_failed, view_of
from penstock_jobs.importers.import_run import plan_import
from tests.support.session_sources import FIXTURES, Event, events_of, payloads

# OpenCode


def test_database_and_store_give_a_session_the_same_events() -> None:
    database = events_of(FIXTURES / "opencode/database")
    store = events_of(FIXTURES / "opencode/store")

    def of_session(events: list[Event]) -> dict[str, Any]:
        return {
            event["event_id"]: event["payload"]
            for event in events
            if event["session_id"] == "ses_1"
        }

    assert of_session(database) == of_session(store)
    assert of_session(database)["oc1:edit"]["before"] == "# r\nr = 1\n"


def test_rows_that_are_only_in_the_log_of_a_database_are_taken(tmp_path: Path) -> None:
    """As while OpenCode runs; nothing beside its own files is left behind."""
    folder = tmp_path / "opencode"
    shutil.copytree(FIXTURES / "opencode/database", folder)
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute(
            "INSERT INTO message VALUES ('msg_z', 'ses_2', 1778054409000, ?)",
            ('{"role":"user","time":{"created":1778054409000}}',),
        )
        writer.execute("""INSERT INTO part VALUES ('prt_z', 'msg_z', 'ses_2', 1,
            '{"type":"text","text":"In the log."}')""")
        writer.commit()
        before = path.read_bytes()
        texts = [user["text"] for user in payloads(events_of(folder), "user_message")]
        assert "In the log." in texts
        assert path.read_bytes() == before
    assert {file.name for file in folder.iterdir()} == {"opencode.db", "expected.json"}


# Gemini CLI and Qwen Code


def test_what_was_taken_back_is_kept_and_marked() -> None:
    events = events_of(FIXTURES / "gemini-cli/log")
    said = [(each["text"], each.get("rewound")) for each in payloads(events, "user_message")]
    assert said[1:] == [("Change h.", None), ("No, leave it.", True), ("Thanks.", None)]
    assert payloads(events, "user_message")[0]["synthetic"]
    kinds = [event["type"] for event in events]
    assert kinds[-4:] == ["model_call", "feedback", "user_message", "x_notice"]
    (undo,) = payloads(events, "feedback")
    assert (undo["kind"], undo["target"]) == ("undo", "m4")


def test_gemini_project_is_its_folder_where_it_is_told() -> None:
    assert {event["project"] for event in events_of(FIXTURES / "gemini-cli/log")} == {"/p"}
    assert {event["project"] for event in events_of(FIXTURES / "gemini-cli/batch")} == {"f00d"}


def test_telemetry_before_an_answer_tells_its_tokens() -> None:
    first, second = payloads(events_of(FIXTURES / "qwen-code"), "model_call")
    assert first["usage"] == {"prompt": 77, "completion": 9, "thinking": 3, "cached": 7}
    assert (first["thinking"], first["latency_ms"]) == ("a thought", 500)
    assert second["usage"]["prompt"] == 100


# Copilot


def test_prompt_that_stands_twice_is_one_message() -> None:
    events = events_of(FIXTURES / "copilot-cli")
    assert [user["text"] for user in payloads(events, "user_message")] == ["Change k.", "Change k."]
    assert payloads(events, "x_run_usage")[0]["prompt"] == 410


def test_changes_of_a_chat_are_replayed() -> None:
    events = events_of(FIXTURES / "vscode-chat/log")
    (answer,) = payloads(events, "model_call")
    assert (answer["text"], answer["thinking"]) == ("I change n.", "where is n")
    assert payloads(events, "feedback")[0]["value"] == "down"


def test_replaced_ranges_whose_text_nobody_tells_are_no_edits(tmp_path: Path) -> None:
    def group(path: str, end_column: int) -> dict[str, Any]:
        span = {"startLineNumber": 3, "startColumn": 1, "endLineNumber": 3}
        edit = {"range": span | {"endColumn": end_column}, "text": "new\n"}
        return {"kind": "textEditGroup", "uri": {"path": path}, "edits": [[edit]]}

    parts = [group("/code/inserted.py", 1), group("/code/replaced.py", 9)]
    request = {"requestId": "r", "timestamp": 1_778_054_300_000, "message": {"text": "Do it."}}
    request |= {"response": parts, "result": {"timings": {"totalElapsed": 5}}}
    session = {"sessionId": "v", "creationDate": 1_778_054_300_000, "requests": [request]}
    (tmp_path / "v.json").write_text(json.dumps(session))
    events = events_of(tmp_path)
    (edit,) = payloads(events, "edit")
    assert (edit["path"], edit["before"], edit["after"]) == ("/code/inserted.py", "", "new\n")
    (kept,) = payloads(events, "x_context")
    assert (kept["path"], kept["edits"][0]["text"]) == ("/code/replaced.py", "new\n")


# Cursor


def test_nothing_of_a_login_is_read() -> None:
    events = events_of(FIXTURES / "cursor")
    assert "login-token-of-nobody" not in str(events)
    assert payloads(events, "feedback")[0]["kind"] == "accept"


def in_transcripts(folder: Path, name: str) -> Path:
    (original,) = (FIXTURES / "cursor/transcript").rglob("*.jsonl")
    folder.mkdir(parents=True)
    return Path(shutil.copy(original, folder / f"{name}.jsonl"))


@pytest.mark.parametrize("at_home", [True, False])
def test_transcript_of_a_conversation_in_the_database_is_a_copy(
    at_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / (".config/Cursor/User/globalStorage" if at_home else "copied/globalStorage")
    shutil.copytree(FIXTURES / "cursor/database/globalStorage", home)
    projects = tmp_path / "copied/projects/p/agent-transcripts"
    in_transcripts(projects / "co-1", "co-1")
    in_transcripts(projects / "co-0", "co-0")  # the database has no message of it
    plan = plan_import([tmp_path / "copied"])
    taken = {source.name for source, _importer, _size in plan.sources}
    assert taken - {"state.vscdb"} == {"co-0.jsonl"}
    assert [left.why[:3] for left in plan.left_out] == ["1 ×"]


# Cline and Roo


def test_what_the_user_says_with_a_result_is_a_message() -> None:
    events = events_of(FIXTURES / "cline/xml")
    assert [user["text"] for user in payloads(events, "user_message")] == [
        "Write o.",
        "Not like that.",
    ]
    first = payloads(events, "model_call")[0]
    assert first["usage"] == {"prompt": 17, "completion": 3, "cached": 5}


def test_tokens_of_a_task_are_taken_where_no_request_tells_its_own() -> None:
    events = events_of(FIXTURES / "cline/totals")
    (usage,) = payloads(events, "x_run_usage")
    assert (usage["prompt"], usage["completion"]) == (500, 9)
    assert payloads(events_of(FIXTURES / "cline/xml"), "x_run_usage") == []


# aider


def test_commands_are_no_prompts_and_blocks_are_edits_where_git_tells_nothing() -> None:
    events = events_of(FIXTURES / "aider/history")
    assert [user["text"] for user in payloads(events, "user_message")] == [
        "change u\nto two",
        "thanks",
        "hello",
    ]
    (edit,) = payloads(events, "edit")
    assert (edit["path"], edit["before"], edit["after"]) == ("u.py", "u = 1\n", "u = 2\n")
    assert payloads(events, "feedback") == [{"kind": "undo"}]
    assert payloads(events, "model_call")[0]["usage"] == {"prompt": 2300, "completion": 1120}


def test_commits_of_aider_tell_whole_files(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for text in ("# u\nu = 1\n", "# u\nu = 2\n"):
        (tmp_path / "u.py").write_text(text)
        git("add", "u.py")
        git("commit", "-qm", "u")
    name = git("rev-parse", "--short", "HEAD")
    history = (FIXTURES / "aider/history/.aider.chat.history.md").read_text()
    (tmp_path / ".aider.chat.history.md").write_text(history.replace("abc1234", name))
    events = events_of(tmp_path)
    (edit,) = payloads(events, "edit")
    assert (edit["before"], edit["after"]) == ("# u\nu = 1\n", "# u\nu = 2\n")
    assert payloads(events, "vcs_commit")[0]["files"] == ["u.py"]


# What tools did to files


def use(tool: str, output: str = "", ok: bool | None = None, **arguments: Any) -> ToolUse:
    return ToolUse("c", tool, arguments, ok, output)


def test_changes_are_known_by_their_arguments() -> None:
    edits = [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d"}]
    patch = "*** Begin Patch\n*** Update File: s.py\n@@\n a\n-b\n+c\n*** End Patch"
    cases = [
        (use("edit", path="s.py", edits=edits), [("s.py", "a", "b"), ("s.py", "c", "d")]),
        (use("apply_patch", input=patch), [("s.py", "a\nb\n", "a\nc\n")]),
        (use("file_editor", command="insert", path="s.py", insert_line=1, new_str="x"),
         [("s.py", "", "x")]),
        (use("file_editor", command="view", path="s.py"), []),
        (use("bash", command="ls"), []),
    ]  # fmt: skip
    for tool_use, expected in cases:
        assert [change[:3] for change in edits_of(tool_use, {})] == expected


def test_write_of_a_known_file_has_what_was_there() -> None:
    (change,) = edits_of(use("write_file", path="s.py", content="new\n"), {"s.py": "old\n"})
    assert change == FileEdit("s.py", "old\n", "new\n", is_whole=True)


def test_failures_are_told_in_words_too() -> None:
    assert has_failed(use("edit", "Error: no such file"))
    assert has_failed(use("create", "Ran into [Errno 13] Permission denied while trying to write"))
    assert has_failed(use("patch", '{"success": false, "error": "no match"}'))
    assert not has_failed(use("patch", '{"success": true, "diff": "+error"}'))
    assert not has_failed(use("edit", "Error handling was edited", ok=True))


def test_only_files_that_are_shown_whole_are_observed() -> None:
    assert view_of(use("Read", "     1\ta\n     2\tb", file_path="s")) == ("s", "a\nb\n")
    assert view_of(use("Read", "     5\ta", file_path="s")) is None
    assert view_of(use("Read", "     1\ta", file_path="s", limit=1)) is None
    assert view_of(use("Read", "     1\ta\n... truncated", file_path="s")) is None
    assert view_of(use("Grep", "     1\ta", path="s")) is None
