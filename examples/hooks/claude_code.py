#!/usr/bin/env python3
"""A hook for Claude Code, for all of its events: README.md has the settings."""

from pathlib import Path

from delivery import Row, Session, digest, run_hook
from tools import add_run

SOURCE = "claude-code-hook"
_TAIL_BYTES = 4096


def events_of(told: Row) -> list[Row]:
    main, folder, agent = told["session_id"], told.get("cwd", ""), told.get("agent_id")
    session = Session(f"{main}.agent-{agent}" if agent else main, SOURCE, folder)
    kind = told["hook_event_name"]
    if kind == "SessionStart":
        session.start("claude-code", model=told.get("model"))
    elif kind == "SubagentStart":
        session.start("claude-code", parent_session=main, link="subagent")
    elif kind == "UserPromptSubmit":
        text = told["prompt"]
        session.add("user_message", f"prompt:{digest(text, place(told))}", text=text)
    elif kind in ("PostToolUse", "PostToolUseFailure"):
        add_tool(session, told, failed=kind == "PostToolUseFailure")
    elif kind in ("Stop", "SubagentStop"):
        if text := told.get("last_assistant_message"):
            key = f"answer:{digest(text, place(told))}"
            session.add("model_call", key, call_id=key, text=text, finish_reason="end_turn")
    elif kind == "PreCompact":
        session.add("compaction", f"compaction:{place(told)}", trigger=told.get("trigger"))
    elif kind == "SessionEnd":
        session.add("session_end", f"end:{place(told)}", reason="completed")
    return session.events


def add_tool(session: Session, told: Row, *, failed: bool) -> None:
    tool, asked = told["tool_name"], told.get("tool_input")
    call_id = told.get("tool_use_id") or digest(tool, asked, place(told))
    if failed:
        why = "user_aborted" if told.get("is_interrupt") else "unknown"
        add_run(session, call_id, tool, asked, told.get("error"), ok=False, error_class=why)
    else:
        folder = told.get("cwd", "")
        add_run(session, call_id, tool, asked, told.get("tool_response"), folder=folder)


def place(told: Row) -> str:
    """Where in the conversation it is: the same words may come again. Versions before 2.1 do not
    name the prompt; there the end of the transcript says it."""
    if told.get("prompt_id"):
        return str(told["prompt_id"])
    try:
        with Path(told["transcript_path"]).expanduser().open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return digest(file.read().hex())
    except (OSError, KeyError, TypeError):
        return ""


if __name__ == "__main__":
    run_hook(events_of)
