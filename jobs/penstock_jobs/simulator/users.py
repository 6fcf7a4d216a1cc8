"""Users, and what they do to an edit: it depends on how good it is and how strict they are."""

from dataclasses import dataclass
from typing import Literal

from penstock_jobs.simulator.files import CodeLine, FileChange
from penstock_jobs.simulator.grammar import Dice

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


def act(dice: Dice, change: FileChange, reaction: Reaction) -> None:
    """Do to the file what the reaction says."""
    if reaction == "reverted":
        change.revert()
    elif reaction == "partly_reverted":
        _take_part(dice, change)
    elif reaction == "fixed":
        _fix(dice, change)


def meddle(dice: Dice, change: FileChange) -> None:
    """A change to the file that says nothing about the edit: all of the edit stays."""
    lines = change.file.lines
    draw = dice.random()
    if draw < 0.6:
        at = dice.between(0, len(lines))
        lines[at:at] = change.file.new_lines(dice, dice.between(1, 4))
    elif draw < 0.85:
        for line in lines:
            line.text = f"  {line.text}"
    else:
        _move(dice, change)


def _take_part(dice: Dice, change: FileChange) -> None:
    code = [line for line in change.stretch() if not line.comment]
    if not change.wrote:  # of what was taken away, some comes back
        change.bring_back(change.took[: (len(change.took) + 1) // 2])
        return
    size = max(1, len(code) * dice.between(3, 7) // 10)
    at = dice.between(0, max(0, len(code) - size))
    _replace(change, code[at : at + size], [])


def _fix(dice: Dice, change: FileChange) -> None:
    """Replace one or two of its lines, or a word in one of them."""
    code = [line for line in change.stretch() if not line.comment]
    if not code:
        return
    if dice.chance(0.25):
        _put_word(dice, dice.pick(code))
        return
    at = dice.between(0, len(code) - 1)
    old = code[at : at + dice.between(1, 2)]
    _replace(change, old, change.file.new_lines(dice, len(old)))


def _put_word(dice: Dice, line: CodeLine) -> None:
    """Replace a word of the line; its characters are lost."""
    words = [word for word in line.text.split() if len(word) > 3]
    if not words:
        return
    word = dice.pick(words)
    line.text = line.text.replace(word, dice.hex(6), 1)
    line.left = max(0, line.left - len(word))


def _replace(change: FileChange, old: list[CodeLine], new: list[CodeLine]) -> None:
    lines, ids = change.file.lines, {id(line) for line in old}
    at = next((at for at, line in enumerate(lines) if id(line) in ids), None)
    if at is None:
        return
    lines[at:at] = new
    lines[:] = [line for line in lines if id(line) not in ids]


def _move(dice: Dice, change: FileChange) -> None:
    """Move the edit's lines, all together, to another place of the file."""
    moved = change.stretch()
    if not moved:
        return
    ids = {id(line) for line in moved}
    rest = [line for line in change.file.lines if id(line) not in ids]
    at = dice.between(0, len(rest))
    change.file.lines[:] = rest[:at] + moved + rest[at:]
