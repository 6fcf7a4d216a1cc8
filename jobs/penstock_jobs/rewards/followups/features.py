"""Messages as sparse rows of numbers: what the first local judge looks at.

A message is taken apart into what the user wrote and what they pasted. Its columns are hashed
character n-grams of the prose, hashed word n-grams, then named ones (cues, shapes of pasted output,
punctuation, length, what the agent did). Each hashed block of a row has the length 1, so that long
messages do not shout.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.lexicon import WORD, lexicon
from penstock_jobs.rewards.followups.message_parts import (
    SHAPES,
    MessageParts,
    plain,
    take_apart,
)

CUES = "cues.toml"
CHARACTER_COLUMNS = 1 << 13
WORD_COLUMNS = 1 << 12
_CHARACTER_GRAMS = (2, 3, 4, 5)
#: Characters of prose whose n-grams count: the beginning and the end of a long message.
_GRAM_CHARS = 400
_WORDS = 120
#: How much a block weighs beside the others. Chosen by cross-validation on the train examples.
CHARACTER_WEIGHT = 2.0
WORD_WEIGHT = 0.7
CUE_WEIGHT = 0.5
SHAPE_WEIGHT = 1.0
_TRAITS = 24
#: Words of this many at the start tell more: "no, …", "great, now …".
OPENING_WORDS = 5

Triples: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class FeatureRows:
    """A sparse matrix as triples; rows come in ascending order."""

    count: int
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: NDArray[np.float32]

    def times(self, weights: NDArray[np.float32]) -> NDArray[np.float64]:
        """The matrix has one row for each column."""
        product = np.zeros((self.count, weights.shape[1]))
        begins = np.flatnonzero(np.diff(self.row, prepend=-1))
        for at, of_label in enumerate(np.ascontiguousarray(weights.T)):
            terms = (self.value * of_label.take(self.column)).astype(np.float64)
            product[self.row[begins], at] = np.add.reduceat(terms, begins)
        return product


class HashedBlock(NamedTuple):
    """Columns for n-grams that are told apart by a hash. Of each row the block has the length
    `weight`. The width is a power of two."""

    first: int
    width: int
    weight: float


_CHARACTERS = HashedBlock(0, CHARACTER_COLUMNS, CHARACTER_WEIGHT)
_WORD_BLOCK = HashedBlock(CHARACTER_COLUMNS, WORD_COLUMNS, WORD_WEIGHT)


def columns() -> int:
    """There are the hashed ones, two for each cue, those of shapes and traits, and a constant."""
    named = 2 * len(lexicon(CUES).names) + len(SHAPES) + _TRAITS + 1
    return CHARACTER_COLUMNS + WORD_COLUMNS + named


def features(messages: Sequence[Message]) -> FeatureRows:
    parts = [take_apart(message.text) for message in messages]
    lowered = [part.prose.lower() for part in parts]
    words = [WORD.findall(text)[:_WORDS] for text in lowered]
    blocks = [
        character_grams(lowered, _CHARACTERS),
        word_grams(words, _WORD_BLOCK),
        _named(messages, parts, lowered, words),
    ]
    return together(len(messages), blocks)


def together(count: int, blocks: Sequence[Triples]) -> FeatureRows:
    row, column, value = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    order = np.argsort(row, kind="stable")
    return FeatureRows(count, row[order], column[order], value[order])


def character_grams(texts: Sequence[str], block: HashedBlock) -> Triples:
    """All texts stand in one array, and no n-gram reaches over a border."""
    shown = [f" {ends(text)} " for text in texts]
    points = np.frombuffer("".join(shown).encode("utf-32-le", "replace"), dtype="<u4")
    owner = np.repeat(np.arange(len(shown), dtype=np.uint32), [len(text) for text in shown])
    keys = []
    codes = points.astype(np.uint64) + np.uint64(1)
    grams = np.zeros_like(codes)
    for length in range(1, max(_CHARACTER_GRAMS) + 1):
        if len(points) < length:
            break
        last = len(points) - length + 1
        grams = grams[:last] * np.uint64(0x100000001B3) + codes[length - 1 :]
        if length in _CHARACTER_GRAMS:
            inside = owner[:last] == owner[length - 1 :]
            bucket = (_mixed(grams[inside]) & np.uint64(block.width - 1)).astype(np.uint32)
            keys.append(owner[:last][inside] * np.uint32(block.width) + bucket)
    return _counted(keys, block)


def word_grams(words: Sequence[Sequence[str]], block: HashedBlock) -> Triples:
    """The first word stands also for itself as the first."""
    hashes, sizes = list[int](), list[int]()
    for own in words:
        grams = [*own, *map(" ".join, pairwise(own))]
        grams += [f"^{gram}" for gram in (own[:1], own[:2]) if gram]
        hashes += map(zlib.crc32, map(str.encode, grams))
        sizes.append(len(grams))
    rows = np.repeat(np.arange(len(words), dtype=np.uint32), sizes)
    buckets = np.array(hashes, np.uint32) & np.uint32(block.width - 1)
    return _counted([rows * np.uint32(block.width) + buckets], block)


def _counted(keys: Sequence[NDArray[np.uint32]], block: HashedBlock) -> Triples:
    """Each list of keys comes in the order of rows. The values are the square roots of the counts,
    scaled so that each row has one length."""
    ordered = _sorted(keys)
    if not len(ordered):
        none = np.zeros(0, np.int32)
        return none, none, np.zeros(0, np.float32)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    begins = np.flatnonzero(is_first)
    counts = np.diff(begins, append=len(ordered))
    rows = np.arange(ordered[-1] // block.width + 2, dtype=np.uint32)
    ends_of_rows = np.searchsorted(ordered, rows * np.uint32(block.width))
    columns_of_rows = np.diff(np.searchsorted(begins, ends_of_rows))
    row = np.repeat(rows[:-1].astype(np.int32), columns_of_rows)
    total = np.repeat(np.diff(ends_of_rows), columns_of_rows)
    column = (ordered[begins] & np.uint32(block.width - 1)).astype(np.int32)
    value = (block.weight * np.sqrt(counts / total)).astype(np.float32)
    return row, column + np.int32(block.first), value


def _sorted(keys: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """All keys. Those of a few rows at a time differ in their low 16 bits alone, and numpy sorts
    such numbers in a tenth of the time."""
    if not any(map(len, keys)):
        return np.zeros(0, np.uint32)
    groups = np.arange(
        (max(int(part[-1]) for part in keys if len(part)) >> 16) + 2, dtype=np.uint32
    )
    # The keys of a list are not in order, but no key stands behind one of a later group.
    cuts = np.array([np.searchsorted(part >> np.uint32(16), groups) for part in keys])
    sizes = np.diff(cuts.sum(axis=0))
    low = [part.astype(np.uint16) for part in keys]
    ordered = np.empty(int(sizes.sum()), np.uint32)
    at = 0
    for group, size in enumerate(sizes.tolist()):
        bounds = cuts[:, group : group + 2].tolist()
        own = [part[begin:end] for part, (begin, end) in zip(low, bounds, strict=True)]
        of_group = np.concatenate(own)
        of_group.sort(kind="stable")
        np.add(of_group, np.uint32(group << 16), out=ordered[at : at + size])
        at += size
    return ordered


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: near inputs fall into far buckets."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _named(
    messages: Sequence[Message],
    parts: Sequence[MessageParts],
    texts: Sequence[str],
    words: Sequence[list[str]],
) -> Triples:
    first_cue = CHARACTER_COLUMNS + WORD_COLUMNS
    first_shape = first_cue + 2 * len(lexicon(CUES).names)
    constant = columns() - 1
    cells: list[tuple[int, int, float]] = []
    inputs = zip(messages, parts, texts, words, strict=True)
    for row, (message, part, text, own) in enumerate(inputs):
        cells += [(row, first_cue + at, CUE_WEIGHT * cue) for at, cue in _find_cues(own, text)]
        flags = (*part.shapes, *_traits(message, part, own))
        cells += [(row, first_shape + at, SHAPE_WEIGHT) for at, is_so in enumerate(flags) if is_so]
        cells.append((row, constant, 1.0))
    return as_triples(cells)


def as_triples(cells: Sequence[tuple[int, int, float]]) -> Triples:
    rows, numbers, values = zip(*cells, strict=True) if cells else ((), (), ())
    return np.array(rows, np.int32), np.array(numbers, np.int32), np.array(values, np.float32)


def _find_cues(words: Sequence[str], prose: str) -> list[tuple[int, float]]:
    """(column, value) for each group that occurs; a second block of as many columns says which of
    them occur at the very beginning."""
    cues = lexicon(CUES)
    values: dict[int, float] = {}
    for hit in cues.hits(words, prose):
        values[hit.group] = values.get(hit.group, 0.0) + 1.0
        if hit.at < OPENING_WORDS:
            values[len(cues.names) + hit.group] = 1.0
    return [(column, min(value, 3.0) ** 0.5) for column, value in values.items()]


def _traits(message: Message, part: MessageParts, words: list[str]) -> tuple[bool, ...]:
    """They tell of punctuation, length, and what the agent did."""
    prose, count = part.prose, len(words) or len(part.prose) / 3
    if words and len(prose) > 6 * len(words) + 10:  # a script without spaces
        count = len(prose) / 2
    questions = prose.count("?")
    agent = plain(message.agent.rstrip())
    return (
        prose.endswith("?"),
        questions > 0,
        "??" in prose or "?!" in prose or questions > 2,
        "!" in prose,
        "!!" in prose,
        "..." in prose or "…" in prose,
        any(len(word) > 2 for word in filter(str.isupper, prose.split())),
        part.pasted > 0.05,
        part.pasted > 0.5,
        part.pasted > 0.95,
        "```" in message.text,
        *(low <= count < high for low, high in pairwise((0, 3, 6, 12, 25, 50, inf))),
        message.edited,
        message.tests == "passed",
        message.tests == "failed",
        agent.endswith("?"),
        not agent,
        *overlaps(words, message),
    )


def overlaps(words: Sequence[str], message: Message) -> tuple[bool, bool]:
    """Whether many of a message's longer words were said before: by the agent, by the user."""
    own = {word for word in words if len(word) > 3}
    return _holds_more(message.agent, own, 0.3), _holds_more(message.previous, own, 0.5)


def _holds_more(text: str, words: set[str], share: float) -> bool:
    """Whether a text holds more than this share of the words."""
    if not text or not words:
        return False
    text = ends(text).lower()
    # Most have too few of them even as parts of words.
    if sum(word in text for word in words) / len(words) <= share:
        return False
    return len(words.intersection(WORD.findall(text))) / len(words) > share


def ends(text: str) -> str:
    if len(text) <= 2 * _GRAM_CHARS:
        return text
    return f"{text[:_GRAM_CHARS]} {text[-_GRAM_CHARS:]}"
