"""Where a text stands: code, tests, docs, fixtures, generated files, comments. A text weighs by how
much of the work is done there, so that nothing is bought with text that nobody reads."""

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal

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

#: By the lower-cased path, which begins with a slash; the first that matches decides.
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
#: What generators write at the top of their files.
_GENERATED = re.compile(
    r"@generated|do not edit|code generated|automatically generated", re.IGNORECASE
)
_HEAD_CHARS = 400


class PlaceWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a character weighs, by where it stands; in code it weighs 1."""

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
            raise ValueError("each weight of a place has to be from 0 to 1")

    def of(self, place: Place) -> float:
        return 1.0 if place == "code" else float(getattr(self, place))


@lru_cache(maxsize=4096)
def place_of(path: str) -> Place:
    """By the name alone."""
    bare = "/" + path.replace("\\", "/").lower().lstrip("/")
    return next((place for place, pattern in _PATHS if pattern.search(bare)), "code")


def place_of_text(path: str, text: str) -> Place:
    """By the name, and by what generators write at the top."""
    place = place_of(path)
    return "generated" if _GENERATED.search(text, 0, _HEAD_CHARS) else place


@lru_cache(maxsize=4096)
def comment_start(path: str) -> str | None:
    """How a comment begins in files of such a name; None where nobody knows, or all is prose."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix[1:].lower())


def is_comment(line: str, start: str) -> bool:
    """Whether a line without the space around it is a comment alone."""
    return line.startswith(start) or (start == "//" and line.startswith(_BLOCK_STYLE))
