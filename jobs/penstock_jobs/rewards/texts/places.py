"""Places of text: code, tests, docs, fixtures, generated files.

A text is weighted by its place, so that unread text earns nothing."""

import re
from functools import lru_cache
from typing import Literal

import msgspec

Place = Literal["code", "tests", "docs", "fixtures", "generated"]

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
#: In lower case: a text without either, which are quick to find, cannot match. Without "it", since
#: an i without its dot matches too.
_SIGNS = ("generated", "do not ed")
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

    def of_request(self, kind: str) -> "PlaceWeights":
        """Return the weights for a request of this kind: what it is about weighs 1."""
        whole = {"tests": ("tests",), "docs": ("docs", "comments"), "deletion": ("deletions",)}
        return msgspec.structs.replace(self, **dict.fromkeys(whole.get(kind, ()), 1.0))

    def of(self, place: Place) -> float:
        return 1.0 if place == "code" else float(getattr(self, place))


@lru_cache(maxsize=4096)
def place_of(path: str) -> Place:
    bare = "/" + path.replace("\\", "/").lower().lstrip("/")
    return next((place for place, pattern in _PATHS if pattern.search(bare)), "code")


def generated_mark(text: str) -> tuple[int, int] | None:
    """Find what generators write at the top of their files."""
    head = text[:_HEAD_CHARS].lower()
    if not any(sign in head for sign in _SIGNS):
        return None
    match = _GENERATED.search(text, 0, _HEAD_CHARS)
    return match.span() if match else None
