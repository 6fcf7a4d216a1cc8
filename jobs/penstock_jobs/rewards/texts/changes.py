"""Comparing two texts: which lines were kept or moved, then which characters inside of them.

White space does not take part: lines are alike when they are alike without it, so that neither
re-indentation nor a formatter nor other line ends change anything. The cost is linear in the
texts for changes as people and agents make them: what both texts begin and end with is cut off,
lines that occur once in both are anchors, and only the text between anchors is compared with each
other. That costs the product of two lengths, is counted before it is spent, and is limited.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import msgspec
from rapidfuzz.distance import Indel, Levenshtein, Postfix, Prefix

#: Shorter stretches that are alike inside a changed line are chance, as for 4-grams. A stretch at
#: the beginning or end of the line counts however short it is.
PIECE_MIN = 4
#: Up to here a product of lengths is compared at once, without anchors.
_CELLS_DIRECT = 1_000_000
#: The longest anchor in units, and the deepest recursion between anchors.
_ROW_MAX = 64
_DEPTH_MAX = 8
#: Longer lines are not extended to whole lines.
_LINE_LONG = 2_000
#: Longer changed stretches are compared by words before they are compared by characters.
_CHARACTERS_DIRECT = 2_000
_INK = re.compile(r"\S+")
_SPACES = (" ", "\n", "\t", "\r")
_WORDS = re.compile(r"\w+|[^\w\s]")


class TooExpensive(Exception):
    """Comparing these texts costs more than the limit."""


@dataclass(slots=True)
class CompareCost:
    """Counts compared pairs of units in one comparison of texts."""

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
    kept: list[Block]
    #: Text at another place, in the order of the new text, not in `kept`.
    moved: list[Block]


class _TextLine(msgspec.Struct, gc=False):
    start: int
    raw: str
    ink: str


def ink(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


def ink_count(text: str) -> int:
    """Count as `len(ink(text))` does for usual white space, in a tenth of the time."""
    return len(text) - sum(map(text.count, _SPACES))


def holds_ink(text: str, start: int, end: int, least: int) -> bool:
    """Whether the stretch has so many characters beside white space; its first ones often do."""
    if end - start < least:
        return False
    first = min(start + 4 * least, end)
    return len(ink(text[start:first])) >= least or len(ink(text[start:end])) >= least


def compare(old: str, new: str, cost: CompareCost, move_min: int = 20) -> TextChange:
    """Find the text of `old` that is still in `new`.

    Whole lines at another place are moved if they have at least `move_min` characters. Raises
    TooExpensive."""
    if old == new:
        return TextChange([Block(0, 0, len(old))] if old else [], [])
    cost.spent = 0
    start = _cut_at_line(old, new, Prefix.similarity(old, new))
    end = _common_end(old, new, start)
    old_end, new_end = len(old) - end, len(new) - end
    kept, moved = [Block(0, 0, start)], list[Block]()
    if start < old_end and start < new_end:
        old_lines, new_lines = _lines(old, start, old_end), _lines(new, start, new_end)
        between = _compare_lines(old_lines, new_lines, cost, move_min)
        kept += between.kept
        moved = between.moved
    kept.append(Block(old_end, new_end, end))
    return TextChange(_joined(kept, old, new), _joined(moved, old, new))


def _compare_lines(
    old: list[_TextLine], new: list[_TextLine], cost: CompareCost, move_min: int
) -> TextChange:
    pairs = align([line.ink for line in old], [line.ink for line in new], cost)
    left_over = gaps(pairs, len(old), len(new))
    gone = [line for start, end, _, _ in left_over for line in range(start, end)]
    came = [line for _, _, start, end in left_over for line in range(start, end)]
    moves = find_moves([old[line].ink for line in gone], [new[line].ink for line in came], move_min)
    # Neighbours among the leftovers need not be neighbours in the text: one line at a time.
    moved_lines = [(gone[i + k], came[j + k]) for i, j, n in moves for k in range(n)]
    moved = [block for i, j in moved_lines for block in _same_ink(old[i], new[j])]
    moved_from, moved_to = {i for i, _ in moved_lines}, {j for _, j in moved_lines}
    kept: list[Block] = []
    i = j = 0
    for pair in [*pairs, Block(len(old), len(new), 0)]:
        before = [old[k] for k in range(i, pair.i) if k not in moved_from]
        after = [new[k] for k in range(j, pair.j) if k not in moved_to]
        if before and after:
            kept += _map_ink(before, after, _alike(before, after, cost))
        for k in range(pair.n):
            old_line, new_line = old[pair.i + k], new[pair.j + k]
            if old_line.raw == new_line.raw:
                kept.append(Block(old_line.start, new_line.start, len(old_line.raw)))
            else:
                kept += _same_ink(old_line, new_line)
        i, j = pair.i + pair.n, pair.j + pair.n
    return TextChange(kept, moved)


def align(old: Sequence[str], new: Sequence[str], cost: CompareCost) -> list[Block]:
    """Align roughly by the longest common subsequence. Units that occur once are anchors."""
    cost.spend(len(old) + len(new))
    numbers: dict[str, int] = {}
    return _align(
        [numbers.setdefault(unit, len(numbers)) for unit in old],
        [numbers.setdefault(unit, len(numbers)) for unit in new],
        cost,
    )


def find_moves(gone: Sequence[str], came: Sequence[str], ink_min: int) -> list[Block]:
    """Find runs of lines that left one place and appeared in another, not shorter than
    `ink_min`."""
    if not gone or not came:
        return []
    places: defaultdict[str, list[int]] = defaultdict(list)
    for i, line in enumerate(gone):
        places[line].append(i)
    used: set[int] = set()
    moves = []
    j = 0
    while j < len(came):
        best = (0, 0, 0)
        # A line that is everywhere does not show its origin.
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


def _align(old: list[int], new: list[int], cost: CompareCost, depth: int = 0) -> list[Block]:
    """Align common ends directly and the middle around its anchors."""
    start, end = _common_ends(old, new)
    old_end, new_end = len(old) - end, len(new) - end
    cells = (old_end - start) * (new_end - start)
    anchors: list[tuple[int, int]] = []
    if cells > _CELLS_DIRECT and depth < _DEPTH_MAX:
        anchors = _anchors(old[start:old_end], new[start:new_end], cost)
    blocks = [Block(0, 0, start)]
    if anchors:
        i = j = start
        for at, to in [*((start + at, start + to) for at, to in anchors), (old_end, new_end)]:
            between = _align(old[i:at], new[j:to], cost, depth + 1)
            blocks += [Block(i + k, j + m, n) for k, m, n in between]
            if at < old_end:
                blocks.append(Block(at, to, 1))
            i, j = at + 1, to + 1
    elif cells:
        cost.spend(cells)
        matches = Indel.opcodes(old[start:old_end], new[start:new_end]).as_matching_blocks()
        blocks += [Block(start + match.a, start + match.b, match.size) for match in matches]
    return _merged([*blocks, Block(old_end, new_end, end)])


def _anchors(old: list[int], new: list[int], cost: CompareCost) -> list[tuple[int, int]]:
    """Find units that occur once in both, in the same order; if few, runs of 2, 4, …"""
    best: list[tuple[int, int]] = []
    size = 1
    enough = min(len(old), len(new)) // _ROW_MAX
    while size <= min(_ROW_MAX, len(old), len(new)):
        cost.spend(len(old) + len(new))
        once = {unit for unit, count in Counter(old).items() if count == 1}
        once &= {unit for unit, count in Counter(new).items() if count == 1}
        places = {unit: j for j, unit in enumerate(new) if unit in once}
        pairs = [(i, places[unit]) for i, unit in enumerate(old) if unit in once]
        best = max(best, _in_same_order(pairs), key=len)
        if len(best) > enough:
            break
        numbers: dict[tuple[int, int], int] = {}
        old, new = (
            [numbers.setdefault(pair, len(numbers)) for pair in zip(row, row[size:], strict=False)]
            for row in (old, new)
        )
        size *= 2
    return best


def _in_same_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
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


def _alike(
    old_lines: list[_TextLine], new_lines: list[_TextLine], cost: CompareCost
) -> list[Block]:
    """Find equal characters of two changed stretches, by their places without white space."""
    old, new = "".join(line.ink for line in old_lines), "".join(line.ink for line in new_lines)
    if old == new:
        return [Block(0, 0, len(old))]
    start, end = _common_ends(old, new)
    old_end, new_end = len(old) - end, len(new) - end
    if old_end - start <= _CHARACTERS_DIRECT >= new_end - start:
        cost.spend((old_end - start) * (new_end - start))
        # No two of these stand side by side in both texts: there is nothing to merge.
        pieces = [Block(0, 0, start)] if start else []
        pieces += _by_characters(old, new, (start, old_end), (start, new_end), PIECE_MIN)
        return [*pieces, Block(old_end, new_end, end)] if end else pieces
    pieces = _by_words(old_lines, new_lines, cost)
    return [
        piece
        for piece in _merged(pieces)
        if piece.n >= PIECE_MIN
        or piece.i == piece.j == 0
        or (piece.i + piece.n == len(old) and piece.j + piece.n == len(new))
    ]


def _by_words(
    old_lines: list[_TextLine], new_lines: list[_TextLine], cost: CompareCost
) -> list[Block]:
    old_words = [word for line in old_lines for word in _WORDS.findall(line.raw)]
    new_words = [word for line in new_lines for word in _WORDS.findall(line.raw)]
    at = [0, *accumulate(map(len, old_words))]
    to = [0, *accumulate(map(len, new_words))]
    old, new = "".join(old_words), "".join(new_words)
    words = align(old_words, new_words, cost)
    pieces = [Block(at[i], to[j], at[i + n] - at[i]) for i, j, n in words]
    for i, i_end, j, j_end in gaps(words, len(old_words), len(new_words)):
        cost.spend((at[i_end] - at[i]) * (to[j_end] - to[j]))
        pieces += _by_characters(old, new, (at[i], at[i_end]), (to[j], to[j_end]))
    return sorted(pieces)


def _by_characters(
    old: str, new: str, within_old: tuple[int, int], within_new: tuple[int, int], size_min: int = 1
) -> list[Block]:
    i, j = within_old[0], within_new[0]
    old, new = old[slice(*within_old)], new[slice(*within_new)]
    if not old or not new:
        return []
    matches = Levenshtein.opcodes(old, new).as_matching_blocks()
    # Attributes, since unpacking as tuples takes ten times as long.
    long = (match for match in matches if match.size >= size_min)
    return [Block(i + match.a, j + match.b, match.size) for match in long]


def _lines(text: str, start: int, end: int) -> list[_TextLine]:
    lines = []
    for raw in text[start:end].splitlines(keepends=True):
        bare = "".join(raw.split())
        if bare:
            lines.append(_TextLine(start, raw, bare))
        start += len(raw)
    return lines


def _common_ends(old: Sequence[int] | str, new: Sequence[int] | str) -> tuple[int, int]:
    start = Prefix.similarity(old, new)
    return start, min(Postfix.similarity(old, new), min(len(old), len(new)) - start)


def _cut_at_line(old: str, new: str, start: int) -> int:
    """Go back to the beginning of the line, so that an insertion of whole lines stays one."""
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


def gaps(pairs: Sequence[Block], old_size: int, new_size: int) -> list[tuple[int, int, int, int]]:
    stretches = []
    i = j = 0
    for pair in [*pairs, Block(old_size, new_size, 0)]:
        if pair.i > i or pair.j > j:
            stretches.append((i, pair.i, j, pair.j))
        i, j = pair.i + pair.n, pair.j + pair.n
    return stretches


def reshaped_lines(old: str, new: str, change: TextChange) -> list[tuple[int, int]]:
    """Return new lines at the edges of changes, if the change altered them."""
    lines: dict[tuple[int, int], None] = {}
    for i, i_end, j, j_end in gaps(change.kept, len(old), len(new)):
        # Whole lines for whole lines: what stands around them is as it was.
        places = ((old, i), (old, i_end), (new, j), (new, j_end))
        if all(at == 0 or at == len(text) or text[at - 1] == "\n" for text, at in places):
            continue
        for at, to in ((i - 1, j - 1), (i_end, j_end)):
            if at < 0 or to < 0 or at >= len(old) or to >= len(new):
                continue
            line = line_around(new, to)
            bare = ink(new[slice(*line)])
            if bare and bare != ink(old[slice(*line_around(old, at))]):
                lines[line] = None
    return list(lines)


def line_around(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


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
    """Join blocks with nothing but equal white space between them."""
    joined: list[Block] = []
    for block in blocks:
        at, to, size = joined[-1] if joined else Block(0, 0, 0)
        i, j = at + size, to + size
        if (
            joined
            and block.n
            and block.i - i == block.j - j >= 0
            and old[i : block.i] == new[j : block.j]
            and not old[i : block.i].strip()
        ):
            joined[-1] = Block(at, to, block.i + block.n - at)
        elif block.n:
            joined.append(block)
    return joined


def _same_ink(old: _TextLine, new: _TextLine) -> list[Block]:
    bare = old.raw.strip()
    if bare == new.raw.strip():  # mostly lines are only indented anew
        i, j = old.raw.index(bare), new.raw.index(bare)
        return [Block(old.start + i, new.start + j, len(bare))]
    return _map_ink([old], [new], [Block(0, 0, len(old.ink))])


def _map_ink(old: list[_TextLine], new: list[_TextLine], pieces: Sequence[Block]) -> list[Block]:
    if not pieces:
        return []
    blocks = []
    old_segments = _segments(old, [(i, i + n) for i, _, n in pieces])
    new_segments = _segments(new, [(j, j + n) for _, j, n in pieces])
    x = y = 0
    for piece in pieces:
        i, j, n = piece
        while n:
            while old_segments[x][0] + old_segments[x][2] <= i:
                x += 1
            while new_segments[y][0] + new_segments[y][2] <= j:
                y += 1
            (i_bare, i_text, i_size), (j_bare, j_text, j_size) = old_segments[x], new_segments[y]
            step = min(n, i_size - (i - i_bare), j_size - (j - j_bare))
            blocks.append(Block(i_text + i - i_bare, j_text + j - j_bare, step))
            i, j, n = i + step, j + step, n - step
    return blocks


def _segments(
    lines: list[_TextLine], pieces: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Return stretches without white space, as (place in ink, place in text, length)."""
    segments = []
    bare = at = 0
    for line in lines:
        while at < len(pieces) and pieces[at][1] <= bare:
            at += 1
        if at == len(pieces) or pieces[at][0] >= bare + len(line.ink):
            segments.append((bare, line.start, len(line.ink)))
            bare += len(line.ink)
            continue
        for match in _INK.finditer(line.raw):
            start, end = match.span()
            segments.append((bare, line.start + start, end - start))
            bare += end - start
    return segments


_LINES_MAX = 50


def place_line_changes(kept: Sequence[Block], old: str, new: str) -> list[Block]:
    """Shift each inserted or removed run of whole lines to its likeliest place."""
    blocks = list(kept)
    for number in range(len(blocks) - 1):
        before, after = blocks[number], blocks[number + 1]
        i, j = before.i + before.n, before.j + before.n
        came, gone = after.j - j, after.i - i
        if came and not gone:
            shift = _shift(new, j, after.j, before.n, after.n)
        elif gone and not came:
            shift = _shift(old, i, after.i, before.n, after.n)
        else:
            continue
        blocks[number] = before._replace(n=before.n + shift)
        blocks[number + 1] = Block(after.i + shift, after.j + shift, after.n - shift)
    return [block for block in blocks if block.n]


def _shift(text: str, start: int, end: int, before: int, after: int) -> int:
    """Return the shift of a run in characters. `before` and `after` are kept around it."""
    if start and text[start - 1] != "\n":
        return 0
    places = [0]
    at, to = start, end
    while len(places) < _LINES_MAX:  # down: the first line goes over to the end
        line = text[at : text.find("\n", at) + 1]
        if not line or not text.startswith(line, to) or to + len(line) - end > after:
            break
        at, to = at + len(line), to + len(line)
        places.append(at - start)
    at, to = start, end
    while len(places) < 2 * _LINES_MAX:  # up: the last line goes over to the beginning
        line = text[text.rfind("\n", 0, to - 1) + 1 : to]
        if (
            not line.endswith("\n")
            or not text.endswith(line, 0, at)
            or start - at + len(line) > before
        ):
            break
        if at > len(line) and text[at - len(line) - 1] != "\n":
            break
        at, to = at - len(line), to - len(line)
        places.append(at - start)
    if len(places) == 1:
        return 0
    return min(places, key=lambda place: (*_beginning(text, start + place), -place))


def _beginning(text: str, at: int) -> tuple[int, bool]:
    """Rank a place as the start of a block: by indentation and a blank line before it."""
    head = text[:at].rstrip(" \t")
    follows_blank = not head or head.endswith("\n\n")
    while at < len(text):
        stop = text.find("\n", at) + 1 or len(text)
        line = text[at:stop]
        if line.strip():
            return len(line) - len(line.lstrip()), not follows_blank
        follows_blank = True
        at = stop
    return 0, not follows_blank
