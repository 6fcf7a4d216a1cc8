"""Lines that went from one place of a session's files and came to another a little later: they have
moved, and keep their owner."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from penstock_jobs.rewards.texts.changes import (
    CompareCost,
    TextChange,
    TooExpensive,
    compare,
    find_moves,
    ink,
)
from penstock_jobs.rewards.texts.provenance import (
    OTHERS,
    FileState,
    KnownFile,
    OwnerRun,
    between,
    cut,
)
from penstock_jobs.rewards.texts.trail import SECOND

#: Text that vanishes and appears again so soon, or within the same turn, has moved.
MOVE_US = 60 * SECOND
#: How many stretches are looked through for where moved text came from: the latest.
REMEMBERED = 32


@dataclass(frozen=True, eq=False)
class LooseLines:
    """Lines in a row that went from a text or came into it: where they are in the state."""

    state: FileState
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

    def owners(self, line: int, start: int, size: int) -> list[OwnerRun]:
        """Of a stretch of a line."""
        at = self.places[line] + start
        return cut(self.state.runs, self.state.starts, at, at + size)

    @cached_property
    def ink(self) -> list[str]:
        return [ink(line) for line in self.raw]

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(self.ink)


def lost_lines(state: FileState, change: TextChange, ink_min: int) -> list[LooseLines]:
    """Stretches of lines with text of an edit that the change took away, if they are so long that
    they can be told again."""
    if not state.pieces:
        return []
    blocks = [(block.i, block.n) for block in change.kept + change.moved]
    gaps = _uncovered(blocks, state.text, ink_min)
    return [
        LooseLines(state, start, end)
        for start, end in gaps
        if any(run.owner for run in cut(state.runs, state.starts, start, end))
    ]


def arrived_lines(state: FileState, change: TextChange | None, ink_min: int) -> list[LooseLines]:
    """Stretches of lines that came into the text by the change, or all of it."""
    blocks = change.kept + change.moved if change else []
    gaps = _uncovered([(block.j, block.n) for block in blocks], state.text, ink_min)
    return [LooseLines(state, start, end) for start, end in gaps]


def reclaim(
    state: FileState,
    came: LooseLines,
    gone: LooseLines,
    *,
    ink_min: int,
    cost: CompareCost,
    maker: int,
) -> FileState | None:
    """The state with the owners of `gone` where it came again, if it did, in text that belongs
    to `maker` so far."""
    if gone.distinct.isdisjoint(came.distinct):
        return None
    blocks: list[tuple[int, int, list[OwnerRun]]] = []
    for i, j, n in find_moves(gone.ink, came.ink, ink_min):
        for k in range(n):
            old, new = gone.raw[i + k], came.raw[j + k]
            for start, to, size in compare(old, new, cost).kept:
                place = came.places[j + k] + to
                owners = gone.owners(i + k, start, size)
                free = cut(state.runs, state.starts, place, place + size)
                if all(run.owner == maker for run in free):
                    blocks.append((place, size, owners))
    if not blocks:
        return None
    runs: list[OwnerRun] = []
    done = 0
    for place, size, owners in sorted(blocks, key=lambda block: block[0]):
        runs += cut(state.runs, state.starts, done, place)
        runs += owners
        done = place + size
    runs += cut(state.runs, state.starts, done, len(state.text))
    return FileState(state.text, runs, state.ranges, state.whole)


def _uncovered(covered: list[tuple[int, int]], text: str, ink_min: int) -> list[tuple[int, int]]:
    found = between(sorted(covered), len(text))
    return [(start, end) for start, end in found if len(ink(text[start:end])) >= ink_min]


class Moves:
    """What vanished and what appeared lately in a session's files."""

    def __init__(
        self,
        files: Mapping[str, KnownFile],
        turns_us: Sequence[int],
        ink_min: int,
        cost: CompareCost,
    ) -> None:
        self._files = files
        self._turns = turns_us
        self._ink_min = ink_min
        self._cost = cost
        # (when, who took it, what); (when, where, the file after it, by which change).
        self._lost: list[tuple[int, int, LooseLines]] = []
        self._arrived: list[tuple[int, str, FileState, TextChange | None]] = []

    def vanish(self, ts: int, state: FileState, change: TextChange, taker: int) -> list[LooseLines]:
        """Remember the edits' text that the change took from the state; return it."""
        gone = lost_lines(state, change, self._ink_min)
        self._lost += [(ts, taker, loose) for loose in gone]
        return gone

    def appear(self, ts: int, path: str, state: FileState, change: TextChange | None) -> None:
        """Remember that others changed the file so; without a change, it was first seen."""
        self._arrived.append((ts, path, state, change))

    def claimed(
        self, ts: int, state: FileState, change: TextChange | None, maker: int
    ) -> FileState:
        """The state after text that vanished a little earlier was found again in what came. What
        others took away and the agent writes again is written anew."""
        self._lost = [entry for entry in self._lost[-REMEMBERED:] if self._near(entry[0], ts)]
        if not self._lost:
            return state
        for came in arrived_lines(state, change, self._ink_min):
            for _, taker, gone in self._lost:
                if maker == OTHERS or taker != OTHERS:
                    state = self._claim(state, came, gone, maker) or state
        return state

    def claim_elsewhere(self, ts: int, path: str, gone: LooseLines) -> None:
        """Text that vanished here may have been seen to come to another file just before."""
        self._arrived = [entry for entry in self._arrived[-REMEMBERED:] if self._near(entry[0], ts)]
        for _, other, state, change in self._arrived:
            file = self._files.get(other)
            if other == path or file is None or file.parts[0] is not state:
                continue
            for came in arrived_lines(state, change, self._ink_min):
                claimed = self._claim(file.parts[0], came, gone, OTHERS)
                if claimed is not None:
                    file.put(0, claimed)

    def _claim(
        self, state: FileState, came: LooseLines, gone: LooseLines, maker: int
    ) -> FileState | None:
        try:
            return reclaim(state, came, gone, ink_min=self._ink_min, cost=self._cost, maker=maker)
        except TooExpensive:
            return None

    def _near(self, earlier: int, later: int) -> bool:
        if later - earlier <= MOVE_US:
            return True
        return bool(self._turns) and self._turn(earlier) == self._turn(later)

    def _turn(self, ts: int) -> int:
        return bisect_right(self._turns, ts)
