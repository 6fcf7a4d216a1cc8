"""The agent's edits, and who looks at them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
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

#: What a style names beside its work: studies bring them.
Tricks = Mapping[str, Callable[..., object]]
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

    def __init__(self, key: str, journal: SimulatedSession, user: User, tricks: Tricks) -> None:
        self.key, self.journal, self.user, self.world = key, journal, user, user.world
        self.tricks = tricks
        self.changes: list[FileChange] = []
        self._seen: set[str] = set()

    def edit(self, work: Work, attempt: Attempt) -> tuple[FileChange, str]:
        """Do a share of the work. Returns the change, and the file's text before it."""
        file, folder = work.file, attempt.style.folder
        if folder:
            path = f"{folder}/{file.path}"
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
            if change.wrote and attempt.style.mark:
                self.tricks[attempt.style.mark](change)
        change.edit_id = f"edit-{len(self.changes) + 1}"
        return change, before

    def record(
        self, change: FileChange, before: str, made: tuple[int, str, float], call: str | None = None
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

    def observe(self, file: WorkingFile, *, elsewhere: bool = False) -> None:
        if self.user.unseen:
            return
        payload: Payload = {"path": file.path, "text": "" if elsewhere else file.text()}
        if elsewhere:
            payload["branch_changed"] = True
        self.journal.record("file_observed", payload)

    def _plan_looks(self, change: FileChange, truth: EditTruth) -> None:
        # Whether a client looks depends on its user, not on how many edits there are.
        dice, plan = Dice(f"looks:{self.key}:{truth.request}"), self.journal.plan
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
