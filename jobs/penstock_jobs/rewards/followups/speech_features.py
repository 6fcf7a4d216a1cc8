"""Messages as sparse rows of numbers: what the second local judge looks at.

It looks at what the user says, without what they paste, and once more at the clauses that it comes
down to: praise, "but", and then what counts. Failing words that are the subject ("the error page")
are taken out before. What the agent said last tells what a "no" means."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from zlib import crc32

from penstock_jobs.rewards.followups.features import (
    CUES,
    OPENING_WORDS,
    FeatureRows,
    HashedBlock,
    as_triples,
    character_grams,
    overlap,
    together,
    word_grams,
)
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.lexicon import Hit, lexicon
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
_PAIR_WEIGHT = 0.35
_FLAG_WEIGHT = 0.8
_FLAGS = 40
#: A last clause with fewer words is read with the one before it.
_END_WORDS_MIN = 3
_END_UNSPACED_MIN = 5


@dataclass(frozen=True)
class Reading:
    """A message as the features see it. Groups are by name."""

    speech: Speech
    #: What the user says, with failing words that are the subject taken out.
    text: str
    words: tuple[str, ...]
    #: What it comes down to.
    end_text: str
    end_words: tuple[str, ...]
    groups: dict[str, float]
    opening: frozenset[str]
    end: frozenset[str]
    turned: bool
    agent: frozenset[str]


def columns() -> int:
    return _FIRST_NAMED + 3 * len(_group_names()) + 2 * len(SHAPES) + _FLAGS + 1


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
    masked = [_masked(clause) for clause in speech.clauses]
    clauses = [clause for part in masked for clause in _turns(part)]
    all_groups = [_groups(clause) for clause, _ in clauses]
    at = _last_that_counts(clauses, all_groups)
    begin = at
    while begin > 0 and not clauses[begin][1] and _is_short(" ".join(c for c, _ in clauses[begin : at + 1])):
        begin -= 1
    end_text = " , ".join(clause for clause, _ in clauses[begin : at + 1])
    end = frozenset().union(*(groups for groups in all_groups[begin : at + 1]))
    text = " , ".join(masked)
    words = tuple(SPEECH_WORD.findall(text)[:_WORDS])
    counts: dict[str, float] = {}
    opening = set()
    for name, hit in _named_hits(words, text):
        counts[name] = counts.get(name, 0.0) + 1.0
        if hit.at < OPENING_WORDS:
            opening.add(name)
    agent_text = plain(message.agent).lower()[-300:]
    agent = frozenset(name for name, _ in _named_hits(SPEECH_WORD.findall(agent_text), agent_text))
    return Reading(
        speech, text, words, end_text, tuple(SPEECH_WORD.findall(end_text)[:_WORDS]),
        counts, frozenset(opening), end, any(turned for _, turned in clauses[1:]), agent,
    )  # fmt: skip


def _masked(clause: str) -> str:
    """Without the failing words that are what the talk is of."""
    signs = lexicon(SIGNS)
    topic = signs.names.index("topic")
    words = list(SPEECH_WORD.finditer(clause))
    spans = []
    for hit in signs.hits([word[0] for word in words], clause):
        if hit.group != topic:
            continue
        if hit.unspaced:
            spans.append((hit.at, hit.at + hit.words))
        else:
            spans.append((words[hit.at].start(), words[hit.at + hit.words - 1].end()))
    for begin, stop in sorted(spans, reverse=True):
        clause = f"{clause[:begin]} § {clause[stop:]}"
    return clause.strip()


def _turns(clause: str) -> list[tuple[str, bool]]:
    """The clause cut where it turns ("but", "aber"); whether each piece is what comes after."""
    signs = lexicon(SIGNS)
    contrast = signs.names.index("contrast")
    words = list(SPEECH_WORD.finditer(clause))
    for hit in signs.hits([word[0] for word in words], clause):
        if hit.group == contrast:
            begin = hit.at if hit.unspaced else words[hit.at].start()
            after = hit.at + hit.words if hit.unspaced else words[hit.at + hit.words - 1].end()
            pieces = [(clause[:begin].strip(), False), (clause[after:].strip(), True)]
            return [(piece, turned) for piece, turned in pieces if piece]
    return [(clause, False)]


def _last_that_counts(clauses: Sequence[tuple[str, bool]], groups: Sequence[set[str]]) -> int:
    for at in range(len(clauses) - 1, -1, -1):
        is_polite = "pleasantry" in groups[at] and _is_short(clauses[at][0])
        if not is_polite:
            return at
    return len(clauses) - 1


def _is_short(text: str) -> bool:
    words = SPEECH_WORD.findall(text)
    if text.isascii() or len(text) <= 8 * max(len(words), 1):
        return len(words) < _END_WORDS_MIN
    return len(text) < _END_UNSPACED_MIN


def _group_names() -> tuple[str, ...]:
    return (*lexicon(CUES).names, *lexicon(SIGNS).names)


def _named_hits(words: Sequence[str], text: str) -> Iterator[tuple[str, Hit]]:
    for file in (CUES, SIGNS):
        names = lexicon(file).names
        for hit in lexicon(file).hits(words, text):
            yield names[hit.group], hit


def _groups(clause: str) -> set[str]:
    return {name for name, _ in _named_hits(SPEECH_WORD.findall(clause), clause)}


def _cells(message: Message, reading: Reading) -> Iterator[tuple[int, float]]:
    names = _group_names()
    number = {name: at for at, name in enumerate(names)}
    for name, count in reading.groups.items():
        yield _FIRST_NAMED + number[name], _CUE_WEIGHT * min(count, 3.0) ** 0.5
    for name in reading.opening:
        yield _FIRST_NAMED + len(names) + number[name], _CUE_WEIGHT
    for name in reading.end:
        yield _FIRST_NAMED + 2 * len(names) + number[name], _END_CUE_WEIGHT
    pairs = {f"{one}&{other}" for one in reading.end for other in reading.end if one < other}
    pairs |= {f"{one}>{other}" for one in reading.opening for other in reading.end}
    pairs |= {f"a:{one}>{other}" for one in reading.agent & {"offer", "claim"} for other in reading.end | reading.opening}
    counts: dict[int, float] = {}
    for pair in pairs:
        column = crc32(pair.encode()) % _PAIR_COLUMNS
        counts[column] = counts.get(column, 0.0) + 1.0
    for column, count in counts.items():
        yield _FIRST_PAIR + column, _PAIR_WEIGHT * count / max(len(pairs), 1) ** 0.5 * 2
    first_shape = _FIRST_NAMED + 3 * len(names)
    mute = len(reading.words) < _END_WORDS_MIN and not any(map(str.isalpha, reading.text[8:]))
    for at, is_so in enumerate(reading.speech.shapes):
        if is_so:
            yield first_shape + at + (len(SHAPES) if mute else 0), 1.0
    first_flag = first_shape + 2 * len(SHAPES)
    for at, is_so in enumerate(_flags(message, reading, mute)):
        if is_so:
            yield first_flag + at, _FLAG_WEIGHT
    yield columns() - 1, 1.0


def _flags(message: Message, reading: Reading, mute: bool) -> Iterable[bool]:
    text, said = message.text, plain(message.text)
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
        0.6 < reading.speech.pasted,
        mute,
        reading.speech.quotes,
        *(low <= count < high for low, high in pairwise((0, 3, 6, 12, 25, 50, inf))),
        message.edited,
        message.tests == "passed",
        message.tests == "failed",
        agent_asks,
        agent_asks and "plain_no" in reading.opening,
        agent_asks and "plain_yes" in reading.opening,
        "offer" in reading.agent,
        "claim" in reading.agent,
        "claim" in reading.agent and "repeated" in reading.groups,
        not message.agent,
        reading.turned,
        reading.turned and bool(reading.opening & {"praise", "pleased"}),
        len(reading.speech.clauses) > 3,
        overlap(list(reading.words), message.agent) > 0.3,
        overlap(list(reading.words), message.previous) > 0.5,
        asks and "wondering" in reading.end,
        asks and "wishing" in reading.end,
    )
