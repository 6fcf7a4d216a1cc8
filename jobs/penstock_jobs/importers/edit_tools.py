"""Edits by what agents ask of their tools: a replaced string, a whole file, a patch.

Names and arguments are those of tools that many agents share. Arguments alone show only the region
that a tool replaced; an importer whose source holds the whole file says so itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock_jobs.importers import fields
from penstock_jobs.importers.patches import FilePatch, is_v4a, read_unified, read_v4a, replaced

_PATHS = ("file_path", "filePath", "path", "filename", "notebook_path", "absolute_path")
_OLD = ("old_string", "oldString", "old_str", "old_text", "oldText", "search")
_NEW = ("new_string", "newString", "new_str", "new_text", "newText", "replace")
_CONTENT = ("content", "file_text", "fileText", "text")
_PATCH = ("patch", "input", "patchText", "diff", "patch_text")


class FileEdit(NamedTuple):
    """Texts of a file, or of the region that was replaced."""

    path: str
    before: str
    after: str
    is_whole: bool = False
    deleted: bool = False
    moved_to: str | None = None

    def payload(self, call_id: str | None, **more: Any) -> dict[str, Any]:
        """Of an `edit` event."""
        own = {"path": self.path, "before": self.before, "after": self.after, "call_id": call_id}
        marks = {"deleted": self.deleted or None, "moved_to": self.moved_to}
        return own | marks | {"is_region": None if self.is_whole else True} | more


def edits_of(arguments: Mapping[str, Any]) -> Iterator[FileEdit]:
    """What a tool is asked to write, by the arguments of its call; nothing for other tools."""
    path = _first(arguments, _PATHS)
    for name in _PATCH:
        patch = fields.text(arguments, name)
        if patch is not None and (is_v4a(patch) or "\n@@ -" in patch):
            yield from edits_of_patch(patch)
            return
    if path is None:
        return
    changes: Sequence[Mapping[str, Any]] = fields.rows(arguments, "edits")
    for change in changes or [arguments]:
        old, new = _first(change, _OLD), _first(change, _NEW)
        if old is not None and new is not None:
            yield FileEdit(path, old, new)
    content = _first(arguments, _CONTENT)
    if not changes and content is not None and _first(arguments, _OLD) is None:
        yield FileEdit(path, "", content, is_whole=True)


def edits_of_patch(patch: str) -> Iterator[FileEdit]:
    """Of a V4A patch or a unified diff: a region of a file each, since the file is not known."""
    for file in read_v4a(patch) if is_v4a(patch) else read_unified(patch):
        if file.action == "update" and len(file.hunks) > 1:
            yield from (edit_of(replace(file, hunks=(hunk,))) for hunk in file.hunks)
        else:
            yield edit_of(file)


def edit_of(file: FilePatch, text: str | None = None) -> FileEdit:
    """What a patch makes of a file; the whole file where its text before is known, and fits."""
    before, after = file.regions()
    if file.action == "add":
        return FileEdit(file.path, "", after, is_whole=True)
    if file.action == "delete":
        return FileEdit(file.path, text or before, "", is_whole=text is not None, deleted=True)
    applied = file.applied(text) if text is not None else None
    if text is not None and applied is not None:
        return FileEdit(file.path, text, applied, is_whole=True, moved_to=file.moved_to)
    return FileEdit(file.path, before, after, moved_to=file.moved_to)


def replacement(path: str, text: str | None, change: Mapping[str, Any]) -> FileEdit | None:
    """A replaced string, in the whole file where its text before is known; None where `change`
    says none."""
    old, new = _first(change, _OLD), _first(change, _NEW)
    if old is None or new is None:
        return None
    everywhere = bool(change.get("replace_all") or change.get("replaceAll"))
    if not old and not text:
        return FileEdit(path, "", new, is_whole=True)
    after = replaced(text, old, new, everywhere=everywhere) if text is not None and old else None
    if text is not None and after is not None:
        return FileEdit(path, text, after, is_whole=True)
    return FileEdit(path, old, new)


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)
