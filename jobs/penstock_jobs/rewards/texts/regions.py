"""Files of which only regions are known. A region that an edit is the first to show may be one that
an earlier edit named, changed by others or moved in the meantime: nobody can tell until the whole
file is seen."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock_jobs.rewards.texts.changes import Block, Change, TooExpensive, Work, find_moves
from penstock_jobs.rewards.texts.moves import Loose, reclaim
from penstock_jobs.rewards.texts.provenance import (
    OTHERS,
    KnownFile,
    Run,
    State,
    changed,
    first_state,
)

#: Lines in a row that a region shares with an earlier one: fewer are chance, since code repeats.
ROW_MIN = 3


class Recalled(NamedTuple):
    """The parts of the file, with text that went from one to another under its owners, and what
    the agent itself had replaced there before that was known."""

    parts: list[State]
    reworked: list[Run]


def widen(file: KnownFile, before: str, owner: int) -> None:
    """An edit names a region that nobody knows: a part of its own, the last, that takes in those
    that it holds. Edits of the others stay where they are."""
    taken: list[tuple[int, int]] = []
    end = 0
    for place, number in sorted(_places(file.parts, before)):
        if place >= end:
            taken.append((place, number))
            end = place + len(file.parts[number].text)
    runs: list[Run] = []
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    at, since = 0, owner
    for place, number in taken:
        part = file.parts[number]
        runs += [Run(place - at, OTHERS, 0)] if place > at else []
        runs += part.runs
        at = place + len(part.text)
        since = min(since, file.shown[number][0])
        for key, (start, stop) in part.ranges.items():
            ranges[key] = (start + place, stop + place)
    runs += [Run(len(before) - at, OTHERS, 0)] if len(before) > at else []
    rest = set(range(len(file.parts))).difference(number for _, number in taken)
    file.shown = [*(file.shown[number] for number in sorted(rest)), (since, before)]
    state = State(before, runs, ranges, False)
    file.parts = [*(file.parts[number] for number in sorted(rest)), state]
    file.put(len(rest), state)


def _places(parts: Sequence[State], before: str) -> Iterator[tuple[int, int]]:
    """Where each part is in the text, and its number; without those that are there twice."""
    for number, part in enumerate(parts):
        place = before.find(part.text)
        if part.text and place >= 0 and before.find(part.text, place + 1) < 0:
            yield place, number


def recall(file: KnownFile, text: str, ink_min: int, work: Work) -> Recalled:
    """The whole file is seen to be `text`. What edits wrote in a region that is not there any more
    as it was stands now in one that was first shown later, if that held most of it."""
    parts, reworked = list(file.parts), list[Run]()
    if len(parts) == 1:
        return Recalled(parts, reworked)
    for at, old in enumerate(file.parts):
        if not old.pieces or old.text in text:
            continue
        for to, (since, shown) in enumerate(file.shown):
            if to == at or not (rows := _rows(parts[at], since, shown, ink_min)):
                continue
            try:
                parts[to] = _given(parts[to], parts[at], rows, work)
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
    return Recalled(parts, reworked)


def _rows(part: State, since: int, shown: str, ink_min: int) -> list[Loose]:
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


def _given(to: State, part: State, rows: Sequence[Loose], work: Work) -> State:
    """The region with the owners of these lines of the part. Raises TooExpensive."""
    for row in rows:
        state = reclaim(to, _all_of(to), row, ink_min=1, work=work, maker=OTHERS)
        to = state or to
    return to


def _without(part: State, rows: Sequence[Loose]) -> State:
    """The part where these lines are no more."""
    kept: list[Block] = []
    at = to = 0
    for start, end in [*((row.start, row.end) for row in rows), (len(part.text),) * 2]:
        kept += [Block(at, to, start - at)] if start > at else []
        at, to = end, to + start - at
    text = "".join(part.text[i : i + n] for i, _, n in kept)
    return changed(part, text, Change(kept, []), {owner for owner, _ in part.ranges}, whole=False)


def _in_a_row(loose: Loose, lines: Sequence[int]) -> list[Loose]:
    """These lines, those together that stand together."""
    rows: list[Loose] = []
    for line in lines:
        start = loose.places[line]
        end = start + len(loose.raw[line])
        if rows and rows[-1].end == start:
            start = rows.pop().start
        rows.append(Loose(loose.state, start, end))
    return rows


def _all_of(state: State) -> Loose:
    return Loose(state, 0, len(state.text))
