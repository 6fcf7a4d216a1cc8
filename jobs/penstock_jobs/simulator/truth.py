"""The truth about a session: its requests, its edits, and what became of the agent's work."""

from dataclasses import dataclass, field

from penstock_jobs.simulator.files import CodeLine, FileChange, WorkingFile, replace_lines
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.policy import Task
from penstock_jobs.simulator.users import Deed, Kind


@dataclass(slots=True)
class EditTruth:
    """The truth about an edit. `survival` has the shares of characters and lines left, by horizon;
    None if the agent replaced all. `looked` lists the horizons with an observation."""

    edit_id: str
    request: int
    path: str
    style: str
    quality: float
    written_chars: int
    written_lines: int
    reaction: Deed = "kept"
    survival: dict[int, tuple[float, float] | None] = field(default_factory=dict)
    looked: list[int] = field(default_factory=list)

    def measure(self, horizon_s: int, change: FileChange) -> None:
        shares = change.survival()
        self.survival[horizon_s] = shares and (round(shares[0], 4), round(shares[1], 4))


@dataclass(slots=True)
class RequestTruth:
    """The truth about a request. `worth` is the share of what was wanted that the agent did and
    that stands in the end; `size` weighs it. `missing` is the share that it never tried.

    `dissatisfied` is what the user said of it; None if nobody said anything, nor went on."""

    request: int
    kind: Kind
    task: Task
    size: float
    worth: float = 0.0
    missing: float = 1.0
    #: The style of each turn, and the user's acts of speech about them.
    styles: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    #: Questions that the agent asked.
    asked: int = 0
    broken: bool = False
    by_hand: bool = False
    dissatisfied: bool | None = None


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
    #: The mean of its requests by their size.
    worth: float = 0.0
    outcome: str = "scored"
    reason: str | None = None
    #: What each message of the user does, by the labels of judges.
    messages: list[str] = field(default_factory=list)
    #: The model calls whose work each message is about; none of those that want something.
    about: list[tuple[str, ...]] = field(default_factory=list)
    requests: list[RequestTruth] = field(default_factory=list)
    edits: list[EditTruth] = field(default_factory=list)


@dataclass(eq=False)
class Work:
    """The true fate of a request. `wanted` counts the lines that the user wants changed."""

    kind: Kind
    file: WorkingFile
    wanted: int
    changes: list[FileChange] = field(default_factory=list)
    #: What the agent changed in place of the work.
    junk: list[FileChange] = field(default_factory=list)
    #: The lines that a deletion is about.
    doomed: list[CodeLine] = field(default_factory=list)
    #: How right an answer or a command was, where nothing is to be edited, and what a trick did.
    answer: float = 0.0
    safe: float = 0.0

    @property
    def is_edited(self) -> bool:
        return self.kind not in ("question", "terminal")

    def right(self) -> float:
        """The share of what is wanted that the agent did, and that stands."""
        if not self.is_edited:
            return self.answer
        if self.doomed:
            taken = {line for change in self.changes for line in change.took}
            present = set(self.file.lines)
            gone = sum(line in taken and line not in present for line in self.doomed)
            return gone / self.wanted
        right = sum(line.is_right for line in self.standing())
        return min(right / self.wanted + self.safe, 1.0)

    def tried(self) -> float:
        """The share of what is wanted that stands, right or wrong."""
        if not self.is_edited:
            return float(self.answer > 0)
        if self.doomed:
            return min(sum(len(change.took) for change in self.changes) / self.wanted, 1.0)
        return min(len(self.standing()) / self.wanted + self.safe, 1.0)

    def wrong(self) -> float:
        """The share of what stands that is wrong. Junk is wrong altogether."""
        tried = self.tried()
        return max(tried - self.right(), 0.0) / tried if tried else float(bool(self.junk))

    def standing(self) -> list[CodeLine]:
        stretches = (change.stretch() for change in self.changes)
        return [line for stretch in stretches for line in stretch if not line.comment]

    def take(self, deed: Deed, dice: Dice) -> None:
        """Let the user do something to it."""
        for junk in reversed(self.junk if deed != "kept" else []):
            junk.revert()
        for change in reversed(self.changes):
            if deed == "reverted" or (deed == "commented_out" and not change.wrote):
                change.revert()
            elif deed == "commented_out":
                change.comment_out(dice)
            elif deed != "kept" and self.doomed:
                change.bring_back([line for line in change.took if line.wrong])
            elif deed != "kept":
                wrong = [line for line in change.stretch() if line.wrong]
                for line in wrong:
                    new = change.file.new_lines(dice, 1) if deed == "fixed" else []
                    replace_lines(change.file, [line], new)

    def finish(self, dice: Dice) -> None:
        """Let the user do by hand what nobody has done."""
        lines = self.file.lines
        if self.doomed:
            missed = {line for line in self.doomed if line in set(lines)}
            lines[:] = [line for line in lines if line not in missed]
            return
        standing = self.standing()
        count = self.wanted - len(standing) - round(self.safe * self.wanted)
        self.write_below(dice, max(count, 0), near=0.7)

    def write_below(self, dice: Dice, count: int, near: float) -> None:
        """Let the user write lines below the agent's, or elsewhere in the file."""
        lines, present = self.file.lines, set(self.file.lines)
        stretch = [line for line in self.standing() if line in present]
        if stretch and dice.chance(near):
            at = lines.index(stretch[-1]) + 1
        else:
            at = dice.between(0, len(lines))
        lines[at:at] = self.file.new_lines(dice, count)
