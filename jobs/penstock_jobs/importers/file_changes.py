"""What tools did to files: their calls and results as edits and observations.

A tool is known by its arguments, not by its name alone: agents copy each other's tools. A change
counts only where the result does not say that it failed. Texts are those of the region that
changed; of the whole file where the tool wrote it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock_jobs.importers.patches import is_v4a, read_unified, read_v4a
from penstock_jobs.importers.session_draft import SessionDraft


class ToolChange(NamedTuple):
    path: str
    before: str
    after: str
    #: Whether the texts are those of the whole file.
    whole: bool = False


class ToolUse(NamedTuple):
    """A call with its result. `ok` is None where nobody says how it went."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    ok: bool | None
    output: str


#: How results begin that say, in words alone, that nothing was changed.
_FAILED = re.compile(
    r"\s*(?:<tool_use_error>|error\b|failed\b|invalid\b|no replacement\b|no match\b|no changes\b"
    r"|cannot\b|could not\b|permission denied|traceback|file (?:not found|has not been read)"
    r"|your proposed edit|no edit|text not found|string to replace not found|\[error\]|exception\b"
    r"|the tool call was rejected|the user (?:denied|rejected))",
    re.IGNORECASE,
)
_FAILED_JSON = re.compile(r'\s*\{.*"(?:error|success)"\s*:\s*(?:"[^"]|false|true)', re.DOTALL)

_PATHS = ("file_path", "filePath", "path", "filename", "file", "absolute_path", "target_file")
_OLD = ("old_string", "oldString", "old_str", "oldText", "old_text", "search")
_NEW = ("new_string", "newString", "new_str", "newText", "new_text", "replace")
_CONTENT = ("content", "file_text", "contents", "new_content", "code_edit")
_PATCHES = ("patch", "input", "diff", "patchText")
_WRITES = re.compile(r"write|create|new_file|save", re.IGNORECASE)
_READS = re.compile(r"^(?:file_?)?(?:read|view|open|cat)(?:_?file)?$|^str_replace", re.IGNORECASE)
_PARTIAL = ("offset", "limit", "start_line", "end_line", "view_range", "start", "end", "range")
#: `cat -n`, as agents number lines; `1→`, `00001| ` and `1: ` are others' ways.
_NUMBERED = re.compile(r"^ *(\d+)(?:\t|→|\| ?|: )(.*)$")
_BLOCK = re.compile(
    r"^[-<]{5,9} ?SEARCH>?[^\n]*\n(.*?)^={5,9}\n(.*?)^[+>]{5,9} ?REPLACE>?[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_BLOCK_HEAD = re.compile(r"\A(?::start_line:\d+\s*\n|:end_line:\d+\s*\n)*(?:-{5,9}\n)?")


@dataclass
class FileChanges:
    """Adds to a session what its tools did to files."""

    draft: SessionDraft
    #: The texts of files that are known as a whole.
    texts: dict[str, str] = field(default_factory=dict)
    #: Paths that an edit was taken for.
    edited: set[str] = field(default_factory=set)

    def take(self, use: ToolUse) -> None:
        if has_failed(use):
            return
        changes = list(changes_of(use, self.texts))
        for at, change in enumerate(changes):
            self.add(change, f"{use.call_id}:edit" + (f":{at}" if at else ""), use.call_id)
        if not changes and (view := view_of(use)):
            path, text = view
            self.texts[path] = text
            payload = {"path": path, "text": text, "call_id": use.call_id}
            self.draft.add("file_observed", payload, f"{use.call_id}:view")

    def add(self, change: ToolChange, key: str, call_id: str | None) -> None:
        self._remember(change)
        if change.before == change.after:
            return
        self.edited.add(change.path)
        payload = {
            "edit_id": key,
            "call_id": call_id,
            "path": change.path,
            "before": change.before,
            "after": change.after,
        }
        self.draft.add("edit", payload, key)

    def add_final_patch(self, patch: str, key: str, call_id: str | None = None) -> None:
        """The patch with which a run ended, for the files that no tool was seen to edit."""
        known = tuple(self.edited)
        for at, change in enumerate(patch_changes(patch, {})):
            if not any(path.endswith(f"/{change.path}") or path == change.path for path in known):
                self.add(change, f"{key}:{at}", call_id)

    def _remember(self, change: ToolChange) -> None:
        if change.whole:
            self.texts[change.path] = change.after
        elif change.path in self.texts:
            text = self.texts[change.path]
            self.texts[change.path] = text.replace(change.before, change.after, 1)


def has_failed(use: ToolUse) -> bool:
    if use.ok is not None:
        return not use.ok
    if _FAILED.match(use.output):
        return True
    return bool(_FAILED_JSON.match(use.output)) and _says_failure(use.output)


def _says_failure(output: str) -> bool:
    try:
        facts = msgspec.json.decode(output, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return False
    return bool(facts.get("error")) or facts.get("success") is False


def arguments_of(arguments: object) -> dict[str, Any]:
    """Of a tool call, as an object; empty where they are none."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.MsgspecError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _text(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    found = (arguments[name] for name in names if isinstance(arguments.get(name), str))
    return next(found, None)


def changes_of(use: ToolUse, texts: Mapping[str, str]) -> Iterator[ToolChange]:
    arguments = use.arguments
    path = _text(arguments, _PATHS)
    patch = _text(arguments, _PATCHES)
    if patch is not None and (changes := _patched(patch, path, texts)):
        yield from changes
        return
    if not path:
        return
    several = arguments.get("edits")
    for edit in several if isinstance(several, list) else [arguments]:
        if not isinstance(edit, dict) or _reads_only(arguments):
            continue
        old, new = _text(edit, _OLD), _text(edit, _NEW)
        if arguments.get("command") == "insert" and new is not None:
            yield ToolChange(path, "", new)
        elif old is not None and (new is not None or arguments.get("command") == "str_replace"):
            yield ToolChange(path, old, new or "", whole=not old and path not in texts)
    content = _text(arguments, _CONTENT)
    if content is not None and _writes(use):
        yield ToolChange(path, texts.get(path, ""), content, whole=True)


def _reads_only(arguments: Mapping[str, Any]) -> bool:
    return arguments.get("command") in ("view", "undo_edit")


def _writes(use: ToolUse) -> bool:
    command = use.arguments.get("command")
    return command == "create" if isinstance(command, str) else bool(_WRITES.search(use.tool))


def _patched(patch: str, path: str | None, texts: Mapping[str, str]) -> list[ToolChange]:
    blocks = [
        ToolChange(path, _BLOCK_HEAD.sub("", match[1]), match[2])
        for match in _BLOCK.finditer(patch)
        if path
    ]
    return blocks or list(patch_changes(patch, texts))


def view_of(use: ToolUse) -> tuple[str, str] | None:
    """The path and text of a file that a result shows as a whole, where that is certain: its
    lines are numbered from 1 on, nothing was asked for in part, and nothing was cut off."""
    path = _text(use.arguments, _PATHS)
    asked = use.arguments
    if not path or not _READS.match(use.tool) or any(asked.get(name) for name in _PARTIAL):
        return None
    if asked.get("command") not in (None, "view"):
        return None
    lines = use.output.splitlines()
    while lines and not _NUMBERED.match(lines[0]):
        if not lines[0].startswith(("<", "Here's the result", "[File:")):
            return None
        lines.pop(0)
    text: list[str] = []
    for at, line in enumerate(lines):
        if (match := _NUMBERED.match(line)) and int(match[1]) == at + 1:
            text.append(match[2])
        elif any(_NUMBERED.match(other) for other in lines[at:]) or any(
            "truncat" in rest or "more lines" in rest for rest in lines[at:]
        ):
            return None
        else:
            break
    return (path, "\n".join([*text, ""])) if text else None


def patch_changes(patch: str, texts: Mapping[str, str]) -> Iterator[ToolChange]:
    """Of a unified patch, or of one as `apply_patch` takes it: a change of each file."""
    files = read_v4a(patch) if is_v4a(patch) else read_unified(patch)
    for file in files:
        path = file.moved_to or file.path
        text = texts.get(file.path)
        applied = file.applied(text) if text is not None and file.action == "update" else None
        if text is not None and applied is not None:
            yield ToolChange(path, text, applied, whole=True)
        else:
            yield ToolChange(path, *file.regions(), whole=file.action == "add")
