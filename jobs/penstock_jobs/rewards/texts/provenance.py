"""Known files of a session: texts, the owner of each character, the places of edits."""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import Block, TextChange, ink, ink_count
from penstock_jobs.rewards.texts.languages import SourceLanguage, Stretch

#: The owner of text that no edit of the session wrote: the user, tools, earlier authors.
OTHERS = 0
#: The owner of text that others wrote nobody knows when: it was first seen around known regions.
UNSEEN = -1
#: Separates parts of a partly known file. No text contains it.
UNKNOWN = "\n\0\n"

#: Current stretches by (edit, number of the range).
Ranges = Mapping[tuple[int, int], tuple[int, int]]


class OwnerRun(NamedTuple):
    """A run of characters of one owner. `origin` is its place in the owner's text."""

    length: int
    owner: int
    origin: int


class Piece(NamedTuple):
    """Characters of one owner: the place as written, and the place now."""

    origin: int
    at: int
    length: int


@dataclass(frozen=True, eq=False)
class FileState:
    """A file at a moment. `whole` is false if `text` is only a part of the file."""

    text: str
    runs: Sequence[OwnerRun]
    ranges: Ranges = field(default_factory=dict)
    whole: bool = True
    #: Set once others insert something that may disable code in this language.
    language: SourceLanguage | None = None

    @cached_property
    def pieces(self) -> dict[int, list[Piece]]:
        pieces: dict[int, list[Piece]] = {}
        at = 0
        for length, owner, origin in self.runs:
            if owner > OTHERS:
                pieces.setdefault(owner, []).append(Piece(origin, at, length))
            at += length
        return pieces

    @cached_property
    def unseen(self) -> int:
        """Count characters of an unknown age, without white space."""
        runs = zip(self.starts, self.runs, strict=False)
        texts = (self.text[at : at + run.length] for at, run in runs if run.owner == UNSEEN)
        return sum(map(len, map(ink, texts)))

    @cached_property
    def starts(self) -> list[int]:
        return [0, *accumulate(run.length for run in self.runs)]

    @cached_property
    def ink_of_others(self) -> int:
        return self.count_others(0, len(self.text))

    def count_others(self, start: int, end: int) -> int:
        """Count characters of others in a stretch, without white space."""
        at, size = start, 0
        for length, owner, _ in self.cut(start, end):
            if owner <= OTHERS:
                size += ink_count(self.text[at : at + length])
            at += length
        return size

    @cached_property
    def disabled(self) -> list[Stretch]:
        """Return text that others commented out or put where it never runs."""
        stretches = self.language.disabled(self.text) if self.language else ()
        return [
            stretch
            for stretch in stretches
            if any(run.owner == OTHERS for run in self.cut(stretch.opens, stretch.opened))
        ]

    def cut(self, start: int, end: int) -> list[OwnerRun]:
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
    return OwnerRun(size, run.owner, run.origin + skip if run.owner > OTHERS else 0)


@dataclass(eq=False)
class KnownFile:
    """A file of a session: one state, or several parts until the whole file is observed."""

    path: str
    parts: list[FileState]
    #: The file adds itself to this set when it changes.
    changed: set["KnownFile"]
    #: The latest state by text.
    known: dict[str, FileState] = field(default_factory=dict)
    #: The first edit of each part, and its text then.
    shown: list[tuple[int, str]] = field(default_factory=lambda: [(0, "")])
    #: Whether others had written it when it was first known.
    of_others: bool = field(init=False)

    def __post_init__(self) -> None:
        self.of_others = bool(self.parts[0].text.strip())

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


def after_change(
    state: FileState,
    text: str,
    change: TextChange,
    live: Container[int],
    *,
    whole: bool,
    owner: int = OTHERS,
    start: int = 0,
    clipped: bool = False,
) -> FileState:
    """Apply a change: kept and moved text keeps its owner, the rest belongs to `owner`.

    With `clipped`, a range does not reach beyond the known text around it."""
    runs: list[OwnerRun] = []
    at = 0
    around = _around_parts(state, change, len(text)) if clipped and not state.whole else []
    blocks = sorted(change.kept + change.moved, key=attrgetter("j"))
    for i, j, n in [*blocks, Block(0, len(text), 0)]:
        if j > at:
            maker = UNSEEN if any(first <= at < last for first, last in around) else owner
            _append(runs, OwnerRun(j - at, maker, at - start if owner else 0))
        if n:
            first, *rest = state.cut(i, i + n)
            _append(runs, first)
            runs += rest
        at = j + n
    ranges = _carried(state.ranges, change, len(text), live)
    if clipped and ranges and not state.whole:
        ranges = _clipped(ranges, state, change, len(text))
    return FileState(text, runs, ranges, whole, state.language)


def _around_parts(state: FileState, change: TextChange, length: int) -> list[tuple[int, int]]:
    """Return the stretches of the new text before, between and behind the known parts."""
    around = []
    i = j = 0
    for block in [*change.kept, Block(len(state.text), length, 0)]:
        at_edge = j == 0 or block.j == length
        if block.j > j and (at_edge or UNKNOWN in state.text[i : block.i]):
            around.append((j, block.j))
        i, j = block.i + block.n, block.j + block.n
    return around


def _append(runs: list[OwnerRun], run: OwnerRun) -> None:
    if runs:
        last = runs[-1]
        if last.owner == run.owner and (
            run.owner <= OTHERS or last.origin + last.length == run.origin
        ):
            runs[-1] = OwnerRun(last.length + run.length, run.owner, last.origin)
            return
    runs.append(run)


def _carried(ranges: Ranges, change: TextChange, length: int, live: Container[int]) -> Ranges:
    """Carry ranges into the new text. Text inserted at the edges of a range joins it."""
    if not ranges:
        return ranges
    kept = change.kept
    starts = [block.i for block in kept]
    ends = [block.i + block.n for block in kept]
    nothing = Block(0, 0, 0)
    head, tail = (kept[0], kept[-1]) if kept else (nothing, nothing)
    head_end = head.n if head.i == head.j == 0 else 0
    tail_end, shift = tail.i + tail.n, tail.j - tail.i
    carried: dict[tuple[int, int], tuple[int, int]] = {}
    for key, (start, end) in ranges.items():
        if key[0] not in live:
            continue
        # The fast path: most changes are in one place; ranges before stay, ranges behind shift.
        if end < head_end:
            carried[key] = start, end
            continue
        if tail.i < start and end < tail_end:
            carried[key] = start + shift, end + shift
            continue
        left = bisect_left(ends, start)
        # The block that holds the character before `start`, or else the last one before it.
        if left < len(kept) and kept[left].i < start:
            low = kept[left].j + start - kept[left].i
        else:
            low = kept[left - 1].j + kept[left - 1].n if left else 0
        right = bisect_right(starts, end) - 1
        if right >= 0 and ends[right] > end:
            high = kept[right].j + end - kept[right].i
        elif right + 1 < len(kept):
            high = kept[right + 1].j
        else:
            high = length
        carried[key] = low, max(low, high)
    return carried


def _clipped(ranges: Ranges, state: FileState, change: TextChange, length: int) -> Ranges:
    """Clip ranges at edges of known parts, which would absorb newly known text."""
    parts: list[tuple[int, int]] = []
    at = 0
    for text in state.text.split(UNKNOWN):
        parts.append((at, at + len(text)))
        at += len(text) + len(UNKNOWN)
    clipped = {}
    for key, carried in ranges.items():
        low, high = carried
        start, end = state.ranges[key]
        first, last = next(part for part in parts if part[0] <= start <= end <= part[1])
        own = [block for block in change.kept if block.i < last and block.i + block.n > first]
        inside = [block for block in own if block.i < end and block.i + block.n > start]
        before = any(block.i < start for block in own)
        after = any(block.i + block.n > end for block in own)
        if not before:
            low = inside[0].j + start - inside[0].i if inside else high - (end - start)
        if not after:
            high = inside[-1].j + end - inside[-1].i if inside else low + end - start
        if not (before or after or inside):
            low = high = 0
        low = min(max(low, 0), length)
        clipped[key] = low, min(max(low, high), length)
    return clipped


def shifted(change: TextChange, start: int, old: int, new: int, rest: int) -> TextChange:
    kept = [Block(0, 0, start)] if start else []
    kept += [Block(i + start, j + start, n) for i, j, n in change.kept]
    if rest:
        kept.append(Block(start + old, start + new, rest))
    return TextChange(kept, [Block(i + start, j + start, n) for i, j, n in change.moved])


def joined_state(parts: Sequence[FileState], text: str) -> FileState:
    """Join known parts in the order in which they occur in `text`."""
    if len(parts) == 1:
        return parts[0]

    def place(part: FileState) -> int:
        at = text.find(part.text)
        if at < 0:
            line = max(part.text.splitlines(), key=len, default="")
            at = text.find(line) if line else -1
        return at if at >= 0 else len(text)

    ordered = sorted(parts, key=place)
    lengths = [len(part.text) + len(UNKNOWN) for part in ordered]
    places = accumulate(lengths[:-1], initial=0)
    joined = UNKNOWN.join(part.text for part in ordered)
    return state_of(joined, zip(places, ordered, strict=True))


def placed(state: FileState, text: str) -> TextChange | None:
    """Return the change that adds text around known parts; None if a part changed."""
    blocks: list[Block] = []
    at = end = 0
    for part in state.text.split(UNKNOWN):
        place = text.find(part, end)
        if not part or place < 0 or text.find(part) != place or text.find(part, place + 1) >= 0:
            return None
        blocks.append(Block(at, place, len(part)))
        at, end = at + len(part) + len(UNKNOWN), place + len(part)
    return TextChange(blocks, [])


def state_of(text: str, parts: Iterable[tuple[int, FileState]]) -> FileState:
    runs: list[OwnerRun] = []
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    language = None
    at = 0
    for place, part in parts:
        language = language or part.language
        runs += [OwnerRun(place - at, UNSEEN, 0)] if place > at else []
        runs += part.runs
        at = place + len(part.text)
        for key, (start, end) in part.ranges.items():
            ranges[key] = (start + place, end + place)
    runs += [OwnerRun(len(text) - at, UNSEEN, 0)] if len(text) > at else []
    return FileState(text, runs, ranges, False, language)


def between(covered: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    uncovered = []
    at = 0
    for start, size in covered:
        if start > at:
            uncovered.append((at, start))
        at = max(at, start + size)
    if at < length:
        uncovered.append((at, length))
    return uncovered


def without(
    stretches: Sequence[tuple[int, int]], taken: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Subtract `taken` from stretches, which are in order. Both are (start, end)."""
    length = max((end for _, end in stretches), default=0)
    outside = between(((start, end - start) for start, end in stretches), length)
    covered = sorted((start, end - start) for start, end in [*outside, *taken])
    return between(((start, size) for start, size in covered if start < length), length)
