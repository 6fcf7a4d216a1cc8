"""What the simulator knows about a session, whatever its events say."""

from dataclasses import dataclass, field

from penstock_jobs.simulator.files import FileChange
from penstock_jobs.simulator.policy import Task
from penstock_jobs.simulator.users import Reaction


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
    """`worth` is what the turn did for the user, from 0 to 1. `dissatisfied` is about the message
    that followed; None if none did."""

    turn: int
    task: Task
    style: str
    worth: float
    asked: bool = False
    broken: bool = False
    dissatisfied: bool | None = None


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
