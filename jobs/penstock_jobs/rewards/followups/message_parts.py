"""A message taken apart: what the user says, and what they paste.

Code in fences, quotations, and lines that programs write are pasted. `take_apart` is how the first
local judge does it, `speech_of` how the second does."""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

#: Longer messages are judged by their beginning and their end.
_HEAD_CHARS = 4_000
_TAIL_CHARS = 2_000
_MESSAGES_REMEMBERED = 4_096
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
        for mark in self.marks:
            if mark in searched:
                return self.pattern.search(text) is not None
        return False


#: The key is the program that writes such lines.
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
    "caused": Shape(
        r"Caused by:|Unhandled|Uncaught|Exception in thread",
        "Caused by:", "Unhandled", "Uncaught", "Exception in thread",
    ),
}  # fmt: skip
_PASTED = ("python", "exception", "frame", "go", "rust", "native", "compiler", "caused", "log")
_PASTED_PLACES = [list(SHAPES).index(name) for name in _PASTED]
_PROGRAM = re.compile("|".join(SHAPES[name].pattern.pattern for name in _PASTED), re.MULTILINE)
_ASCII_WRITTEN = bytes(code for code in range(128) if chr(code).isspace() or chr(code).isalpha())


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
    text = plain(text.strip())
    shapes = _shapes_in(text)
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


@lru_cache(maxsize=_MESSAGES_REMEMBERED)
def _shapes_in(text: str) -> tuple[bool, ...]:
    """Both judges ask it of a bucket's messages."""
    lowered = text.lower()
    return tuple([shape.is_in(text, lowered) for shape in SHAPES.values()])


def plain(text: str) -> str:
    """Marks that look alike are written in one way."""
    return text if text.isascii() else text.translate(_PLAIN)


#: Letters with the marks that scripts of India, the Near East and Thailand hang on them.
SPEECH_WORD = re.compile(
    r"[\w'\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0e31-\u0e4e]+"
)
_QUOTED_LINE = re.compile(r"^\s{0,3}>(?! *$)", re.MULTILINE)
#: How lines begin that a shell, a logger, a compiler or a serializer writes.
_PROMPT = re.compile(
    r"^\s*(?:\$|>>>|PS [A-Z]:|[\w.-]+@[\w.-]+[:~]\S*[$#]|C:\\\S*>)\s+\S"
    r"|^\s*(?:\[?\d{4}[-/]\d\d[-/]\d\d[ T]|\[?\d\d:\d\d:\d\d)"
    r"|^\s*\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL|TRACE|CRITICAL)\]?[ :]"
    r"|^\s*(?:npm (?:ERR!|WARN)|make(?:\[\d+\])?: |fatal(?: error)?: |error: |warning: )"
    r"|^\s*(?:ld|zsh|bash|sh): |^\s*[{}\[\]]|^\s*</?\w+[ >]"
    r"|^[\w.]*(?:Error|Exception): |^(?:\w+\.){2,}\w+: |^\s*\d+ (?:passed|failed)\b|^={4,}|^-{4,}"
)
#: A line of more characters is no sentence if less than this share are letters and blanks.
_SENTENCE_CHARS = 12
_LETTERS_MIN = 0.62
#: Marks of Latin, Arabic, Chinese and Japanese sentences; a comma ends a clause too.
_CLAUSE_END = re.compile(
    r"[.!?;:,\u2026\u3001\u3002\u060c\u061b\u061f]{1,8}(?=\s|$)"
    r"|[\u3001\u3002,!?](?!\d)|\n+| [-\u2013\u2014] |\u2014"
)


@dataclass(frozen=True, slots=True)
class Speech:
    """What the user says themselves, in small letters."""

    text: str
    #: In order; none is empty.
    clauses: tuple[str, ...]
    #: The share of characters that are code, output or quotation.
    pasted: float
    quotes: bool
    #: Which of SHAPES occur anywhere.
    shapes: tuple[bool, ...]


def speech_of(text: str) -> Speech:
    """The time is linear in the length, which is bounded."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    text = plain(unicodedata.normalize("NFC", text.strip()))
    whole = max(len(text), 1)
    shapes = _shapes_in(text)
    said = _FENCE.sub("\n", text)
    quotes = _QUOTED_LINE.search(said) is not None
    if quotes:
        said = "\n".join(line for line in said.split("\n") if not _QUOTED_LINE.match(line))
    # Where a fence is cut out, a line may begin that did not begin there.
    programs = "```" in text or any(shapes[place] for place in _PASTED_PLACES)
    said = "\n".join(line for line in said.split("\n") if not _is_pasted(line, programs))
    said = _INLINE.sub(" ` ", said).strip().lower()
    clauses = tuple(part for part in map(str.strip, _CLAUSE_END.split(said)) if part)
    return Speech(said, clauses, 1 - len(said) / whole, quotes, shapes)


def _is_pasted(line: str, programs: bool) -> bool:
    """`programs` says whether any line of the message may be one of `_PROGRAM`."""
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
        written = sum(character.isspace() or _is_letter(character) for character in line)
    return written < _LETTERS_MIN * len(line)


def _is_letter(character: str) -> bool:
    """Or a mark that belongs to one."""
    return character.isalpha() or unicodedata.category(character) in ("Mn", "Mc")
