"""What users make of an edit, by how good it was and by how strict they are."""

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
        """Text that does nothing is read by nobody, and stays."""
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
    """What happens to files and says nothing about the edit: it all stays."""
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
    """Put one or two of its lines otherwise, or a word in one of them."""
    code = [line for line in change.stretch() if not line.comment]
    if not code:
        return
    if dice.chance(0.25):
        _put_word(dice, dice.pick(code))
        return
    at = dice.between(0, len(code) - 1)
    gone = code[at : at + dice.between(1, 2)]
    _replace(change, gone, change.file.new_lines(dice, len(gone)))


def _put_word(dice: Dice, line: CodeLine) -> None:
    """Another word of the line, at its own place; what was in the word is lost."""
    words = [word for word in line.text.split() if len(word) > 3]
    if not words:
        return
    word = dice.pick(words)
    line.text = line.text.replace(word, dice.hex(6), 1)
    line.left = max(0, line.left - len(word))


def _replace(change: FileChange, gone: list[CodeLine], come: list[CodeLine]) -> None:
    lines, out = change.file.lines, {id(line) for line in gone}
    at = next((at for at, line in enumerate(lines) if id(line) in out), None)
    if at is None:
        return
    lines[at:at] = come
    lines[:] = [line for line in lines if id(line) not in out]


def _move(dice: Dice, change: FileChange) -> None:
    """The edit's lines go to another place of the file, all together."""
    mine = change.stretch()
    if not mine:
        return
    out = {id(line) for line in mine}
    rest = [line for line in change.file.lines if id(line) not in out]
    at = dice.between(0, len(rest))
    change.file.lines[:] = rest[:at] + mine + rest[at:]
