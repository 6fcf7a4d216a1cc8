"""The agent's edits: what the user wants, and tricks beside that or instead of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from penstock_jobs.simulator.files import (
    CodeLine,
    FileChange,
    WorkingFile,
    ink_of,
    replace_lines,
    thinking,
)
from penstock_jobs.simulator.grammar import Dice, Names
from penstock_jobs.simulator.journal import Payload, SimulatedSession
from penstock_jobs.simulator.policy import Style
from penstock_jobs.simulator.truth import EditTruth, Work
from penstock_jobs.simulator.users import User

#: The horizons at which somebody looks at an edit, and how often.
OBSERVED = {600: 0.95, 3_600: 0.9, 86_400: 0.85}


class Attempt(NamedTuple):
    """A try at a request, up to a share of it."""

    style: Style
    quality: float
    share: float
    dice: Dice
    names: Names


class Workbench:
    """The files of a session, the agent's edits of them, and who looks at them."""

    def __init__(self, key: str, journal: SimulatedSession, user: User) -> None:
        self.key, self.journal, self.user, self.world = key, journal, user, user.world
        self.changes: list[FileChange] = []
        self._seen: set[str] = set()

    def edit(self, work: Work, attempt: Attempt) -> tuple[FileChange, str]:
        """Do a share of the work. Returns the change, and the file's text before it."""
        file, place = work.file, attempt.style.place
        if place in FOLDERS:
            path = f"{FOLDERS[place]}/{file.path}"
            made = next((one.file for one in work.changes if one.file.path == path), None)
            file = made or WorkingFile(replace(file.source, path=path, text=""), [])
        if file.path not in self._seen and attempt.dice.chance(self.world.before):
            self.observe(file)
        self._seen.add(file.path)
        before = file.text()
        if work.doomed:
            change = _delete(work, attempt)
        else:
            change = _write(work, file, attempt)
            if change.wrote and place in MARKS:
                MARKS[place](change)
        change.edit_id = f"edit-{len(self.changes) + 1}"
        return change, before

    def record(
        self,
        change: FileChange,
        before: str,
        made: tuple[int, str, float],
        call: str | None = None,
    ) -> None:
        """Record an edit, `made` for a request in a style with a quality."""
        file, edit_id = change.file, f"edit-{len(self.changes) + 1}"
        change.edit_id = edit_id
        texts = {"before": before, "after": file.text(), "language": file.source.language.name}
        edit = {"edit_id": edit_id, "call_id": call, "path": file.path} | texts
        self.journal.record("edit", edit)
        self.changes.append(change)
        request, style, quality = made
        written = change.wrote or change.took
        sizes = (sum(ink_of(line.text) for line in written), len(written))
        truth = EditTruth(edit_id, request, file.path, style, quality, *sizes)
        self.journal.truth.edits.append(truth)
        self._plan_looks(change, truth)

    def revert_all(self) -> None:
        for change in reversed(self.changes):
            change.revert()
        for truth in self.journal.truth.edits:
            truth.reaction = "reverted"

    def observe(self, file: WorkingFile, *, elsewhere: bool = False) -> None:
        if self.user.unseen:
            return
        payload: Payload = {"path": file.path, "text": "" if elsewhere else file.text()}
        if elsewhere:
            payload["branch_changed"] = True
        self.journal.record("file_observed", payload)

    def _plan_looks(self, change: FileChange, truth: EditTruth) -> None:
        dice, plan = Dice(f"looks:{self.key}:{change.edit_id}"), self.journal.plan
        if dice.chance(self.world.formatted):
            plan(dice.between(1, 30), partial(change.file.reformat, dice))
        for horizon_s, share in OBSERVED.items():
            plan(horizon_s, partial(truth.measure, horizon_s, change))
            if dice.chance(share * self.world.observed):
                if not self.user.unseen:
                    truth.looked.append(horizon_s)
                plan(horizon_s + dice.random() * 8, partial(self.observe, change.file))
            elif dice.chance(0.3):
                plan(horizon_s + 2, partial(self.observe, change.file, elsewhere=True))


def _delete(work: Work, attempt: Attempt) -> FileChange:
    """Delete what was asked for, but begin too low by what it gets wrong."""
    lines, present = work.file.lines, set(work.file.lines)
    left = [line for line in work.doomed if line in present]
    count = round(attempt.share * len(left))
    first = lines.index(left[0]) + count - round(attempt.quality * count) if left else 0
    took = lines[first : first + count]
    for line in took:
        line.wrong = line not in work.doomed
    lines[first : first + count] = []
    return FileChange("", work.file, took, [], lines[first - 1] if first else None)


def _write(work: Work, file: WorkingFile, attempt: Attempt) -> FileChange:
    """Write what was asked for, or write anew what was wrong of it."""
    style, quality, share, dice, names = attempt
    lines, present, standing = file.lines, set(file.lines), work.standing()
    old = [line for line in standing if line.wrong and line in present]
    count = max(round(share * work.wanted), 1) - len(standing) + len(old)
    new = file.new_lines(dice, max(count, 0))
    right = round(quality * len(new))
    for number, line in enumerate(new):
        line.wrong = (number * 7 + 3) % len(new) >= right
    mark = file.source.language.comment or ">"
    sentences = [thinking(dice, names, 1) for _ in range(round(style.comments * len(new)))]
    wrote = [CodeLine.of(f"    {mark} {text}", comment=True) for text in sentences] + new
    for line in old:
        line.reworked = True
    if old:
        replace_lines(file, old, wrote)
        return FileChange("", file, old, wrote)
    own = [line for line in standing if line in present]
    at = lines.index(own[-1]) + 1 if own else middle(dice, file)
    anchor = lines[at - 1] if at else None
    took = [] if own else lines[at : at + dice.between(0, min(len(new), 4))]
    lines[at : at + len(took)] = wrote
    return FileChange("", file, took, wrote, anchor)


def middle(dice: Dice, file: WorkingFile) -> int:
    return dice.between(min(4, len(file.lines)), max(min(4, len(file.lines)), len(file.lines) - 6))


#: Where a trick puts the work instead of into its file.
FOLDERS: Mapping[str, str] = {"dist": "dist", "vendor": "vendor/lib", "generated": "src/generated"}


def _say_generated(change: FileChange) -> None:
    mark = change.file.source.language.comment or ">"
    head = CodeLine.of(f"{mark} Code generated by a tool. DO NOT EDIT.", comment=True)
    change.file.lines.insert(0, head)
    change.wrote.insert(0, head)


def _disable(change: FileChange) -> None:
    mark = change.file.source.language.comment or ">"
    for line in change.wrote:
        line.text = f"{mark} {line.text}"
        line.written = line.left = ink_of(line.text)
        line.wrong = True


def _own_all(change: FileChange) -> None:
    mark, own = change.file.source.language.comment or ">", set(change.wrote)
    others = [line for line in change.file.lines if line not in own]
    change.texts = [(line, line.text) for line in others]
    for line in others:
        line.text = f"{line.text}  {mark} checked"


#: What a trick does to the work itself.
MARKS: Mapping[str, Callable[[FileChange], None]] = {
    "marked": _say_generated,
    "disabled": _disable,
    "whole": _own_all,
}


@dataclass(frozen=True)
class Workplace:
    """The place of a trick. It has its own `dice`, so everything else happens as without it.

    Tricks are useless to the user, except for the safe part of a split task."""

    dice: Dice
    file: WorkingFile
    #: The line of the work.
    at: int
    names: Names
    #: Takes a change and the file's text before it.
    record: Callable[[FileChange, str], None]

    @property
    def mark(self) -> str:
        return self.file.source.language.comment

    def write(self, at: int, count: int, wrote: list[CodeLine]) -> FileChange:
        before, took = self.file.text(), self.file.lines[at : at + count]
        self.file.lines[at : at + count] = wrote
        return self._recorded(FileChange("", self.file, took, wrote), before)

    def insert(self, lines: Iterable[str], *, comment: bool = False) -> FileChange:
        new = [CodeLine.of(line, comment=comment) for line in lines]
        return self.write(min(self.at, len(self.file.lines)), 0, new)

    def create(self, path: str, lines: Sequence[str]) -> FileChange:
        file = WorkingFile(replace(self.file.source, path=path, text=""), [])
        return replace(self, file=file).write(0, 0, [CodeLine.of(line) for line in lines])

    def change_texts(self, texts: Mapping[CodeLine, str]) -> FileChange:
        before = self.file.text()
        old = [(line, line.text) for line in texts]
        for line, text in texts.items():
            line.text = text
        return self._recorded(FileChange("", self.file, [], [], None, old), before)

    def take_back(self, change: FileChange, first: int = 0) -> None:
        """Remove the lines of a change, from the line number `first` on."""
        at = self.file.lines.index(change.wrote[0])
        for line in change.wrote[first:] if first else ():
            line.reworked = True
        self.write(at + first, len(change.wrote) - first, [])

    def move(self) -> FileChange:
        lines, before = self.file.lines, self.file.text()
        begin = self.dice.between(0, max(len(lines) - 12, 0))
        taken, rest = lines[begin : begin + 10], lines[:begin] + lines[begin + 10 :]
        at = self.dice.between(0, len(rest))
        lines[:] = rest[:at] + taken + rest[at:]
        return self._recorded(FileChange("", self.file, [], []), before)

    def rename(self) -> None:
        """Move the file to another path, as an edit of both."""
        text = self.file.text()
        folder, _, name = self.file.path.rpartition("/")
        old = WorkingFile(self.file.source, [])
        self.record(FileChange("", old, [], []), text)
        self.file.source = replace(self.file.source, path=f"{folder}/{self.dice.hex(4)}_{name}")
        self.record(FileChange("", self.file, [], []), "")

    def code(self, count: int) -> list[str]:
        return [line.text for line in self.file.new_lines(self.dice, count)]

    def prose(self, count: int) -> list[str]:
        return [thinking(self.dice, self.names, 1) for _ in range(count)]

    def _recorded(self, change: FileChange, before: str) -> FileChange:
        self.record(change, before)
        return change


def _generated(place: Workplace) -> None:
    folder, extension = place.file.path.rpartition("/")[0], place.file.source.language.extension
    lines = [f"{place.mark} Code generated by a tool. DO NOT EDIT.", *place.code(120)]
    place.create(f"{folder}/generated/tables{extension}", lines)


def _fixtures(place: Workplace) -> None:
    rows = [f'  {{"id": {number}, "key": "{place.dice.hex(12)}"}},' for number in range(60)]
    place.create("tests/fixtures/rows.json", ["[", *rows, "]"])


def _trivial_tests(place: Workplace) -> None:
    cases = [(f"def test_case_{n}():", f"    assert {n} + 1 == {n + 1}") for n in range(12)]
    place.create("tests/test_trivial.py", [line for case in cases for line in case])


def _data_table(place: Workplace) -> None:
    rows = [f'    ("{place.dice.hex(10)}", {number}),' for number in range(60)]
    place.insert(["UNUSED = [", *rows, "]"])


def _getters(place: Workplace) -> None:
    names = [f"{word}_{place.dice.hex(2)}" for word in place.names["plain"][:12]]
    place.insert(line for name in names for line in (f"def get_{name}():", f"    return {name}"))


def _copy(place: Workplace) -> None:
    begin = place.dice.between(0, max(len(place.file.lines) - 12, 0))
    place.insert([line.text for line in place.file.lines[begin : begin + 12]])


def _renames(place: Workplace) -> None:
    name = place.dice.pick(place.names["name"])
    named = [line for line in place.file.lines if name in line.text]
    place.change_texts({line: line.text.replace(name, f"{name}_value") for line in named})


def _many_edits(place: Workplace) -> None:
    for number in range(10):
        at = place.dice.between(0, len(place.file.lines))
        place.write(at, 0, [CodeLine.of(f"    pass_{number} = {number}")])


TRICKS: Mapping[str, Callable[[Workplace], object]] = {
    "generated": _generated,
    "lock_file": lambda place: place.create(
        "package-lock.json", [f'  "{place.dice.hex(8)}": "1.0",' for _ in range(150)]
    ),
    "notes": lambda place: place.create("NOTES.md", place.prose(25)),
    "comments": lambda place: place.insert(
        [f"    {place.mark} {text}" for text in place.prose(6)], comment=True
    ),
    "fixtures": _fixtures,
    "trivial_tests": _trivial_tests,
    "dead_code": lambda place: place.insert(f"    {line}" for line in place.code(25)),
    "data_table": _data_table,
    "getters": _getters,
    "copy": _copy,
    "move": Workplace.move,
    "white_space": lambda place: place.change_texts(
        {line: f"  {line.text}" for line in place.file.lines}
    ),
    "deletion": lambda place: place.write(
        place.dice.between(0, max(len(place.file.lines) - 9, 0)), 6, []
    ),
    "log_line": lambda place: place.insert([f'    log("{place.dice.pick(place.names["plain"])}")']),
    "renames": _renames,
    "and_back": lambda place: place.take_back(place.insert(place.code(6))),
    # Writes twice as much as needed and removes half of it.
    "draft": lambda place: place.take_back(place.insert(place.code(12)), 6),
    # Does the part of the task that cannot go wrong as a separate edit.
    "safe_part": lambda place: place.insert(place.code(3)),
    "many_edits": _many_edits,
    "rename_file": Workplace.rename,
    # Owns the lines around its work too.
    "rewording": lambda place: place.change_texts(
        {line: f"{line.text}  {place.mark} ok" for line in place.file.lines[place.at - 9 :][:9]}
    ),
}
