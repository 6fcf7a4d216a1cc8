"""What a tool changed in files, by what it was asked and what it answered. Agents name the same
things differently: one reading does for all of them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_PATHS = ("file_path", "filePath", "path", "notebook_path", "target_file")
_OLD = ("old_string", "oldString", "old_str", "old_source")
_NEW = ("new_string", "newString", "new_str", "new_source")
_TEXTS = ("content", "contents", "file_text", "fileText")
_PATCHES = ("command", "input", "patch")
_WRITES = re.compile(r"write|create", re.IGNORECASE)
_HEAD = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")


class FileEdit(NamedTuple):
    """The texts of the file, or of the part that changed. Of a deleted file they are not known."""

    path: str
    before: str
    after: str
    deleted: bool = False


def edits_of(tool: str, asked: Any, answer: Any = None, folder: str = "") -> list[FileEdit]:
    """`folder` is where relative paths begin."""
    asked = asked if isinstance(asked, dict) else {}
    answer = answer if isinstance(answer, dict) else {}
    return [
        edit._replace(path=str(Path(folder, edit.path)) if folder else edit.path)
        for edit in _edits(tool, asked, answer)
        if edit.before != edit.after or edit.deleted
    ]


def _edits(tool: str, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[FileEdit]:
    patch = _text(asked, _PATCHES)
    if patch and "*** Begin Patch" in patch:
        yield from patch_edits(patch)
        return
    several = asked.get("edits") or asked.get("replacements")
    path = _text(answer, _PATHS) or _text(asked, _PATHS)
    whole = answer.get("originalFile")
    if isinstance(several, list):
        yield from _in_turn([row for row in several if isinstance(row, dict)], path, whole)
    elif path and _text(asked, _NEW) is not None:
        yield from _in_turn([asked], path, whole)
    elif path and _WRITES.search(tool) and (text := _text(asked, _TEXTS)) is not None:
        yield from _written(path, text, answer)


def _in_turn(
    replacements: list[Mapping[str, Any]], path: str | None, whole: object
) -> Iterator[FileEdit]:
    """Of the whole file, where it is known what it was; else of the parts."""
    parts = []
    text = whole if isinstance(whole, str) else None
    for row in replacements:
        old, new = _text(row, _OLD) or "", _text(row, _NEW) or ""
        own = _text(row, _PATHS) or path
        if own:
            parts.append(FileEdit(own, old, new))
        times = -1 if row.get("replace_all") or row.get("replaceAll") else 1
        text = text.replace(old, new, times) if text and old and old in text else None
    if isinstance(whole, str) and text is not None and path:
        yield FileEdit(path, whole, text)
    else:
        yield from parts


def _written(path: str, text: str, answer: Mapping[str, Any]) -> Iterator[FileEdit]:
    """A whole file. What it was before is known where the agent says so."""
    before = answer.get("originalFile")
    hunks = answer.get("structuredPatch")
    if isinstance(before, str):
        yield FileEdit(path, before, text)
    elif isinstance(hunks, list) and hunks:
        for hunk in hunks:
            lines = [line for line in hunk.get("lines", ()) if isinstance(line, str)]
            yield _region(path, lines)
    else:
        yield FileEdit(path, "", text)


def patch_edits(patch: str) -> Iterator[FileEdit]:
    """Of a patch as Codex applies it: an edit of each part of a file."""
    kind = path = ""
    lines: list[str] = []
    for line in [*patch.splitlines(), "*** End Patch"]:
        head = _HEAD.match(line)
        if head or line.startswith(("@@", "*** End Patch", "*** Move to: ")):
            if kind == "Add" and lines:
                text = "".join(f"{row[1:]}\n" for row in lines)
                yield FileEdit(path, "", text)
            elif lines:
                yield _region(path, lines)
            lines = []
            if line.startswith("*** Move to: "):
                path = line.removeprefix("*** Move to: ").strip()
        if head:
            kind, path = head[1], head[2].strip()
            if kind == "Delete":
                yield FileEdit(path, "", "", deleted=True)
        elif line[:1] in ("+", "-", " ") or (not line and kind == "Update"):
            lines.append(line or " ")


def _region(path: str, lines: list[str]) -> FileEdit:
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
    return FileEdit(path, before, after)


def _text(values: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if isinstance(value := values.get(name), str)), None)
