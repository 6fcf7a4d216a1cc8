"""Messages as sparse rows of numbers: what the local judge looks at.

Columns: hashed character n-grams of the prose, hashed word n-grams, then named ones (cues, shapes
of pasted output, punctuation, length, what the agent did). Each hashed block of a row has the
length 1, so that long messages do not shout.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.prose import (
    SHAPES,
    MessageParts,
    cue_names,
    find_cues,
    plain,
    take_apart,
)

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

_WORD = re.compile(r"[\w'’]+")
_SHAPES_OF_TEXT = (
    "ends_with_question",
    "has_question",
    "many_questions",
    "exclamation",
    "many_exclamations",
    "ellipsis",
    "capitals",
    "pasted_some",
    "pasted_most",
    "pasted_all",
    "fenced",
    "words_0",
    "words_3",
    "words_6",
    "words_12",
    "words_25",
    "words_50",
    "edited",
    "tests_passed",
    "tests_failed",
    "agent_asked",
    "agent_unknown",
    "echoes_agent",
    "repeats_request",
)


@dataclass(frozen=True, slots=True)
class FeatureRows:
    """A sparse matrix as triples; rows come in ascending order."""

    count: int
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: NDArray[np.float32]

    def dense(self) -> NDArray[np.float64]:
        found = np.zeros((self.count, columns()))
        np.add.at(found, (self.row, self.column), self.value)
        return found

    def times(self, weights: NDArray[np.float32]) -> NDArray[np.float64]:
        """The product with a matrix of one row a column."""
        found = np.zeros((self.count, weights.shape[1]))
        begins = np.flatnonzero(np.diff(self.row, prepend=-1))
        for at, of_label in enumerate(np.ascontiguousarray(weights.T)):
            products = (self.value * of_label[self.column]).astype(np.float64)
            found[self.row[begins], at] = np.add.reduceat(products, begins)
        return found


@cache
def named_columns() -> tuple[str, ...]:
    """What the columns after the hashed ones mean."""
    return (
        *(f"cue {name}" for name in cue_names()),
        *(f"cue {name} at the start" for name in cue_names()),
        *(f"shape {name}" for name in SHAPES),
        *(f"text {name}" for name in _SHAPES_OF_TEXT),
        "constant",
    )


def columns() -> int:
    return CHARACTER_COLUMNS + WORD_COLUMNS + len(named_columns())


def features(messages: Sequence[Message]) -> FeatureRows:
    parts = [take_apart(message.text) for message in messages]
    lowered = [one.prose.lower() for one in parts]
    words = [_WORD.findall(text)[:_WORDS] for text in lowered]
    blocks = [
        _character_grams(lowered),
        _word_grams(words),
        _named(messages, parts, lowered, words),
    ]
    row, column, value = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    order = np.argsort(row, kind="stable")
    return FeatureRows(len(messages), row[order], column[order], value[order])


Triples: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]


def _character_grams(texts: Sequence[str]) -> Triples:
    """All messages at once: they stand in one array, and no n-gram reaches over a border."""
    shown = [f" {_ends(text)} " for text in texts]
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
            bucket = (_mixed(grams[inside]) % np.uint64(CHARACTER_COLUMNS)).astype(np.uint32)
            keys.append(owner[:last][inside] * np.uint32(CHARACTER_COLUMNS) + bucket)
    return _counted(np.concatenate(keys) if keys else np.zeros(0, np.uint32), CHARACTER_COLUMNS, 0)


def _word_grams(words: Sequence[list[str]]) -> Triples:
    """Single words and neighbours; the first word stands also for itself as the first."""
    keys = []
    for row, found in enumerate(words):
        grams = [*found, *map(" ".join, pairwise(found))]
        grams += [f"^{gram}" for gram in (found[:1], found[:2]) if gram]
        keys += [row * WORD_COLUMNS + zlib.crc32(g.encode()) % WORD_COLUMNS for g in grams]
    return _counted(np.array(keys, dtype=np.uint32), WORD_COLUMNS, CHARACTER_COLUMNS)


def _counted(keys: NDArray[np.uint32], width: int, first_column: int) -> Triples:
    """The square roots of the counts, scaled so that each row has the length 1."""
    found, counts = np.unique(keys, return_counts=True)
    row = (found // np.uint32(width)).astype(np.int32)
    column = (found % np.uint32(width)).astype(np.int32) + np.int32(first_column)
    weight = CHARACTER_WEIGHT if first_column == 0 else WORD_WEIGHT
    total = np.bincount(row, counts)[row] if len(row) else np.ones(0)
    return row, column, (weight * np.sqrt(counts / total)).astype(np.float32)


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
    first_shape = first_cue + 2 * len(cue_names())
    first_text = first_shape + len(SHAPES)
    constant = first_text + len(_SHAPES_OF_TEXT)
    found: list[tuple[int, int, float]] = []
    for row, (message, part, text, said) in enumerate(
        zip(messages, parts, texts, words, strict=True)
    ):
        found += [(row, first_cue + at, CUE_WEIGHT * v) for at, v in find_cues(said, text)]
        found += [
            (row, first_shape + at, SHAPE_WEIGHT) for at, is_ in enumerate(part.shapes) if is_
        ]
        held = _shapes_of_text(message, part, said)
        found += [(row, first_text + at, SHAPE_WEIGHT) for at, is_ in enumerate(held) if is_]
        found.append((row, constant, 1.0))
    row_, column, value = zip(*found, strict=True) if found else ((), (), ())
    return (
        np.array(row_, np.int32),
        np.array(column, np.int32),
        np.array(value, np.float32),
    )


def _shapes_of_text(message: Message, part: MessageParts, words: list[str]) -> tuple[bool, ...]:
    """In the order of _SHAPES_OF_TEXT."""
    prose, count = part.prose, len(words) or len(part.prose) / 3
    if words and len(prose) > 6 * len(words) + 10:  # a script without spaces
        count = len(prose) / 2
    questions = prose.count("?")
    exclamations = prose.count("!")
    capitals = any(len(word) > 2 for word in filter(str.isupper, prose.split()))
    agent = plain(message.agent.rstrip())
    return (
        prose.endswith("?"),
        questions > 0,
        "??" in prose or "?!" in prose or questions > 2,
        exclamations > 0,
        "!!" in prose,
        "..." in prose or "…" in prose,
        capitals,
        part.pasted > 0.05,
        part.pasted > 0.5,
        part.pasted > 0.95,
        "```" in message.text,
        count < 3,
        3 <= count < 6,
        6 <= count < 12,
        12 <= count < 25,
        25 <= count < 50,
        count >= 50,
        message.edited,
        message.tests == "passed",
        message.tests == "failed",
        agent.endswith("?"),
        not agent,
        _overlap(words, message.agent) > 0.3,
        _overlap(words, message.previous) > 0.5,
    )


def _overlap(words: list[str], other: str) -> float:
    """The share of a message's longer words that another text holds too."""
    if not other:
        return 0.0
    own = {word for word in words if len(word) > 3}
    return len(own.intersection(_WORD.findall(_ends(other).lower()))) / len(own) if own else 0.0


def _ends(text: str) -> str:
    if len(text) <= 2 * _GRAM_CHARS:
        return text
    return f"{text[:_GRAM_CHARS]} {text[-_GRAM_CHARS:]}"
