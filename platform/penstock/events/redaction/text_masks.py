"""Masking a text: matches of the rules become placeholders, also in decoded parts."""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from penstock.events.redaction.checks import Candidate
from penstock.events.redaction.placeholders import PLACEHOLDER, placeholder
from penstock.events.redaction.rules import ENCODED, HIDDEN_WORD, QUARTET, Marks, Rule, Screen
from penstock.events.redaction.text_views import (
    BASE64_BREAK,
    BASE64_BREAKS,
    LINE_BREAKS,
    LineUnfit,
    LineWork,
    Steps,
    View,
    goes_on,
    text_pieces,
    views,
    without_breaks,
)

#: Encodings within encodings; nobody reads by chance what is hidden deeper.
DEPTH_MAX = 4
#: Matches of one rule in a text. More would keep others waiting.
MATCHES_MAX = 5_000
#: A key and a value up to this length are looked at together.
ASSIGNED_CHARS_MAX = 512
#: Base64 up to this length is encoded again with its placeholders; a longer one may be a cut file,
#: and only what hides a match is replaced.
_ENCODED_AGAIN_CHARS_MAX = 4096
#: Decoded texts are screened together up to this size.
_DECODED_TOGETHER_CHARS = 4096
#: How far what is broken over lines is looked at.
_BROKEN_CHARS_MAX = 1024
_BROKEN_WORK_CHARS = 512
_IN_WORD = re.compile(r"[A-Za-z0-9_]")
_MATCH_CHARS = 512
_VIEW_PIECE_CHARS = 4
_HIDDEN_TEXT = re.compile(
    r"(?<![0-9A-Za-z])((?:[2-7][0-9a-fA-F]|0[9adAD]){8,}+)(?![0-9A-Za-z])"
    f"|(?:{QUARTET}){{3}}(?:{BASE64_BREAK})?+"
    f"(?:[A-Za-z0-9+/_-]{{4}}(?:{BASE64_BREAK})?+)*+(?:[A-Za-z0-9+/_-]{{2,3}}={{0,2}})?+"
)
_URL_SAFE = str.maketrans("-_", "+/")


class TooManyMatches(LineUnfit):
    why = f"one of its texts has more than {MATCHES_MAX:,} matches of a rule"


class _Replacement(NamedTuple):
    start: int
    end: int
    by: str
    #: A rule for each match in it.
    rules: tuple[str, ...]


@dataclass(frozen=True)
class TextMask:
    rules: tuple[Rule, ...]
    screen: Screen
    #: Keys the digests in placeholders; asked for when there is something to mask.
    key: Callable[[], bytes]

    def mask(
        self, text: str, work: LineWork, name: str | None = None
    ) -> Steps[tuple[str, Counter[str]]]:
        """Mask a text, which may be the value of this name, and count the matches of each rule.
        Raises TooManyMatches and TooMuchWork."""
        spans: list[_Replacement] = []
        for piece in text_pieces(text):
            part = text[piece.start : piece.end]
            for span in (yield from self._spans(part, work, DEPTH_MAX)):
                start, end = span.start + piece.start, span.end + piece.start
                if end > piece.core_start and start < piece.core_end:
                    spans.append(span._replace(start=start, end=end))
        if opening := _opening(text, name):
            for span in (yield from self._spans(f'{opening}{text}"', work, 0)):
                start, end = span.start - len(opening), span.end - len(opening)
                if 0 <= start < end <= len(text):
                    spans.append(span._replace(start=start, end=end))
        if not spans:
            return text, Counter()
        replaced, matches = _replace(text, spans)
        if matches and max(matches.values()) > MATCHES_MAX:
            raise TooManyMatches
        return replaced, matches

    def passes(self, texts: Sequence[tuple[str, str | None]], work: LineWork) -> Steps[bool]:
        """Whether one scan shows that these texts, with their names, hold nothing."""
        content = "\n".join(_opening(text, name) + text for text, name in texts)
        yield from work.spend(len(content))
        return not self.screen.marks(content.encode("utf-8", "surrogatepass"))

    def _spans(self, text: str, work: LineWork, depth: int) -> Steps[list[_Replacement]]:
        yield from work.spend(len(text))
        marks = self.screen.marks(text.encode("utf-8", "surrogatepass"))
        if not marks:
            return []
        spans = yield from self._matches(text, marks, work)
        if any(mark >= 0 and self.rules[mark].joined for mark in marks):
            spans += yield from self._broken_matches(text, marks, work)
        if depth == 0:
            return spans
        for view in views(text, encoded=ENCODED in marks or "\\" in text):
            spans += yield from self._in_view(view, work, depth)
        if HIDDEN_WORD in marks:
            spans += yield from self._in_words(text, work, depth)
        return spans

    def _matches(self, text: str, marks: Marks, work: LineWork) -> Steps[list[_Replacement]]:
        spans: list[_Replacement] = []
        for mark in sorted(marks):
            if mark < 0:
                continue
            yield from work.spend(len(text))
            rule = self.rules[mark]
            for match in _few(rule.matches(text)):
                yield from work.spend(_MATCH_CHARS + len(match[0]))
                if (span := self._span(rule, text, match)) is not None:
                    spans.append(span)
        return spans

    def _span(self, rule: Rule, text: str, match: re.Match[str]) -> _Replacement | None:
        groups = match.groupdict()
        group = next((name for name in ("value", "bare") if groups.get(name)), 0)
        value, (start, end) = match[group], match.span(group)
        if PLACEHOLDER.search(value):
            return None
        if not rule.accepts(Candidate(text, match, value, start)):
            return None
        by = placeholder(rule.kind, rule.type, value, self.key())
        return _Replacement(start, end, by, (rule.id,))

    def _broken_matches(self, text: str, marks: Marks, work: LineWork) -> Steps[list[_Replacement]]:
        """Find tokens that go on in the next line."""
        spans: list[_Replacement] = []
        for rule in (
            rule for mark in sorted(marks) if mark >= 0 and (rule := self.rules[mark]).joined
        ):
            yield from work.spend(len(text))
            for head in rule.head.finditer(text):
                start = head.start()
                if _IN_WORD.match(text, max(start - 1, 0)) and start:
                    continue
                yield from work.spend(_BROKEN_WORK_CHARS)
                view = without_breaks(text[start : start + _BROKEN_CHARS_MAX], LINE_BREAKS)
                if (span := self._broken_span(rule, view)) is not None:
                    spans.append(span._replace(start=start + span.start, end=start + span.end))
        return spans

    def _broken_span(self, rule: Rule, view: View) -> _Replacement | None:
        """Match as few lines as the rule accepts, and those behind that look random."""
        found, found_end = None, -1
        for begin, end in pairwise([*view.begins, len(view.text)]):
            if found is not None and not (found_end == begin and goes_on(view.text, begin, end)):
                break
            match = rule.pattern.match(view.text, 0, end)
            span = self._span(rule, view.text, match) if match is not None else None
            if match is None or span is None or _IN_WORD.match(view.text[:end], match.end()):
                if found is not None:
                    break
                continue
            found, found_end = span, match.end()
        if found is None or len(view.begins) < 2 or found.end <= view.begins[1]:
            return None
        start, end = view.original(found.start, found.end)
        return found._replace(start=start, end=end)

    def _in_view(self, view: View, work: LineWork, depth: int) -> Steps[list[_Replacement]]:
        yield from work.spend(len(view.text) + _VIEW_PIECE_CHARS * len(view.begins))
        return [
            _Replacement(*view.original(span.start, span.end), span.by, span.rules)
            for span in (yield from self._spans(view.text, work, depth - 1))
        ]

    def _in_words(self, text: str, work: LineWork, depth: int) -> Steps[list[_Replacement]]:
        """Look into base64 and hexadecimal digits."""
        yield from work.spend(len(text))
        spans: list[_Replacement] = []
        together: list[tuple[re.Match[str], str]] = []
        size = 0
        for match in _HIDDEN_TEXT.finditer(text):
            decoded = _word_decoded(match)
            yield from work.spend(len(decoded))
            if together and size + len(decoded) > _DECODED_TOGETHER_CHARS:
                spans += yield from self._in_decoded(together, work, depth)
                together, size = [], 0
            together.append((match, decoded))
            size += len(decoded) + 1
        spans += yield from self._in_decoded(together, work, depth)
        return spans

    def _in_decoded(
        self, together: list[tuple[re.Match[str], str]], work: LineWork, depth: int
    ) -> Steps[list[_Replacement]]:
        """Mask decoded texts. One scan of all mostly shows that they hold nothing."""
        content = "\n".join(decoded for _, decoded in together)
        if not self.screen.marks(content.encode("utf-8", "surrogateescape")):
            return []
        spans: list[_Replacement] = []
        for match, decoded in together:
            inner = yield from self._spans(decoded, work, depth - 1)
            if inner:
                spans += _encoded_spans(match, decoded, inner)
        return spans


def _opening(text: str, name: str | None) -> str:
    """Write how JSON opens a short text: its name may tell that it is a secret."""
    return f'"{name}": "' if name and len(name) + len(text) <= ASSIGNED_CHARS_MAX else ""


def _few(matches: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    for number, match in enumerate(matches):
        if number == MATCHES_MAX:
            raise TooManyMatches
        yield match


def _word_decoded(word: re.Match[str]) -> str:
    if word[1]:
        return bytes.fromhex(word[1]).decode("ascii")
    encoded = without_breaks(word[0], BASE64_BREAKS).text.rstrip("=").translate(_URL_SAFE)
    encoded = encoded[:-1] if len(encoded) % 4 == 1 else encoded
    content = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
    return content.decode("utf-8", "surrogateescape")


def _encoded_spans(
    word: re.Match[str], decoded: str, inner: list[_Replacement]
) -> list[_Replacement]:
    """Replace a word whose decoded text had matches."""
    if word[1] or len(word[0]) <= _ENCODED_AGAIN_CHARS_MAX:
        masked, counts = _replace(decoded, inner)
        content = masked.encode("utf-8", "surrogateescape")
        by = content.hex() if word[1] else base64.b64encode(content).decode()
        return [_Replacement(*word.span(), by, tuple(counts.elements()))]
    lines = without_breaks(word[0], BASE64_BREAKS)
    spans: list[_Replacement] = []
    for span in inner:
        first = _bytes_of(decoded[: span.start]) // 3 * 4
        last = -(-_bytes_of(decoded[: span.end]) // 3) * 4
        start, end = lines.original(first, min(last, len(lines.text)))
        spans.append(span._replace(start=word.start() + start, end=word.start() + end))
    return spans


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _replace(text: str, spans: Iterable[_Replacement]) -> tuple[str, Counter[str]]:
    """Replace the spans. Of overlapping ones the longest is grown to hold the others. A match that
    was found in several encodings counts once."""
    parts: list[str] = []
    counts: Counter[str] = Counter()
    at = 0
    merged: list[tuple[_Replacement, Counter[str]]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        rules = Counter(span.rules)
        if merged and span.start < merged[-1][0].end:
            last, of_last = merged.pop()
            longer = max(last, span, key=lambda of: of.end - of.start)
            span = longer._replace(start=last.start, end=max(last.end, span.end))  # noqa: PLW2901
            rules |= of_last
        merged.append((span, rules))
    for span, rules in merged:
        parts += (text[at : span.start], span.by)
        counts += rules
        at = span.end
    return "".join([*parts, text[at:]]), counts
