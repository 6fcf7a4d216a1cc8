"""Edits in the forms that tools write, as texts of a file before and after.

Three forms: a replaced string, a unified diff, and the V4A patch of `apply_patch`. If the file's
text is known, the texts are the whole file. Else they are the regions that the patch shows.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from penstock_jobs.importers.fields import arguments_of, first_text

_V4A_BEGIN = "*** Begin Patch"
_V4A_END = "*** End Patch"
_V4A_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_V4A_MOVE = "*** Move to: "
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_FILE = "/dev/null"
_NO_NEWLINE = "\\ No newline"

Action = Literal["add", "update", "delete"]


class Hunk(NamedTuple):
    """The lines of a region before and after, without line ends."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    #: Its first line in the file before, counted from 1, if the patch names it.
    line: int | None = None


@dataclass(frozen=True)
class FilePatch:
    path: str
    action: Action
    hunks: Sequence[Hunk] = ()
    moved_to: str | None = None

    def regions(self) -> tuple[str, str]:
        before = "".join(_text(hunk.before) for hunk in self.hunks)
        after = "".join(_text(hunk.after) for hunk in self.hunks)
        return before, after

    def applied(self, text: str) -> str | None:
        """Apply the patch to a file's text. Returns None if it does not fit."""
        lines = text.split("\n")
        at = 0
        for hunk in self.hunks:
            place = _place(lines, hunk, at)
            if place is None:
                return None
            lines[place : place + len(hunk.before)] = hunk.after
            at = place + len(hunk.after)
        return "\n".join(lines)


def replaced(text: str, old: str, new: str, *, everywhere: bool) -> str | None:
    """Replace `old` by `new`. Returns None if `old` does not occur."""
    return text.replace(old, new, -1 if everywhere else 1) if old in text else None


def is_v4a(patch: str) -> bool:
    return _V4A_BEGIN in patch[:4096]


def read_v4a(patch: str) -> list[FilePatch]:
    """Read an `apply_patch` text, which may be part of a shell command."""
    files: list[FilePatch] = []
    path, action, moved_to, body = "", "update", None, list[str]()

    def finish() -> None:
        if path:
            hunks = tuple(_v4a_hunks(body, adds=action == "add"))
            files.append(FilePatch(path, action, hunks, moved_to))  # type: ignore[arg-type]

    inside = False
    for line in patch.split("\n"):
        if line.strip() == _V4A_BEGIN:
            inside = True
        elif line.strip() == _V4A_END:
            break
        elif inside and (header := _V4A_FILE.match(line)):
            finish()
            action, path = header[1].lower(), header[2].strip()
            moved_to, body = None, []
        elif inside and line.startswith(_V4A_MOVE):
            moved_to = line.removeprefix(_V4A_MOVE).strip()
        elif inside:
            body.append(line)
    finish()
    return files


def _v4a_hunks(body: Sequence[str], *, adds: bool) -> Iterator[Hunk]:
    before: list[str] = []
    after: list[str] = []
    for line in [*body, "@@"]:
        if line.startswith("@@"):
            if before or after:
                yield Hunk(tuple(before), tuple(after))
            before, after = [], []
        elif line.startswith("+"):
            after.append(line[1:])
        elif line.startswith("-") and not adds:
            before.append(line[1:])
        elif line.startswith(" ") or (not line and not adds):
            before.append(line[1:])
            after.append(line[1:])


def read_unified(patch: str) -> list[FilePatch]:
    """Read a unified diff, as `diff -u` and `git diff` write it."""
    files: list[FilePatch] = []
    old = new = None
    hunks: list[Hunk] = []
    lines = iter(patch.split("\n"))

    def finish() -> None:
        if old is None or new is None:
            return
        action: Action = "add" if old == _NO_FILE else "delete" if new == _NO_FILE else "update"
        path = new if action == "add" else old
        moved_to = new if action == "update" and new != old else None
        files.append(FilePatch(path, action, tuple(hunks), moved_to))

    for line in lines:
        if line.startswith("--- "):
            finish()
            old, new, hunks = _diff_path(line), None, []
        elif line.startswith("+++ ") and new is None:
            new = _diff_path(line)
        elif numbers := _HUNK.match(line):
            left = [int(number) if number else 1 for number in (numbers[2], numbers[4])]
            hunks.append(_unified_hunk(lines, int(numbers[1]), *left))
    finish()
    return files


def _unified_hunk(lines: Iterator[str], line: int, old_left: int, new_left: int) -> Hunk:
    before: list[str] = []
    after: list[str] = []
    while old_left > 0 or new_left > 0:
        text = next(lines, None)
        if text is None:
            break
        if text.startswith(_NO_NEWLINE):
            continue
        if not text.startswith("+"):
            before.append(text[1:])
            old_left -= 1
        if not text.startswith("-"):
            after.append(text[1:])
            new_left -= 1
    return Hunk(tuple(before), tuple(after), line)


def _diff_path(line: str) -> str:
    path = line[4:].split("\t", maxsplit=1)[0].strip().strip('"')
    return path[2:] if path.startswith(("a/", "b/")) else path


def _place(lines: Sequence[str], hunk: Hunk, start: int) -> int | None:
    before = list(hunk.before)
    if not before:
        return min(max((hunk.line or start + 1) - 1, 0), len(lines)) if hunk.line else len(lines)
    if hunk.line is not None:
        at = hunk.line - 1
        if lines[at : at + len(before)] == before:
            return at
    for strips in (False, True):
        wanted, there = (
            [line.rstrip() for line in each] if strips else each for each in (before, lines)
        )
        for at in range(start, len(lines) - len(before) + 1):
            if there[at : at + len(before)] == wanted:
                return at
    return None


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


class FileEdit(NamedTuple):
    path: str
    before: str
    after: str
    is_whole: bool = False
    deleted: bool = False
    moved_to: str | None = None

    def payload(self, call_id: str | None, **more: Any) -> dict[str, Any]:
        return {
            "path": self.path,
            "before": self.before,
            "after": self.after,
            "call_id": call_id,
            "deleted": self.deleted or None,
            "moved_to": self.moved_to,
            "is_region": None if self.is_whole else True,
        } | more


class ToolUse(NamedTuple):
    """A call of a tool with its result. `ok` is None if the source does not say."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    ok: bool | None
    output: str


#: Beginnings of results that report a failure only in words.
_FAILED = re.compile(
    r"\s*(?:<tool_use_error>|error\b|failed\b|invalid\b|no replacement\b|no match\b|no changes\b"
    r"|cannot\b|could not\b|permission denied|traceback|file (?:not found|has not been read)"
    r"|your proposed edit|no edit|text not found|string to replace not found|\[error\]|exception\b"
    r"|ran into\b|the tool call was rejected|the user (?:denied|rejected))",
    re.IGNORECASE,
)
_FAILED_JSON = re.compile(r'\s*\{.*"(?:error|success)"\s*:\s*(?:"[^"]|false|true)', re.DOTALL)

_PATHS = ("file_path", "filePath", "filepath", "path", "filename", "file", "absolute_path",
          "target_file", "notebook_path", "TargetFile", "AbsolutePath")  # fmt: skip
_OLD = ("old_string", "oldString", "old_str", "oldText", "old_text", "search", "TargetContent")
_NEW = ("new_string", "newString", "new_str", "newText", "new_text", "replace",
        "ReplacementContent")  # fmt: skip
_CONTENT = ("content", "file_text", "contents", "new_content", "code_edit", "CodeContent")
_PATCHES = ("patch", "input", "diff", "patchText")
_WRITES = re.compile(r"write|create|new_file|save", re.IGNORECASE)
_EDITS = re.compile(r"edit|write|insert|replace|patch|create", re.IGNORECASE)
_COMMANDS = ("view", "create", "write", "insert", "str_replace", "undo_edit")
_READS = re.compile(r"^(?:file_?)?(?:read|view|open|cat)(?:_?file)?$|^str_replace", re.IGNORECASE)
_PARTIAL = ("offset", "limit", "start_line", "end_line", "view_range", "start", "end", "range")
#: Numbered lines, as of `cat -n`; some tools write `1→`, `00001| ` or `1: `.
_NUMBERED = re.compile(r"^ *(\d+)(?:\t|→|\| ?|: )(.*)$")
_BLOCK = re.compile(
    r"^[-<]{5,9} ?SEARCH>?[^\n]*\n(.*?)^={5,9}\n(.*?)^[+>]{5,9} ?REPLACE>?[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_BLOCK_HEAD = re.compile(r"\A(?::start_line:\d+\s*\n|:end_line:\d+\s*\n)*(?:-{5,9}\n)?")


@dataclass
class FileChanges:
    #: Takes the type, the payload and the key of an event.
    record: Callable[[str, dict[str, Any], str], object]
    #: Takes a call that edited a file, though its text is not shown.
    miss: Callable[["ToolUse"], object]
    texts: dict[str, str] = field(default_factory=dict)
    edited: set[str] = field(default_factory=set)

    def take(self, use: ToolUse) -> None:
        if has_failed(use):
            return
        edits = list(edits_of(use, self.texts))
        for at, edit in enumerate(edits):
            self.add(edit, f"{use.call_id}:edit" + (f":{at}" if at else ""), use.call_id)
        if not edits and _edits_file(use):
            self.miss(use)
        if not edits and (view := view_of(use)):
            path, text = view
            self.texts[path] = text
            payload = {"path": path, "text": text, "call_id": use.call_id}
            self.record("file_observed", payload, f"{use.call_id}:view")

    def add(self, edit: FileEdit, key: str, call_id: str | None) -> None:
        path = edit.moved_to or edit.path
        if edit.is_whole:
            self.texts[path] = edit.after
        elif path in self.texts:
            self.texts[path] = self.texts[path].replace(edit.before, edit.after, 1)
        if edit.before != edit.after:
            self.edited.add(path)
            said = {"path": path, "before": edit.before, "after": edit.after}
            self.record("edit", {"edit_id": key, "call_id": call_id} | said, key)

    def add_final_patch(self, patch: str, key: str) -> None:
        """Add the final patch of a run, for files without a recorded edit."""
        known = tuple(self.edited)
        for at, edit in enumerate(edits_of_patch(patch)):
            new = edit.moved_to or edit.path
            if not any(path.endswith(f"/{new}") or path == new for path in known):
                self.add(edit, f"{key}:{at}", None)


def _edits_file(use: ToolUse) -> bool:
    command, path = use.arguments.get("command"), first_text(use.arguments, *_PATHS)
    named = command if command in _COMMANDS else use.tool
    return path is not None and bool(_EDITS.search(named)) and command != "view"


def has_failed(use: ToolUse) -> bool:
    if use.ok is not None or _FAILED.match(use.output):
        return not use.ok
    facts = arguments_of(use.output) if _FAILED_JSON.match(use.output) else {}
    return bool(facts.get("error")) or facts.get("success") is False


def edits_of(use: ToolUse, texts: Mapping[str, str]) -> Iterator[FileEdit]:
    """The edits that a call asks for. `texts` are the known whole files."""
    arguments = use.arguments
    path = first_text(arguments, *_PATHS)
    patch = first_text(arguments, *_PATCHES)
    if patch is not None and (edits := _patched(patch, path, texts)):
        yield from edits
        return
    if not path:
        return
    several = arguments.get("edits", arguments.get("ReplacementChunks"))
    for change in several if isinstance(several, list) else [arguments]:
        if not isinstance(change, dict) or arguments.get("command") in ("view", "undo_edit"):
            continue
        old, new = replacement_of(change)
        if arguments.get("command") == "insert" and new is not None:
            yield FileEdit(path, "", new)
        elif old is not None and (new is not None or arguments.get("command") == "str_replace"):
            yield FileEdit(path, old, new or "", is_whole=not old and path not in texts)
    content = first_text(arguments, *_CONTENT)
    command = arguments.get("command")
    writes = (
        command in ("create", "write") if isinstance(command, str) else _WRITES.search(use.tool)
    )
    if content is not None and writes:
        yield FileEdit(path, texts.get(path, ""), content, is_whole=True)


def replacement_of(change: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return first_text(change, *_OLD), first_text(change, *_NEW)


def _patched(patch: str, path: str | None, texts: Mapping[str, str]) -> list[FileEdit]:
    blocks = [
        FileEdit(path, _BLOCK_HEAD.sub("", match[1]), match[2])
        for match in _BLOCK.finditer(patch)
        if path
    ]
    return blocks or list(edits_of_patch(patch, texts))


def view_of(use: ToolUse) -> tuple[str, str] | None:
    """The path and text of a file, if a result surely shows all of it: lines are numbered from 1,
    the call asked for no part, and nothing was cut off."""
    path = first_text(use.arguments, *_PATHS)
    asked = use.arguments
    if not path or not _READS.match(use.tool) or any(asked.get(name) for name in _PARTIAL):
        return None
    if asked.get("command") not in (None, "view"):
        return None
    lines = use.output.splitlines()
    while lines and not _NUMBERED.match(lines[0]):
        if not lines.pop(0).startswith(("<", "Here's the result", "[File:")):
            return None
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


def edits_of_patch(
    patch: str, texts: Mapping[str, str] = MappingProxyType({}), *, by_hunk: bool = False
) -> Iterator[FileEdit]:
    for file in read_v4a(patch) if is_v4a(patch) else read_unified(patch):
        if by_hunk and file.action == "update" and len(file.hunks) > 1:
            yield from (edit_of(replace(file, hunks=(hunk,))) for hunk in file.hunks)
        else:
            yield edit_of(file, texts.get(file.path))


def edit_of(file: FilePatch, text: str | None = None) -> FileEdit:
    """The edit that a patch makes: of the whole file if its `text` is known and fits."""
    before, after = file.regions()
    if file.action == "add":
        return FileEdit(file.path, "", after, is_whole=True)
    if file.action == "delete":
        return FileEdit(file.path, text or before, "", is_whole=text is not None, deleted=True)
    applied = file.applied(text) if text is not None else None
    if text is not None and applied is not None:
        return FileEdit(file.path, text, applied, is_whole=True, moved_to=file.moved_to)
    return FileEdit(file.path, before, after, moved_to=file.moved_to)


def reported_edit(facts: Mapping[str, Any]) -> FileEdit | None:
    path, old = first_text(facts, "path", "file"), first_text(facts, "old_content", "before")
    new = first_text(facts, "new_content", "after")
    if path is None or new is None:
        return None
    return FileEdit(path, old or "", new, is_whole=True)
