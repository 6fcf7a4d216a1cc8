"""Messages as sparse rows of numbers: what the second local judge looks at.

It looks at what the user says, without what they paste, and once more at the clauses that it comes
down to: praise, "but", and then what counts. Failing words that are the subject ("the error page")
are taken out before. What the agent said last tells what a "no" means."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf
from typing import NamedTuple
from zlib import crc32

from penstock_jobs.rewards.followups.features import (
    CUES,
    OPENING_WORDS,
    FeatureRows,
    HashedBlock,
    as_triples,
    character_grams,
    overlaps,
    together,
    word_grams,
)
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.lexicon import Hit, Lexicon, lexicon
from penstock_jobs.rewards.followups.message_parts import (
    SHAPES,
    SPEECH_WORD,
    Speech,
    plain,
    speech_of,
)

SIGNS = "signs.toml"
_WORDS = 120
#: Chosen by cross-validation on the train examples.
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
#: A last clause with fewer words is read with the one before it.
_END_WORDS_MIN = 3
_END_UNSPACED_MIN = 5
#: So few letters beside what is pasted are no words.
_MUTE_CHARS = 8
#: What is said for politeness is not what a message comes down to.
_POLITE = frozenset({"pleasantry", "thanks"})
#: A "no" to a question is no complaint, unless the message goes on with one.
_BAD = frozenset({
    "fails", "failing", "wrong", "amiss", "undo", "taking_back", "displeased", "reproach",
})  # fmt: skip
#: Of the agent's closing words the end is read.
_AGENT_CHARS = 300


class Clause(NamedTuple):
    text: str
    words: Sequence[str]
    #: It is what comes after a "but".
    turned: bool
    groups: frozenset[str]


@dataclass(frozen=True)
class Reading:
    """A message as the features see it. Groups are by name."""

    speech: Speech
    #: What the user says, with failing words that are the subject taken out.
    text: str
    words: tuple[str, ...]
    #: What it comes down to.
    end_text: str
    #: A list: the hash of the first words tells it from a tuple.
    end_words: list[str]
    end: frozenset[str]
    #: How often each group occurs, and those at the very beginning.
    groups: dict[str, float]
    opening: frozenset[str]
    turned: bool
    #: In the agent's closing words, of SIGNS.
    agent: frozenset[str]

    @property
    def is_mute(self) -> bool:
        """The user says nothing beside what they paste."""
        has_letter = any(map(str.isalpha, self.text[_MUTE_CHARS:]))
        return len(self.words) < _END_WORDS_MIN and not has_letter


def columns() -> int:
    return _FIRST_NAMED + 3 * len(_group_numbers()) + 2 * len(SHAPES) + _FLAGS + 1


def features(messages: Sequence[Message]) -> FeatureRows:
    readings = [read(message) for message in messages]
    blocks = [
        character_grams([reading.text for reading in readings], _CHARACTERS),
        word_grams([reading.words for reading in readings], _SAID),
        character_grams([reading.end_text for reading in readings], _END_CHARACTERS),
        word_grams([reading.end_words for reading in readings], _END_WORDS),
        as_triples(
            [
                (row, column, value)
                for row, (message, reading) in enumerate(zip(messages, readings, strict=True))
                for column, value in _cells(message, reading)
            ]
        ),
    ]
    return together(len(messages), blocks)


def read(message: Message) -> Reading:
    speech = speech_of(message.text)
    cues, signs, topic, _ = _lists()
    masked, words, clauses = list[str](), list[str](), list[Clause]()
    for clause in speech.clauses:
        own = SPEECH_WORD.findall(clause)
        hits = signs.hits(own, clause)
        if any(hit.group == topic for hit in hits):
            clause = _masked(clause, hits)  # noqa: PLW2901
            own = SPEECH_WORD.findall(clause)
            hits = signs.hits(own, clause)
        masked.append(clause)
        words += own
        clauses += _turns(clause, own, hits)
    ending = _ending(clauses)
    text = " , ".join(masked)
    own_words = tuple(words[:_WORDS])
    counts: dict[str, float] = {}
    opening = set()
    for words_list in (cues, signs):
        names = words_list.names
        for group, at, _, _ in words_list.hits(own_words, text):
            name = names[group]
            if name == "pleasantry":
                continue
            counts[name] = counts.get(name, 0.0) + 1.0
            if at < OPENING_WORDS:
                opening.add(name)
    agent = plain(message.agent).lower()[-_AGENT_CHARS:]
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
        agent=_names(signs, signs.hits(SPEECH_WORD.findall(agent), agent)),
    )


def _ending(clauses: Sequence[Clause]) -> Sequence[Clause]:
    """The last clause that says more than thanks; a short one with those before it, but not over a
    "but"."""
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
    """Without the failing words that are what the talk is of."""
    topic = _lists().topic
    words = list(SPEECH_WORD.finditer(clause))
    spans = [_span(hit, words) for hit in hits if hit.group == topic]
    for begin, end in sorted(spans, reverse=True):
        clause = f"{clause[:begin]} § {clause[end:]}"
    return clause.strip()


def _turns(text: str, words: Sequence[str], hits: Sequence[Hit]) -> list[Clause]:
    """The text cut where it turns: "but", "aber". `hits` are of SIGNS."""
    cues, signs, _, contrast = _lists()
    turn = next((hit for hit in hits if hit.group == contrast), None)
    if turn is None:
        groups = _names(cues, cues.hits(words, text)) | _names(signs, hits)
        return [Clause(text, words, False, groups)]
    begin, end = _span(turn, list(SPEECH_WORD.finditer(text)))
    pieces = [(text[:begin].strip(), False), (text[end:].strip(), True)]
    return [_clause(piece, turned) for piece, turned in pieces if piece]


def _clause(text: str, turned: bool) -> Clause:
    cues, signs, _, _ = _lists()
    words = SPEECH_WORD.findall(text)
    groups = _names(cues, cues.hits(words, text)) | _names(signs, signs.hits(words, text))
    return Clause(text, words, turned, groups)


def _names(words_list: Lexicon, hits: Sequence[Hit]) -> frozenset[str]:
    names = words_list.names
    return frozenset([names[hit.group] for hit in hits])


def _span(hit: Hit, words: Sequence[re.Match[str]]) -> tuple[int, int]:
    if hit.unspaced:
        return hit.at, hit.at + hit.words
    return words[hit.at].start(), words[hit.at + hit.words - 1].end()


def _is_short(clauses: Sequence[Clause]) -> bool:
    """Whether they are, one behind the other."""
    text = " ".join([clause.text for clause in clauses])
    count = sum(len(clause.words) for clause in clauses)
    if text.isascii() or len(text) <= 8 * max(count, 1):
        return count < _END_WORDS_MIN
    return len(text) < _END_UNSPACED_MIN


class _Lists(NamedTuple):
    cues: Lexicon
    signs: Lexicon
    #: The numbers of these groups of signs.
    topic: int
    contrast: int


@cache
def _lists() -> _Lists:
    signs = lexicon(SIGNS)
    return _Lists(lexicon(CUES), signs, signs.names.index("topic"), signs.names.index("contrast"))


@cache
def _group_numbers() -> dict[str, int]:
    names = (*lexicon(CUES).names, *lexicon(SIGNS).names)
    return {name: number for number, name in enumerate(names)}


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
    """Groups that occur together: "no" and "that's all" at the end, praise and then "but"."""
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


@cache  # there are as many pairs as groups know of each other
def _pair_column(pair: str) -> int:
    return crc32(pair.encode()) % _PAIR_COLUMNS


def _flags(message: Message, reading: Reading) -> tuple[bool, ...]:
    said = plain(message.text)
    count = len(reading.words)
    if len(reading.text) > 6 * count + 10:  # a script without spaces
        count = len(reading.text) // 2
    asks = said.rstrip().endswith(("?", "؟"))
    agent_asks = plain(message.agent.rstrip()).endswith(("?", "؟"))
    questions = said.count("?")
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
        *overlaps(reading.words, message),
        asks and "wondering" in reading.end,
        asks and "wishing" in reading.end,
    )
