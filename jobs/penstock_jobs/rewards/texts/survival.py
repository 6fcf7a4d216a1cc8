"""Survival of an edit at a horizon: its characters, its lines, and formulas that editors publish.

Three texts have places: `origin` is the edit's own text, `made` the file right after it, and `home`
or a holder the file at the horizon. The published formulas compare 4-grams of UTF-16 code units."""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Postfix, Prefix

from penstock_jobs.rewards.texts.changes import (
    Block,
    CompareCost,
    TextChange,
    compare,
    ink,
    line_around,
)
from penstock_jobs.rewards.texts.moves import ROW_MIN
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState
from penstock_jobs.rewards.texts.trail import UTF16, HorizonState, Survivor, TrackedEdit, code_units

#: A longer line is split, so that one change does not discount all of it.
LINE_MAX = 400
LineFate = Literal["surviving", "reworked", "gone"]


def survivors(edit: TrackedEdit, at_horizon: HorizonState) -> list[Survivor]:
    """Return surviving text of the edit, in its order, without what others disabled."""
    if at_horizon.holders not in edit.survivors:
        pieces = _pieces(edit, at_horizon)
        if any(state.language for state in at_horizon.holders):
            pieces = _running(edit, pieces)
        edit.survivors[at_horizon.holders] = _once(pieces)
    return edit.survivors[at_horizon.holders]


def _pieces(edit: TrackedEdit, at_horizon: HorizonState) -> list[Survivor]:
    return [
        Survivor(piece.origin, state, piece.at, piece.length)
        for state in at_horizon.holders
        for piece in state.pieces.get(edit.owner, ())
    ]


def _once(pieces: Iterable[Survivor]) -> list[Survivor]:
    """Count text at several places once."""
    once: list[Survivor] = []
    done = 0
    for origin, state, at, length in sorted(pieces, key=lambda own: (own[0], -own[3], own[2])):
        skip = max(done - origin, 0)
        if skip < length:
            once.append(Survivor(origin + skip, state, at + skip, length - skip))
            done = origin + length
    return once


def _running(edit: TrackedEdit, alive: Iterable[Survivor]) -> list[Survivor]:
    running: list[Survivor] = []
    for survivor in alive:
        at, end = survivor.at, survivor.at + survivor.length
        for stretch in survivor.state.disabled:
            start = max(stretch.start, at)
            origin = survivor.origin + start - survivor.at
            if start < min(stretch.end, end) and not _was_disabled(edit, survivor.state, origin):
                running += _part(survivor, at, start)
                at = min(stretch.end, end)
        running += _part(survivor, at, end)
    return running


def _part(survivor: Survivor, start: int, end: int) -> list[Survivor]:
    if start >= end:
        return []
    origin = survivor.origin + start - survivor.at
    return [Survivor(origin, survivor.state, start, end - start)]


def _was_disabled(edit: TrackedEdit, state: FileState, origin: int) -> bool:
    if edit.made is None or state.language is None:
        return False
    for start, at, length in edit.made.pieces.get(edit.owner, ()):
        if start <= origin < start + length:
            place = at + origin - start
            stretches = state.language.disabled(edit.made.text)
            return any(own.start <= place < own.end for own in stretches)
    return False


def credit(
    written: str,
    stretches: Iterable[tuple[int, int]],
    alive: Sequence[Survivor],
    taken: Set[int] = frozenset(),
) -> float:
    """Count surviving characters; in a line that others changed, times sim4 of old and new line.

    Characters that the agent itself replaced (`taken`) are removed from the old line first."""
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
        if size := sum(len(ink(state.text[at : at + n])) for _, state, at, n in here):
            bare, now = ink(line), _line_now(here, len(line))
            total += size if now == bare else size * sim4(now, bare)
    return total


def lines_of(text: str, stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    lines = []
    for start, end in stretches:
        at = start
        while at < end:
            reach = min(end, at + LINE_MAX)
            stop = text.find("\n", at, reach) + 1 or reach
            if text[at:stop].strip():
                lines.append((at, stop))
            at = stop
    return lines


def _line_now(here: Sequence[Survivor], reach: int) -> str:
    parts: list[str] = []
    end = -1
    last: FileState | None = None
    for _, state, at, length in here:
        if last is not None and state is last and 0 <= at - end <= reach:
            for size, owner, _ in state.cut(end, at):
                if owner <= OTHERS:
                    parts.append(state.text[end : end + size])
                end += size
        elif last is not None:
            parts.append("\0")
        parts.append(state.text[at : at + length])
        end, last = at + length, state
    return ink("".join(parts))


def reworked_places(at_horizon: HorizonState, alive: Iterable[Survivor]) -> set[int]:
    taken: set[int] = set()
    if not at_horizon.reworked:
        return taken
    for start, length in at_horizon.reworked:
        taken.update(range(start, start + length))
    for origin, _, _, length in alive:
        taken.difference_update(range(origin, origin + length))
    return taken


def count_restored(edit: TrackedEdit, home: FileState, cost: CompareCost) -> tuple[float, int]:
    """Count the removed characters that are back: by others, and by the agent itself."""
    back = 0.0
    own = 0
    for number, text in edit.deleted.items():
        stretch = home.ranges.get((edit.owner, number), (0, 0))
        at_start, at_end = _at_edges(edit, number)
        if at_start != at_end and (around := _back_at_edge(text, home.text, stretch, at_end)):
            back += around
            continue
        if at_start and at_end:
            stretch = 0, len(home.text)
        kept = compare(text, home.text[slice(*stretch)], cost).kept
        if at_start and at_end and (edit.region or "") not in home.text:
            kept = _without_chance(kept, text, home.text)
        alive = []
        for block in kept:
            i, at = block.i, stretch[0] + block.j
            for length, owner, _ in home.cut(at, at + block.n):
                if owner <= OTHERS:
                    alive.append(Survivor(i, home, at, length))
                else:
                    own += len(ink(home.text[at : at + length]))
                i, at = i + length, at + length
        back += credit(text, [(0, len(text))], alive)
    return back, own


def _at_edges(edit: TrackedEdit, number: int) -> tuple[bool, bool]:
    """Whether the removed text began and ended the only known region of the file."""
    if edit.made is None or edit.region is None:
        return False, False
    start, end = edit.made.ranges[edit.owner, number]
    return not edit.made.text[:start].strip(), not edit.made.text[end:].strip()


def _back_at_edge(removed: str, now: str, place: tuple[int, int], at_end: bool) -> int:
    gone, reach = ink(removed), 4 * len(removed)
    if at_end:
        back = Prefix.similarity(gone, ink(now[place[0] : place[1] + reach]))
    else:
        back = Postfix.similarity(gone, ink(now[max(place[0] - reach, 0) : place[1]]))
    return back if 2 * back > len(gone) else 0


def _without_chance(kept: list[Block], removed: str, now: str) -> list[Block]:
    """Return what is back of a region that may have stood anywhere: code repeats by chance."""
    if 2 * sum(block.n for block in kept) >= len(now):
        return kept
    return [block for block in kept if removed.count("\n", block.i, block.i + block.n) >= ROW_MIN]


class WrittenLine(NamedTuple):
    text: str
    start: int
    end: int
    at: int


def written_lines(edit: TrackedEdit) -> list[WrittenLine]:
    """Return the lines in which the edit wrote, then those that it only reshaped."""
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
                    begin = min(line.start, done + moved)
                    lines[-1] = WrittenLine(line.text, begin, end + moved, start)
                else:
                    lines.append(WrittenLine(text[start:stop], done + moved, end + moved, start))
                last = start
            start = done = end
    lines.sort(key=lambda line: line.start)
    own = {line.at for line in lines}
    reshaped = (WrittenLine(text[i:j], i, i, i) for i, j in edit.reshaped if i not in own)
    return lines + list(reshaped) if lines else lines


def surviving_lines(
    edit: TrackedEdit, lines: Sequence[WrittenLine], at_horizon: HorizonState, cost: CompareCost
) -> tuple[int, int]:
    """Count surviving lines, and lines that later edits changed. Raises TooExpensive."""
    if at_horizon.holders == (edit.made,):
        return len(lines), 0
    fates = [*line_fates(edit, lines, at_horizon, cost)]
    return fates.count("surviving"), fates.count("reworked")


def line_fates(
    edit: TrackedEdit, lines: Sequence[WrittenLine], at_horizon: HorizonState, cost: CompareCost
) -> Iterator[LineFate]:
    """Yield the fate of each line. Raises TooExpensive."""
    alive = _once(_pieces(edit, at_horizon))
    taken = reworked_places(at_horizon, alive)
    change: TextChange | None = None
    at = 0
    for line in lines:
        if line.start == line.end:
            if change is None and edit.made is not None and at_horizon.home is not None:
                change = compare(edit.made.text, at_horizon.home.text, cost)
            yield _reshaped_fate(edit, line, at_horizon.home, change)
            continue
        while at < len(alive) and alive[at].origin + alive[at].length <= line.start:
            at += 1
        changed_by_agent = False
        if at < len(alive) and alive[at].origin < line.end:
            here, text = alive[at], alive[at].state.text
            start, stop = line_around(text, here.at + max(line.start - here.origin, 0))
            now = text[start:stop]
            if now == line.text or ink(now) == ink(line.text):
                yield "surviving"
                continue
            changed_by_agent = any(run.owner > edit.owner for run in here.state.cut(start, stop))
        reworked = changed_by_agent or not taken.isdisjoint(range(line.start, line.end))
        yield "reworked" if reworked else "gone"


def _reshaped_fate(
    edit: TrackedEdit, line: WrittenLine, home: FileState | None, change: TextChange | None
) -> LineFate:
    if home is None or change is None:
        return "gone"
    start = line.at + len(line.text) - len(line.text.lstrip())
    place = 0
    for i, j, n in sorted(change.kept + change.moved):
        if i <= start < i + n:
            now = home.text[slice(*line_around(home.text, j + start - i))]
            if ink(now) == ink(line.text):
                return "surviving"
        place = j + n if i + n <= start else place
    owners = (run.owner for run in home.cut(*line_around(home.text, place)))
    return "reworked" if any(owner > edit.owner for owner in owners) else "gone"


GRAM = 4


def sim4(a: str, b: str) -> float:
    """Compare 4-grams of two texts: from 0, nothing in common, to 1, all equal.

    (|G(a)| + |G(b)| − Σ |count in a − count in b|) / (|G(a)| + |G(b)|); where either text has
    fewer than four code units: 1 if they are equal, else 0.
    """
    if a == b:
        return 1.0
    a, b = code_units(a), code_units(b)
    total = len(a) + len(b) - 2 * (GRAM - 1)
    if min(len(a), len(b)) < GRAM:
        return 0.0
    # Grams within common ends cancel out.
    start = Prefix.similarity(a, b)
    end = min(Postfix.similarity(a, b), min(len(a), len(b)) - start)
    first = max(start - GRAM + 1, 0)
    last = max(end - GRAM + 1, 0)
    a_grams, b_grams = _grams(a[first : len(a) - last]), _grams(b[first : len(b) - last])
    if not (len(a_grams) and len(b_grams)):
        return (total - len(a_grams) - len(b_grams)) / total
    both = np.concatenate((a_grams, b_grams))
    order = both.argsort()
    both = both[order]
    begins = np.flatnonzero(np.concatenate(([True], both[1:] != both[:-1])))
    apart = np.abs(np.add.reduceat(np.where(order < len(a_grams), 1, -1), begins)).sum()
    return (total - int(apart)) / total


def four_gram_presence(chunks: Iterable[str], file: str) -> float:
    """Return the mean presence of chunks, weighted by grams; 0 without chunks."""
    sizes = ((max(1, len(code_units(chunk)) - GRAM + 1), chunk) for chunk in chunks)
    return _mean(((size, presence(chunk, file)) for size, chunk in sizes), otherwise=0.0)


def presence(chunk: str, file: str) -> float:
    """Return the share of the chunk's 4-grams that occur anywhere in the file."""
    chunk, file = code_units(chunk), code_units(file)
    if chunk in file:
        return 1.0
    if min(len(chunk), len(file)) < GRAM:
        return 0.0
    known, grams = _sorted_grams(file), np.sort(_grams(chunk))
    at = np.minimum(np.searchsorted(known, grams), len(known) - 1)
    return int((known[at] == grams).sum()) / len(grams)


def four_gram_range(ranges: Iterable[tuple[str, str]]) -> float:
    """Return the mean sim4 of (written text, text now); 1 if nothing was written."""
    return _mean((len(code_units(text)), sim4(now, text)) for text, now in ranges if text)


def _mean(weighted: Iterable[tuple[int, float]], otherwise: float = 1.0) -> float:
    pairs = list(weighted)
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else otherwise


def no_revert(before: str, after: str, now: str) -> float:
    """Return 1 if the text is no nearer to `before` than right after the edit; 0 if it is back."""
    left = 1.0 if now == after else sim4(after, before)
    if left == 1:
        return 1.0
    return 1 - max(sim4(now, before) - left, 0.0) / (1 - left)


def no_revert_range(ranges: Iterable[tuple[str, str, str]]) -> float:
    """Return the mean over (before, after, now), weighted by the length of `before`."""
    texts = [each for each in ranges if each[0]]
    return _mean((len(code_units(each[0])), no_revert(*each)) for each in texts)


def _grams(text: str) -> NDArray[np.uint64]:
    units = text.encode(UTF16, "surrogatepass")
    count = max(len(units) // 2 - GRAM + 1, 0)
    return np.ndarray((count,), np.uint64, units, strides=(2,))


@lru_cache(maxsize=16)  # edits of one file are compared with the same text
def _sorted_grams(text: str) -> NDArray[np.uint64]:
    return np.sort(_grams(text))
