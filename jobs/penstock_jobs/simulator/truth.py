"""The truth about a session: the user's reactions and the fates of edits."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec

from penstock_jobs.simulator.files import FileChange, WorkingFile, ink_of
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.policy import Style, Task

Reaction = Literal["kept", "fixed", "partly_reverted", "reverted"]

USERS = 150
#: Cumulative shares of users who act within ten minutes, an hour, a day, with the times.
_WHEN_S = ((0.6, (20, 480)), (0.85, (660, 3_000)), (1.0, (3_900, 70_000)))


@dataclass(frozen=True)
class User:
    name: str
    strictness: float

    @classmethod
    def pick(cls, dice: Dice) -> "User":
        number = dice.skewed(1, USERS)
        strictness = 0.8 + 0.4 * Dice(f"user:{number}").random()
        return cls(f"u-{number:04}", strictness)

    def reaction(self, dice: Dice, quality: float, comment_share: float) -> Reaction:
        """Draw a reaction to an edit. Nobody reads comments, so edits of mostly comments stay."""
        bad = min((1 - quality) * self.strictness, 1.0)
        draw = dice.random() - 0.6 * bad * bad * (1 - comment_share) ** 2
        if draw < 0:
            return "reverted"
        draw -= 0.3 * bad
        if draw < 0:
            return "partly_reverted"
        return "fixed" if draw < 0.3 * bad else "kept"

    def is_dissatisfied(self, dice: Dice, worth: float) -> bool:
        return dice.chance(min(0.85 * self.strictness * (1 - worth) ** 1.5, 0.95))


def seconds_until_acting(dice: Dice) -> int:
    draw = dice.random()
    low, high = next(span for reach, span in _WHEN_S if draw < reach)
    return dice.skewed(low, high)


@dataclass(slots=True)
class EditTruth:
    """The truth about an edit. `survival` has the shares of characters and lines left, by horizon;
    None if the agent replaced all. `looked` lists the horizons with an observation."""

    edit_id: str
    turn: int
    path: str
    style: str
    quality: float
    written_chars: int
    written_lines: int
    reaction: Reaction = "kept"
    survival: dict[int, tuple[float, float] | None] = field(default_factory=dict)
    looked: list[int] = field(default_factory=list)

    def measure(self, horizon_s: int, change: FileChange) -> None:
        shares = change.survival()
        self.survival[horizon_s] = shares and (round(shares[0], 4), round(shares[1], 4))


@dataclass(slots=True)
class TurnTruth:
    """The truth about a turn. `worth` is its value to the user, from 0 to 1; `missing` the share of
    the task that it did not try. `dissatisfied` describes the next message; None without one."""

    turn: int
    task: Task
    style: str
    worth: float
    asked: bool = False
    broken: bool = False
    dissatisfied: bool | None = None
    missing: float = 0.0
    by_hand: bool = False
    asked_again: bool = False


@dataclass(slots=True)
class SessionTruth:
    """The truth about a session. The view `outcomes` should have its outcome and reason."""

    session_id: str
    user: str
    project: str
    checkpoint: str
    policy_version: int
    consent: str
    parent_session: str | None = None
    outcome: str = "scored"
    reason: str | None = None
    turns: list[TurnTruth] = field(default_factory=list)
    edits: list[EditTruth] = field(default_factory=list)


_encode = msgspec.json.Encoder().encode

Payload = dict[str, Any]


class SimulatedSession:
    """A session's events as its client sends them, and its truth.

    `now_us` only moves forward; `event_time_us` maps it to the time of events."""

    def __init__(
        self, start_us: int, event_time_us: Callable[[int], int], truth: SessionTruth
    ) -> None:
        self.now_us = start_us
        self._event_time_us = event_time_us
        #: Time, type and line of each event.
        self.lines: list[tuple[int, str, bytes]] = []
        self.truth = truth
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def record(self, kind: str, payload: Payload) -> None:
        number, at_us = len(self.lines), self._event_time_us(self.now_us)
        event = {
            "session_id": self.truth.session_id,
            "seq": number,
            "ts": at_us,
            "type": kind,
            "event_id": f"e{number:05}",
            "source": "simulator",
            "checkpoint": self.truth.checkpoint,
            "user": self.truth.user,
            "project": self.truth.project,
            "payload": payload,
        }
        self.lines.append((at_us, kind, _encode(event)))
        self.now_us += 1_000  # no two events of a session share a time

    def wait(self, seconds: float) -> None:
        self._advance_to(self.now_us + round(seconds * 1_000_000))

    def finish(self) -> None:
        while self._plans:
            self._advance_to(self._plans[0][0])

    def plan(self, at_us: int, action: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._plans, (at_us, self._planned, action))

    def _advance_to(self, moment_us: int) -> None:
        while self._plans and self._plans[0][0] <= moment_us:
            due_us, _, action = heapq.heappop(self._plans)
            self.now_us = max(self.now_us, due_us)
            action()
        self.now_us = max(self.now_us, moment_us)


OBSERVED = {600: 0.95, 3_600: 0.9, 86_400: 0.85}
#: Time until a user does by hand what the agent left undone.
_BY_HAND_S = (20, 1_200)


@dataclass
class Aftermath:
    """The user's and the agent's later actions on files.

    `key` seeds events that only some policies cause, so all others stay the same."""

    dice: Dice
    journal: SimulatedSession
    user: User
    key: str
    changes: list[FileChange] = field(default_factory=list)
    works: list[FileChange] = field(default_factory=list)
    heard: bool = False
    stopped: bool = False

    def of_work(self, change: FileChange, style: Style, quality: float) -> None:
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
        self.stopped = True
        self.journal.wait(self.dice.between(2, 20))
        self.journal.record("interrupt", {"reason": "user_stop"})
        edits = self.journal.truth.edits
        for change, truth in reversed(list(zip(self.changes, edits, strict=True))):
            change.revert()
            truth.reaction = "reverted"

    def _truth_of(self, change: FileChange, style: str, quality: float) -> EditTruth:
        place = (change.edit_id, len(self.journal.truth.turns), change.file.path)
        written = change.wrote or change.took
        ink = sum(ink_of(line.text) for line in written)
        truth = EditTruth(*place, style, quality, ink, len(written))
        self.journal.truth.edits.append(truth)
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
