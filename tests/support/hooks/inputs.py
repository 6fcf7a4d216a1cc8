"""What each agent gives to its hooks, as it does: the names and shapes of its fields."""

from typing import Any

Row = dict[str, Any]

BEFORE, AFTER = "def load():\n    return 1\n", "def load():\n    return 2\n"


def claude_code(folder: str, session: str = "claude-1") -> list[Row]:
    common = {"session_id": session, "cwd": folder, "permission_mode": "default",
              "transcript_path": f"{folder}/none.jsonl", "prompt_id": "p-1"}  # fmt: skip
    edit = {"file_path": f"{folder}/app.py", "old_string": "return 1", "new_string": "return 2",
            "replace_all": False}  # fmt: skip
    edited = {"filePath": f"{folder}/app.py", "oldString": "return 1", "newString": "return 2",
              "originalFile": BEFORE, "structuredPatch": [], "userModified": False,
              "replaceAll": False}  # fmt: skip
    ran = {"stdout": "app.py", "stderr": "", "interrupted": False, "isImage": False}
    read = {"type": "text", "file": {"filePath": f"{folder}/b.py", "content": "b = 1\n",
            "numLines": 2, "startLine": 1, "totalLines": 2}}  # fmt: skip
    wrote = {"type": "create", "filePath": f"{folder}/new.py", "content": "n = 1\n",
             "structuredPatch": []}  # fmt: skip

    def tool(number: int, name: str, asked: Row, **more: Any) -> Row:
        return {"hook_event_name": "PostToolUse", "tool_name": name, "tool_input": asked,
                "tool_use_id": f"toolu_{number}", **more}  # fmt: skip

    rows = [
        {"hook_event_name": "SessionStart", "source": "startup", "model": "claude-x"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "return 2"},
        tool(1, "Bash", {"command": "ls"}, tool_response=ran),
        tool(2, "Read", {"file_path": f"{folder}/b.py"}, tool_response=read),
        tool(3, "Edit", edit, tool_response=edited),
        tool(4, "Write", {"file_path": f"{folder}/new.py", "content": "n = 1\n"},
             tool_response=wrote),
        {**tool(5, "Bash", {"command": "false"}), "hook_event_name": "PostToolUseFailure",
         "error": "Exit code 1", "is_interrupt": False},
        {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "Done."},
        {"hook_event_name": "UserPromptSubmit", "prompt": "return 2", "prompt_id": "p-2"},
        {"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"},
    ]  # fmt: skip
    return [common | row for row in rows]


def codex(folder: str, session: str = "codex-1") -> list[Row]:
    common = {"session_id": session, "cwd": folder, "permission_mode": "default",
              "transcript_path": None, "model": "gpt-x", "turn_id": "t-1"}  # fmt: skip
    patch = (
        "*** Begin Patch\n*** Update File: app.py\n@@ def load():\n def load():\n"
        "-    return 1\n+    return 2\n*** Add File: new.py\n+n = 1\n"
        "*** Delete File: old.py\n*** End Patch\n"
    )
    rows: list[Row] = [
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "return 2"},
        {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "call_1",
         "tool_input": {"command": "ls"}, "tool_response": "app.py\n"},
        {"hook_event_name": "PostToolUse", "tool_name": "apply_patch", "tool_use_id": "call_2",
         "tool_input": {"command": patch}, "tool_response": "Success."},
        {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "Done."},
    ]  # fmt: skip
    return [common | row for row in rows]


def cursor(folder: str, session: str = "cursor-1") -> list[Row]:
    common = {"conversation_id": session, "generation_id": "g-1", "model": "composer",
              "cursor_version": "2.4.0", "workspace_roots": [folder], "user_email": None,
              "transcript_path": None}  # fmt: skip
    changed = {"old_string": "    return 1\n", "new_string": "    return 2\n"}
    rows: list[Row] = [
        {"hook_event_name": "sessionStart", "session_id": session, "composer_mode": "agent"},
        {"hook_event_name": "beforeSubmitPrompt", "prompt": "return 2", "attachments": []},
        {"hook_event_name": "afterFileEdit", "file_path": f"{folder}/app.py", "edits": [changed]},
        {"hook_event_name": "postToolUse", "tool_name": "Write", "tool_use_id": "tool_1",
         "tool_input": {"file_path": f"{folder}/app.py", "content": AFTER}, "tool_output": "{}",
         "duration": 12},
        {"hook_event_name": "postToolUse", "tool_name": "Shell", "tool_use_id": "tool_2",
         "tool_input": {"command": "ls"}, "tool_output": '{"exitCode":0,"stdout":"app.py"}',
         "duration": 40},
        {"hook_event_name": "postToolUseFailure", "tool_name": "Shell", "tool_use_id": "tool_3",
         "tool_input": {"command": "sleep 9"}, "error_message": "too slow",
         "failure_type": "timeout", "duration": 9000, "is_interrupt": False},
        {"hook_event_name": "afterAgentResponse", "text": "Done."},
        {"hook_event_name": "stop", "status": "completed", "loop_count": 0},
        {"hook_event_name": "sessionEnd", "session_id": session, "reason": "user_close"},
    ]  # fmt: skip
    return [common | row for row in rows]


def copilot(folder: str, session: str | None = "copilot-1") -> list[tuple[str, Row]]:
    edit = {"path": f"{folder}/app.py", "old_str": "return 1", "new_str": "return 2"}
    create = {"path": f"{folder}/new.py", "file_text": "n = 1\n"}
    said = {"resultType": "success", "textResultForLlm": "done"}
    rows: list[tuple[str, Row]] = [
        ("sessionStart", {"source": "new", "initialPrompt": "return 2"}),
        ("userPromptSubmitted", {"prompt": "return 2"}),
        ("postToolUse", {"toolName": "bash", "toolArgs": '{"command":"ls"}', "toolResult": said}),
        ("postToolUse", {"toolName": "edit", "toolArgs": edit, "toolResult": said}),
        ("postToolUse", {"toolName": "create", "toolArgs": create, "toolResult": said}),
        ("postToolUseFailure", {"toolName": "bash", "toolArgs": {"command": "x"}, "error": "no"}),
        ("userPromptSubmitted", {"prompt": "return 2"}),
        ("sessionEnd", {"reason": "user_exit"}),
    ]
    common: Row = {"cwd": folder} | ({"sessionId": session} if session else {})
    return [
        (name, {"timestamp": 1_795_219_200_000 + at * 1000, **common, **row})
        for at, (name, row) in enumerate(rows)
    ]


def copilot_in_vs_code(folder: str, session: str = "code-1") -> list[Row]:
    edit = {"filePath": f"{folder}/app.py", "oldString": "return 1", "newString": "return 2"}
    rows: list[Row] = [
        {"hook_event_name": "SessionStart", "source": "new"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "return 2"},
        {"hook_event_name": "PostToolUse", "tool_name": "replace_string_in_file",
         "tool_use_id": "call_9", "tool_input": edit, "tool_response": "done"},
    ]  # fmt: skip
    return [
        {"timestamp": f"2026-11-21T10:00:0{at}.000Z", "cwd": folder, "session_id": session, **row}
        for at, row in enumerate(rows)
    ]
