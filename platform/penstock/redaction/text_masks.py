"""Masking a text: the rules' matches in it, and in what it says once decoded, become
placeholders."""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.redaction.checks import Candidate
from penstock.redaction.placeholders import PLACEHOLDER, placeholder
from penstock.redaction.rules import Rule
from penstock.redaction.screen import BASE64, ESCAPED, PERCENT, QUARTET, Marks, Screen
from penstock.redaction.views import View, joined, percent_decoded, unescaped

#: Encodings within encodings; what is hidden deeper nobody reads by chance.
DEPTH_MAX = 4
#: A text with more is no session's: looking at each would keep others waiting.
MATCHES_MAX = 5_000
#: A key and its value are looked at together where the value is no longer.
ASSIGNED_CHARS_MAX = 512

_BASE64_BREAK = r"(?:(?:\\+r)?\\+n|\r?\n)[+> -]?"
_BASE64_TEXT = re.compile(
    f"(?:{QUARTET}){{3}}(?:{_BASE64_BREAK})?"
    f"(?:[A-Za-z0-9+/_-]{{4}}(?:{_BASE64_BREAK})?)*(?:[A-Za-z0-9+/_-]{{2,3}}={{0,2}})?"
)
_BREAK = re.compile(_BASE64_BREAK)
_SOME_SECRET = b"q7Rv2Lx9Tz4Kd8Wm3Np6"
_URL_SAFE = str.maketrans("-_", "+/")


class TooManyMatches(ValueError):
    """A text with more matches than are looked at."""


class _Masked(NamedTuple):
    start: int
    end: int
    by: str


@dataclass
class Masked:
    """A text after masking; how often each rule had a match."""

    text: str
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class TextMask:
    rules: tuple[Rule, ...]
    screen: Screen
    #: Of the digests in placeholders. It is asked for when there is something to mask.
    key: Callable[[], bytes]

    def mask(self, text: str, name: str | None = None) -> Masked:
        """`name` is that of the text where it is the value of a JSON object."""
        counts: Counter[str] = Counter()
        spans = list(self._spans(text, counts, DEPTH_MAX))
        short = 0 < len(text) <= ASSIGNED_CHARS_MAX
        if name is not None and short and self._names_secret(name):
            spans += self._assigned(name, text, counts)
        return Masked(_replace(text, spans), counts) if spans else Masked(text)

    def _spans(self, text: str, counts: Counter[str], depth: int) -> Iterator[_Masked]:
        marks = self.screen.marks(text.encode("utf-8", "surrogatepass"))
        if not marks:
            return
        yield from self._matches(text, marks, counts)
        if any(mark >= 0 and self.rules[mark].joined for mark in marks):
            yield from self._joined_matches(text, marks, counts)
        if depth == 0:
            return
        if ESCAPED in marks or "\\" in text:
            yield from self._in_view(unescaped(text), text, counts, depth)
        if PERCENT in marks:
            yield from self._in_view(percent_decoded(text), text, counts, depth)
        if BASE64 in marks:
            yield from self._in_base64(text, counts, depth)

    def _matches(
        self, text: str, marks: Marks, counts: Counter[str], *, joined_only: bool = False
    ) -> Iterator[_Masked]:
        for mark in sorted(marks):
            if mark < 0 or (joined_only and not self.rules[mark].joined):
                continue
            rule = self.rules[mark]
            for number, match in enumerate(rule.pattern.finditer(text)):
                if number == MATCHES_MAX:
                    raise TooManyMatches
                if (span := self._span(rule, text, match)) is not None:
                    counts[rule.id] += 1
                    yield span

    def _span(self, rule: Rule, text: str, match: re.Match[str]) -> _Masked | None:
        groups = match.groupdict()
        group = next((name for name in ("value", "bare") if groups.get(name)), 0)
        value, (start, end) = match[group], match.span(group)
        if PLACEHOLDER.search(value):
            return None
        if not rule.accepts(Candidate(text, match, value, start)):
            return None
        return _Masked(start, end, placeholder(rule.kind, rule.type, value, self.key()))

    def _joined_matches(self, text: str, marks: Marks, counts: Counter[str]) -> Iterator[_Masked]:
        view = joined(text)
        if view.text == text:
            return
        found: Counter[str] = Counter()
        for span in self._matches(view.text, marks, found, joined_only=True):
            start, end = view.original(span.start, span.end)
            if end - start > span.end - span.start:  # the others are masked already
                yield _Masked(start, end, span.by)
        counts |= found

    def _in_view(
        self, view: View, text: str, counts: Counter[str], depth: int
    ) -> Iterator[_Masked]:
        if view.text == text:
            return
        inner: Counter[str] = Counter()
        for span in self._spans(view.text, inner, depth - 1):
            yield _Masked(*view.original(span.start, span.end), span.by)
        counts |= inner

    def _in_base64(self, text: str, counts: Counter[str], depth: int) -> Iterator[_Masked]:
        for match in _BASE64_TEXT.finditer(text):
            encoded = _BREAK.sub("", match[0]).rstrip("=").translate(_URL_SAFE)
            encoded = encoded[:-1] if len(encoded) % 4 == 1 else encoded
            content = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
            decoded = content.decode("utf-8", "surrogateescape")
            spans = list(self._spans(decoded, counts, depth - 1))
            if spans:
                masked = _replace(decoded, spans).encode("utf-8", "surrogateescape")
                yield _Masked(*match.span(), base64.b64encode(masked).decode())

    def _names_secret(self, name: str) -> bool:
        key = name.encode("utf-8", "surrogatepass")
        marks = self.screen.marks(b'"%b": "%b"' % (key, _SOME_SECRET))
        return any(mark >= 0 and "name" in self.rules[mark].pattern.groupindex for mark in marks)

    def _assigned(self, name: str, text: str, counts: Counter[str]) -> Iterator[_Masked]:
        """What is a secret by the name that it has."""
        opening = f'"{name}": "'
        whole = f'{opening}{text}"'
        marks = self.screen.marks(whole.encode("utf-8", "surrogatepass"))
        named = frozenset(
            mark for mark in marks if mark >= 0 and "name" in self.rules[mark].pattern.groupindex
        )
        found: Counter[str] = Counter()
        for span in self._matches(whole, named, found):
            if span.start >= len(opening) and span.end <= len(whole) - 1:
                yield _Masked(span.start - len(opening), span.end - len(opening), span.by)
        counts |= found


def _replace(text: str, spans: list[_Masked]) -> str:
    """The longest of those that overlap, grown to hold the others."""
    parts: list[str] = []
    at = 0
    merged: list[_Masked] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            longer = max(last, span, key=lambda of: of.end - of.start)
            span = _Masked(last.start, max(last.end, span.end), longer.by)  # noqa: PLW2901
        merged.append(span)
    for span in merged:
        parts += (text[at : span.start], span.by)
        at = span.end
    return "".join([*parts, text[at:]])
