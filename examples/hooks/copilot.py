#!/usr/bin/env python3
"""A hook for GitHub Copilot, in its command line, its coding agent and VS Code: README.md has the
settings. The event is the first argument, where its input does not name it."""

import sys
import time
from datetime import datetime
from pathlib import Path

from delivery import Row, Session, digest, run_hook, spool_folder
from tools import add_run

SOURCE = "copilot-hook"
#: Both spellings of a field, by the one that is used here.
_NAMES = {
    "sessionId": "session_id", "toolName": "tool_name", "toolArgs": "tool_input",
    "toolResult": "tool_result", "stopReason": "stop_reason", "initialPrompt": "initial_prompt",
}  # fmt: skip
_ENDS = {"abort": "user_stop", "user_exit": "user_stop", "timeout": "timeout", "error": "crash"}


def events_of(given: Row) -> list[Row]:
    told = {_NAMES.get(name, name): value for name, value in given.items()}
    kind = told.get("hook_event_name") or sys.argv[1]
    kind = kind[:1].lower() + kind[1:]
    at_us, folder = moment_us(told.get("timestamp")), told.get("cwd", "")
    session = Session(session_of(told, kind, folder), SOURCE, folder, at_us)
    if kind == "sessionStart":
        session.start("copilot")
    elif kind in ("userPromptSubmitted", "userPromptSubmit"):
        text = told["prompt"]
        session.add("user_message", f"prompt:{digest(text, told.get('timestamp'))}", text=text)
    elif kind in ("postToolUse", "postToolUseFailure"):
        add_tool(session, told, folder)
    elif kind == "errorOccurred":
        error = told.get("error") or {}
        key = f"error:{digest(error, told.get('timestamp'))}"
        session.add("error", key, message=error.get("message"))
    elif kind == "preCompact":
        session.add("compaction", f"compaction:{at_us}", trigger=told.get("trigger"))
    elif kind == "sessionEnd":
        session.add("session_end", "end", reason=_ENDS.get(told.get("reason", ""), "completed"))
    return session.events


def add_tool(session: Session, told: Row, folder: str) -> None:
    tool, asked = told["tool_name"], told.get("tool_input")
    answer = told.get("tool_result", told.get("tool_response"))
    call_id = told.get("tool_use_id") or digest(tool, asked, told.get("timestamp"))
    facts = answer if isinstance(answer, dict) else {}
    outcome = facts.get("resultType") or facts.get("result_type") or "success"
    ok = outcome == "success" and "error" not in told
    why = None if ok else "user_aborted" if outcome == "denied" else "unknown"
    output = told.get("error", answer)
    add_run(session, call_id, tool, asked, output, folder=folder, ok=ok, error_class=why)


def moment_us(timestamp: object) -> int:
    """Of milliseconds, or of a text."""
    if isinstance(timestamp, int | float):
        return int(timestamp * 1000)
    if isinstance(timestamp, str):
        return round(datetime.fromisoformat(timestamp).timestamp() * 1_000_000)
    return time.time_ns() // 1000


def session_of(told: Row, kind: str, folder: str) -> str:
    """Older versions do not say it. There a session lasts in its folder until another begins."""
    if told.get("session_id"):
        return str(told["session_id"])
    path = Path(spool_folder(), f"copilot-{digest(folder)}.session")
    if kind == "sessionStart":
        name = f"copilot-{digest(folder, told.get('timestamp'))}"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(name)
        return name
    return path.read_text() if path.exists() else f"copilot-{digest(folder)}"


if __name__ == "__main__":
    run_hook(events_of)
