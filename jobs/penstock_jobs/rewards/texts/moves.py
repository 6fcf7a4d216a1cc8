"""Text that moves and keeps its owner: between files, and between regions of a partly known
file."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from operator import itemgetter

from penstock_jobs.rewards.texts import changes, provenance
from penstock_jobs.rewards.texts.changes import (
    Block,
    CompareCost,
    TextChange,
    TooExpensive,
    holds_ink,
    ink,
)
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState, KnownFile, OwnerRun
from penstock_jobs.rewards.texts.trail import SECOND, TrackedEdit

#: Text that reappears within this time, or within the same turn, has moved.
MOVE_US = 60 * SECOND
#: The number of latest stretches that are searched for the origin of moved text.
REMEMBERED = 32
#: A region with this share of a file counts as the whole file.
MOST_OF_FILE = 0.8
#: Fewer equal lines in a row in two regions are chance, since code repeats.
ROW_MIN = 3


def _raw_lines(text: str) -> list[str]:
    """A blank line belongs to the previous line; blank lines at the start are left out."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if not line.isspace():
            lines.append(line)
        elif lines:
            lines[-1] += line
    return lines


class LooseLines:
    """Lines of a part of a text. Few are ever looked for, so all is made when it is asked for."""

    def __init__(self, state: FileState, start: int = 0, end: int | None = None) -> None:
        self.state, self.start = state, start
        self.end = len(state.text) if end is None else end

    @cached_property
    def raw(self) -> list[str]:
        return _raw_lines(self.state.text[self.start : self.end])

    @cached_property
    def ink(self) -> list[str]:
        return list(map(ink, self.raw))

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(self.ink)

    @cached_property
    def places(self) -> list[int]:
        first = self.end - sum(map(len, self.raw))
        return [*accumulate(map(len, self.raw), initial=first)][:-1]

    def owners(self, line: int, start: int = 0, size: int | None = None) -> list[OwnerRun]:
        at = self.places[line] + start
        return self.state.cut(at, at + (len(self.raw[line]) if size is None else size))


def _arrived_lines(state: FileState, change: TextChange | None, ink_min: int) -> list[LooseLines]:
    blocks = change.kept + change.moved if change else []
    return _uncovered(state, [(block.j, block.n) for block in blocks], ink_min)


def gone_lines(state: FileState, change: TextChange, ink_min: int) -> list[LooseLines]:
    blocks = [(block.i, block.n) for block in change.kept + change.moved]
    return _uncovered(state, blocks, ink_min)


def _uncovered(state: FileState, covered: list[tuple[int, int]], ink_min: int) -> list[LooseLines]:
    """Return uncovered stretches, except those too short to recognize."""
    gaps = provenance.between(sorted(covered), len(state.text))
    return [
        LooseLines(state, start, end)
        for start, end in gaps
        if holds_ink(state.text, start, end, ink_min)
    ]


def reclaim(
    state: FileState,
    came: LooseLines,
    gone: LooseLines,
    *,
    maker: int,
    ink_min: int,
    cost: CompareCost,
) -> FileState | None:
    """Restore owners of `gone` lines that reappear in text of `maker`."""
    if gone.distinct.isdisjoint(came.distinct):
        return None
    blocks: list[tuple[int, int, list[OwnerRun]]] = []
    for i, j, n in changes.find_moves(gone.ink, came.ink, ink_min):
        for k in range(n):
            for start, to, size in changes.compare(gone.raw[i + k], came.raw[j + k], cost).kept:
                place = came.places[j + k] + to
                if all(max(run.owner, OTHERS) == maker for run in state.cut(place, place + size)):
                    blocks.append((place, size, gone.owners(i + k, start, size)))
    if not blocks:
        return None
    runs: list[OwnerRun] = []
    done = 0
    for place, size, owners in sorted(blocks, key=itemgetter(0)):
        runs += [*state.cut(done, place), *owners]
        done = place + size
    return replace(state, runs=[*runs, *state.cut(done, len(state.text))])


@dataclass(eq=False)
class Moves:
    files: Mapping[str, KnownFile]
    turns_us: Sequence[int]
    ink_min: int
    cost: CompareCost
    lost: list[tuple[int, int, LooseLines]] = field(default_factory=list)
    #: Text that edits removed: time, path and lines.
    taken: list[tuple[int, str, LooseLines]] = field(default_factory=list)
    #: Edits whose new text may turn out to come from another file.
    written: list[TrackedEdit] = field(default_factory=list)
    #: Changes by others: time, path, new state, and the change; None for a new file.
    arrived: list[tuple[int, str, FileState, TextChange | None]] = field(default_factory=list)

    def vanish(self, ts: int, gone: Iterable[LooseLines], taker: int) -> list[LooseLines]:
        owned = [
            lines
            for lines in gone
            if any(run.owner > OTHERS for run in lines.state.cut(lines.start, lines.end))
        ]
        self.lost += [(ts, taker, lines) for lines in owned]
        return owned

    def bring(self, edit: TrackedEdit, state: FileState) -> FileState:
        """Return the state after an edit. Lines from another file keep their owners."""
        ts = edit.ts_us
        self.taken = [entry for entry in self.taken[-REMEMBERED:] if self._near(entry[0], ts)]
        self.written = [
            other for other in self.written[-REMEMBERED:] if self._near(other.ts_us, ts)
        ]
        self.written.append(edit)
        taken = [gone for _, path, gone in self.taken if path != edit.path]
        return self._brought(state, taken, edit.owner) if taken else state

    def take(self, edit: TrackedEdit, taken: Iterable[LooseLines]) -> Iterator[FileState]:
        """Note text that an edit removes. Yield files where earlier edits had put it before."""
        for gone in taken:
            self.taken.append((edit.ts_us, edit.path, gone))
            for other in self.written:
                file, made = self.files.get(other.path), other.made
                elsewhere = file is not None and other.path != edit.path
                if file is None or made is None or not elsewhere or made not in file.parts:
                    continue
                brought = self._brought(made, [gone], other.owner)
                if brought is not made:
                    file.put(file.parts.index(made), brought)
                    other.put(brought)
                    if not other.written:
                        other.problem = "nothing_written"
                    yield brought

    def _brought(self, state: FileState, taken: list[LooseLines], maker: int) -> FileState:
        text = state.text
        taken = [gone for gone in taken if any(line.strip() in text for line in gone.raw)]
        for _, at, length in state.pieces.get(maker, ()) if taken else ():
            if length >= self.ink_min:
                came = LooseLines(state, at, at + length)
                for gone in taken:
                    state = self._claim(state, came, gone, maker) or state
        return state

    def copied(self, before: FileState, state: FileState, change: TextChange) -> FileState:
        """Return the state after others copied lines. Copies keep the owner."""
        source = LooseLines(before)
        for came in _arrived_lines(state, change, self.ink_min):
            there = (line for line in came.raw if line.strip() in before.text)
            if sum(map(len, map(ink, there))) >= self.ink_min:
                state = self._claim(state, came, source, OTHERS) or state
        return state

    def claimed(
        self, ts: int, state: FileState, change: TextChange | None, maker: int
    ) -> FileState:
        """Return the state with owners of text that vanished shortly before and reappeared."""
        self.lost = [entry for entry in self.lost[-REMEMBERED:] if self._near(entry[0], ts)]
        if not self.lost:
            return state
        for came in _arrived_lines(state, change, self.ink_min):
            for _, taker, gone in self.lost:
                if maker == OTHERS or taker != OTHERS:
                    state = self._claim(state, came, gone, maker) or state
        return state

    def claim_elsewhere(self, ts: int, path: str, gone: LooseLines) -> None:
        """Restore owners of vanished text in files where it appeared shortly before."""
        self.arrived = [entry for entry in self.arrived[-REMEMBERED:] if self._near(entry[0], ts)]
        for _, other, state, change in self.arrived:
            file = self.files.get(other)
            if other == path or file is None or file.parts[0] is not state:
                continue
            for came in _arrived_lines(state, change, self.ink_min):
                if claimed := self._claim(file.parts[0], came, gone, OTHERS):
                    file.put(0, claimed)

    def _claim(
        self, state: FileState, came: LooseLines, gone: LooseLines, maker: int
    ) -> FileState | None:
        try:
            return reclaim(state, came, gone, maker=maker, ink_min=self.ink_min, cost=self.cost)
        except TooExpensive:
            return None

    def _near(self, earlier: int, later: int) -> bool:
        turn, turn_later = (bisect_right(self.turns_us, ts) for ts in (earlier, later))
        return later - earlier <= MOVE_US or (bool(self.turns_us) and turn == turn_later)


def widen(file: KnownFile, before: str, owner: int) -> None:
    """Add an unknown region as the last part. It absorbs parts that it contains."""
    once = [
        (place, number)
        for number, part in enumerate(file.parts)
        if part.text
        and (place := before.find(part.text)) >= 0
        and before.find(part.text, place + 1) < 0
    ]
    taken: dict[int, int] = {}
    end = 0
    for place, number in sorted(once):
        if place >= end:
            taken[number] = place
            end = place + len(file.parts[number].text)
    since = min([owner, *(file.shown[number][0] for number in taken)])
    state = provenance.state_of(
        before, ((place, file.parts[number]) for number, place in taken.items())
    )
    rest = [number for number in range(len(file.parts)) if number not in taken]
    file.shown = [*(file.shown[number] for number in rest), (since, before)]
    file.parts = [*(file.parts[number] for number in rest), state]
    file.put(len(rest), state)


def recall(
    file: KnownFile, text: str, ink_min: int, cost: CompareCost
) -> tuple[list[FileState], list[OwnerRun]]:
    """Learn the whole file. Returns its parts with owners of moved text.

    Also returns text that the agent itself replaced before the file was known."""
    parts, reworked = list(file.parts), list[OwnerRun]()
    if len(parts) == 1:
        return parts, reworked
    # The last region of an edit may be the whole file.
    if len(ink(parts[-1].text)) >= MOST_OF_FILE * len(ink(text)):
        return _within_last(file, cost)
    for at, old in enumerate(file.parts):
        if not old.pieces or old.text in text:
            continue
        for to, (since, shown) in enumerate(file.shown):
            if to == at or not (rows := _shared_rows(parts[at], since, shown, ink_min)):
                continue
            state = parts[to]
            try:
                for row in rows:
                    lines = LooseLines(state)
                    claimed = reclaim(state, lines, row, maker=OTHERS, ink_min=1, cost=cost)
                    state = claimed or state
            except TooExpensive:
                continue
            parts[to] = state
            there = LooseLines(state).distinct
            gone = [(row, n) for row in rows for n, bare in enumerate(row.ink) if bare not in there]
            reworked += [run for row, line in gone for run in row.owners(line)]
            parts[at] = _without(parts[at], rows)
    return parts, reworked


def _within_last(file: KnownFile, cost: CompareCost) -> tuple[list[FileState], list[OwnerRun]]:
    *earlier, last = file.parts
    shown = file.shown[-1][1]
    rest: list[FileState] = []
    reworked: list[OwnerRun] = []
    for part in earlier:
        live = {owner for owner, _ in part.ranges}
        try:
            then = changes.compare(part.text, shown, cost)
            since = changes.compare(shown, last.text, cost)
        except TooExpensive:
            rest.append(part)
            continue
        still = sum(len(ink(shown[j : j + n])) for _, j, n in then.kept + then.moved)
        if 2 * still < len(ink(part.text)):
            rest.append(part)
            continue
        before = provenance.after_change(part, shown, then, live, whole=False)
        now = provenance.after_change(before, last.text, since, live, whole=False)
        covered = sorted((block.i, block.n) for block in since.kept + since.moved)
        for start, end in provenance.between(covered, len(shown)):
            reworked += before.cut(start, end)
        last = _with_owners(last, now)
    return [*rest, last], reworked


def _with_owners(state: FileState, other: FileState) -> FileState:
    runs: list[OwnerRun] = []
    at = 0
    for run in state.runs:
        runs += [run] if run.owner > OTHERS else other.cut(at, at + run.length)
        at += run.length
    return replace(state, runs=runs, ranges={**other.ranges, **state.ranges})


def _shared_rows(part: FileState, since: int, shown: str, ink_min: int) -> list[LooseLines]:
    """Return rows of lines of earlier edits that the region held when it was first shown."""
    if not any(owner < since for owner in part.pieces):
        return []
    old, region = LooseLines(part), list(map(ink, _raw_lines(shown)))
    if old.distinct.isdisjoint(region):
        return []
    owned = _lines_owned(old, part, since)
    inks = [old.ink[line] for line in owned]
    moves = [move for move in changes.find_moves(inks, region, ink_min) if move.n >= ROW_MIN]
    size = sum(len(inks[move.i + k]) for move in moves for k in range(move.n))
    if not moves or 2 * size < sum(map(len, inks)):
        return []
    rows: list[LooseLines] = []
    for line in sorted(owned[move.i + k] for move in moves for k in range(move.n)):
        start = old.places[line]
        end = start + len(old.raw[line])
        if rows and rows[-1].end == start:
            start = rows.pop().start
        rows.append(LooseLines(part, start, end))
    return rows


def _lines_owned(lines: LooseLines, part: FileState, since: int) -> list[int]:
    places, owned = lines.places, set[int]()
    for owner, pieces in part.pieces.items():
        if owner < since:
            for _, at, length in pieces:
                first = max(bisect_right(places, at) - 1, 0)
                owned.update(range(first, bisect_left(places, at + length)))
    return sorted(owned)


def _without(part: FileState, rows: Iterable[LooseLines]) -> FileState:
    kept: list[Block] = []
    to = 0
    covered = ((row.start, row.end - row.start) for row in rows)
    for start, end in provenance.between(covered, len(part.text)):
        kept.append(Block(start, to, end - start))
        to += end - start
    text = "".join(part.text[i : i + n] for i, _, n in kept)
    live = {owner for owner, _ in part.ranges}
    return provenance.after_change(part, text, TextChange(kept, []), live, whole=False)
