"""How alike two texts are, as editors publish it: by their character 4-grams.

Lengths and grams are of UTF-16 code units, as in the published arithmetic.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from sys import byteorder

from rapidfuzz.distance import Postfix, Prefix

GRAM = 4
#: How many characters of a file are read in search of pieces before its grams are put down.
_READ_MAX = 8_000_000
_UTF16 = "utf-16-le" if byteorder == "little" else "utf-16-be"


def code_units(text: str) -> str:
    """The text with one character for each UTF-16 code unit."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    return "".join(map(chr, array("H", text.encode(_UTF16, "surrogatepass"))))


def sim4(a: str, b: str) -> float:
    """From 0, nothing in common, to 1: the 4-grams of both are the same.

    (|G(a)| + |G(b)| − Σ |count in a − count in b|) / (|G(a)| + |G(b)|); where either text has
    fewer than four code units: 1 if they are equal, else 0.
    """
    if a == b:
        return 1.0
    a, b = code_units(a), code_units(b)
    total = len(a) + len(b) - 2 * (GRAM - 1)
    if min(len(a), len(b)) < GRAM:
        return 0.0
    # Grams that lie inside of what both begin or end with cancel out.
    start = Prefix.similarity(a, b)
    end = min(Postfix.similarity(a, b), min(len(a), len(b)) - start)
    first = max(start - GRAM + 1, 0)
    last = max(end - GRAM + 1, 0)
    one = list(_grams(a[first : len(a) - last]))
    other = list(_grams(b[first : len(b) - last]))
    return (total - len(one) - len(other) + 2 * _common(one, other)) / total


def presence(chunk: str, file: str) -> float:
    """The share of the chunk's 4-grams, by position, that occur anywhere in the file; a chunk
    that has none is there or is not."""
    chunk, file = code_units(chunk), code_units(file)
    if chunk in file:
        return 1.0
    positions = len(chunk) - GRAM + 1
    if positions < 1:
        return 0.0
    return _present(chunk, file) / positions


def presence_weight(chunk: str) -> int:
    return max(1, len(code_units(chunk)) - GRAM + 1)


def four_gram_presence(chunks: Iterable[str], file: str) -> float:
    """The chunk form: the mean of the chunks' presence, by their number of grams. 0 without
    chunks, as published; report the similarity of the whole files then."""
    weighted = [(presence_weight(chunk), presence(chunk, file)) for chunk in chunks]
    total = sum(weight for weight, _ in weighted)
    return sum(weight * value for weight, value in weighted) / total if total else 0.0


def four_gram_range(ranges: Iterable[tuple[str, str]]) -> float:
    """The range form, of (text as written, text now): 1 when nothing was written."""
    sized = [(len(code_units(written)), written, now) for written, now in ranges]
    total = sum(size for size, _, _ in sized)
    if not total:
        return 1.0
    return sum(size * sim4(now, written) for size, written, now in sized if size) / total


def no_revert(before: str, after: str, now: str) -> float:
    """1 when the text is no nearer to what it was than the edit left it; 0 when it is back."""
    left = 1.0 if now == after else sim4(after, before)
    if left == 1:
        return 1.0
    return 1 - max(sim4(now, before) - left, 0.0) / (1 - left)


def no_revert_range(ranges: Iterable[tuple[str, str, str]]) -> float:
    """The range form, of (text before, after, now), by the length of the text that was replaced:
    pure insertions never count as reverted; 1 when nothing was replaced."""
    sized = [(len(code_units(before)), before, after, now) for before, after, now in ranges]
    total = sum(size for size, *_ in sized)
    if not total:
        return 1.0
    return sum(size * no_revert(*texts) for size, *texts in sized if size) / total


def _grams(text: str) -> Iterable[str]:
    return map("".join, zip(text, text[1:], text[2:], text[3:], strict=False))


def _common(one: list[str], other: list[str]) -> int:
    """How many grams both have, each as often as it is in both."""
    distinct, distinct_other = set(one), set(other)
    if len(distinct) == len(one) and len(distinct_other) == len(other):
        return len(distinct & distinct_other)
    return (Counter(one) & Counter(other)).total()


def _present(chunk: str, file: str) -> int:
    """How many grams of the chunk occur. What occurs as a whole needs no look at its grams; where
    that would read the file too often, all its grams are put down once."""
    found = read = 0
    grams: set[str] | None = None
    waiting = [chunk]
    while waiting:
        piece = waiting.pop()
        positions = len(piece) - GRAM + 1
        if grams is None and read > _READ_MAX:
            grams = set(_grams(file))
        if grams is not None:
            found += sum(gram in grams for gram in _grams(piece))
            continue
        read += len(file)
        if piece in file:
            found += positions
        elif positions <= 8:
            read += positions * len(file)
            found += sum(piece[at : at + GRAM] in file for at in range(positions))
        else:
            half = positions // 2
            waiting += (piece[: half + GRAM - 1], piece[half:])
    return found
