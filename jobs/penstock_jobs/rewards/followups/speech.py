"""Speech: the user's own words in a message, without pasted text, and listed words in them.

A list of words is a TOML file of groups. `stem*` matches every word with that beginning. Phrases of
several words match in sequence. Scripts without spaces match anywhere."""

import re
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from itertools import repeat
from typing import NamedTuple

import msgspec

#: Longer messages are judged by their beginning and their end.
_HEAD_CHARS = 4_000
_TAIL_CHARS = 2_000
#: Each message is read by the judge, for its kind of work, and when requests are divided.
_TEXTS_REMEMBERED = 4_096
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_INLINE = re.compile(r"`[^`\n]{1,300}`")
#: Full-width marks of Chinese and Japanese, and typographic apostrophes.
_PLAIN = str.maketrans("\uff1f\uff01\uff0c\uff1a\uff1b\u2019", "?!,:;'")


class Shape:
    """A pattern of lines that programs write.

    A text without any of the `marks`, which are quick to find, cannot match. With `any_case` they
    are in lower case."""

    def __init__(self, pattern: str, *marks: str, any_case: bool = False) -> None:
        self.pattern = re.compile(pattern, re.MULTILINE | (re.IGNORECASE if any_case else 0))
        self.marks, self.any_case = marks, any_case

    def is_in(self, text: str, lowered: str) -> bool:
        searched = lowered if self.any_case else text
        for mark in self.marks:
            if mark in searched:
                return self.pattern.search(text) is not None
        return False


#: By the kind of program that writes such lines.
SHAPES: dict[str, Shape] = {
    "python": Shape(
        r'Traceback \(most recent|^ *File "[^"\n]{1,300}", line \d',
        "Traceback (most recent", 'File "',
    ),
    "exception": Shape(
        r"\b[a-z_.]*[A-Z]\w*(?:Error|Exception|Impossible)\b *(?::|$|[,;(])",
        "Error", "Exception", "Impossible",
    ),
    "frame": Shape(r"^\s*at [\w$.<>/]+ ?\(", "at "),
    "go": Shape(
        r"^goroutine \d|^panic: |^\s+[\w/.-]+\.go:\d+", "goroutine ", "panic: ", ".go:"
    ),
    "rust": Shape(
        r"^error\[E\d+\]|panicked at|^ *--> [\w/.-]+:\d+", "error[E", "panicked at", "--> "
    ),
    "native": Shape(
        r"AddressSanitizer|SIGSEGV|segmentation fault|^ld: |^clang|undefined reference",
        "AddressSanitizer", "SIGSEGV", "segmentation fault", "ld: ", "clang", "undefined ref",
    ),
    "compiler": Shape(
        # Matched only where a path may begin, so that long runs cost linear time.
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
    "caused": Shape(
        r"Caused by:|Unhandled|Uncaught|Exception in thread",
        "Caused by:", "Unhandled", "Uncaught", "Exception in thread",
    ),
}  # fmt: skip
_PASTED = ("python", "exception", "frame", "go", "rust", "native", "compiler", "caused", "log")
_PASTED_PLACES = [list(SHAPES).index(name) for name in _PASTED]
_PROGRAM = re.compile("|".join(SHAPES[name].pattern.pattern for name in _PASTED), re.MULTILINE)
_ASCII_WRITTEN = bytes(code for code in range(128) if chr(code).isspace() or chr(code).isalpha())


def plain(text: str) -> str:
    return text if text.isascii() else text.translate(_PLAIN)


#: Letters with combining marks of Indian, Near Eastern and Thai scripts.
SPEECH_WORD = re.compile(
    r"[\w'\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0e31-\u0e4e]+"
)
_QUOTED_LINE = re.compile(r"^\s{0,3}>(?! *$)", re.MULTILINE)
#: Beginnings of lines that a shell, a logger, a compiler or a serializer writes.
_PROMPT = re.compile(
    r"^\s*(?:\$|>>>|PS [A-Z]:|[\w.-]+@[\w.-]+[:~]\S*[$#]|C:\\\S*>)\s+\S"
    r"|^\s*(?:\[?\d{4}[-/]\d\d[-/]\d\d[ T]|\[?\d\d:\d\d:\d\d)"
    r"|^\s*\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL|TRACE|CRITICAL)\]?[ :]"
    r"|^\s*(?:npm (?:ERR!|WARN)|make(?:\[\d+\])?: |fatal(?: error)?: |error: |warning: )"
    r"|^\s*(?:ld|zsh|bash|sh): |^\s*[{}\[\]]|^\s*</?\w+[ >]"
    r"|^[\w.]*(?:Error|Exception): |^(?:\w+\.){2,}\w+: |^\s*\d+ (?:passed|failed)\b|^={4,}|^-{4,}"
)
#: A longer line is no sentence if less than this share are letters and spaces.
_SENTENCE_CHARS = 12
_LETTERS_MIN = 0.62
#: Marks of Latin, Arabic, Chinese and Japanese sentences; a comma ends a clause too.
_CLAUSE_END = re.compile(
    r"[.!?;:,\u2026\u3001\u3002\u060c\u061b\u061f]{1,8}(?=\s|$)"
    r"|[\u3001\u3002,!?](?!\d)|\n+| [-\u2013\u2014] |\u2014"
)


class Speech(msgspec.Struct, frozen=True):
    text: str
    clauses: tuple[str, ...]
    pasted: float
    quotes: bool
    shapes: tuple[bool, ...]


@lru_cache(_TEXTS_REMEMBERED)
def speech_of(text: str) -> Speech:
    text, shapes, quotes, said = _read(text)
    said = _INLINE.sub(" ` ", said).strip().lower()
    clauses = tuple(part for part in map(str.strip, _CLAUSE_END.split(said)) if part)
    return Speech(said, clauses, 1 - len(said) / max(len(text), 1), quotes, shapes)


def own_words(text: str) -> str:
    """Return the user's own words as written, without pasted text."""
    return _read(text)[-1].strip()


def _read(text: str) -> tuple[str, tuple[bool, ...], bool, str]:
    """Return the read text, its shapes, whether it quotes, and its lines that are not pasted."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    text = plain(unicodedata.normalize("NFC", text.strip()))
    lowered = text.lower()
    shapes = tuple([shape.is_in(text, lowered) for shape in SHAPES.values()])
    said = _FENCE.sub("\n", text)
    quotes = _QUOTED_LINE.search(said) is not None
    if quotes:
        said = "\n".join(line for line in said.split("\n") if not _QUOTED_LINE.match(line))
    # Cutting out a fence may make a new line begin.
    programs = "```" in text or any(shapes[place] for place in _PASTED_PLACES)
    said = "\n".join(line for line in said.split("\n") if not _is_pasted(line, programs))
    return text, shapes, quotes, said


def _is_pasted(line: str, programs: bool) -> bool:
    """Whether a line is pasted. `programs`: some line of the message may match `_PROGRAM`."""
    if len(line.split()) >= 40:
        return False
    if _PROMPT.match(line):
        return True
    if programs and (match := _PROGRAM.search(line)) and match.start() < 25:
        return True
    if len(line) <= _SENTENCE_CHARS:
        return False
    if line.isascii():
        written = len(line) - len(line.encode().translate(None, _ASCII_WRITTEN))
    else:
        written = sum(
            one.isspace() or one.isalpha() or unicodedata.category(one) in ("Mn", "Mc")
            for one in line
        )
    return written < _LETTERS_MIN * len(line)


_STEM_LENGTHS = range(3, 11)
_PHRASE_WORDS_MAX = 4
#: Scripts without spaces between words (Chinese, Japanese) or with suffixes (Korean).
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯]")
#: The most words in the cache; above that it is emptied.
_WORDS_REMEMBERED = 1 << 16


class Hit(msgspec.Struct, frozen=True, gc=False):
    """An occurrence of a group. `at` and `words` count words, or characters if `unspaced`."""

    group: int
    at: int
    words: int
    unspaced: bool = False


class _KnownWord(NamedTuple):
    groups: tuple[int, ...]
    seconds: frozenset[str]


_UNKNOWN = _KnownWord((), frozenset())


@dataclass(frozen=True)
class Lexicon:
    names: tuple[str, ...]
    phrases: dict[str, tuple[int, ...]]
    stems: dict[str, tuple[int, ...]]
    #: By group.
    unspaced: dict[int, re.Pattern[str]]
    #: First words of phrases, with their second words.
    openers: dict[str, frozenset[str]]
    _known: dict[str, _KnownWord | None] = field(default_factory=dict, repr=False)

    def hits(self, words: Sequence[str], text: str) -> list[Hit]:
        hits = []
        # The fast path: most words are in no group.
        for at, known in enumerate(map(self._known.get, words, repeat(_UNKNOWN))):
            if known is None:
                continue
            word = self._look_up(words[at]) if known is _UNKNOWN else known
            if word is None:
                continue
            following = words[at + 1 : at + _PHRASE_WORDS_MAX] if word.seconds else ()
            # Most openers begin no phrase here.
            if not following or following[0] not in word.seconds:
                hits += [Hit(group, at, 1) for group in word.groups]
                continue
            groups = dict.fromkeys(word.groups, 1)
            phrase = words[at]
            for length, last in enumerate(following, 2):
                phrase = f"{phrase} {last}"
                groups |= dict.fromkeys(self.phrases.get(phrase, ()), length)
            hits += [Hit(group, at, length) for group, length in groups.items()]
        if not text.isascii() and _UNSPACED.search(text):
            for group, pattern in self.unspaced.items():
                for match in pattern.finditer(text):
                    hits.append(Hit(group, match.start(), len(match[0]), unspaced=True))
        return hits

    def _look_up(self, word: str) -> _KnownWord | None:
        if len(self._known) >= _WORDS_REMEMBERED:
            self._known.clear()
        lengths = (length for length in _STEM_LENGTHS if length <= len(word))
        stems = (self.stems.get(word[:length], ()) for length in lengths)
        groups = frozenset(self.phrases.get(word, ())).union(*stems)
        seconds = self.openers.get(word, frozenset())
        known = _KnownWord(tuple(groups), seconds) if groups or seconds else None
        self._known[word] = known
        return known


@cache
def lexicon(*names: str, only: tuple[str, ...] = ()) -> Lexicon:
    """Load all groups of some files, or `only` these."""
    folder, groups = files("penstock_jobs.rewards.followups"), dict[str, str]()
    for name in names:
        groups |= tomllib.loads((folder / name).read_text(encoding="utf-8"))
    groups = {name: groups[name] for name in only or groups}
    phrases: dict[str, tuple[int, ...]] = {}
    stems: dict[str, tuple[int, ...]] = {}
    unspaced: dict[int, re.Pattern[str]] = {}
    for group, lines in enumerate(groups.values()):
        cues = [cue for line in lines.splitlines() for cue in re.split(", *", line) if cue]
        if anywhere := [re.escape(cue) for cue in cues if _UNSPACED.search(cue)]:
            unspaced[group] = re.compile("|".join(anywhere))
        for cue in cues:
            kind, key = (stems, cue[:-1]) if cue.endswith("*") else (phrases, cue)
            if group not in kind.get(key, ()):
                kind[key] = (*kind.get(key, ()), group)
    openers: defaultdict[str, set[str]] = defaultdict(set)
    for phrase in phrases:
        first, *more = phrase.split(" ")
        if more:
            openers[first].add(more[0])
    seconds = {word: frozenset(following) for word, following in openers.items()}
    return Lexicon(tuple(groups), phrases, stems, unspaced, seconds)
