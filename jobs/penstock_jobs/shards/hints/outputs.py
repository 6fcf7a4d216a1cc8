"""Outputs of programs, shortened to the lines that say what failed, and clauses of texts."""

import re
from collections.abc import Callable

from penstock_jobs.rewards.followups.speech import SHAPES

_LINES_MAX = 12
_CHARS_MAX = 1_200
_FAILS = [
    SHAPES[name] for name in ("python", "exception", "rust", "compiler", "assertion", "tests")
]
_CLAUSE_END = re.compile(r"(?<=[.!?;:,…])\s+|(?<=[。、！？])|\n+")  # noqa: RUF001 several scripts


def shortened(output: str) -> str:
    """Return the last lines that look like failures, else the last lines of all."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(one.is_in(line, line.lower()) for one in _FAILS)]
    text = "\n".join((telling or lines)[-_LINES_MAX:])
    return text[-_CHARS_MAX:]


def cut_at_clause(text: str, fits: Callable[[str], bool]) -> str | None:
    """Cut a text at the end of a clause so that it fits; None if less than half of it does."""
    if fits(text):
        return text
    ends = [match.start() for match in _CLAUSE_END.finditer(text)]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(text[: ends[middle]]) else (low, middle)
    return text[: ends[low - 1]] if low and 2 * ends[low - 1] >= len(text) else None
