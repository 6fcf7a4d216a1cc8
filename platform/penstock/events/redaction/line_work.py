"""What looking at lines costs: bounded by a line's size, and in turns, so that nobody waits."""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

_Outcome = TypeVar("_Outcome")
#: A computation that stops now and then for others to have a turn.
Steps = Generator[None, None, _Outcome]

#: Looked at before others have a turn: some milliseconds.
TURN_CHARS = 64 * 1024
#: A line that wants each character looked at more often was made for it.
LOOKS_MAX = 32
_ANY_LINE_CHARS = 4 * 1024 * 1024
#: What looking at any text costs, however short it is.
_TEXT_CHARS = 64


class LineUnfit(ValueError):
    """A line that is refused since it cannot be looked through; `why` is for its sender."""

    why: ClassVar[str]


class TooMuchWork(LineUnfit):
    why = f"it would have to be looked at more than {LOOKS_MAX} times to read all its encodings"


@dataclass
class LineWork:
    """The work on lines, in characters that patterns looked at."""

    left_chars: int = _ANY_LINE_CHARS
    turn_chars: int = 0

    def begin(self, line_bytes: int) -> None:
        self.left_chars = _ANY_LINE_CHARS + LOOKS_MAX * line_bytes

    def spend(self, chars: int) -> Steps[None]:
        """Count characters, and let others have a turn when it is time. Raises TooMuchWork."""
        chars += _TEXT_CHARS
        self.left_chars -= chars
        if self.left_chars < 0:
            raise TooMuchWork
        self.turn_chars += chars
        if self.turn_chars >= TURN_CHARS:
            self.turn_chars = 0
            yield


def outcome(steps: Steps[_Outcome]) -> _Outcome:
    """Run a computation that nobody waits for to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: _Outcome = end.value
            return value


#: The text that a piece is there for.
CORE_CHARS = 24 * 1024
#: What follows the core: as long as the longest match of a built-in rule.
REACH_CHARS = 20 * 1024
#: What comes before the core: the context of a match.
_MARGIN_CHARS = 1024

# A cut within base64 has to leave whole quartets.
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/_=-]")


class TextPiece(NamedTuple):
    """A text from `start` to `end`, for the matches that touch its core."""

    start: int
    core_start: int
    core_end: int
    end: int


def text_pieces(text: str) -> Iterator[TextPiece]:
    size = len(text)
    if size <= CORE_CHARS + REACH_CHARS:
        yield TextPiece(0, 0, size, size)
        return
    start = 0
    for core_start in range(0, size, CORE_CHARS):
        core_end = min(core_start + CORE_CHARS, size)
        if core_start:
            start = _cut(text, start, core_start - _MARGIN_CHARS)
        yield TextPiece(start, core_start, core_end, min(core_end + REACH_CHARS, size))


def _cut(text: str, last_cut: int, at: int) -> int:
    """A place near `at`, a multiple of four behind the start of base64 that may stand there."""
    gap = _NO_BASE64.search(text[last_cut:at][::-1])
    run_start = at - gap.start() if gap else last_cut
    return at - (at - run_start) % 4
