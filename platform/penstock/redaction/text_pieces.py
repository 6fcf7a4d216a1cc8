"""Pieces of a long text: looked at one by one, so that memory and the time of a step are bounded.

Pieces overlap by more than any match is long. A match counts in the piece whose core it touches."""

import re
from collections.abc import Iterator
from typing import NamedTuple

#: Of the text that a piece is there for.
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
    """Near `at`: a multiple of four behind what ended before the base64 that may stand there."""
    gap = _NO_BASE64.search(text[last_cut:at][::-1])
    run_start = at - gap.start() if gap else last_cut
    return at - (at - run_start) % 4
