"""What was left to do of an edit: the text of it that others took back, and the text that they put
in its place. Both are counted as they are, whatever else was written beside them."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from penstock_jobs.rewards.texts import survival
from penstock_jobs.rewards.texts.changes import CompareCost, ink
from penstock_jobs.rewards.texts.places import (
    PlaceWeights,
    comment_start,
    is_comment,
    place_of_text,
)
from penstock_jobs.rewards.texts.provenance import OTHERS, FileState
from penstock_jobs.rewards.texts.trail import Sighting, Survivor, TrackedEdit

#: What others added elsewhere in the file may be another matter: it counts by half.
ELSEWHERE = 0.5
#: An edit that named so much of the file named all of it.
_WHOLE_SHARE = 0.7
#: Of what an edit takes away, in whole lines.
_OWN_SHARE = 0.6
_SPACES = (" ", "\n", "\t", "\r")

Stretch = tuple[int, int]


class Remainder(NamedTuple):
    """Characters without white space."""

    #: Of the edit's text, or of the text that it took away and that is back.
    taken: float
    #: By others or by later turns, in the place of the turn's edits in this file.
    put: float
    #: False where the agent itself replaced everything.
    counts: bool


NOTHING = Remainder(0.0, 0.0, counts=True)


def ink_count(text: str) -> int:
    """How many characters, without the usual white space: as `len(ink(text))`, in a tenth of the
    time."""
    return len(text) - sum(map(text.count, _SPACES))


def place_weight(edit: TrackedEdit, weights: PlaceWeights) -> float:
    """What a character of the edit weighs by the file that it is in."""
    return weights.of(place_of_text(edit.path or "", edit.after))


def is_all_comments(edit: TrackedEdit) -> bool:
    """Whether it wrote nothing but lines that are comments alone."""
    start = comment_start(edit.path or "")
    if edit.deleted or start is None or start not in edit.after:
        return False
    lines = (line.strip() for at, end in edit.written for line in _lines(edit.after, at, end))
    return all(is_comment(line, start) for line in lines if line)


def came_to_nothing(edits: Sequence[TrackedEdit]) -> bool:
    """Whether these edits of one turn and file, in order, left it as it was before them."""
    first, last = edits[0].made, edits[-1].made
    if len(edits) < 2 or first is None or last is None:
        return False
    return ink(_text_before(edits[0], first)) == ink(last.text)


def takes_own(edit: TrackedEdit, earlier: Sequence[TrackedEdit]) -> bool:
    """Whether what it takes away is what edits before it, of the same turn and file, had written.
    Its ends may lie within lines."""
    if not edit.deleted or not earlier:
        return False
    known = {
        ink(line)
        for other in earlier
        for start, end in other.written
        for line in _lines(other.after, start, end)
    }
    gone = [ink(line) for text in edit.deleted.values() for line in text.splitlines()]
    return sum(len(line) for line in gone if line in known) >= _OWN_SHARE * sum(map(len, gone))


def _text_before(edit: TrackedEdit, made: FileState) -> str:
    parts, at = [], 0
    for number, changed in enumerate(edit.ranges):
        start, end = made.ranges.get((edit.owner, number), (at, at))
        parts += [made.text[at:start], changed.before]
        at = end
    return "".join([*parts, made.text[at:]])


def remainder(
    edit: TrackedEdit,
    sighting: Sighting,
    turn: Collection[int],
    comments: float,
    cost: CompareCost,
) -> Remainder | None:
    """`turn` are the owners of the turn's edits, `comments` what lines of comments weigh beside
    code. None where the file of what an edit took away is gone. Raises TooExpensive."""
    if edit.is_as_made(sighting):
        return NOTHING
    home = sighting.home
    put = 0.0 if home is None or edit.made is None else _put(edit, edit.made, home, turn)
    if edit.deleted:
        if home is None:
            return None
        back, own = survival.returned(edit, home, cost)
        return Remainder(back, put, own < edit.ink_size)
    alive = survival.survivors(edit, sighting)
    reworked = sorted((start, start + length) for start, length in sighting.reworked)
    standing = [(origin, origin + length) for origin, _, _, length in alive]
    gone = without(edit.written, standing)
    lost = without(gone, reworked) if reworked else gone
    if not (alive or lost or put):
        return Remainder(0.0, 0.0, counts=False)
    return Remainder(_taken(edit, alive, lost, comments), put, counts=True)


def without(stretches: Sequence[Stretch], taken: Iterable[Stretch]) -> list[Stretch]:
    """What is left of stretches, both in order."""
    left: list[Stretch] = []
    cuts = list(taken)
    first = 0
    for start, end in stretches:
        at = start
        while first < len(cuts) and cuts[first][1] <= at:
            first += 1
        k = first
        while k < len(cuts) and cuts[k][0] < end:
            if cuts[k][0] > at:
                left.append((at, cuts[k][0]))
            at = max(at, cuts[k][1])
            k += 1
        if at < end:
            left.append((at, end))
    return left


def _put(edit: TrackedEdit, made: FileState, home: FileState, turn: Collection[int]) -> float:
    """What others and later turns put where the turn's edits are, and half of what others added
    elsewhere in the file."""
    by_others = by_later = 0
    at = 0
    for start, end in sorted(place for (owner, _), place in home.ranges.items() if owner in turn):
        begin = max(start, at)
        for length, owner, _ in home.cut(begin, end):
            if owner == OTHERS:
                by_others += ink_count(home.text[begin : begin + length])
            elif owner > edit.owner and owner not in turn:
                by_later += ink_count(home.text[begin : begin + length])
            begin += length
        at = max(at, end)
    added = 0
    if home.whole and (made.whole or len(made.text) >= _WHOLE_SHARE * len(home.text)):
        added = max(_ink_of_others(home) - _ink_of_others(made) - by_others, 0)
    return by_others + by_later + ELSEWHERE * added


def _ink_of_others(state: FileState) -> int:
    """All ink but that of edits."""
    owned = sum(
        ink_count(state.text[at : at + length])
        for pieces in state.pieces.values()
        for _, at, length in pieces
    )
    return ink_count(state.text) - owned


def _taken(
    edit: TrackedEdit, alive: Sequence[Survivor], lost: Sequence[Stretch], comments: float
) -> float:
    """What is lost, and of lines that are there in part as much as they have changed."""
    total = 0.0
    text, start = edit.after, comment_start(edit.path or "")
    if start is not None and start not in text:
        start = None
    at = 0
    for begin, end in survival.lines_of(text, edit.written):
        while at < len(lost) and lost[at][1] <= begin:
            at += 1
        if at == len(lost):
            break
        if lost[at][0] >= end:
            continue
        gone = sum(
            ink_count(text[max(first, begin) : min(last, end)])
            for first, last in lost[at:]
            if first < end
        )
        size = ink_count(text[begin:end])
        left = survival.credit(text, [(begin, end)], alive) if gone < size else 0.0
        line = text[text.rfind("\n", 0, begin) + 1 : end].strip()
        weight = comments if start and is_comment(line, start) else 1.0
        total += weight * max(gone, size - left)
    return total


def _lines(text: str, start: int, end: int) -> list[str]:
    return text[start:end].splitlines(keepends=True)
