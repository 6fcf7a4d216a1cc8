"""Files of which only regions are known. A region that an edit is the first to show may be one that
an earlier edit named, changed by others or moved in the meantime: nobody can tell until the whole
file is seen."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import (
    Block,
    CompareCost,
    TextChange,
    TooExpensive,
    find_moves,
)
from penstock_jobs.rewards.texts.moves import LooseLines, reclaim
from penstock_jobs.rewards.texts.provenance import (
    OTHERS,
    FileState,
    KnownFile,
    OwnerRun,
    after_others,
    first_state,
)

#: Lines in a row that a region shares with an earlier one: fewer are chance, since code repeats.
ROW_MIN = 3


class RecalledParts(NamedTuple):
    """The parts of the file, with text that went from one to another under its owners, and what
    the agent itself had replaced there before that was known."""

    parts: list[FileState]
    reworked: list[OwnerRun]


def widen(file: KnownFile, before: str, owner: int) -> None:
    """An edit names a region that nobody knows: a part of its own, the last, that takes in those
    that it holds. Edits of the others stay where they are."""
    taken: list[tuple[int, int]] = []
    end = 0
    for place, number in sorted(_places(file.parts, before)):
        if place >= end:
            taken.append((place, number))
            end = place + len(file.parts[number].text)
    runs: list[OwnerRun] = []
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    at, since = 0, owner
    for place, number in taken:
        part = file.parts[number]
        runs += [OwnerRun(place - at, OTHERS, 0)] if place > at else []
        runs += part.runs
        at = place + len(part.text)
        since = min(since, file.shown[number][0])
        for key, (start, stop) in part.ranges.items():
            ranges[key] = (start + place, stop + place)
    runs += [OwnerRun(len(before) - at, OTHERS, 0)] if len(before) > at else []
    rest = set(range(len(file.parts))).difference(number for _, number in taken)
    file.shown = [*(file.shown[number] for number in sorted(rest)), (since, before)]
    state = FileState(before, runs, ranges, False)
    file.parts = [*(file.parts[number] for number in sorted(rest)), state]
    file.put(len(rest), state)


def _places(parts: Sequence[FileState], before: str) -> Iterator[tuple[int, int]]:
    """Where each part is in the text, and its number; without those that are there twice."""
    for number, part in enumerate(parts):
        place = before.find(part.text)
        if part.text and place >= 0 and before.find(part.text, place + 1) < 0:
            yield place, number


def recall(file: KnownFile, text: str, ink_min: int, cost: CompareCost) -> RecalledParts:
    """The whole file is seen to be `text`. What edits wrote in a region that is not there any more
    as it was stands now in one that was first shown later, if that held most of it."""
    parts, reworked = list(file.parts), list[OwnerRun]()
    if len(parts) == 1:
        return RecalledParts(parts, reworked)
    for at, old in enumerate(file.parts):
        if not old.pieces or old.text in text:
            continue
        for to, (since, shown) in enumerate(file.shown):
            if to == at or not (rows := _rows(parts[at], since, shown, ink_min)):
                continue
            try:
                parts[to] = _given(parts[to], parts[at], rows, cost)
            except TooExpensive:
                continue
            there = _all_of(parts[to]).distinct
            reworked += [
                run
                for row in rows
                for line, ink in enumerate(row.ink)
                if ink not in there
                for run in row.owners(line, 0, len(row.raw[line]))
            ]
            parts[at] = _without(parts[at], rows)
    return RecalledParts(parts, reworked)


def _rows(part: FileState, since: int, shown: str, ink_min: int) -> list[LooseLines]:
    """Lines in a row that edits before `since` wrote in the part and that the region held when it
    was first shown; none if they are not most of what these edits have in the part."""
    old, region = _all_of(part), _all_of(first_state(shown, whole=False))
    if old.distinct.isdisjoint(region.distinct):
        return []
    owned = [
        line
        for line, raw in enumerate(old.raw)
        if any(0 < run.owner < since for run in old.owners(line, 0, len(raw)))
    ]
    inks = [old.ink[line] for line in owned]
    found = [row for row in find_moves(inks, region.ink, ink_min) if row.n >= ROW_MIN]
    size = sum(len(inks[row.i + k]) for row in found for k in range(row.n))
    if not found or 2 * size < sum(map(len, inks)):
        return []
    return _in_a_row(old, sorted(owned[row.i + k] for row in found for k in range(row.n)))


def _given(
    to: FileState, part: FileState, rows: Sequence[LooseLines], cost: CompareCost
) -> FileState:
    """The region with the owners of these lines of the part. Raises TooExpensive."""
    for row in rows:
        state = reclaim(to, _all_of(to), row, ink_min=1, cost=cost, maker=OTHERS)
        to = state or to
    return to


def _without(part: FileState, rows: Sequence[LooseLines]) -> FileState:
    """The part where these lines are no more."""
    kept: list[Block] = []
    at = to = 0
    for start, end in [*((row.start, row.end) for row in rows), (len(part.text),) * 2]:
        kept += [Block(at, to, start - at)] if start > at else []
        at, to = end, to + start - at
    text = "".join(part.text[i : i + n] for i, _, n in kept)
    return after_others(
        part, text, TextChange(kept, []), {owner for owner, _ in part.ranges}, whole=False
    )


def _in_a_row(loose: LooseLines, lines: Sequence[int]) -> list[LooseLines]:
    """These lines, those together that stand together."""
    rows: list[LooseLines] = []
    for line in lines:
        start = loose.places[line]
        end = start + len(loose.raw[line])
        if rows and rows[-1].end == start:
            start = rows.pop().start
        rows.append(LooseLines(loose.state, start, end))
    return rows


def _all_of(state: FileState) -> LooseLines:
    return LooseLines(state, 0, len(state.text))
