"""Texts as sets of hashed runs of words, by numpy alone: what overlaps and near-duplicates are
measured on.

A word is a run of letters, digits and underscores, in any case; a letter of a script that writes
no spaces is a word by itself. The same text has the same hashes on every machine.
"""

import unicodedata

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Odd, so that it has an inverse modulo 2⁶⁴.
_BASE = np.uint64(0xD1342543DE82EF95)
_INVERSE = np.uint64(pow(int(_BASE), -1, 2**64))
#: Han, kana and Hangul.
_ALONE = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))


def mixed(values: Hashes) -> Hashes:
    """Each bit of what comes out depends on all bits of what goes in (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def word_hashes(text: str) -> Hashes:
    """One for each word, in order."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    # A lone surrogate is no text; it is taken as it stands rather than failing a whole shard.
    code = np.frombuffer(plain.casefold().encode("utf-32-le", "surrogatepass"), np.uint32)
    inside, alone = _in_words(code)
    before = np.concatenate([[False], inside[:-1] & ~alone[:-1]])
    after = np.concatenate([inside[1:] & ~alone[1:], [False]])
    starts = np.flatnonzero(inside & (alone | ~before))
    ends = np.flatnonzero(inside & (alone | ~after)) + 1
    if not len(starts):
        return np.empty(0, np.uint64)
    powers = _powers(_BASE, len(code))
    letters = mixed(code.astype(np.uint64) * _MULTIPLIER + np.uint64(1))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(letters * powers, dtype=np.uint64)])
    backwards = _powers(_INVERSE, len(code))
    return mixed((sums[ends] - sums[starts]) * backwards[starts])


def shingles(text: str, words: int) -> Hashes:
    """The runs of so many words that it has, each once, sorted. A shorter text has none."""
    hashes = word_hashes(text)
    count = len(hashes) - words + 1
    if count < 1:
        return np.empty(0, np.uint64)
    runs = np.zeros(count, np.uint64)
    for place in range(words):
        runs = mixed(runs * _BASE + hashes[place : place + count])
    return np.unique(runs)


def _in_words(code: NDArray[np.uint32]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which letters are in words, and which are words."""
    table = np.fromiter((_is_letter(one) for one in range(128)), bool, 128)
    inside = table[np.minimum(code, 127)]
    foreign = np.flatnonzero(code > 127)
    if len(foreign):
        distinct, at = np.unique(code[foreign], return_inverse=True)
        letters = np.fromiter((_is_letter(int(one)) for one in distinct), bool, len(distinct))
        inside[foreign] = letters[at]
    alone = np.zeros(len(code), bool)
    for low, high in _ALONE:
        alone |= (code >= low) & (code <= high)
    return inside, alone & inside


def _is_letter(point: int) -> bool:
    # Marks belong to the letters that they stand on.
    return point == ord("_") or unicodedata.category(chr(point))[0] in "LNM"


def _powers(base: np.uint64, count: int) -> Hashes:
    factors = np.full(count, base)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)
