"""Results of Claude Code's tools: edits, observations of files, refusals."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock_jobs.importers import fields
from penstock_jobs.importers.edits import (
    FileEdit,
    FilePatch,
    Hunk,
    ToolUse,
    edit_of,
    edits_of,
    replaced,
    replacement_of,
)
from penstock_jobs.importers.fields import Row
from penstock_jobs.importers.report import Notes

INTERRUPTED = "[Request interrupted by user"
_REFUSED = ("The user doesn't want to proceed", "The user doesn't want to take this action",
            INTERRUPTED)  # fmt: skip
_INVALID = ("InputValidationError", "<tool_use_error>InputValidationError")
#: Fields that events are made of, or that the output repeats.
_USED = (
    "content", "durationMs", "edits", "file", "filePath", "newString", "new_source", "oldString",
    "originalFile", "originalFileContents", "original_file", "replaceAll", "stdout",
    "structuredPatch", "totalDurationMs", "updated_file", "userModified",
)  # fmt: skip
_EDITING = {"Edit", "MultiEdit", "Write", "NotebookEdit", "str_replace_based_edit_tool"}


class ClaudeToolUse(NamedTuple):
    name: str
    arguments: Row


#: The part of the row, the type and the payload of an event.
ToolEvent = tuple[str, str, dict[str, Any]]


def tool_events(
    block: Row, result: object, use: ClaudeToolUse | None, notes: Notes, kept: dict[str, Any]
) -> Iterator[ToolEvent]:
    """The events of a result and of the files that it shows. `result` is the client's record."""
    facts = result if isinstance(result, dict) else {}
    call_id = fields.text(block, "tool_use_id")
    failed = block.get("is_error") is True
    output = _output(block.get("content"), notes)
    error, said = None, output if isinstance(output, str) else ""
    if failed:
        invalid = "invalid_arguments" if said.startswith(_INVALID) else "unknown"
        error = "user_aborted" if said.startswith(_REFUSED) else invalid
    payload = {
        "call_id": call_id,
        "tool": use.name if use else None,
        "ok": not failed,
        "error_class": error,
        "output": output,
        "duration_ms": fields.count(facts, "durationMs") or fields.count(facts, "totalDurationMs"),
        "claude_code": (fields.without(facts, *_USED) | kept) or None,
    }
    yield "result", "tool_result", payload
    if error == "user_aborted":
        yield "reject", "feedback", {"kind": "reject", "target": call_id}
    if failed:
        return
    modified = True if facts.get("userModified") is True else None
    for place, edit in enumerate(_edits(facts, use)):
        edit_id = f"{call_id}-{place}" if place else call_id
        change = edit.payload(call_id, edit_id=edit_id, user_modified=modified)
        yield f"edit-{place}" if place else "edit", "edit", change
    if (seen := observed(facts)) is not None:
        yield "file", "file_observed", seen


def observed(facts: Row) -> dict[str, Any] | None:
    file = fields.mapping(facts, "file")
    path, text = fields.text(file, "filePath"), fields.text(file, "content")
    whole = file.get("startLine") in (None, 1) and file.get("numLines") == file.get("totalLines")
    if facts.get("type") != "text" or path is None or text is None or not whole:
        return None
    return {"path": path, "text": text}


def _edits(facts: Row, use: ClaudeToolUse | None) -> Iterator[FileEdit]:
    path = fields.first_text(facts, "filePath", "notebook_path")
    if path is None:
        if use is not None and use.name in _EDITING:
            yield from edits_of(ToolUse("", use.name, use.arguments, True, ""), {})
            if use.name == "NotebookEdit":
                yield from _cell(use.arguments, use.arguments)
        return
    before = fields.first_text(facts, "originalFile", "originalFileContents", "original_file")
    after = fields.text(facts, "content") or fields.text(facts, "updated_file")
    changes = fields.rows(facts, "edits")
    if after is not None:
        told = before is not None or facts.get("type") == "create"
        yield FileEdit(
            path, (before or "") if told else _before_patch(after, facts), after, is_whole=True
        )
    elif facts.get("userModified") is True and before is not None:
        yield edit_of(FilePatch(path, "update", _hunks(facts)), before)
    elif changes:
        yield from _replacements(path, before, changes)
    elif "new_source" in facts:
        yield from _cell(facts, use.arguments if use else {})
    elif edit := _replacement(path, before, facts):
        yield edit


def _replacements(
    path: str, before: str | None, changes: list[dict[str, Any]]
) -> Iterator[FileEdit]:
    text, regions = before, []
    for change in changes:
        if (edit := _replacement(path, text, change)) is not None:
            regions.append(edit)
            text = edit.after if edit.is_whole else None
    if regions and before is not None and text is not None:
        yield FileEdit(path, before, text, is_whole=True)
    else:
        yield from (edit for edit in regions if not edit.is_whole)


def _replacement(path: str, text: str | None, change: Row) -> FileEdit | None:
    """The edit of a replaced string: of the whole file if its text is known. None if `change` holds
    no replacement."""
    old, new = replacement_of(change)
    if old is None or new is None:
        return None
    everywhere = bool(change.get("replace_all") or change.get("replaceAll"))
    if not old and not text:
        return FileEdit(path, "", new, is_whole=True)
    after = replaced(text, old, new, everywhere=everywhere) if text is not None and old else None
    if text is not None and after is not None:
        return FileEdit(path, text, after, is_whole=True)
    return FileEdit(path, old, new)


def _cell(facts: Row, arguments: Row) -> Iterator[FileEdit]:
    path, mode = (
        fields.text(facts, name) or fields.text(arguments, name)
        for name in ("notebook_path", "edit_mode")
    )
    source = fields.text(facts, "new_source")
    if path is not None and source is not None and mode != "delete":
        yield FileEdit(path, fields.text(facts, "old_source") or "", source)


def _hunks(facts: Row) -> tuple[Hunk, ...]:
    hunks = []
    for hunk in fields.rows(facts, "structuredPatch"):
        lines = [line for line in fields.items(hunk, "lines") if isinstance(line, str)]
        before, after = (
            tuple(line[1:] for line in lines if line[:1] not in ("\\", other)) for other in "+-"
        )
        hunks.append(Hunk(before, after, fields.count(hunk, "oldStart")))
    return tuple(hunks)


def _before_patch(after: str, facts: Row) -> str:
    turned = tuple(Hunk(hunk.after, hunk.before) for hunk in _hunks(facts))
    return FilePatch("", "update", turned).applied(after) or "" if turned else ""


def _output(content: object, notes: Notes) -> object:
    """The text of a result. Other content is kept, without the bytes of pictures."""
    if not isinstance(content, list):
        return content
    if all(isinstance(block, dict) and block.get("type") == "text" for block in content):
        return "\n".join(fields.text(block, "text") or "" for block in content)
    kept: list[object] = []
    for block in content:
        source = fields.mapping(block, "source")
        if "data" in source:
            notes.skip("bytes of a picture in a result", str(source.get("media_type")))
            kept.append(block | {"source": fields.without(source, "data")})
        else:
            kept.append(block)
    return kept
