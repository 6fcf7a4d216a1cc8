"""What is known of one file of a session: its text, who wrote it, and where edits were made."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from penstock_jobs.rewards.texts.changes import Block, Change, Work, compare, find_moves, ink
from penstock_jobs.rewards.texts.provenance import (
    OTHERS,
    Piece,
    Places,
    Run,
    after_change,
    cut,
    pieces_of,
    untouched,
)

#: What stands between parts of a file of which only parts are known. No text holds it.
UNKNOWN = "\n\0\n"

#: (edit, number of the range) → the stretch that the range has become.
Ranges = Mapping[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class State:
    """A file at one moment. `whole` is false when `text` is only a part of it."""

    text: str
    runs: Sequence[Run]
    ranges: Ranges = field(default_factory=dict)
    whole: bool = True

    @cached_property
    def pieces(self) -> dict[int, list[Piece]]:
        return pieces_of(self.runs)

    @cached_property
    def starts(self) -> list[int]:
        return [0, *accumulate(run.length for run in self.runs)]


@dataclass(eq=False)
class KnownFile:
    """What is known of a file: one state, or several parts as long as nobody saw all of it."""

    path: str
    parts: list[State]
    #: Where it puts itself down when it changes.
    changed: set["KnownFile"]
    #: Text → the latest state with that text.
    known: dict[str, State] = field(default_factory=dict)
    #: For each part, the edit that was the first to name it, and its text then.
    shown: list[tuple[int, str]] = field(default_factory=lambda: [(0, "")])

    @property
    def whole(self) -> bool:
        return self.parts[0].whole

    def put(self, part: int, state: State) -> None:
        self.parts[part] = state
        self.changed.add(self)
        if len(self.parts) == 1:
            self.known[state.text] = state


@dataclass(frozen=True, eq=False)
class Loose:
    """Lines in a row that went from a text or came into it: where they are in the state."""

    state: State
    start: int
    end: int

    @cached_property
    def raw(self) -> list[str]:
        """A blank line belongs to the line before it; before the first it is left out."""
        lines: list[str] = []
        for line in self.state.text[self.start : self.end].splitlines(keepends=True):
            if lines and line.isspace():
                lines[-1] += line
            elif not line.isspace():
                lines.append(line)
        return lines

    @cached_property
    def places(self) -> list[int]:
        """Where each line begins."""
        first = self.end - sum(map(len, self.raw))
        return [*accumulate(map(len, self.raw), initial=first)][:-1]

    def owners(self, line: int, start: int, size: int) -> list[Run]:
        """Of a stretch of a line."""
        at = self.places[line] + start
        return cut(self.state.runs, self.state.starts, at, at + size)

    @cached_property
    def ink(self) -> list[str]:
        return [ink(line) for line in self.raw]

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(self.ink)


def first_state(text: str, *, whole: bool) -> State:
    return State(text, untouched(text), {}, whole)


def changed(
    state: State,
    text: str,
    change: Change,
    live: Container[int],
    *,
    known: State | None = None,
    whole: bool = True,
) -> State:
    """The state after others made a change. `known` is a state with the same text that the file
    had before: undoing brings back who wrote it. Ranges of edits that are not live are dropped."""
    if known is not None:
        runs = known.runs
    else:
        runs = after_change(state.runs, change.kept + change.moved, len(text), OTHERS)
    return State(text, runs, _carried(state.ranges, change, len(text), live), whole)


def edited(
    state: State, text: str, change: Change, live: Container[int], *, owner: int, start: int
) -> State:
    """The state after an edit of the agent, whose own text begins at `start`."""
    runs = after_change(state.runs, change.kept + change.moved, len(text), owner, -start)
    return State(text, runs, _carried(state.ranges, change, len(text), live), state.whole)


def shifted(change: Change, start: int, old: int, new: int, rest: int) -> Change:
    """The change of a region, as a change of the text around it: `start` characters before the
    region, `rest` after it; the region had `old` and has `new` characters."""
    kept = [Block(0, 0, start)] if start else []
    kept += [Block(i + start, j + start, n) for i, j, n in change.kept]
    if rest:
        kept.append(Block(start + old, start + new, rest))
    return Change(kept, [Block(i + start, j + start, n) for i, j, n in change.moved])


def together(parts: Sequence[State], text: str) -> State:
    """Known parts as one, in the order in which they are found in `text`."""
    if len(parts) == 1:
        return parts[0]
    ordered = sorted(parts, key=lambda part: _place(part.text, text))
    runs: list[Run] = []
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    at = 0
    for part in ordered:
        if at:
            runs.append(Run(len(UNKNOWN), OTHERS, 0))
            at += len(UNKNOWN)
        runs += part.runs
        for key, (start, end) in part.ranges.items():
            ranges[key] = (start + at, end + at)
        at += len(part.text)
    return State(UNKNOWN.join(part.text for part in ordered), runs, ranges, False)


def lost(state: State, change: Change, ink_min: int) -> list[Loose]:
    """Stretches of lines with text of an edit that the change took away, if they are so long that
    they can be told again."""
    if not state.pieces:
        return []
    blocks = [(block.i, block.n) for block in change.kept + change.moved]
    gaps = _uncovered(blocks, state.text, ink_min)
    return [
        Loose(state, start, end)
        for start, end in gaps
        if any(run.owner for run in cut(state.runs, state.starts, start, end))
    ]


def arrived(state: State, change: Change | None, ink_min: int) -> list[Loose]:
    """Stretches of lines that came into the text by the change, or all of it."""
    blocks = change.kept + change.moved if change else []
    gaps = _uncovered([(block.j, block.n) for block in blocks], state.text, ink_min)
    return [Loose(state, start, end) for start, end in gaps]


def reclaim(
    state: State, came: Loose, gone: Loose, *, ink_min: int, work: Work, maker: int
) -> State | None:
    """The state with the owners of `gone` where it came again, if it did, in text that belongs
    to `maker` so far."""
    if gone.distinct.isdisjoint(came.distinct):
        return None
    blocks: list[tuple[int, int, list[Run]]] = []
    for i, j, n in find_moves(gone.ink, came.ink, ink_min):
        for k in range(n):
            old, new = gone.raw[i + k], came.raw[j + k]
            for start, to, size in compare(old, new, work).kept:
                place = came.places[j + k] + to
                owners = gone.owners(i + k, start, size)
                free = cut(state.runs, state.starts, place, place + size)
                if all(run.owner == maker for run in free):
                    blocks.append((place, size, owners))
    if not blocks:
        return None
    runs: list[Run] = []
    done = 0
    for place, size, owners in sorted(blocks, key=lambda block: block[0]):
        runs += cut(state.runs, state.starts, done, place)
        runs += owners
        done = place + size
    runs += cut(state.runs, state.starts, done, len(state.text))
    return State(state.text, runs, state.ranges, state.whole)


def _carried(ranges: Ranges, change: Change, length: int, live: Container[int]) -> Ranges:
    if not ranges:
        return ranges
    places = Places(change.kept, length)
    return {key: places.stretch(*stretch) for key, stretch in ranges.items() if key[0] in live}


def _place(part: str, text: str) -> int:
    """Where a part is, by its text or else by its longest line; at the end if it is nowhere."""
    at = text.find(part)
    if at < 0:
        line = max(part.splitlines(), key=len, default="")
        at = text.find(line) if line else -1
    return at if at >= 0 else len(text)


def between(covered: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """What (start, length) stretches, in order, leave uncovered: (start, end)."""
    found = []
    at = 0
    for start, size in covered:
        if start > at:
            found.append((at, start))
        at = start + size
    if at < length:
        found.append((at, length))
    return found


def _uncovered(covered: list[tuple[int, int]], text: str, ink_min: int) -> list[tuple[int, int]]:
    found = between(sorted(covered), len(text))
    return [(start, end) for start, end in found if len(ink(text[start:end])) >= ink_min]
