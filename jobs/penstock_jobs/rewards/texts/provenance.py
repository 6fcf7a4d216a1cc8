"""What is known of the files of a session: their texts, who wrote each character, and where edits
were made."""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import Block, TextChange

#: Whoever is not an edit of the session: the user, tools, or who wrote the file before.
OTHERS = 0
#: What stands between parts of a file of which only parts are known. No text holds it.
UNKNOWN = "\n\0\n"

#: (edit, number of the range) → the stretch that the range has become.
Ranges = Mapping[tuple[int, int], tuple[int, int]]


class OwnerRun(NamedTuple):
    """Characters in a row of one owner. `origin` is where they stood in the text that the owner
    wrote."""

    length: int
    owner: int
    origin: int


class Piece(NamedTuple):
    """Characters of one owner: where they stood as written, where they stand now."""

    origin: int
    at: int
    length: int


@dataclass(frozen=True, eq=False)
class FileState:
    """A file at one moment. `whole` is false when `text` is only a part of it."""

    text: str
    runs: Sequence[OwnerRun]
    ranges: Ranges = field(default_factory=dict)
    whole: bool = True

    @cached_property
    def pieces(self) -> dict[int, list[Piece]]:
        """What each owner holds, in the order of the text."""
        pieces: dict[int, list[Piece]] = {}
        at = 0
        for length, owner, origin in self.runs:
            if owner:
                pieces.setdefault(owner, []).append(Piece(origin, at, length))
            at += length
        return pieces

    @cached_property
    def starts(self) -> list[int]:
        """Where runs begin, and where the last ends."""
        return [0, *accumulate(run.length for run in self.runs)]

    def cut(self, start: int, end: int) -> list[OwnerRun]:
        """The runs between two places."""
        runs, starts = self.runs, self.starts
        if start >= end or not runs:
            return []
        first = bisect_right(starts, start) - 1
        last = bisect_left(starts, end, first) - 1
        cut = [_part(runs[first], start - starts[first], min(end, starts[first + 1]) - start)]
        if last > first:
            cut += runs[first + 1 : last]
            cut.append(_part(runs[last], 0, end - starts[last]))
        return cut


def _part(run: OwnerRun, skip: int, size: int) -> OwnerRun:
    if size == run.length:
        return run
    return OwnerRun(size, run.owner, run.origin + skip if run.owner else 0)


@dataclass(eq=False)
class KnownFile:
    """What is known of a file: one state, or several parts as long as nobody saw all of it."""

    path: str
    parts: list[FileState]
    #: Where it puts itself down when it changes.
    changed: set["KnownFile"]
    #: Text → the latest state with that text.
    known: dict[str, FileState] = field(default_factory=dict)
    #: For each part, the edit that was the first to name it, and its text then.
    shown: list[tuple[int, str]] = field(default_factory=lambda: [(0, "")])

    @property
    def whole(self) -> bool:
        return self.parts[0].whole

    def put(self, part: int, state: FileState) -> None:
        self.parts[part] = state
        self.changed.add(self)
        if len(self.parts) == 1:
            self.known[state.text] = state


def first_state(text: str, *, whole: bool) -> FileState:
    return FileState(text, [OwnerRun(len(text), OTHERS, 0)] if text else [], {}, whole)


def after_others(
    state: FileState,
    text: str,
    change: TextChange,
    live: Container[int],
    *,
    known: FileState | None = None,
    whole: bool = True,
) -> FileState:
    """The state after others made a change. `known` is a state with the same text that the file
    had before: undoing brings back who wrote it. Ranges of edits that are not live are dropped."""
    runs = known.runs if known is not None else _after_change(state, change, len(text), OTHERS)
    return FileState(text, runs, _carried(state.ranges, change, len(text), live), whole)


def after_edit(
    state: FileState, text: str, change: TextChange, live: Container[int], *, owner: int, start: int
) -> FileState:
    """The state after an edit of the agent, whose own text begins at `start`."""
    runs = _after_change(state, change, len(text), owner, -start)
    return FileState(text, runs, _carried(state.ranges, change, len(text), live), state.whole)


def _after_change(
    state: FileState, change: TextChange, length: int, owner: int, origin: int = 0
) -> list[OwnerRun]:
    """The owners after a change: what it kept or moved keeps its owner, the rest of the new
    `length` characters belongs to who made it. `origin` is what the owner's text calls the first
    character of the new text."""
    owners: list[OwnerRun] = []
    at = 0
    for i, j, n in sorted(change.kept + change.moved, key=attrgetter("j")):
        if j > at:
            _append(owners, OwnerRun(j - at, owner, at + origin if owner else 0))
        first, *rest = state.cut(i, i + n)
        _append(owners, first)
        owners += rest
        at = j + n
    if length > at:
        _append(owners, OwnerRun(length - at, owner, at + origin if owner else 0))
    return owners


def _append(runs: list[OwnerRun], run: OwnerRun) -> None:
    if runs:
        last = runs[-1]
        if last.owner == run.owner and (
            run.owner == OTHERS or last.origin + last.length == run.origin
        ):
            runs[-1] = OwnerRun(last.length + run.length, run.owner, last.origin)
            return
    runs.append(run)


def _carried(ranges: Ranges, change: TextChange, length: int, live: Container[int]) -> Ranges:
    if not ranges:
        return ranges
    places = Places(change.kept, length)
    return {key: places.stretch(*stretch) for key, stretch in ranges.items() if key[0] in live}


class Places:
    """Where places of the old text are in the new one."""

    def __init__(self, kept: Sequence[Block], length: int) -> None:
        self._kept = kept
        self._starts = [block.i for block in kept]
        self._ends = [block.i + block.n for block in kept]
        self._length = length
        nothing = Block(0, 0, 0)
        head, self._tail = (kept[0], kept[-1]) if kept else (nothing, nothing)
        self._head_end = head.n if head.i == head.j == 0 else 0
        self._tail_end = self._tail.i + self._tail.n

    def stretch(self, start: int, end: int) -> tuple[int, int]:
        """The stretch between two places. What was put at its edges joins it."""
        # Most changes are of one place: what lies before stays, what lies behind goes along.
        if end < self._head_end:
            return start, end
        if self._tail.i < start and end < self._tail_end:
            by = self._tail.j - self._tail.i
            return start + by, end + by
        left = bisect_left(self._ends, start)
        # The block that holds the character before `start`, or else the last one before it.
        if left < len(self._kept) and self._kept[left].i < start:
            block = self._kept[left]
            low = block.j + start - block.i
        else:
            low = self._kept[left - 1].j + self._kept[left - 1].n if left else 0
        right = bisect_right(self._starts, end) - 1
        if right >= 0 and self._ends[right] > end:
            block = self._kept[right]
            high = block.j + end - block.i
        elif right + 1 < len(self._kept):
            high = self._kept[right + 1].j
        else:
            high = self._length
        return low, max(low, high)


def shifted(change: TextChange, start: int, old: int, new: int, rest: int) -> TextChange:
    """The change of a region, as a change of the text around it: `start` characters before the
    region, `rest` after it; the region had `old` and has `new` characters."""
    kept = [Block(0, 0, start)] if start else []
    kept += [Block(i + start, j + start, n) for i, j, n in change.kept]
    if rest:
        kept.append(Block(start + old, start + new, rest))
    return TextChange(kept, [Block(i + start, j + start, n) for i, j, n in change.moved])


def joined_state(parts: Sequence[FileState], text: str) -> FileState:
    """Known parts as one, in the order in which they are found in `text`."""
    if len(parts) == 1:
        return parts[0]

    def place(part: FileState) -> int:
        """By its text or else by its longest line; at the end if it is nowhere."""
        at = text.find(part.text)
        if at < 0:
            line = max(part.text.splitlines(), key=len, default="")
            at = text.find(line) if line else -1
        return at if at >= 0 else len(text)

    ordered = sorted(parts, key=place)
    runs: list[OwnerRun] = []
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    at = 0
    for part in ordered:
        if at:
            runs.append(OwnerRun(len(UNKNOWN), OTHERS, 0))
            at += len(UNKNOWN)
        runs += part.runs
        for key, (start, end) in part.ranges.items():
            ranges[key] = (start + at, end + at)
        at += len(part.text)
    return FileState(UNKNOWN.join(part.text for part in ordered), runs, ranges, False)


def between(covered: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """What (start, length) stretches, in order, leave uncovered: (start, end)."""
    uncovered = []
    at = 0
    for start, size in covered:
        if start > at:
            uncovered.append((at, start))
        at = start + size
    if at < length:
        uncovered.append((at, length))
    return uncovered
