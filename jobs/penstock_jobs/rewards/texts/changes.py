"""What a change of a text kept and what it moved: lines first, then characters inside of them.

White space does not take part: lines are alike when they are alike without it, so that neither
re-indentation nor a formatter nor other line ends change anything. The cost is linear in the
texts for changes as people and agents make them: what both texts begin and end with is cut off,
lines that occur once in both are anchors, and only what lies between is compared with each other.
That costs the product of two lengths, is counted before it is spent, and is limited.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from rapidfuzz.distance import Indel, Levenshtein, Postfix, Prefix

#: Alike stretches inside a changed line that are shorter are chance, as for 4-grams. What the
#: stretch begins and ends with counts however short it is.
PIECE_MIN = 4
#: Up to here a product of lengths is compared at once, without anchors.
_CELLS_DIRECT = 1_000_000
#: How many units in a row may be an anchor, and how often what lies between anchors is anchored.
_ROW_MAX = 64
_DEPTH_MAX = 8
#: Longer lines are not completed when they are changed in their middle.
_LINE_LONG = 2_000
#: Longer changed stretches are compared by words before they are compared by characters.
_CHARACTERS_DIRECT = 2_000
_INK = re.compile(r"\S+")
_WORDS = re.compile(r"\w+|[^\w\s]")


class TooExpensive(Exception):
    """These texts differ in a way that costs more to compare than the limit allows."""


@dataclass(slots=True)
class CompareCost:
    """What comparing has cost: pairs of units that were compared. `limit` is for one pair."""

    limit: int
    spent: int = 0

    def spend(self, cells: int) -> None:
        self.spent += cells
        if self.spent > self.limit:
            raise TooExpensive


class Block(NamedTuple):
    """`old[i : i + n]` is `new[j : j + n]`."""

    i: int
    j: int
    n: int


class TextChange(NamedTuple):
    #: In the order of both texts.
    kept: list[Block]
    #: What is at another place now; in the order of the new text. Apart from `kept`.
    moved: list[Block]


class _Line(NamedTuple):
    start: int
    raw: str
    ink: str


def ink(text: str) -> str:
    """The text without white space."""
    return "".join(text.split())


def compare(old: str, new: str, cost: CompareCost, move_min: int = 20) -> TextChange:
    """What of `old` is still in `new`. Stretches of whole lines that are at another place count
    as moved if they have at least `move_min` characters. Raises TooExpensive."""
    if old == new:
        return TextChange([Block(0, 0, len(old))] if old else [], [])
    cost.spent = 0
    start = _cut_at_line(old, new, Prefix.similarity(old, new))
    end = _common_end(old, new, start)
    comparison = _Comparison(old, new, cost)
    old_end, new_end = len(old) - end, len(new) - end
    if start < old_end and start < new_end:
        comparison.lines(_lines(old, start, old_end), _lines(new, start, new_end), move_min)
    kept = [Block(0, 0, start), *comparison.kept, Block(old_end, new_end, end)]
    return TextChange(_joined(kept, old, new), _joined(comparison.moved, old, new))


class _Comparison:
    def __init__(self, old: str, new: str, cost: CompareCost) -> None:
        self.old = old
        self.new = new
        self.cost = cost
        self.kept: list[Block] = []
        self.moved: list[Block] = []

    def lines(self, a: list[_Line], b: list[_Line], move_min: int) -> None:
        pairs = align([line.ink for line in a], [line.ink for line in b], self.cost)
        moves = self._moves(a, b, pairs, move_min)
        gone = {i + k for i, _, n in moves for k in range(n)}
        came = {j + k for _, j, n in moves for k in range(n)}
        for i, j, n in moves:
            for k in range(n):
                self.moved += _map_ink([a[i + k]], [b[j + k]], [Block(0, 0, len(a[i + k].ink))])
        i = j = 0
        for pair in [*pairs, Block(len(a), len(b), 0)]:
            before = [a[k] for k in range(i, pair.i) if k not in gone]
            after = [b[k] for k in range(j, pair.j) if k not in came]
            self._characters(before, after)
            for k in range(pair.n):
                one, other = a[pair.i + k], b[pair.j + k]
                if one.raw == other.raw:
                    self.kept.append(Block(one.start, other.start, len(one.raw)))
                else:
                    self.kept += _map_ink([one], [other], [Block(0, 0, len(one.ink))])
            i, j = pair.i + pair.n, pair.j + pair.n

    def _moves(
        self, a: list[_Line], b: list[_Line], pairs: list[Block], move_min: int
    ) -> list[Block]:
        between = gaps(pairs, len(a), len(b))
        gone = [k for i, i_end, _, _ in between for k in range(i, i_end)]
        came = [k for _, _, j, j_end in between for k in range(j, j_end)]
        if not gone or not came:
            return []
        moves = find_moves([a[k].ink for k in gone], [b[k].ink for k in came], move_min)
        # Neighbours among the leftovers need not be neighbours in the text: one line at a time.
        return [Block(gone[i + k], came[j + k], 1) for i, j, n in moves for k in range(n)]

    def _characters(self, a: list[_Line], b: list[_Line]) -> None:
        if not a or not b:
            return
        self.kept += _map_ink(a, b, _alike(a, b, self.cost))


def align(a: Sequence[str], b: Sequence[str], cost: CompareCost) -> list[Block]:
    """The longest common subsequence of units, roughly: units that occur once in both are taken
    as they are."""
    start = 0
    shorter = min(len(a), len(b))
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    cost.spend(len(a) + len(b))
    ids: dict[str, int] = {}
    one = [ids.setdefault(unit, len(ids)) for unit in a[start : len(a) - end]]
    other = [ids.setdefault(unit, len(ids)) for unit in b[start : len(b) - end]]
    middle = _align_ids(one, other, cost)
    blocks = [Block(0, 0, start)] if start else []
    blocks += [Block(i + start, j + start, n) for i, j, n in middle]
    return [*blocks, Block(len(a) - end, len(b) - end, end)] if end else blocks


def find_moves(gone: Sequence[str], came: Sequence[str], ink_min: int) -> list[Block]:
    """Stretches of lines that went in one place and came in another, the longest first found;
    shorter ones are chance."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for i, line in enumerate(gone):
        places[line].append(i)
    used: set[int] = set()
    moves = []
    j = 0
    while j < len(came):
        best = (0, 0, 0)
        # A line that is everywhere says nothing about where it comes from.
        for i in places.get(came[j], ())[:16]:
            n = size = 0
            while (
                i + n < len(gone)
                and j + n < len(came)
                and i + n not in used
                and gone[i + n] == came[j + n]
            ):
                size += len(came[j + n])
                n += 1
            best = max(best, (size, n, -i))
        size, n, at = best
        if n and size >= ink_min:
            moves.append(Block(-at, j, n))
            used.update(range(-at, -at + n))
            j += n
        else:
            j += 1
    return moves


def _align_ids(a: list[int], b: list[int], cost: CompareCost, depth: int = 0) -> list[Block]:
    if not a or not b:
        return []
    anchors: list[tuple[int, int]] = []
    if len(a) * len(b) > _CELLS_DIRECT and depth < _DEPTH_MAX:
        anchors = _anchors(a, b, cost)
    if not anchors:
        return _by_table(a, b, cost)
    blocks: list[Block] = []
    i = j = 0
    for at, to in [*anchors, (len(a), len(b))]:
        between = _between(a[i:at], b[j:to], cost, depth + 1)
        blocks += [Block(i + k, j + m, n) for k, m, n in between]
        if at < len(a):
            blocks.append(Block(at, to, 1))
        i, j = at + 1, to + 1
    return _merged(blocks)


def _between(a: list[int], b: list[int], cost: CompareCost, depth: int) -> list[Block]:
    start = Prefix.similarity(a, b)
    end = min(Postfix.similarity(a, b), min(len(a), len(b)) - start)
    middle = _align_ids(a[start : len(a) - end], b[start : len(b) - end], cost, depth)
    blocks = [Block(0, 0, start), *(Block(i + start, j + start, n) for i, j, n in middle)]
    blocks.append(Block(len(a) - end, len(b) - end, end))
    return [block for block in blocks if block.n]


def _by_table(a: list[int], b: list[int], cost: CompareCost) -> list[Block]:
    cost.spend(len(a) * len(b))
    if not a or not b:
        return []
    alike = Indel.opcodes(a, b).as_matching_blocks()
    return [Block(match.a, match.b, match.size) for match in alike if match.size]


def _anchors(a: list[int], b: list[int], cost: CompareCost) -> list[tuple[int, int]]:
    """Units that occur once in both, as many as are in the same order in both. Where there are
    few, which may well be chance, two units in a row that do, then four, and so on."""
    best: list[tuple[int, int]] = []
    size = 1
    enough = min(len(a), len(b)) // _ROW_MAX
    while size <= min(_ROW_MAX, len(a), len(b)):
        cost.spend(len(a) + len(b))
        best = max(best, _in_same_order(_once_in_both(a, b)), key=len)
        if len(best) > enough:
            break
        ids: dict[tuple[int, int], int] = {}
        a, b = (
            [ids.setdefault(pair, len(ids)) for pair in zip(row, row[size:], strict=False)]
            for row in (a, b)
        )
        size *= 2
    return best


def _once_in_both(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    once = {unit for unit, count in Counter(a).items() if count == 1}
    once &= {unit for unit, count in Counter(b).items() if count == 1}
    places = {unit: j for j, unit in enumerate(b) if unit in once}
    return [(i, places[unit]) for i, unit in enumerate(a) if unit in once]


def _in_same_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    # The longest increasing subsequence of the places in b.
    tails: list[int] = []
    tops: list[int] = []
    back: list[int] = []
    for at, (_, j) in enumerate(pairs):
        place = bisect_left(tails, j)
        back.append(tops[place - 1] if place else -1)
        tails[place : place + 1] = [j]
        tops[place : place + 1] = [at]
    chosen = []
    at = tops[-1] if tops else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = back[at]
    return chosen[::-1]


def _alike(a: list[_Line], b: list[_Line], cost: CompareCost) -> list[Block]:
    """Which characters of two changed stretches are alike, by their places without white space."""
    one, other = "".join(line.ink for line in a), "".join(line.ink for line in b)
    if one == other:
        return [Block(0, 0, len(one))]
    start = Prefix.similarity(one, other)
    end = min(Postfix.similarity(one, other), min(len(one), len(other)) - start)
    if len(one) - start - end <= _CHARACTERS_DIRECT >= len(other) - start - end:
        cost.spend((len(one) - start - end) * (len(other) - start - end))
        pieces = [Block(0, 0, start)]
        pieces += _by_characters(one, other, (start, len(one) - end), (start, len(other) - end))
        pieces.append(Block(len(one) - end, len(other) - end, end))
    else:
        pieces = _by_words(a, b, cost)
    return [
        piece
        for piece in _merged(pieces)
        if piece.n >= PIECE_MIN
        or piece.i == piece.j == 0
        or (piece.i + piece.n == len(one) and piece.j + piece.n == len(other))
    ]


def _by_words(a: list[_Line], b: list[_Line], cost: CompareCost) -> list[Block]:
    one = [word for line in a for word in _WORDS.findall(line.raw)]
    other = [word for line in b for word in _WORDS.findall(line.raw)]
    at, to = _starts(one), _starts(other)
    first, second = "".join(one), "".join(other)
    words = align(one, other, cost)
    pieces = [Block(at[i], to[j], at[i + n] - at[i]) for i, j, n in words]
    for i, i_end, j, j_end in gaps(words, len(one), len(other)):
        cost.spend((at[i_end] - at[i]) * (to[j_end] - to[j]))
        pieces += _by_characters(first, second, (at[i], at[i_end]), (to[j], to[j_end]))
    return sorted(pieces)


def _by_characters(
    a: str, b: str, within_a: tuple[int, int], within_b: tuple[int, int]
) -> list[Block]:
    i, j = within_a[0], within_b[0]
    one, other = a[slice(*within_a)], b[slice(*within_b)]
    if not one or not other:
        return []
    alike = Levenshtein.opcodes(one, other).as_matching_blocks()
    return [Block(i + match.a, j + match.b, match.size) for match in alike if match.size]


def _lines(text: str, start: int, end: int) -> list[_Line]:
    """The lines that hold anything."""
    lines = []
    for raw in text[start:end].splitlines(keepends=True):
        bare = "".join(raw.split())
        if bare:
            lines.append(_Line(start, raw, bare))
        start += len(raw)
    return lines


def _cut_at_line(old: str, new: str, start: int) -> int:
    """Back to the beginning of the line: an insertion of whole lines stays one."""
    if start == 0 or old[start - 1] == "\n":
        return start
    line = old.rfind("\n", 0, start) + 1
    return line if start - line <= _LINE_LONG else start


def _common_end(old: str, new: str, start: int) -> int:
    end = min(Postfix.similarity(old, new), min(len(old), len(new)) - start)
    i, j = len(old) - end, len(new) - end
    if end == 0 or ((i == 0 or old[i - 1] == "\n") and (j == 0 or new[j - 1] == "\n")):
        return end
    line = old.find("\n", i) + 1 or len(old)
    return end - (line - i) if line - i <= _LINE_LONG else end


def gaps(pairs: Sequence[Block], a: int, b: int) -> list[tuple[int, int, int, int]]:
    """What lies between the pairs: (start, end) in both."""
    found = []
    i = j = 0
    for pair in [*pairs, Block(a, b, 0)]:
        if pair.i > i or pair.j > j:
            found.append((i, pair.i, j, pair.j))
        i, j = pair.i + pair.n, pair.j + pair.n
    return found


def _starts(units: list[str]) -> list[int]:
    """Where each unit begins in all of them together, and where the last ends."""
    return [0, *accumulate(map(len, units))]


def _merged(blocks: Sequence[Block]) -> list[Block]:
    merged: list[Block] = []
    at = to = size = 0
    for i, j, n in blocks:
        if at + size == i and to + size == j:
            size += n
        elif n:
            if size:
                merged.append(Block(at, to, size))
            at, to, size = i, j, n
    if size:
        merged.append(Block(at, to, size))
    return merged


def _joined(blocks: Sequence[Block], old: str, new: str) -> list[Block]:
    """Blocks with the same white space between them, or nothing, are one."""
    joined: list[Block] = []
    for block in blocks:
        if not block.n:
            continue
        if joined:
            last = joined[-1]
            i, j = last.i + last.n, last.j + last.n
            if (
                block.i - i == block.j - j >= 0
                and old[i : block.i] == new[j : block.j]
                and not old[i : block.i].strip()
            ):
                joined[-1] = Block(last.i, last.j, block.i + block.n - last.i)
                continue
        joined.append(block)
    return joined


def _map_ink(a: list[_Line], b: list[_Line], pieces: Sequence[Block]) -> list[Block]:
    """Pieces of the texts without white space, as blocks of the texts."""
    blocks = []
    one, other = _segments(a), _segments(b)
    x = y = 0
    for piece in pieces:
        i, j, n = piece
        while n:
            while one[x][0] + one[x][2] <= i:
                x += 1
            while other[y][0] + other[y][2] <= j:
                y += 1
            skip, over = i - one[x][0], j - other[y][0]
            step = min(n, one[x][2] - skip, other[y][2] - over)
            blocks.append(Block(one[x][1] + skip, other[y][1] + over, step))
            i, j, n = i + step, j + step, n - step
    return blocks


def _segments(lines: list[_Line]) -> list[tuple[int, int, int]]:
    """Stretches without white space: where they are without it, where with it, their length."""
    segments = []
    at = 0
    for line in lines:
        for found in _INK.finditer(line.raw):
            start, end = found.span()
            segments.append((at, line.start + start, end - start))
            at += end - start
    return segments
