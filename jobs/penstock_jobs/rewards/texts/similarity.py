"""How alike two texts are, as editors publish it: by their 4-grams of UTF-16 code units."""

from array import array
from collections.abc import Iterable
from functools import lru_cache
from sys import byteorder

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Postfix, Prefix

GRAM = 4
_UTF16 = "utf-16-le" if byteorder == "little" else "utf-16-be"


def code_units(text: str) -> str:
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
    a_grams, b_grams = _grams(a[first : len(a) - last]), _grams(b[first : len(b) - last])
    if not (len(a_grams) and len(b_grams)):
        return (total - len(a_grams) - len(b_grams)) / total
    both = np.concatenate((a_grams, b_grams))
    order = both.argsort()
    both = both[order]
    begins = np.flatnonzero(np.concatenate(([True], both[1:] != both[:-1])))
    apart = np.abs(np.add.reduceat(np.where(order < len(a_grams), 1, -1), begins)).sum()
    return (total - int(apart)) / total


def four_gram_presence(chunks: Iterable[str], file: str) -> float:
    """The mean presence of chunks by their number of grams; 0 without chunks, as published."""
    sizes = ((max(1, len(code_units(chunk)) - GRAM + 1), chunk) for chunk in chunks)
    return _mean(((size, presence(chunk, file)) for size, chunk in sizes), otherwise=0.0)


def presence(chunk: str, file: str) -> float:
    """The share of the chunk's 4-grams that occur anywhere in the file."""
    chunk, file = code_units(chunk), code_units(file)
    if chunk in file:
        return 1.0
    if min(len(chunk), len(file)) < GRAM:
        return 0.0
    known, grams = _sorted_grams(file), np.sort(_grams(chunk))
    at = np.minimum(np.searchsorted(known, grams), len(known) - 1)
    return int((known[at] == grams).sum()) / len(grams)


def four_gram_range(ranges: Iterable[tuple[str, str]]) -> float:
    """The mean likeness of (text as written, text now); 1 when nothing was written."""
    return _mean((len(code_units(text)), sim4(now, text)) for text, now in ranges if text)


def _mean(weighted: Iterable[tuple[int, float]], otherwise: float = 1.0) -> float:
    pairs = list(weighted)
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else otherwise


def no_revert(before: str, after: str, now: str) -> float:
    """1 when the text is no nearer to what it was than the edit left it; 0 when it is back."""
    left = 1.0 if now == after else sim4(after, before)
    if left == 1:
        return 1.0
    return 1 - max(sim4(now, before) - left, 0.0) / (1 - left)


def no_revert_range(ranges: Iterable[tuple[str, str, str]]) -> float:
    """The mean over (before, after, now), by the length of `before`."""
    texts = [each for each in ranges if each[0]]
    return _mean((len(code_units(each[0])), no_revert(*each)) for each in texts)


def _grams(text: str) -> NDArray[np.uint64]:
    units = text.encode(_UTF16, "surrogatepass")
    count = max(len(units) // 2 - GRAM + 1, 0)
    return np.ndarray((count,), np.uint64, units, strides=(2,))


@lru_cache(maxsize=16)  # edits of one file are looked for in the same text, one after the other
def _sorted_grams(text: str) -> NDArray[np.uint64]:
    return np.sort(_grams(text))
