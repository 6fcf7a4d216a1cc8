"""Redaction of lines: what of a producer's lines may go on, before anything of them is kept or
validated.

A line in which nothing is found goes on as it came, byte for byte. In another one each text is
masked where it stands, and the bytes between the texts stay as they are. Whatever goes wrong, the
line is refused: it never goes on as it was."""

import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Self

import msgspec

from penstock.events.validation import Rejection, source_of
from penstock.redaction.line_work import LineWork, Steps, outcome
from penstock.redaction.placeholders import PLACEHOLDER
from penstock.redaction.rules import Mode, RuleBook
from penstock.redaction.screen import MASKED, Marks, Screen, screen_of
from penstock.redaction.settings import RedactionSettings
from penstock.redaction.text_masks import TextMask
from penstock.redaction.token_ids import has_token_ids, session_of, without_token_ids
from penstock.settings import Settings

#: Sessions of which a process remembers that something was masked.
SESSIONS_MAX = 100_000
#: Bytes of a line that are screened before others have a turn.
_SCREENED_BYTES = 256 * 1024
#: No anchor has a longer match.
_ANCHOR_BYTES_MAX = 4096
#: The last word of a line that was cut may be half a secret.
_WORD_BYTES_MAX = 4096
_WORD_ENDS = b" \t\n\r\f\v\"',;"

#: With its quotes; in a shorter one no rule has a match.
_LITERAL_CHARS_MIN = 8
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_lenient_decoder = json.JSONDecoder(strict=False)
_KEY_ENDS = re.compile(r"\s*:")


@dataclass(frozen=True)
class RefusedLine:
    """A line that does not go on. `masked` is what may be kept of it, which may be nothing."""

    #: Counted from 0, in the lines that were given.
    place: int
    reason: str
    masked: bytes

    def rejection(self, first_line: int = 0) -> Rejection:
        """`first_line` is the number of the first of those lines."""
        return Rejection(first_line + self.place, self.reason, self.masked, source_of(self.masked))


class _Literal(NamedTuple):
    """A string with its quotes, in a text."""

    start: int
    end: int
    decoded: str


@dataclass
class RedactedLines:
    """As many lines as were given; a refused one is empty."""

    lines: list[bytes]
    refused: list[RefusedLine] = field(default_factory=list)
    #: How often each rule had a match; model calls that lost token ids count as `token_ids`.
    counts: Counter[str] = field(default_factory=Counter)


class LineRedactor:
    """Redacts the lines of all tenants that one process takes in."""

    def __init__(self, book: RuleBook, key: Callable[[], bytes]) -> None:
        self._modes = book.modes
        self._screen: Screen | None = screen_of(book.rules) if book.rules else None
        if self._screen is not None:
            self._mask = TextMask(book.rules, self._screen, key)
        self._sessions: OrderedDict[tuple[str, str], None] = OrderedDict()

    @classmethod
    def of(cls, settings: Settings, key: Callable[[], bytes]) -> Self:
        """Raises RedactionRulesInvalid."""
        return cls(settings.room(RedactionSettings).rule_book(), cache(key))

    def redact(self, lines: Sequence[bytes], tenant: str, line_bytes_max: int) -> RedactedLines:
        """A line that is longer than the limit was cut there."""
        return outcome(self.redact_in_turns(lines, tenant, line_bytes_max))

    def redact_in_turns(
        self, lines: Sequence[bytes], tenant: str, line_bytes_max: int
    ) -> Steps[RedactedLines]:
        """The same a step at a time, so that the caller may do something else in between."""
        redacted = RedactedLines(list(lines))
        if self._screen is None:
            return redacted
        work = LineWork()
        for place, line in enumerate(lines):
            try:
                if len(line) <= _SCREENED_BYTES:
                    marks = self._screen.marks(line)
                else:
                    marks = yield from _marks_of_long(self._screen, line)
                if marks or len(line) > line_bytes_max:
                    work.begin(len(line))
                    whole = len(line) <= line_bytes_max
                    yield from self._look_into(redacted, place, tenant, marks, work, whole=whole)
            except Exception as error:  # noqa: BLE001  # whatever it is, the line does not go on
                why = f"it could not be redacted: {type(error).__name__}"
                redacted.lines[place] = b""
                redacted.refused.append(RefusedLine(place, why, b""))
        return redacted

    def _look_into(
        self,
        redacted: RedactedLines,
        place: int,
        tenant: str,
        marks: Marks,
        work: LineWork,
        *,
        whole: bool,
    ) -> Steps[None]:
        line = redacted.lines[place]
        masked, counts = yield from self._masked(line, work)
        if not whole:
            redacted.lines[place] = _without_last_word(masked).ljust(len(line))
            redacted.counts += counts
            return
        masked = self._without_token_ids(masked, counts, tenant, masked_before=MASKED in marks)
        redacted.counts += counts
        mode, rule = self._strictest(counts)
        if mode in ("drop", "quarantine"):
            kept = masked if mode == "quarantine" else b""
            why = f"the redaction rule {rule} has the mode {mode}"
            redacted.refused.append(RefusedLine(place, why, kept))
            masked = b""
        redacted.lines[place] = masked

    def mask_line(self, line: bytes) -> tuple[bytes, Counter[str]]:
        """The line with placeholders, and how often each rule had a match."""
        if self._screen is None:
            return line, Counter()
        work = LineWork()
        work.begin(len(line))
        return outcome(self._masked(line, work))

    def _masked(self, line: bytes, work: LineWork) -> Steps[tuple[bytes, Counter[str]]]:
        counts: Counter[str] = Counter()
        text = line.decode("utf-8", "surrogateescape")
        if is_json(line):
            masked = yield from self._mask_strings(text, _literals(text), work, counts)
        else:
            literals = _literals_of_broken(text)
            masked = yield from self._mask_strings(text, literals, work, counts)
            as_text = yield from self._mask.mask(masked, work)
            masked, counts = as_text.text, counts + as_text.counts
        if not counts:
            return line, counts
        return masked.encode("utf-8", "surrogateescape"), counts

    def _mask_strings(
        self, text: str, literals: Iterator[_Literal], work: LineWork, counts: Counter[str]
    ) -> Steps[str]:
        parts: list[str] = []
        at, name = 0, None
        for literal in literals:
            is_key = _KEY_ENDS.match(text, literal.end) is not None
            if literal.end - literal.start < _LITERAL_CHARS_MIN:
                if work.ends_turn(0):
                    yield
                name = literal.decoded if is_key else None
                continue
            masked = yield from self._mask.mask(literal.decoded, work, name)
            name = literal.decoded if is_key else None
            if masked.counts:
                counts += masked.counts
                parts += (text[at : literal.start], _encoded(masked.text))
                at = literal.end
        return "".join([*parts, text[at:]])

    def _without_token_ids(
        self, line: bytes, counts: Counter[str], tenant: str, *, masked_before: bool
    ) -> bytes:
        """A call's ids decode to its text, and to what its session said before."""
        tokens = has_token_ids(line)
        was_masked = bool(counts) or (
            masked_before and PLACEHOLDER.search(line.decode("latin-1")) is not None
        )
        if not was_masked and not (tokens and self._sessions):
            return line
        session = session_of(line)
        if session is None:
            return line
        if was_masked:
            self._sessions[tenant, session] = None
            self._sessions.move_to_end((tenant, session))
            if len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
        if not tokens or (tenant, session) not in self._sessions:
            return line
        counts["token_ids"] += 1
        return without_token_ids(line)

    def _strictest(self, counts: Counter[str]) -> tuple[Mode, str]:
        for mode in ("drop", "quarantine"):
            for rule in counts:
                if self._modes.get(rule) == mode:
                    return self._modes[rule], rule
        return "mask", ""


def _marks_of_long(screen: Screen, line: bytes) -> Steps[Marks]:
    marks: Marks = frozenset()
    for start in range(0, len(line), _SCREENED_BYTES):
        marks |= screen.marks(line[start : start + _SCREENED_BYTES + _ANCHOR_BYTES_MAX])
        yield
    return marks


def _without_last_word(line: bytes) -> bytes:
    word = line[-_WORD_BYTES_MAX:]
    return line[: len(line) - len(word) + max(map(word.rfind, _WORD_ENDS)) + 1]


def is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _literals(json_text: str) -> Iterator[_Literal]:
    """The strings of a JSON document."""
    start = json_text.find('"')
    while start >= 0:
        decoded, end = _lenient_decoder.raw_decode(json_text, start)
        yield _Literal(start, end, decoded)
        start = json_text.find('"', end)


def _literals_of_broken(text: str) -> Iterator[_Literal]:
    """Those of a text that is no JSON document, up to one without an end."""
    start = text.find('"')
    while start >= 0 and (match := _STRING.match(text, start)):
        try:
            decoded = str(_lenient_decoder.decode(match[0]))
        except ValueError:
            decoded = match[0][1:-1]
        yield _Literal(start, match.end(), decoded)
        start = text.find('"', match.end())


def _encoded(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # surrogates
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)
