"""Messages as sparse rows of numbers: what the local judge looks at.

A message is taken apart into what the user wrote and what they pasted. Its columns are hashed
character n-grams of the prose, hashed word n-grams, then named ones (cues, shapes of pasted output,
punctuation, length, what the agent did). Each hashed block of a row has the length 1, so that long
messages do not shout.
"""

import re
import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.judge import Message

#: Longer messages are judged by their beginning and their end.
_HEAD_CHARS = 4_000
_TAIL_CHARS = 2_000
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_INLINE = re.compile(r"`[^`\n]{1,300}`")
#: Full-width marks of Chinese and Japanese, and typographic apostrophes.
_PLAIN = str.maketrans("\uff1f\uff01\uff0c\uff1a\uff1b\u2019", "?!,:;'")


class Shape:
    """Lines that programs write. A text that has none of the `marks` cannot have the pattern, and
    is not searched for it: they are quicker to find. Where case does not count they are small."""

    def __init__(self, pattern: str, *marks: str, any_case: bool = False) -> None:
        self.pattern = re.compile(pattern, re.MULTILINE | (re.IGNORECASE if any_case else 0))
        self.marks, self.any_case = marks, any_case

    def is_in(self, text: str, lowered: str) -> bool:
        searched = lowered if self.any_case else text
        has_mark = not self.marks or any(mark in searched for mark in self.marks)
        return has_mark and self.pattern.search(text) is not None


#: The key is the program that writes such lines.
SHAPES: dict[str, Shape] = {
    "python": Shape(r'Traceback \(most recent|^ *File "[^"\n]{1,300}", line \d'),
    "exception": Shape(
        r"\b[a-z_.]*[A-Z]\w*(?:Error|Exception|Impossible)\b *(?::|$|[,;(])",
        "Error", "Exception", "Impossible",
    ),
    "frame": Shape(r"^\s*at [\w$.<>/]+ ?\("),
    "go": Shape(r"^goroutine \d|^panic: |^\s+[\w/.-]+\.go:\d+"),
    "rust": Shape(
        r"^error\[E\d+\]|panicked at|^ *--> [\w/.-]+:\d+", "error[E", "panicked at", "--> "
    ),
    "native": Shape(
        r"AddressSanitizer|SIGSEGV|segmentation fault|^ld: |^clang|undefined reference",
        "AddressSanitizer", "SIGSEGV", "segmentation fault", "ld: ", "clang", "undefined ref",
    ),
    "compiler": Shape(
        # Only from where a path may begin, so that a long run costs no more than its length.
        r"(?<![\w/.-])[\w/.-]+\.\w{1,5}:\d+(?::\d+)?|error TS\d+|\bERR!|^\[?ERROR\]?\b",
        ":", "error TS", "ERR",
    ),
    "assertion": Shape(
        r"^E  |assert(?:ion)?Error|\bExpected: |Received: |toBe\(",
        "e  ", "error", "xpected: ", "ved: ", "tobe(",
        any_case=True,
    ),
    "tests": Shape(
        r"\b\d+ (?:failed|failing|failures?|tests? (?:fail|are red))|\bFAIL(?:ED)?\b|\btest_\w+",
        " fail", " test", "FAIL", "test_",
    ),
    "shell": Shape(
        r"^\$ |command not found|exit code|: line \d+:|No such file",
        "$ ", "command not found", "exit code", ": line ", "No such file",
    ),
    "log": Shape(
        r"\b(?:ERROR|WARN|FATAL)\b|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d",
        "ERROR", "WARN", "FATAL", "-",
    ),
    "http": Shape(
        r"(?<![\w.])(?:40[0134589]|413|422|429|50[0234])(?![\w.])", "40", "413", "42", "50"
    ),
    "caused": Shape(r"Caused by:|Unhandled|Uncaught|Exception in thread"),
}  # fmt: skip
_PASTED = ("python", "exception", "frame", "go", "rust", "native", "compiler", "caused", "log")
_PROGRAM = re.compile("|".join(SHAPES[name].pattern.pattern for name in _PASTED), re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MessageParts:
    #: The message without code and without lines that a program wrote.
    prose: str
    #: The share of characters that are code or output.
    pasted: float
    #: Which of SHAPES occur outside of fenced code, and inside.
    shapes: tuple[bool, ...]


def take_apart(text: str) -> MessageParts:
    """The time is linear in the length, which is bounded."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    text = _plain(text.strip())
    lowered = text.lower()
    shapes = tuple(shape.is_in(text, lowered) for shape in SHAPES.values())
    prose = _FENCE.sub("\n", text)
    if any(shapes):
        # A sentence that only mentions an exception stays: it has words before it.
        prose = "\n".join(
            line
            for line in prose.splitlines()
            if not ((match := _PROGRAM.search(line)) and match.start() < 25)
            or len(line.split()) >= 40
        )
    prose = _INLINE.sub(" ` ", prose).strip()
    return MessageParts(prose, 1 - len(prose) / max(len(text), 1), shapes)


def _plain(text: str) -> str:
    """Marks that look alike are written in one way."""
    return text if text.isascii() else text.translate(_PLAIN)


# Cues: words that hint at a label

_STEM_LENGTHS = range(3, 11)
_PHRASE_WORDS_MAX = 4
#: Words of this many at the start tell more: "no, …", "great, now …".
_OPENING_WORDS = 5
#: Scripts that put no spaces between words (Chinese, Japanese), or hang endings on them (Korean).
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯]")
#: Words that are looked up again and again.
_WORDS_REMEMBERED = 1 << 16


class Lexicon(NamedTuple):
    """Which groups a cue belongs to, by number."""

    names: tuple[str, ...]
    phrases: dict[str, tuple[int, ...]]
    stems: dict[str, tuple[int, ...]]
    #: The cues of each group that may stand anywhere.
    unspaced: list[re.Pattern[str]]
    #: The words that a phrase of several begins with.
    openers: frozenset[str]


@cache
def _lexicon() -> Lexicon:
    source = files("penstock_jobs.rewards.followups") / "cues.toml"
    groups = tomllib.loads(source.read_text(encoding="utf-8"))
    phrases: dict[str, tuple[int, ...]] = {}
    stems: dict[str, tuple[int, ...]] = {}
    unspaced: list[re.Pattern[str]] = []
    for group, lines in enumerate(groups.values()):
        cues = [cue for line in lines.splitlines() for cue in re.split(", *", line) if cue]
        anywhere = [cue for cue in cues if _UNSPACED.search(cue)]
        unspaced.append(re.compile("|".join(map(re.escape, anywhere)) or r"(?!)"))
        for cue in cues:
            kind, key = (stems, cue[:-1]) if cue.endswith("*") else (phrases, cue)
            if group not in kind.get(key, ()):
                kind[key] = (*kind.get(key, ()), group)
    openers = frozenset(phrase.split(" ")[0] for phrase in phrases if " " in phrase)
    return Lexicon(tuple(groups), phrases, stems, unspaced, openers)


def _find_cues(words: list[str], prose: str) -> list[tuple[int, float]]:
    """(column, value) for each group that occurs; a second block of as many columns says which of
    them occur at the very beginning."""
    lexicon = _lexicon()
    count = len(lexicon.names)
    hits: list[tuple[int, int]] = []
    for at, word in enumerate(words):
        groups = _groups_of(word)
        if word in lexicon.openers:
            phrase = word
            for more in words[at + 1 : at + _PHRASE_WORDS_MAX]:
                phrase = f"{phrase} {more}"
                groups = groups.union(lexicon.phrases.get(phrase, ()))
        hits += [(group, at) for group in groups]
    if _UNSPACED.search(prose):
        for group, pattern in enumerate(lexicon.unspaced):
            hits += [(group, match.start()) for match in pattern.finditer(prose)]
    values: dict[int, float] = {}
    for group, at in hits:
        values[group] = values.get(group, 0.0) + 1.0
        if at < _OPENING_WORDS:
            values[count + group] = 1.0
    return [(column, min(value, 3.0) ** 0.5) for column, value in values.items()]


@lru_cache(_WORDS_REMEMBERED)
def _groups_of(word: str) -> frozenset[int]:
    lexicon = _lexicon()
    stems = (
        lexicon.stems.get(word[:length], ()) for length in _STEM_LENGTHS if length <= len(word)
    )
    return frozenset(lexicon.phrases.get(word, ())).union(*stems)


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
_TRAITS = 24

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
            terms = (self.value * of_label[self.column]).astype(np.float64)
            product[self.row[begins], at] = np.add.reduceat(terms, begins)
        return product


def columns() -> int:
    """There are the hashed ones, two for each cue, those of shapes and traits, and a constant."""
    named = 2 * len(_lexicon().names) + len(SHAPES) + _TRAITS + 1
    return CHARACTER_COLUMNS + WORD_COLUMNS + named


def features(messages: Sequence[Message]) -> FeatureRows:
    parts = [take_apart(message.text) for message in messages]
    lowered = [part.prose.lower() for part in parts]
    words = [_WORD.findall(text)[:_WORDS] for text in lowered]
    named = _named(messages, parts, lowered, words)
    blocks = [_character_grams(lowered), _word_grams(words), named]
    row, column, value = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    order = np.argsort(row, kind="stable")
    return FeatureRows(len(messages), row[order], column[order], value[order])


def _character_grams(texts: Sequence[str]) -> Triples:
    """All messages stand in one array, and no n-gram reaches over a border."""
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
    """The first word stands also for itself as the first."""
    keys = []
    for row, own in enumerate(words):
        grams = [*own, *map(" ".join, pairwise(own))]
        grams += [f"^{gram}" for gram in (own[:1], own[:2]) if gram]
        keys += [row * WORD_COLUMNS + zlib.crc32(g.encode()) % WORD_COLUMNS for g in grams]
    return _counted(np.array(keys, dtype=np.uint32), WORD_COLUMNS, CHARACTER_COLUMNS)


def _counted(keys: NDArray[np.uint32], width: int, first_column: int) -> Triples:
    """The values are the square roots of the counts, scaled so that each row has the length 1."""
    distinct, counts = np.unique(keys, return_counts=True)
    row = (distinct // np.uint32(width)).astype(np.int32)
    column = (distinct % np.uint32(width)).astype(np.int32) + np.int32(first_column)
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
    first_shape = first_cue + 2 * len(_lexicon().names)
    constant = columns() - 1
    cells: list[tuple[int, int, float]] = []
    inputs = zip(messages, parts, texts, words, strict=True)
    for row, (message, part, text, own) in enumerate(inputs):
        cells += [(row, first_cue + at, CUE_WEIGHT * cue) for at, cue in _find_cues(own, text)]
        flags = (*part.shapes, *_traits(message, part, own))
        cells += [(row, first_shape + at, SHAPE_WEIGHT) for at, is_so in enumerate(flags) if is_so]
        cells.append((row, constant, 1.0))
    rows, numbers, values = zip(*cells, strict=True) if cells else ((), (), ())
    return np.array(rows, np.int32), np.array(numbers, np.int32), np.array(values, np.float32)


def _traits(message: Message, part: MessageParts, words: list[str]) -> tuple[bool, ...]:
    """They tell of punctuation, length, and what the agent did."""
    prose, count = part.prose, len(words) or len(part.prose) / 3
    if words and len(prose) > 6 * len(words) + 10:  # a script without spaces
        count = len(prose) / 2
    questions = prose.count("?")
    agent = _plain(message.agent.rstrip())
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
