"""Looking at a text: views of it, the pieces of a long one, and the work that this costs.

A view resolves escapes or removes line breaks, and knows the places in the original. Work is
bounded by the size of a line, and is done in turns, so that nobody waits."""

import html
import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from penstock.events.redaction.checks import is_jumble


class View(NamedTuple):
    text: str
    #: Where its pieces begin, here and in the original.
    begins: list[int]
    originals: list[int]
    #: How many characters of the original a piece of one character stands for; 0 is a copied piece.
    widths: list[int]

    def original(self, start: int, end: int) -> tuple[int, int]:
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, at: int) -> tuple[int, int]:
        piece = bisect_right(self.begins, at) - 1
        begin, width = self.originals[piece], self.widths[piece]
        if width:
            return begin, begin + width
        begin += at - self.begins[piece]
        return begin, begin + 1


#: What stands for other characters, in one pass: escapes of programs with any number of
#: back-slashes, of addresses and of HTML; and what is seen by nobody: colours and moves of a
#: terminal, titles of its window, spaces without a width. A colour may have lost its first byte.
#: Each way begins with one certain character: so most of a text is passed over quickly.
_ENCODED = re.compile(
    r"\\\\{0,63}+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([01][0-7]{2}|33)|([nrtbfe\"'/]))"
    r"|%(?:25){0,4}([0-7][0-9A-Fa-f])"
    r"|&(#[0-9]{1,5};|#[xX][0-9A-Fa-f]{1,4};|[A-Za-z]{2,9};)"
    r"|\x1b(?:(\[[0;]*[mK])|\[[0-9;:?]{0,64}+[@-~]|\][^\x07\x1b]{0,1024}+(?:\x07|\x1b\\)|[()][A-Z0-9])"
    r"|\[(?:(0?m)|[0-9]{1,3}(?:;[0-9]{1,3}){0,4}m)|\u200b|\u200c|\u200d|\u2060|\ufeff|\u00ad"
)
# Nothing is given back once it was taken, and spaces are bounded: else a text of many spaces or
# back-slashes would take the square of its size.
_SPACES = r"[ \t]{0,64}+"
_BREAK = r"(?:(?:\\{1,16}+r)?+\\{1,16}+n|\r?\n)"
#: A broken text goes on in the next line: behind the marks of a diff, a quotation or a comment.
LINE_BREAKS = re.compile(
    rf"(?:[\"'`]?+{_SPACES}{_BREAK}[+>|#*-]?+{_SPACES}(?://)?+{_SPACES}[\"'`]?+)++"
)
#: A program puts strings together, or a shell lines.
_SEAMS = re.compile(
    rf"[\"'`]{_SPACES}(?:[+.&]{_SPACES}(?:{_BREAK}[+-]?+{_SPACES})?+|\\?{_BREAK}[+-]?+{_SPACES}[+.&]{_SPACES})[\"'`]"
    rf"|\\\r?\n[ \t]{{0,64}}+|([\"']){_SPACES}{_BREAK}[ \t]{{1,64}}+\1"
)
_WORD = re.compile(r"[A-Za-z0-9+/_.=-]{1,512}+")
BASE64_BREAK = r"(?:(?:\\{1,16}+r)?+\\{1,16}+n|\r?\n)[+> -]?"
BASE64_BREAKS = re.compile(BASE64_BREAK)
_COLOURS = (None, 7, 8)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "e": "\x1b"}


def views(text: str, *, encoded: bool) -> Iterator[View]:
    """Put strings together, and undo one level of encodings. A colour may begin a word, end it or
    stand in it: where a text has colours there are three views."""
    if _SEAMS.search(text):
        yield without_breaks(text, _SEAMS)
    matches = [*_ENCODED.finditer(text)] if encoded else []
    coloured = any(match.lastindex in _COLOURS for match in matches)
    for colour, reset in (("", ""), (" ", ""), (" ", " "))[: 3 if coloured else bool(matches)]:
        yield _replaced(text, ((m.start(), m.end(), _decoded(m, colour, reset)) for m in matches))


def _decoded(match: re.Match[str], colour: str, reset: str) -> str:
    group = match.lastindex
    if group == 4:
        return _CONTROL.get(match[4], match[4])
    if group in (1, 2, 3, 5):
        return chr(int(match[group], 8 if group == 3 else 16))
    return html.unescape("&" + match[6])[:1] if group == 6 else reset if group else colour


def goes_on(text: str, begin: int, end: int) -> bool:
    """Whether a word behind a break looks random, and so belongs to the one before it."""
    word = _WORD.match(text, begin, end)
    return word is not None and is_jumble(word[0])


def without_breaks(text: str, breaks: re.Pattern[str]) -> View:
    return _replaced(text, ((m.start(), m.end(), "") for m in breaks.finditer(text)))


def _replaced(text: str, replacements: Iterable[tuple[int, int, str]]) -> View:
    """Replace parts of a text, each by one character or by none."""
    parts: list[str] = []
    view = View("", [], [], [])

    def add(part: str, original: int, width: int) -> None:
        if part:
            parts.append(part)
            view.begins.append(size)
            view.originals.append(original)
            view.widths.append(width)

    at = size = 0
    for start, end, by in replacements:
        if start < at:
            continue
        add(text[at:start], at, 0)
        size += start - at
        add(by, start, end - start)
        size += len(by)
        at = end
    add(text[at:], at, 0)
    return view._replace(text="".join(parts))


# Work

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
    """A line is refused because it cannot be scanned. `why` is for its sender."""

    why: ClassVar[str]


class TooMuchWork(LineUnfit):
    why = f"reading all its encodings would take more than {LOOKS_MAX} scans"


@dataclass
class LineWork:
    """The work spent on lines, in scanned characters."""

    left_chars: int = _ANY_LINE_CHARS
    turn_chars: int = 0

    def begin(self, line_bytes: int) -> None:
        self.left_chars = _ANY_LINE_CHARS + LOOKS_MAX * line_bytes

    def spend(self, chars: int) -> Steps[None]:
        """Count characters, and give others a turn when it is time. Raises TooMuchWork."""
        chars += _TEXT_CHARS
        self.left_chars -= chars
        if self.left_chars < 0:
            raise TooMuchWork
        self.turn_chars += chars
        if self.turn_chars >= TURN_CHARS:
            self.turn_chars = 0
            yield


def outcome(steps: Steps[_Outcome]) -> _Outcome:
    """Run a computation to its end, without turns for others."""
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


class TextPiece(NamedTuple):
    """A part of a text, for the matches that touch its core."""

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
            start = core_start - _MARGIN_CHARS
        yield TextPiece(start, core_start, core_end, min(core_end + REACH_CHARS, size))
