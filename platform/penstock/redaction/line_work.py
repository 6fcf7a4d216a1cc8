"""What looking at lines costs: bounded for each line by its size, and in turns, so that no line
keeps others waiting."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

_Outcome = TypeVar("_Outcome")
#: A computation that stops now and then for others to have a turn.
Steps = Generator[None, None, _Outcome]

#: Characters that one pattern looks at before others have a turn: some milliseconds.
TURN_CHARS = 64 * 1024
#: Each character of a line is looked at by a few patterns, in a few encodings. A line that wants
#: more was made for it.
LOOKS_MAX = 32
_ANY_LINE_CHARS = 4 * 1024 * 1024
#: What looking at any text takes, however short it is.
_TEXT_CHARS = 64


class LineUnfit(ValueError):
    """A line that is refused since it cannot be looked through; `why` is for who sent it."""

    why: ClassVar[str]


class TooMuchWork(LineUnfit):
    """A line that would be looked at more often than any that somebody meant."""

    why = f"it would have to be looked at more than {LOOKS_MAX} times to read all its encodings"


@dataclass
class LineWork:
    """The work on lines, in characters that patterns looked at."""

    left_chars: int = _ANY_LINE_CHARS
    turn_chars: int = 0

    def begin(self, line_bytes: int) -> None:
        self.left_chars = _ANY_LINE_CHARS + LOOKS_MAX * line_bytes

    def ends_turn(self, chars: int) -> bool:
        """Whether others have to have a turn after these. Raises TooMuchWork."""
        chars += _TEXT_CHARS
        self.left_chars -= chars
        if self.left_chars < 0:
            raise TooMuchWork
        self.turn_chars += chars
        if self.turn_chars < TURN_CHARS:
            return False
        self.turn_chars = 0
        return True


def outcome(steps: Steps[_Outcome]) -> _Outcome:
    """Of a computation that nobody waits for."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: _Outcome = end.value
            return value
