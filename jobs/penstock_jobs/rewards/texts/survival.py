"""What of a text that an edit wrote is still there, by characters and by lines, at the place and in
the way that its owner wrote it."""

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import CompareCost, compare, ink
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState, cut
from penstock_jobs.rewards.texts.similarity import sim4
from penstock_jobs.rewards.texts.trail import Sighting, Survivor, TrackedEdit

#: A longer line is looked at in stretches of this length, so that one change in a file without
#: line breaks does not discount all of it.
LINE_MAX = 400


def survivors(edit: TrackedEdit, sighting: Sighting) -> list[Survivor]:
    """What of the edit is still there: looked for once for all measures."""
    if sighting.holders not in edit.survivors:
        edit.survivors[sighting.holders] = _survivors(edit.owner, sighting.holders)
    return edit.survivors[sighting.holders]


def _survivors(owner: int, holders: Iterable[FileState]) -> list[Survivor]:
    """In the order in which they were written; what stands several times counts once."""
    found = [
        Survivor(piece.origin, state, piece.at, piece.length)
        for state in holders
        for piece in state.pieces.get(owner, ())
    ]
    found.sort(key=lambda one: (one.origin, -one.length, one.at))
    once: list[Survivor] = []
    done = 0
    for origin, state, at, length in found:
        skip = max(done - origin, 0)
        if skip < length:
            once.append(Survivor(origin + skip, state, at + skip, length - skip))
            done = origin + length
    return once


def credit(
    written: str,
    stretches: Iterable[tuple[int, int]],
    alive: Sequence[Survivor],
    taken: Set[int] = frozenset(),
) -> float:
    """Characters that are still there, without white space. Inside a line that others changed
    they are discounted by how like it the line still is; what the session's agent itself took
    (`taken`, places in the written text) and put in is left out on both sides."""
    total = 0.0
    at = 0
    for start, end in lines_of(written, stretches):
        while at < len(alive) and alive[at].origin + alive[at].length <= start:
            at += 1
        here = []
        k = at
        while k < len(alive) and alive[k].origin < end:
            origin, state, place, length = alive[k]
            skip = max(start - origin, 0)
            size = min(origin + length, end) - origin - skip
            here.append(Survivor(origin + skip, state, place + skip, size))
            k += 1
        line = written[start:end]
        if not taken.isdisjoint(range(start, end)):
            line = "".join(written[place] for place in range(start, end) if place not in taken)
        elif len(here) == 1 and here[0].length == end - start:
            total += len(ink(line))
            continue
        if here:
            total += _line_credit(line, here)
    return total


def lines_of(text: str, stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches cut at line ends, and where lines are longer than LINE_MAX."""
    found = []
    for start, end in stretches:
        at = start
        while at < end:
            reach = min(end, at + LINE_MAX)
            stop = text.find("\n", at, reach) + 1 or reach
            if text[at:stop].strip():
                found.append((at, stop))
            at = stop
    return found


def reworked_places(sighting: Sighting, alive: Iterable[Survivor]) -> set[int]:
    """Places of the edit's text that later edits of the session replaced, and nobody brought
    back."""
    taken: set[int] = set()
    if not sighting.reworked:
        return taken
    for start, length in sighting.reworked:
        taken.update(range(start, start + length))
    for origin, _, _, length in alive:
        taken.difference_update(range(origin, origin + length))
    return taken


def reworked_ink(edit: TrackedEdit, sighting: Sighting, alive: Iterable[Survivor]) -> int:
    """How many characters these are."""
    if not sighting.reworked:
        return 0
    return sum(not edit.after[at].isspace() for at in reworked_places(sighting, alive))


def returned(edit: TrackedEdit, home: FileState, cost: CompareCost) -> tuple[float, int]:
    """Of what an edit took away: how many characters others brought back at its place, by how
    like it their lines are, and how many the agent itself did. Raises TooExpensive."""
    back = 0.0
    own = 0
    for number, text in edit.deleted.items():
        stretch = home.ranges.get((edit.owner, number), (0, 0))
        alive = []
        for block in compare(text, home.text[slice(*stretch)], cost).kept:
            i, at = block.i, stretch[0] + block.j
            for length, owner, _ in cut(home.runs, home.starts, at, at + block.n):
                if owner == OTHERS:
                    alive.append(Survivor(i, home, at, length))
                else:
                    own += len(ink(home.text[at : at + length]))
                i, at = i + length, at + length
        back += credit(text, [(0, len(text))], alive)
    return back, own


def _line_credit(line: str, here: Sequence[Survivor]) -> float:
    size = sum(len(ink(state.text[at : at + length])) for _, state, at, length in here)
    if not size:
        return 0.0
    bare = ink(line)
    now = _now(here, len(line))
    if now == bare:
        return float(size)
    return size * sim4(now, bare)


def _now(here: Sequence[Survivor], reach: int) -> str:
    """The line as it is now: what is left of it and what was put in between. What lies further
    away than the line is long does not belong to it."""
    parts: list[str] = []
    end = -1
    last: FileState | None = None
    for _, state, at, length in here:
        if last is not None:
            near = state is last and 0 <= at - end <= reach
            parts.append(_of_others(state, end, at) if near else "\0")
        parts.append(state.text[at : at + length])
        end, last = at + length, state
    return ink("".join(parts))


def _of_others(state: FileState, start: int, end: int) -> str:
    parts = []
    for length, owner, _ in cut(state.runs, state.starts, start, end):
        if owner == OTHERS:
            parts.append(state.text[start : start + length])
        start += length
    return "".join(parts)


class WrittenLine(NamedTuple):
    """A line as the edit left it, and which of the edit's text is in it."""

    text: str
    start: int
    end: int


def written_lines(edit: TrackedEdit) -> list[WrittenLine]:
    """The lines of which the edit wrote something, in the order of its text."""
    if edit.made is None:
        return []
    text = edit.made.text
    lines: list[WrittenLine] = []
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
                    lines[-1] = WrittenLine(line.text, min(line.start, done + moved), end + moved)
                else:
                    lines.append(WrittenLine(text[start:stop], done + moved, end + moved))
                last = start
            start = done = end
    return sorted(lines, key=lambda line: line.start)


def surviving_lines(
    edit: TrackedEdit, lines: Sequence[WrittenLine], sighting: Sighting
) -> tuple[int, int]:
    """How many of the edit's lines survive, and how many later edits of the session changed."""
    if sighting.holders == (edit.made,):
        return len(lines), 0
    alive = survivors(edit, sighting)
    taken = reworked_places(sighting, alive)
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


def _is_there(line: WrittenLine, here: Survivor) -> bool:
    start, stop = _line_now(line, here)
    now = here.state.text[start:stop]
    return now == line.text or ink(now) == ink(line.text)


def _is_reworked(edit: TrackedEdit, line: WrittenLine, here: Survivor) -> bool:
    """Whether a later edit put something into the line."""
    runs = cut(here.state.runs, here.state.starts, *_line_now(line, here))
    return any(run.owner > edit.owner for run in runs)


def _line_now(line: WrittenLine, here: Survivor) -> tuple[int, int]:
    """The line that the edit's text stands in now."""
    return _line_at(here.state.text, here.at + max(line.start - here.origin, 0))


def _line_at(text: str, at: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    return start, len(text) if stop < 0 else stop
