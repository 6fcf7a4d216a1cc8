"""A message taken apart: what the user wrote themselves, and what they pasted."""

import re
from dataclasses import dataclass

#: Longer messages are judged by their beginning and their end.
_HEAD_CHARS = 4_000
_TAIL_CHARS = 2_000

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_INLINE = re.compile(r"`[^`\n]{1,300}`")

#: Lines that programs write, by what writes them.
SHAPES: dict[str, re.Pattern[str]] = {
    "python": re.compile(r'Traceback \(most recent|^ *File "[^"\n]{1,300}", line \d', re.MULTILINE),
    "exception": re.compile(
        r"\b[a-z_.]*[A-Z]\w*(?:Error|Exception|Impossible)\b *(?::|$|[,;(])", re.MULTILINE
    ),
    "frame": re.compile(r"^\s*at [\w$.<>/]+ ?\(", re.MULTILINE),
    "go": re.compile(r"^goroutine \d|^panic: |^\s+[\w/.-]+\.go:\d+", re.MULTILINE),
    "rust": re.compile(r"^error\[E\d+\]|panicked at|^ *--> [\w/.-]+:\d+", re.MULTILINE),
    "native": re.compile(
        r"AddressSanitizer|SIGSEGV|segmentation fault|^ld: |^clang|undefined reference",
        re.MULTILINE,
    ),
    "compiler": re.compile(
        r"[\w/.-]+\.\w{1,5}:\d+(?::\d+)?|error TS\d+|\bERR!|^\[?ERROR\]?\b", re.MULTILINE
    ),
    "assertion": re.compile(
        r"^E  |assert(?:ion)?Error|\bExpected: |Received: |toBe\(", re.MULTILINE | re.IGNORECASE
    ),
    "tests": re.compile(
        r"\b\d+ (?:failed|failing|failures?|tests? (?:fail|are red))|\bFAIL(?:ED)?\b|\btest_\w+"
    ),
    "shell": re.compile(r"^\$ |command not found|exit code|: line \d+:|No such file", re.MULTILINE),
    "log": re.compile(r"\b(?:ERROR|WARN|FATAL)\b|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d", re.MULTILINE),
    "http": re.compile(r"(?<![\w.])(?:40[0134589]|413|422|429|50[0234])(?![\w.])"),
    "caused": re.compile(r"Caused by:|Unhandled|Uncaught|Exception in thread"),
}
_PASTED = ("python", "exception", "frame", "go", "rust", "native", "compiler", "caused", "log")


#: Full-width marks of Chinese and Japanese, and typographic apostrophes.
_PLAIN = str.maketrans("\uff1f\uff01\uff0c\uff1a\uff1b\u2019", "?!,:;'")


@dataclass(frozen=True, slots=True)
class Parts:
    #: What is left without code and without lines that a program wrote.
    prose: str
    #: The share of characters that are code or output.
    pasted: float
    #: Which of SHAPES occur outside of fenced code, and inside.
    shapes: tuple[bool, ...]


def take_apart(text: str) -> Parts:
    """In time linear in the length of what is looked at, which is bounded."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    text = plain(text.strip())
    shapes = tuple(bool(pattern.search(text)) for pattern in SHAPES.values())
    prose = _FENCE.sub("\n", text)
    if any(shapes):
        prose = "\n".join(line for line in prose.splitlines() if not _from_a_program(line))
    prose = _INLINE.sub(" ` ", prose).strip()
    return Parts(prose, 1 - len(prose) / max(len(text), 1), shapes)


def plain(text: str) -> str:
    """With marks that look alike written in one way."""
    return text.translate(_PLAIN)


def _from_a_program(line: str) -> bool:
    """A sentence that only mentions an exception stays: it has words before it."""
    for name in _PASTED:
        match = SHAPES[name].search(line)
        if match and match.start() < 25 and len(line.split()) < 40:
            return True
    return False
