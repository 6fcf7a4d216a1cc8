"""A message taken apart: what the user wrote themselves, what they pasted, and the words in it that
hint at a label."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

#: Longer messages are judged by their beginning and their end.
_HEAD_CHARS = 4_000
_TAIL_CHARS = 2_000

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_INLINE = re.compile(r"`[^`\n]{1,300}`")


@dataclass(frozen=True, slots=True)
class Shape:
    """Lines that programs write. A text that has none of the `marks` cannot have the pattern, and
    is not searched for it: they are quicker to find. Where case does not count they are small."""

    pattern: re.Pattern[str]
    marks: tuple[str, ...]
    any_case: bool

    def is_in(self, text: str, lowered: str) -> bool:
        held = lowered if self.any_case else text
        if self.marks and not any(mark in held for mark in self.marks):
            return False
        return self.pattern.search(text) is not None


def _shape(pattern: str, *marks: str, flags: int = 0) -> Shape:
    return Shape(re.compile(pattern, re.MULTILINE | flags), marks, bool(flags & re.IGNORECASE))


#: By what writes them.
SHAPES: dict[str, Shape] = {
    "python": _shape(r'Traceback \(most recent|^ *File "[^"\n]{1,300}", line \d'),
    "exception": _shape(
        r"\b[a-z_.]*[A-Z]\w*(?:Error|Exception|Impossible)\b *(?::|$|[,;(])",
        "Error", "Exception", "Impossible",
    ),
    "frame": _shape(r"^\s*at [\w$.<>/]+ ?\("),
    "go": _shape(r"^goroutine \d|^panic: |^\s+[\w/.-]+\.go:\d+"),
    "rust": _shape(
        r"^error\[E\d+\]|panicked at|^ *--> [\w/.-]+:\d+", "error[E", "panicked at", "--> "
    ),
    "native": _shape(
        r"AddressSanitizer|SIGSEGV|segmentation fault|^ld: |^clang|undefined reference",
        "AddressSanitizer", "SIGSEGV", "segmentation fault", "ld: ", "clang", "undefined ref",
    ),
    "compiler": _shape(
        # Only from where a path may begin, so that a long run costs no more than its length.
        r"(?<![\w/.-])[\w/.-]+\.\w{1,5}:\d+(?::\d+)?|error TS\d+|\bERR!|^\[?ERROR\]?\b",
        ":", "error TS", "ERR",
    ),
    "assertion": _shape(
        r"^E  |assert(?:ion)?Error|\bExpected: |Received: |toBe\(",
        "e  ", "error", "xpected: ", "ved: ", "tobe(",
        flags=re.IGNORECASE,
    ),
    "tests": _shape(
        r"\b\d+ (?:failed|failing|failures?|tests? (?:fail|are red))|\bFAIL(?:ED)?\b|\btest_\w+",
        " fail", " test", "FAIL", "test_",
    ),
    "shell": _shape(
        r"^\$ |command not found|exit code|: line \d+:|No such file",
        "$ ", "command not found", "exit code", ": line ", "No such file",
    ),
    "log": _shape(
        r"\b(?:ERROR|WARN|FATAL)\b|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d",
        "ERROR", "WARN", "FATAL", "-",
    ),
    "http": _shape(
        r"(?<![\w.])(?:40[0134589]|413|422|429|50[0234])(?![\w.])", "40", "413", "42", "50"
    ),
    "caused": _shape(r"Caused by:|Unhandled|Uncaught|Exception in thread"),
}  # fmt: skip
_PASTED = ("python", "exception", "frame", "go", "rust", "native", "compiler", "caused", "log")
_PROGRAM = re.compile("|".join(SHAPES[name].pattern.pattern for name in _PASTED), re.MULTILINE)


#: Full-width marks of Chinese and Japanese, and typographic apostrophes.
_PLAIN = str.maketrans("\uff1f\uff01\uff0c\uff1a\uff1b\u2019", "?!,:;'")


@dataclass(frozen=True, slots=True)
class MessageParts:
    #: What is left without code and without lines that a program wrote.
    prose: str
    #: The share of characters that are code or output.
    pasted: float
    #: Which of SHAPES occur outside of fenced code, and inside.
    shapes: tuple[bool, ...]


def take_apart(text: str) -> MessageParts:
    """In time linear in the length of what is looked at, which is bounded."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    text = plain(text.strip())
    lowered = text.lower()
    shapes = tuple(shape.is_in(text, lowered) for shape in SHAPES.values())
    prose = _FENCE.sub("\n", text)
    if any(shapes):
        prose = "\n".join(line for line in prose.splitlines() if not _from_a_program(line))
    prose = _INLINE.sub(" ` ", prose).strip()
    return MessageParts(prose, 1 - len(prose) / max(len(text), 1), shapes)


def plain(text: str) -> str:
    """With marks that look alike written in one way."""
    return text if text.isascii() else text.translate(_PLAIN)


def _from_a_program(line: str) -> bool:
    """A sentence that only mentions an exception stays: it has words before it."""
    match = _PROGRAM.search(line)
    return match is not None and match.start() < 25 and len(line.split()) < 40


_STEM_LENGTHS = range(3, 11)
_PHRASE_WORDS_MAX = 4
#: Words of this many at the start tell more: "no, …", "great, now …".
_OPENING_WORDS = 5
#: Scripts that put no spaces between words (Chinese, Japanese), or hang endings on them (Korean).
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯]")

#: Words that are looked up again and again.
_WORDS_REMEMBERED = 1 << 16


class Lexicon(NamedTuple):
    """Which groups a cue belongs to."""

    phrases: dict[str, tuple[int, ...]]
    #: Beginnings of words.
    stems: dict[str, tuple[int, ...]]
    #: By group, what may stand anywhere.
    unspaced: list[re.Pattern[str]]
    #: The words that a phrase of several begins with.
    openers: frozenset[str]


@cache
def cue_names() -> tuple[str, ...]:
    return tuple(_groups())


def find_cues(words: list[str], prose: str) -> list[tuple[int, float]]:
    """(column, value) for each group that occurs; a second block of as many columns says which of
    them occur at the very beginning."""
    lexicon = _lexicon()
    count = len(cue_names())
    found: dict[int, float] = {}
    for at, word in enumerate(words):
        hits = _of_word(word)
        if word in lexicon.openers:
            hits = hits.union(_of_phrases(words[at : at + _PHRASE_WORDS_MAX]))
        for group in hits:
            found[group] = found.get(group, 0.0) + 1.0
            if at < _OPENING_WORDS:
                found[count + group] = 1.0
    if _UNSPACED.search(prose):
        for group, pattern in enumerate(lexicon.unspaced):
            for match in pattern.finditer(prose):
                found[group] = found.get(group, 0.0) + 1.0
                if match.start() < _OPENING_WORDS:
                    found[count + group] = 1.0
    return [(column, min(value, 3.0) ** 0.5) for column, value in found.items()]


@lru_cache(_WORDS_REMEMBERED)
def _of_word(word: str) -> frozenset[int]:
    """The groups of the word, and of what it begins with."""
    lexicon = _lexicon()
    hits = set(lexicon.phrases.get(word, ()))
    for length in _STEM_LENGTHS:
        if length > len(word):
            break
        hits.update(lexicon.stems.get(word[:length], ()))
    return frozenset(hits)


def _of_phrases(words: list[str]) -> Iterator[int]:
    """The groups of the phrases of several words that these begin with."""
    phrases = _lexicon().phrases
    phrase = words[0]
    for more in words[1:]:
        phrase = f"{phrase} {more}"
        yield from phrases.get(phrase, ())


@cache
def _lexicon() -> Lexicon:
    phrases: dict[str, tuple[int, ...]] = {}
    stems: dict[str, tuple[int, ...]] = {}
    unspaced: list[re.Pattern[str]] = []
    for group, cues in enumerate(_groups().values()):
        anywhere = [cue for cue in cues if _UNSPACED.search(cue)]
        unspaced.append(re.compile("|".join(map(re.escape, anywhere)) or r"(?!)"))
        for cue in cues:
            kind, key = (stems, cue[:-1]) if cue.endswith("*") else (phrases, cue)
            if group not in kind.get(key, ()):
                kind[key] = (*kind.get(key, ()), group)
    openers = frozenset(phrase.split(" ")[0] for phrase in phrases if " " in phrase)
    return Lexicon(phrases, stems, unspaced, openers)


@cache
def _groups() -> dict[str, tuple[str, ...]]:
    source = files("penstock_jobs.rewards.followups") / "cues.toml"
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    return {
        name: tuple(cue for line in lines.splitlines() for cue in re.split(", *", line) if cue)
        for name, lines in found.items()
    }
