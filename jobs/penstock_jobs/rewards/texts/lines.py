"""The lines that an edit wrote, and what became of them."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import ink
from penstock_jobs.rewards.texts.provenance import cut
from penstock_jobs.rewards.texts.survival import reworked_places, survivors
from penstock_jobs.rewards.texts.trail import Seen, Survivor, TrackedEdit


class Line(NamedTuple):
    """A line as the edit left it, and which of the edit's text is in it."""

    text: str
    start: int
    end: int


def written_lines(edit: TrackedEdit) -> list[Line]:
    """The lines of which the edit wrote something, in the order of its text."""
    if edit.made is None:
        return []
    text = edit.made.text
    lines: list[Line] = []
    last = -1
    for origin, at, length in edit.made.pieces.get(edit.owner, ()):
        done, moved = at, origin - at
        start = text.rfind("\n", 0, at) + 1
        while done < at + length:
            stop = text.find("\n", done)
            stop = len(text) if stop < 0 else stop
            end = min(stop + 1, at + length)
            if not text[done:end].isspace():
                if start == last:
                    line = lines[-1]
                    lines[-1] = Line(line.text, min(line.start, done + moved), end + moved)
                else:
                    lines.append(Line(text[start:stop], done + moved, end + moved))
                last = start
            start = done = end
    return sorted(lines, key=lambda line: line.start)


def surviving_lines(edit: TrackedEdit, lines: Sequence[Line], seen: Seen) -> tuple[int, int]:
    """How many of the edit's lines survive, and how many later edits of the session changed."""
    if seen.holders == (edit.made,):
        return len(lines), 0
    alive = survivors(edit, seen)
    taken = reworked_places(seen, alive)
    surviving = reworked = at = 0
    for line in lines:
        while at < len(alive) and alive[at].origin + alive[at].length <= line.start:
            at += 1
        here = alive[at] if at < len(alive) and alive[at].origin < line.end else None
        if here is not None and _is_there(line, here):
            surviving += 1
        elif not taken.isdisjoint(range(line.start, line.end)) or (
            here is not None and _is_reworked(edit, line, here)
        ):
            reworked += 1
    return surviving, reworked


def _is_there(line: Line, here: Survivor) -> bool:
    start, stop = _now(line, here)
    now = here.state.text[start:stop]
    return now == line.text or ink(now) == ink(line.text)


def _is_reworked(edit: TrackedEdit, line: Line, here: Survivor) -> bool:
    """Whether a later edit put something into the line."""
    runs = cut(here.state.runs, here.state.starts, *_now(line, here))
    return any(run.owner > edit.owner for run in runs)


def _now(line: Line, here: Survivor) -> tuple[int, int]:
    """The line that the edit's text stands in now."""
    return _line_at(here.state.text, here.at + max(line.start - here.origin, 0))


def _line_at(text: str, at: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    return start, len(text) if stop < 0 else stop
