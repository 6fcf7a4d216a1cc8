"""What the simulator knows about a session, whatever its events say: how its user reacts to edits,
and what became of them."""

from dataclasses import dataclass, field
from typing import Literal

from penstock_jobs.simulator.files import FileChange
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.policy import Task

Reaction = Literal["kept", "fixed", "partly_reverted", "reverted"]

USERS = 150
#: When they act: within ten minutes, an hour, a day; and how often they do so by then.
_WHEN_S = ((0.6, (20, 480)), (0.85, (660, 3_000)), (1.0, (3_900, 70_000)))


@dataclass(frozen=True)
class User:
    name: str
    strictness: float

    @classmethod
    def pick(cls, dice: Dice) -> "User":
        """The same users for every seed; a few of them bring most of the sessions."""
        number = dice.skewed(1, USERS)
        strictness = 0.8 + 0.4 * Dice(f"user:{number}").random()
        return cls(f"u-{number:04}", strictness)

    def reaction(self, dice: Dice, quality: float, comment_share: float) -> Reaction:
        """Nobody reads comments, so an edit that is mostly comments stays."""
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
    """`survival` has by horizon, in seconds, the shares of characters and of lines that are left
    then; None if the agent replaced all of them. `looked` are the horizons at which somebody
    observes the file."""

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
    """`worth` is what the turn did for the user, from 0 to 1, and `missing` the share of the task
    that it did not try. The user may then do the rest `by_hand`, or ask for it again.
    `dissatisfied` is about the message that followed; None if none did."""

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
    """`outcome` and `reason` are those that the view `outcomes` should have."""

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
