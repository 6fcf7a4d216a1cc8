"""What the user does to edits after they were made, and who looks at the files when."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock_jobs.simulator.files import FileChange, WorkingFile, ink_of
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.policy import Style
from penstock_jobs.simulator.truth import (
    EditTruth,
    Journal,
    SessionTruth,
    TurnTruth,
    User,
    seconds_until_acting,
)

#: How often somebody still observes a file after so many seconds.
OBSERVED = {600: 0.95, 3_600: 0.9, 86_400: 0.85}
#: When users begin who do what the agent left undone.
_BY_HAND_S = (20, 1_200)


@dataclass
class Aftermath:
    """`key` seeds what only some policies lead to, so that all else is the same for others."""

    dice: Dice
    journal: Journal
    truth: SessionTruth
    user: User
    key: str
    changes: list[FileChange] = field(default_factory=list)
    #: Those of them that were to do a task.
    works: list[FileChange] = field(default_factory=list)
    #: The user said something about the work.
    heard: bool = False
    stopped: bool = False

    def of_work(self, change: FileChange, style: Style, quality: float) -> None:
        """Plans what becomes of an edit that was to do the task."""
        dice, journal = self.dice, self.journal
        reaction = self.user.reaction(dice, quality, style.comment_share)
        truth = self._truth_of(change, style.name, quality)
        truth.reaction = reaction
        self.works.append(change)
        made_us = journal.now_us - 1_000  # the edit's own moment
        when_us = made_us + seconds_until_acting(dice) * 1_000_000
        journal.plan(when_us, lambda: self._act(change, truth, by_hand=dice.chance(0.3)))
        if dice.chance(0.2):
            when_us = made_us + seconds_until_acting(dice) * 1_000_000
            journal.plan(when_us, partial(change.change_beside, dice))
        self._plan_looks(change, truth, made_us, dice)

    def of_trick(self, change: FileChange, name: str, dice: Dice) -> None:
        truth = self._truth_of(change, name, 1.0)
        self._plan_looks(change, truth, self.journal.now_us - 1_000, dice)

    def of_turn(self, turn: TurnTruth, file: WorkingFile, change: FileChange | None) -> None:
        """What is missing the user may write by hand, mostly where the edit is."""
        dice = Dice(f"by hand:{self.key}:{turn.turn}")
        if not dice.chance(0.6 * turn.missing):
            return
        turn.by_hand = True
        size = max(1, round(turn.missing * dice.between(4, 9)))
        when_us = self.journal.now_us + dice.skewed(*_BY_HAND_S) * 1_000_000
        at_edit = change if dice.chance(0.7) else None

        def write() -> None:
            if not self.stopped:
                lines, stretch = file.lines, at_edit.stretch() if at_edit else []
                at = lines.index(stretch[-1]) + 1 if stretch else dice.between(0, len(lines))
                lines[at:at] = file.new_lines(dice, size)

        self.journal.plan(when_us, write)

    def stop(self) -> None:
        """The user has had enough, and takes everything back at once."""
        self.stopped = True
        self.journal.wait(self.dice.between(2, 20))
        self.journal.record("interrupt", {"reason": "user_stop"})
        for change, truth in reversed(list(zip(self.changes, self.truth.edits, strict=True))):
            change.revert()
            truth.reaction = "reverted"

    def _truth_of(self, change: FileChange, style: str, quality: float) -> EditTruth:
        place = (change.edit_id, len(self.truth.turns), change.file.path)
        written = change.wrote or change.took
        ink = sum(ink_of(line.text) for line in written)
        truth = EditTruth(*place, style, quality, ink, len(written))
        self.truth.edits.append(truth)
        self.changes.append(change)
        return truth

    def _plan_looks(self, change: FileChange, truth: EditTruth, made_us: int, dice: Dice) -> None:
        journal = self.journal
        for horizon_s, share in OBSERVED.items():
            due_us = made_us + horizon_s * 1_000_000
            journal.plan(due_us, partial(truth.measure, horizon_s, change))
            if dice.chance(share):
                truth.looked.append(horizon_s)
                observed_us = due_us + dice.between(1, 8_000) * 1_000
                journal.plan(observed_us, lambda: self._observe(change))
            elif dice.chance(0.3):
                journal.plan(due_us + 2_000_000, lambda: self._observe(change, elsewhere=True))

    def _act(self, change: FileChange, truth: EditTruth, *, by_hand: bool) -> None:
        if self.stopped:
            return
        if truth.reaction == "fixed":
            change.fix(self.dice)
        elif truth.reaction == "partly_reverted":
            change.revert_part(self.dice)
        elif truth.reaction == "reverted":
            change.revert()
            if not by_hand:
                self.journal.record("feedback", {"kind": "undo", "target": change.edit_id})
                self.heard = True

    def _observe(self, change: FileChange, *, elsewhere: bool = False) -> None:
        file = change.file
        payload: dict[str, Any] = {"path": file.path, "text": "" if elsewhere else file.text()}
        if elsewhere:
            payload["branch_changed"] = True
        self.journal.record("file_observed", payload | {"edit_ids": [change.edit_id]})
