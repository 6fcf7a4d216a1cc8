"""Places of text: code, tests, docs, fixtures, generated files, comments, code that never runs.

A text is weighted by its place, so that unread text earns nothing."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import msgspec

Place = Literal["code", "tests", "docs", "fixtures", "generated"]

_BEGINNINGS: dict[str, tuple[str, ...]] = {
    "#": ("py", "rb", "sh", "bash", "zsh", "pl", "r", "yaml", "yml", "toml", "tf", "mk", "ex"),
    "//": (
        "js", "jsx", "ts", "tsx", "mjs", "java", "kt", "scala", "go", "rs", "c", "h", "cc", "cpp",
        "hpp", "cs", "swift", "php", "dart", "zig", "m", "proto", "groovy", "gradle", "vue",
        "svelte",
    ),
    "--": ("sql", "lua", "hs", "elm", "ada"),
    ";": ("clj", "lisp", "el", "scm", "asm", "ini"),
    "%": ("tex", "erl", "matlab"),
    "<!--": ("html", "xml", "svg"),
}  # fmt: skip
_BY_SUFFIX = {suffix: start for start, suffixes in _BEGINNINGS.items() for suffix in suffixes}
_BLOCK_STYLE = ("/*", "*/", "* ")

#: Patterns of the lower-case path, which begins with a slash. The first match decides.
_PATHS: tuple[tuple[Place, re.Pattern[str]], ...] = (
    (
        "generated",
        re.compile(
            r"/(?:node_modules|vendor|third_party|generated|__generated__|dist|\.next"
            r"|__snapshots__)/"
            r"|/(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|go\.sum)$"
            r"|\.(?:lock|map|snap|min\.js|min\.css|pb\.go|pb\.cc|pb\.h|g\.dart|designer\.cs)$"
            r"|_pb2(?:_grpc)?\.pyi?$|[._]gen(?:erated)?\.[a-z]+$"
        ),
    ),
    (
        "fixtures",
        re.compile(
            r"/(?:fixtures|__fixtures__|testdata|test_data|cassettes|golden|mocks|__mocks__)/"
            r"|\.(?:golden|csv|tsv|jsonl|ndjson)$"
        ),
    ),
    (
        "tests",
        re.compile(
            r"/(?:tests?|specs?|__tests__|e2e)/|/(?:test_[^/]*|conftest)\.py$"
            r"|[._-](?:test|tests|spec)\.[a-z]+$|[a-z]tests?\.(?:java|kt|cs|swift)$"
        ),
    ),
    (
        "docs",
        re.compile(
            r"/docs?/|\.(?:md|mdx|rst|txt|adoc|org)$"
            r"|/(?:readme|changelog|changes|notes|license|authors|contributing)[^/]*$"
        ),
    ),
)
_GENERATED = re.compile(
    r"@generated|do not edit|code generated|automatically generated", re.IGNORECASE
)
_HEAD_CHARS = 400


class PlaceWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of characters by place. Code weighs 1."""

    tests: float = 0.3
    docs: float = 0.25
    fixtures: float = 0.1
    generated: float = 0.0
    #: Lines that are comments alone, in any file.
    comments: float = 0.1
    #: Edits that only took away, of text in any file.
    deletions: float = 0.5

    def __post_init__(self) -> None:
        if not all(0 <= weight <= 1 for weight in msgspec.structs.astuple(self)):
            raise ValueError("each weight of a place must be from 0 to 1")

    def of(self, place: Place) -> float:
        return 1.0 if place == "code" else float(getattr(self, place))


@lru_cache(maxsize=4096)
def place_of(path: str) -> Place:
    bare = "/" + path.replace("\\", "/").lower().lstrip("/")
    return next((place for place, pattern in _PATHS if pattern.search(bare)), "code")


def place_of_text(path: str, text: str) -> Place:
    place = place_of(path)
    return "generated" if _GENERATED.search(text, 0, _HEAD_CHARS) else place


@lru_cache(maxsize=4096)
def comment_start(path: str) -> str | None:
    """Return how comments begin in such a file; None if unknown or prose."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix[1:].lower())


def is_comment(line: str, start: str) -> bool:
    return line.startswith(start) or (start == "//" and line.startswith(_BLOCK_STYLE))


#: Delimiters of block comments, by the sign of line comments.
_BLOCKS = {
    "//": (("/*", "*/"), ("#if 0", "#endif")),
    "--": (("/*", "*/"), ("--[[", "]]"), ("{-", "-}")),
    "<!--": (("<!--", "-->"),),
}
_PYTHON_BLOCKS = (('"""', '"""'), ("'''", "'''"))
_SIGN_MAX = 20
_NEVER_PYTHON = re.compile(r"(?:if|elif|while)[ (]+(?:False|0)[ )]*:")
_NEVER_BRACES = re.compile(r"(?:\} *else +)?(?:if|while) *\(? *(?:false|0) *\)? *\{")


class Stretch(NamedTuple):
    """Text that does not run. What disables it lies between `start` and `opened`."""

    start: int
    opened: int
    end: int


class SourceLanguage:
    def __init__(self, comment: str, *, python: bool = False) -> None:
        self.comment, self.python = comment, python
        self._blocks = _PYTHON_BLOCKS if python else _BLOCKS.get(comment, ())
        braces = _NEVER_BRACES if comment == "//" else None
        self._never = _NEVER_PYTHON if python else braces
        signs = [re.escape(sign) for sign in (comment, *(block[0] for block in self._blocks))]
        never = [self._never.pattern] if self._never else []
        self._signs = re.compile("|".join([*signs, *never]))

    def may_disable(self, text: str, start: int, end: int) -> bool:
        """Whether an inserted stretch may be part of what disables text."""
        line = text.rfind("\n", 0, start) + 1
        return self._signs.search(text, max(line, start - _SIGN_MAX), end + _SIGN_MAX) is not None

    def disabled(self, text: str) -> Iterator[Stretch]:
        """Yield comments that begin a line and blocks that never run, without nested ones."""
        at = 0
        inside: str | None = None  # a text in Python that began in the middle of a line
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            start = end - len(text[at:end].lstrip())
            stretch = self._at(text, start, end) if inside is None else None
            if stretch is not None:
                yield stretch
                end = text.find("\n", stretch.end - 1) + 1 or len(text)
            elif self.python:
                inside = _quotes_after(text[at:end], inside)
            at = end

    def _at(self, text: str, start: int, end: int) -> Stretch | None:
        for opens, closes in self._blocks:
            if text.startswith(opens, start):
                opened = start + len(opens)
                stop = text.find(closes, opened)
                return Stretch(start, opened, stop + len(closes) if stop >= 0 else len(text))
        if text.startswith(self.comment, start):
            return Stretch(start, start + len(self.comment), end)
        if self._never and (match := self._never.match(text, start)):
            stop = _indented_end(text, start, end) if self.python else _braces_end(text, start)
            return Stretch(start, match.end(), stop)
        return None


def _quotes_after(line: str, inside: str | None) -> str | None:
    for match in re.finditer(r'"""|\'\'\'', line):
        if inside is None:
            inside = match[0]
        elif inside == match[0]:
            inside = None
    return inside


def _indented_end(text: str, start: int, end: int) -> int:
    indent = start - (text.rfind("\n", 0, start) + 1)
    while end < len(text):
        stop = text.find("\n", end) + 1 or len(text)
        line = text[end:stop]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        end = stop
    return end


def _braces_end(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, text.index("{", start)):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


@lru_cache(maxsize=4096)
def language_of(path: str) -> SourceLanguage | None:
    comment = comment_start(path)
    return SourceLanguage(comment, python=path.lower().endswith(".py")) if comment else None
