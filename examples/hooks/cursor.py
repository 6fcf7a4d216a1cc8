#!/usr/bin/env python3
"""A hook for Cursor, for all of its events: README.md has the settings."""

from delivery import Row, Session, digest, run_hook
from tools import add_run, structured

SOURCE = "cursor-hook"
#: Their edits are told by `afterFileEdit`, with what was there before.
_EDITING = {"Write", "Edit", "StrReplace", "MultiEdit", "Delete"}


def events_of(told: Row) -> list[Row]:
    roots = told.get("workspace_roots") or [""]
    session = Session(told.get("conversation_id") or told["session_id"], SOURCE, roots[0])
    kind, turn = told["hook_event_name"], told.get("generation_id", "")
    if kind == "sessionStart":
        session.start("cursor", client_version=told.get("cursor_version"))
    elif kind == "beforeSubmitPrompt":
        text = told["prompt"]
        session.add("user_message", f"prompt:{turn}:{digest(text)}", text=text)
    elif kind in ("postToolUse", "postToolUseFailure"):
        add_tool(session, told, turn, failed=kind == "postToolUseFailure")
    elif kind == "afterFileEdit":
        for place, edit in enumerate(told["edits"]):
            before, after = edit.get("old_string", ""), edit.get("new_string", "")
            edit_id = digest(turn, told["file_path"], place, before, after)
            about = {"edit_id": edit_id, "path": told["file_path"]}
            session.add("edit", f"edit:{edit_id}", **about, before=before, after=after)
    elif kind == "afterAgentResponse":
        key = f"answer:{turn}:{digest(told['text'])}"
        model = told.get("model")
        session.add("model_call", key, call_id=key, model=model, text=told["text"])
    elif kind == "preCompact":
        session.add("compaction", f"compaction:{turn}", trigger=told.get("trigger"))
    elif kind == "stop" and told.get("status") == "aborted":
        session.add("interrupt", f"stop:{turn}", reason="aborted")
    elif kind == "sessionEnd":
        reasons = {"user_close": "completed", "window_close": "completed", "error": "crash"}
        reason = reasons.get(told.get("reason", ""), "completed")
        session.add("session_end", f"end:{turn}", reason=reason)
    return session.events


def add_tool(session: Session, told: Row, turn: str, *, failed: bool) -> None:
    tool, asked = told["tool_name"], told.get("tool_input")
    call_id = told.get("tool_use_id") or digest(turn, tool, asked)
    duration_ms = told.get("duration")
    if failed:
        kinds = {"timeout": "timeout", "permission_denied": "user_aborted"}
        why = kinds.get(told.get("failure_type", ""), "unknown")
        why = "user_aborted" if told.get("is_interrupt") else why
        error = told.get("error_message")
        add_run(session, call_id, tool, asked, error, ok=False, error_class=why,
                duration_ms=duration_ms)  # fmt: skip
    else:
        answer = structured(told.get("tool_output"))
        known = {} if tool in _EDITING else asked
        add_run(session, call_id, tool, known, answer, duration_ms=duration_ms)


if __name__ == "__main__":
    run_hook(events_of, reply="{}\n")
