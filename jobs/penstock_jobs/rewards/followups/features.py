"""Features of messages for the local judge, as sparse rows.

They describe what the user says, without pasted text, and again the concluding clauses alone: after
praise and "but" comes what counts."""

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.speech import (
    SHAPES,
    SPEECH_WORD,
    Hit,
    Lexicon,
    Speech,
    lexicon,
    plain,
    speech_of,
)

CUES, SIGNS = "cues.toml", "signs.toml"
_WORD = re.compile(r"[\w'’]+")
_CHARACTER_GRAMS = (2, 3, 4, 5)
#: Characters whose n-grams count: the beginning and the end of a long message.
_GRAM_CHARS = 400
#: The first words tell more: "no, …", "great, now …".
_OPENING_WORDS = 5

Triples: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]


class HashedBlock(NamedTuple):
    """Columns for hashed n-grams. Each row has the length `weight`; the width is a power of two."""

    first: int
    width: int
    weight: float


_WORDS = 120
#: Widths and weights chosen by cross-validation on the train examples.
_CHARACTERS = HashedBlock(0, 1 << 13, 1.6)
_SAID = HashedBlock(_CHARACTERS.first + _CHARACTERS.width, 1 << 12, 0.6)
_END_CHARACTERS = HashedBlock(_SAID.first + _SAID.width, 1 << 12, 1.0)
_END_WORDS = HashedBlock(_END_CHARACTERS.first + _END_CHARACTERS.width, 1 << 11, 0.5)
_PAIR_COLUMNS = 1 << 11
_FIRST_PAIR = _END_WORDS.first + _END_WORDS.width
_FIRST_NAMED = _FIRST_PAIR + _PAIR_COLUMNS
_CUE_WEIGHT = 0.5
_END_CUE_WEIGHT = 0.7
_PAIR_WEIGHT = 0.7
_FLAG_WEIGHT = 0.8
_FLAGS = 40
#: A last clause with fewer words is joined with the previous one.
_END_WORDS_MIN = 3
_END_UNSPACED_MIN = 5
#: Fewer letters beside pasted text are no words.
_MUTE_CHARS = 8
#: Polite words are not the point of a message.
_POLITE = frozenset({"pleasantry", "thanks"})
#: A "no" to a question is no complaint, unless the message goes on with one.
_BAD = frozenset({
    "fails", "failing", "wrong", "amiss", "undo", "taking_back", "displeased", "reproach",
})  # fmt: skip
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_AGENT_CHARS = 300
_OF_AGENTS = ("offer", "claim")
#: A message is read by the judge, and for its kind of work; short ones come again and again.
_TEXTS_REMEMBERED = 2_048


class FeatureRows(msgspec.Struct, frozen=True):
    """A sparse matrix as triples, in any order."""

    count: int
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: NDArray[np.float32]

    def times(self, weights: NDArray[np.float32]) -> NDArray[np.float64]:
        product = np.empty((self.count, weights.shape[1]))
        begins = np.flatnonzero(np.diff(self.row, prepend=-1))
        for at, of_label in enumerate(np.ascontiguousarray(weights.T)):
            terms = of_label.take(self.column) * self.value
            # Numbers of 24 bits and like sizes: their sum is exact in any order.
            sums = np.add.reduceat(terms, begins, dtype=np.float64)
            product[:, at] = np.bincount(self.row[begins], sums, self.count)
        return product


class Clause(NamedTuple):
    text: str
    words: Sequence[str]
    #: Whether it comes after a "but".
    turned: bool
    groups: frozenset[str]


class Reading(msgspec.Struct, frozen=True):
    speech: Speech
    #: What the user says, without failing words that are the subject.
    text: str
    words: tuple[str, ...]
    end_text: str
    #: A list: the hash of the first words tells it from a tuple.
    end_words: list[str]
    end: frozenset[str]
    groups: dict[str, float]
    opening: frozenset[str]
    turned: bool
    agent: frozenset[str] = frozenset()

    @property
    def is_mute(self) -> bool:
        has_letter = any(map(str.isalpha, self.text[_MUTE_CHARS:]))
        return len(self.words) < _END_WORDS_MIN and not has_letter


def columns() -> int:
    return _FIRST_NAMED + 3 * len(_group_numbers()) + 2 * len(SHAPES) + _FLAGS + 1


def features(messages: Sequence[Message]) -> FeatureRows:
    readings = [read(message) for message in messages]
    cells = [list(_cells(*each)) for each in zip(messages, readings, strict=True)]
    rows = np.repeat(np.arange(len(cells), dtype=np.int32), list(map(len, cells)))
    numbers, values = zip(*chain.from_iterable(cells), strict=True)
    blocks = [
        _character_grams([reading.text for reading in readings], _CHARACTERS),
        _word_grams([reading.words for reading in readings], _SAID),
        _character_grams([reading.end_text for reading in readings], _END_CHARACTERS),
        _word_grams([reading.end_words for reading in readings], _END_WORDS),
        (rows, np.array(numbers, np.int32), np.array(values, np.float32)),
    ]
    return FeatureRows(len(messages), *map(np.concatenate, zip(*blocks, strict=True)))


def read(message: Message) -> Reading:
    reading = _said(message.text)
    if not message.agent:
        return reading
    # A letter may become two in lower case.
    agent = _agent_groups(plain(message.agent[-2 * _AGENT_CHARS :]).lower()[-_AGENT_CHARS:])
    return msgspec.structs.replace(reading, agent=agent)


@lru_cache(_TEXTS_REMEMBERED)
def _agent_groups(text: str) -> frozenset[str]:
    signs = lexicon(SIGNS, only=_OF_AGENTS)
    return _names(signs, signs.hits(SPEECH_WORD.findall(text), text))


@lru_cache(_TEXTS_REMEMBERED)
def _said(text: str) -> Reading:
    speech = speech_of(text)
    known = lexicon(CUES, SIGNS)
    masked, words, clauses = list[str](), list[str](), list[Clause]()
    for clause in speech.clauses:
        said, own, turns = _clause(clause)
        masked.append(said)
        words += own
        clauses += turns
    ending = _ending(clauses)
    text = " , ".join(masked)
    own_words = tuple(words[:_WORDS])
    counts: dict[str, float] = {}
    opening = set()
    for hit in known.hits(own_words, text):
        name = known.names[hit.group]
        if name == "pleasantry":
            continue
        counts[name] = counts.get(name, 0.0) + 1.0
        if hit.at < _OPENING_WORDS:
            opening.add(name)
    return Reading(
        speech,
        text,
        own_words,
        end_text=" , ".join(clause.text for clause in ending),
        end_words=[word for clause in ending for word in clause.words][:_WORDS],
        end=frozenset().union(*(clause.groups for clause in ending)) - _POLITE,
        groups=counts,
        opening=frozenset(opening),
        turned=any(clause.turned for clause in clauses[1:]),
    )


@lru_cache(_TEXTS_REMEMBERED)
def _clause(text: str) -> tuple[str, list[str], list[Clause]]:
    """Return a clause without its topic, its words, and its parts around a contrast."""
    known, topic = lexicon(CUES, SIGNS), _group_numbers()["topic"]
    words = SPEECH_WORD.findall(text)
    hits = known.hits(words, text)
    if any(hit.group == topic for hit in hits):
        text = _masked(text, hits)
        words = SPEECH_WORD.findall(text)
        hits = known.hits(words, text)
    return text, words, _turns(text, words, hits)


def _ending(clauses: Sequence[Clause]) -> Sequence[Clause]:
    """Return the concluding clauses: the last one that says more than thanks.

    A short one is joined with previous clauses, but not across a "but"."""
    last = next(
        (
            at
            for at in range(len(clauses) - 1, -1, -1)
            if not ("pleasantry" in clauses[at].groups and _is_short(clauses[at : at + 1]))
        ),
        len(clauses) - 1,
    )
    begin = last
    while begin > 0 and not clauses[begin].turned:
        if not _is_short(clauses[begin : last + 1]):
            break
        begin -= 1
    return clauses[max(begin, 0) : last + 1]


def _masked(clause: str, hits: Sequence[Hit]) -> str:
    words = list(SPEECH_WORD.finditer(clause))
    spans = [_span(hit, words) for hit in hits if hit.group == _group_numbers()["topic"]]
    for begin, end in sorted(spans, reverse=True):
        clause = f"{clause[:begin]} § {clause[end:]}"
    return clause.strip()


def _turns(text: str, words: Sequence[str], hits: Sequence[Hit]) -> list[Clause]:
    """Cut the text at a contrast ("but", "aber")."""
    known, contrast = lexicon(CUES, SIGNS), _group_numbers()["contrast"]
    turn = next((hit for hit in hits if hit.group == contrast), None)
    if turn is None:
        return [Clause(text, words, False, _names(known, hits))]
    begin, end = _span(turn, list(SPEECH_WORD.finditer(text)))
    clauses = []
    for piece, turned in ((text[:begin].strip(), False), (text[end:].strip(), True)):
        if piece:
            own = SPEECH_WORD.findall(piece)
            clauses.append(Clause(piece, own, turned, _names(known, known.hits(own, piece))))
    return clauses


def _names(words_list: Lexicon, hits: Sequence[Hit]) -> frozenset[str]:
    names = words_list.names
    return frozenset([names[hit.group] for hit in hits])


def _span(hit: Hit, words: Sequence[re.Match[str]]) -> tuple[int, int]:
    if hit.unspaced:
        return hit.at, hit.at + hit.words
    return words[hit.at].start(), words[hit.at + hit.words - 1].end()


def _is_short(clauses: Sequence[Clause]) -> bool:
    text = " ".join([clause.text for clause in clauses])
    count = sum(len(clause.words) for clause in clauses)
    if text.isascii() or len(text) <= 8 * max(count, 1):
        return count < _END_WORDS_MIN
    return len(text) < _END_UNSPACED_MIN


@cache
def _group_numbers() -> dict[str, int]:
    return {name: number for number, name in enumerate(lexicon(CUES, SIGNS).names)}


def _cells(message: Message, reading: Reading) -> Iterator[tuple[int, float]]:
    number = _group_numbers()
    for name, count in reading.groups.items():
        yield _FIRST_NAMED + number[name], _CUE_WEIGHT * min(count, 3.0) ** 0.5
    for name in reading.opening:
        yield _FIRST_NAMED + len(number) + number[name], _CUE_WEIGHT
    for name in reading.end:
        yield _FIRST_NAMED + 2 * len(number) + number[name], _END_CUE_WEIGHT
    yield from _pairs(reading)
    first_shape = _FIRST_NAMED + 3 * len(number)
    of_mute = len(SHAPES) if reading.is_mute else 0
    for at, is_so in enumerate(reading.speech.shapes):
        if is_so:
            yield first_shape + of_mute + at, 1.0
    first_flag = first_shape + 2 * len(SHAPES)
    for at, is_so in enumerate(_flags(message, reading)):
        if is_so:
            yield first_flag + at, _FLAG_WEIGHT
    yield columns() - 1, 1.0


def _pairs(reading: Reading) -> Iterator[tuple[int, float]]:
    """Yield groups that occur together, such as praise and then "but"."""
    end, said = reading.end, reading.end | reading.opening
    pairs = {f"{one}&{other}" for one in end for other in end if one < other}
    pairs |= {f"{one}>{other}" for one in reading.opening for other in end}
    pairs |= {f"a:{one}>{other}" for one in reading.agent & {"offer"} for other in said}
    counts: dict[int, float] = {}
    for pair in pairs:
        column = _pair_column(pair)
        counts[column] = counts.get(column, 0.0) + 1.0
    for column, count in counts.items():
        yield _FIRST_PAIR + column, _PAIR_WEIGHT * count / len(pairs) ** 0.5


@cache  # the number of pairs is bounded by the groups
def _pair_column(pair: str) -> int:
    return zlib.crc32(pair.encode()) % _PAIR_COLUMNS


def _flags(message: Message, reading: Reading) -> tuple[bool, ...]:
    said = plain(message.text)
    count = len(reading.words)
    if len(reading.text) > 6 * count + 10:  # a script without spaces
        count = len(reading.text) // 2
    asks = said.rstrip().endswith(_QUESTION_MARKS)
    agent_asks = message.agent.rstrip().endswith(_QUESTION_MARKS)
    questions = said.count("?")
    long_words = {word for word in reading.words if len(word) > 3}
    return (
        asks,
        questions > 0,
        "??" in said or "?!" in said or questions > 2,
        "!" in said,
        "!!" in said,
        "..." in said or "…" in said,
        any(len(word) > 2 for word in filter(str.isupper, reading.speech.text.split())),
        0.05 < reading.speech.pasted <= 0.6,
        reading.speech.pasted > 0.6,
        reading.is_mute,
        reading.speech.quotes,
        *(low <= count < high for low, high in pairwise((0, 3, 6, 12, 25, 50, inf))),
        message.edited,
        agent_asks,
        agent_asks and "plain_no" in reading.opening and not _BAD & reading.groups.keys(),
        agent_asks and "plain_yes" in reading.opening,
        "offer" in reading.agent,
        "claim" in reading.agent and "repeated" in reading.groups,
        not message.agent,
        reading.turned,
        reading.turned and bool(reading.opening & {"praise", "pleased"}),
        len(reading.speech.clauses) > 3,
        # Many of the longer words were said before: by the agent, by the user.
        _holds_more(message.agent, long_words, 0.3),
        _holds_more(message.previous, long_words, 0.5),
        asks and "wondering" in reading.end,
        asks and "wishing" in reading.end,
    )


def _holds_more(text: str, words: set[str], share: float) -> bool:
    if not text or not words:
        return False
    text = _ends(text).lower()
    # Quick test: most texts hold too few of them even as parts of words.
    if sum(word in text for word in words) / len(words) <= share:
        return False
    return len(words.intersection(_WORD.findall(text))) / len(words) > share


def _ends(text: str) -> str:
    if len(text) <= 2 * _GRAM_CHARS:
        return text
    return f"{text[:_GRAM_CHARS]} {text[-_GRAM_CHARS:]}"


def _character_grams(texts: Sequence[str], block: HashedBlock) -> Triples:
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
            bucket = (_mixed(grams[inside]) & np.uint64(block.width - 1)).astype(np.uint32)
            keys.append(owner[:last][inside] * np.uint32(block.width) + bucket)
    return _counted(keys, block)


def _word_grams(words: Sequence[Sequence[str]], block: HashedBlock) -> Triples:
    """Hash words and pairs of words; the first ones again as first ones."""
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
    """Count keys, which are in the order of rows.

    Values are square roots of the counts, scaled so that all rows have the same length."""
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
    """Sort keys of a few rows at a time: they differ in 16 bits alone, which numpy sorts in a
    tenth of the time."""
    highest = max((int(own[-1]) for own in keys if len(own)), default=0) >> 16
    ends = np.arange(1, highest + 1, dtype=np.uint32) << np.uint32(16)
    cut = (np.split(own.astype(np.uint16), np.searchsorted(own, ends)) for own in keys)
    ordered = [np.zeros(0, np.uint32)]
    for number, parts in enumerate(zip(*cut, strict=True)):
        low = np.sort(np.concatenate(parts), kind="stable")
        ordered.append(low + np.uint32(number << 16))
    return np.concatenate(ordered)


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits by the finalizer of splitmix64, so that near inputs land far apart."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
