"""The run of a tool as events: its result, and what it changed in files."""

import json
from typing import Any

from delivery import Session
from edits import edits_of


def add_run(
    session: Session,
    call_id: str,
    tool: str,
    asked: Any,
    answer: Any,
    *,
    folder: str = "",
    ok: bool | None = True,
    error_class: str | None = None,
    duration_ms: float | None = None,
) -> None:
    asked = structured(asked)
    edits = edits_of(tool, asked, answer, folder) if ok is not False else []
    session.add(
        "tool_result",
        f"tool:{call_id}",
        call_id=call_id,
        tool=tool,
        ok=ok,
        error_class=error_class,
        arguments=asked,
        output=None if edits else output_of(answer),
        duration_ms=duration_ms,
    )
    for place, edit in enumerate(edits):
        edit_id = f"{call_id}#{place}" if place else call_id
        if edit.deleted:
            session.add("file_observed", f"gone:{edit_id}", path=edit.path, deleted=True)
            continue
        modified = answer.get("userModified") if isinstance(answer, dict) else None
        session.add(
            "edit",
            f"edit:{edit_id}",
            edit_id=edit_id,
            call_id=call_id,
            path=edit.path,
            before=edit.before,
            after=edit.after,
            user_modified=modified or None,
        )
    if seen := seen_file(answer):
        session.add("file_observed", f"seen:{call_id}", path=seen[0], text=seen[1])


def structured(value: Any) -> Any:
    """Some agents give arguments as the text of their JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def output_of(answer: Any) -> Any:
    """The text of a result, where it is one."""
    if not isinstance(answer, dict):
        return answer
    for name in ("textResultForLlm", "text_result_for_llm"):
        if isinstance(answer.get(name), str):
            return answer[name]
    if isinstance(answer.get("stdout"), str):
        parts = (answer["stdout"], answer.get("stderr"))
        return "\n".join(part for part in parts if isinstance(part, str) and part)
    blocks = answer.get("content")
    if isinstance(blocks, list):
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    return None if isinstance(answer.get("file"), dict) and seen_file(answer) else answer


def seen_file(answer: Any) -> tuple[str, str] | None:
    """The path and the text of a file that a look shows as a whole."""
    file = answer.get("file") if isinstance(answer, dict) else None
    if not isinstance(file, dict) or not isinstance(file.get("content"), str):
        return None
    whole = file.get("startLine") in (None, 1) and file.get("numLines") == file.get("totalLines")
    path = file.get("filePath")
    return (path, file["content"]) if whole and isinstance(path, str) else None
