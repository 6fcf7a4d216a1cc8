#!/usr/bin/env python3
"""A hook for Codex, for all of its events: README.md has the settings."""

from typing import Any

from delivery import Row, Session, digest, run_hook
from tools import add_run

SOURCE = "codex-hook"


def events_of(told: Row) -> list[Row]:
    session = Session(told["session_id"], SOURCE, told.get("cwd", ""))
    kind, turn = told["hook_event_name"], told.get("turn_id", "")
    if kind == "SessionStart":
        session.start("codex", model=told.get("model"))
    elif kind == "UserPromptSubmit":
        text = told["prompt"]
        session.add("user_message", f"prompt:{turn}:{digest(text)}", text=text)
    elif kind == "PostToolUse":
        tool, asked, answer = told["tool_name"], told.get("tool_input"), told.get("tool_response")
        call_id = told.get("tool_use_id") or digest(turn, tool, asked)
        ok = succeeded(answer)
        why = "unknown" if ok is False else None
        folder = told.get("cwd", "")
        add_run(session, call_id, tool, asked, answer, folder=folder, ok=ok, error_class=why)
    elif kind == "Stop":
        if text := told.get("last_assistant_message"):
            key = f"answer:{turn}:{digest(text)}"
            model = told.get("model")
            session.add("model_call", key, call_id=key, model=model, text=text)
    elif kind == "PreCompact":
        session.add("compaction", f"compaction:{turn}", trigger=told.get("trigger"))
    return session.events


def succeeded(answer: Any) -> bool | None:
    """Nobody says it of a command whose answer is a text alone."""
    facts = answer if isinstance(answer, dict) else {}
    metadata = facts.get("metadata")
    for held in (facts, metadata if isinstance(metadata, dict) else {}):
        if isinstance(code := held.get("exit_code"), int):
            return code == 0
    return None


if __name__ == "__main__":
    run_hook(events_of)
