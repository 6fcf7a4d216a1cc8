"""Edits as tools write them: what each makes of a file, as texts before and after.

Three forms: a string that is replaced, a unified diff, and the V4A patch of `apply_patch`. Where
the file's text is known the result is the whole file; else the texts are those of the regions that
the patch shows, one after the other.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

_V4A_BEGIN = "*** Begin Patch"
_V4A_END = "*** End Patch"
_V4A_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_V4A_MOVE = "*** Move to: "
_V4A_LAST = "*** End of File"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_FILE = "/dev/null"
_NO_NEWLINE = "\\ No newline"

Action = Literal["add", "update", "delete"]


class Hunk(NamedTuple):
    """Lines of a region before and after, without their ends."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    #: The line at which it stands in the file before, from 1; None where the patch does not say.
    line: int | None = None


@dataclass(frozen=True)
class FilePatch:
    """What a patch does to one file."""

    path: str
    action: Action
    hunks: Sequence[Hunk] = ()
    moved_to: str | None = None

    def regions(self) -> tuple[str, str]:
        """The texts before and after of what the patch shows."""
        before = "".join(_text(hunk.before) for hunk in self.hunks)
        after = "".join(_text(hunk.after) for hunk in self.hunks)
        return before, after

    def applied(self, text: str) -> str | None:
        """The file after it; None where the patch does not fit this text."""
        lines = text.split("\n")
        at = 0
        for hunk in self.hunks:
            place = _place(lines, hunk, at)
            if place is None:
                return None
            lines[place : place + len(hunk.before)] = hunk.after
            at = place + len(hunk.after)
        return "\n".join(lines)


def replaced(text: str, old: str, new: str, *, everywhere: bool = False) -> str | None:
    """The text with `new` for `old`; None where `old` is not in it."""
    if old not in text:
        return None
    return text.replace(old, new) if everywhere else text.replace(old, new, 1)


def is_v4a(patch: str) -> bool:
    return _V4A_BEGIN in patch[:4096]


def read_v4a(patch: str) -> list[FilePatch]:
    """The files of an `apply_patch` text, which may stand in a shell command."""
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
        elif line == _V4A_LAST:
            continue


def read_unified(patch: str) -> list[FilePatch]:
    """The files of a unified diff, as `diff -u` and `git diff` write it."""
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
    """Where the hunk's lines before stand, at the line that it names or behind `start`."""
    before = list(hunk.before)
    if not before:
        return min(max((hunk.line or start + 1) - 1, 0), len(lines)) if hunk.line else len(lines)
    if hunk.line is not None:
        at = hunk.line - 1
        if lines[at : at + len(before)] == before:
            return at
    stripped = [line.rstrip() for line in before]
    for exact in (True, False):
        for at in range(start, len(lines) - len(before) + 1):
            there = lines[at : at + len(before)]
            if (there if exact else [line.rstrip() for line in there]) == (
                before if exact else stripped
            ):
                return at
    return None


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
