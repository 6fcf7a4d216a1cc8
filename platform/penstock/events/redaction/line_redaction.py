"""Redaction of a producer's lines, before anything of them is kept.

A line without a match goes on byte for byte. In another one only the texts with a match change.
Where redaction fails, the line is refused: it never goes on as it was."""

import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import structlog

from penstock.core.settings import Settings
from penstock.events.frames import Sign
from penstock.events.redaction import KindModes, Mode, RedactionSettings, SourceRule
from penstock.events.redaction.placeholders import (
    PLACEHOLDER,
    has_token_ids,
    session_of,
    without_token_ids,
)
from penstock.events.redaction.rules import (
    MASKED,
    TOKEN_IDS,
    Marks,
    RuleBook,
    Screen,
    rule_book_of,
    screen_of,
)
from penstock.events.redaction.text_masks import TextMask
from penstock.events.redaction.text_views import LineUnfit, LineWork, Steps, outcome
from penstock.events.validation import Rejection, source_of

#: Sessions of which a process remembers that something was masked.
SESSIONS_MAX = 100_000
#: Screened before others have a turn.
_SCREENED_BYTES = 256 * 1024
#: Lines that are screened as one: a scan costs as much to begin as half a kilobyte of it.
_SCREENED_LINES = 8
#: No anchor has a longer match.
_ANCHOR_BYTES_MAX = 4096
#: The last word of a line that was cut may be half a secret.
_WORD_BYTES_MAX = 4096
_WORD_ENDS = b" \t\n\r\f\v\"',;"

#: With its quotes; no rule matches a shorter one.
_LITERAL_CHARS_MIN = 8
#: One scan shows that there is nothing in any of them.
_LITERALS_TOGETHER, _CHARS_TOGETHER = 8, 4096
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_lenient_decoder = json.JSONDecoder(strict=False)
#: Of settings that are listed as pairs of a name and a value.
_NAMES_OF_PAIRS, _VALUES_OF_PAIRS = ("name", "key", "Name"), ("value", "Value")
_KEY_ENDS = re.compile(r"\s*:\s*")
#: A line without other marks has nothing that a rule masks.
_MASK_NOTHING = {MASKED, TOKEN_IDS}

log_line = structlog.get_logger()


class _Literal(NamedTuple):
    """A string with its quotes, in a text. `name` is the key of a value of a JSON object."""

    start: int
    end: int
    decoded: str
    name: str | None = None


@dataclass
class RedactedLines:
    """The lines in their order; a refused one is empty."""

    lines: list[bytes]
    #: Refused lines, with what may be kept of them. They count from 0.
    refused: list[Rejection] = field(default_factory=list)
    #: Matches of each rule; model calls that lost token ids count as `token_ids`.
    matches: Counter[SourceRule] = field(default_factory=Counter)
    #: What the lines may hold; None where nobody looked.
    signs: list[Sign] | None = None

    def count(self, line: bytes, counts: Counter[str]) -> None:
        """Count the matches in a line, which is masked by now."""
        if counts:
            source = source_of(line) or ""
            self.matches.update({SourceRule(source, rule): n for rule, n in counts.items()})

    def refuse(self, place: int, reason: str, kept: bytes) -> None:
        self.lines[place] = b""
        self.refused.append(Rejection(place, reason, kept, source_of(kept)))


class RulesInUse:
    """The rules of a book, ready for use. Without rules nothing is scanned."""

    def __init__(self, book: RuleBook, key: Callable[[], bytes], folder: Path | None) -> None:
        self.modes = book.modes
        self.screen: Screen | None = screen_of(book.rules, folder) if book.rules else None
        self.mask = TextMask(book.rules, self.screen, key) if self.screen is not None else None

    def strictest(self, counts: Counter[str]) -> tuple[Mode, str]:
        """Find the strictest mode of the rules that had a match, and the rule."""
        for mode in ("drop", "quarantine"):
            for rule in counts:
                if self.modes.get(rule) == mode:
                    return self.modes[rule], rule
        return "mask", ""


#: Gives a tenant's own modes; None means the settings. Where it raises, no line is taken in.
ModesOf = Callable[[str], KindModes | None]


class LineRedactor:
    """Redacts the lines of all tenants of one process."""

    def __init__(
        self,
        book: RuleBook,
        key: Callable[[], bytes],
        *,
        modes_of: ModesOf = lambda _tenant: None,
        book_of: Callable[[KindModes], RuleBook] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._default = RulesInUse(book, key, folder)
        self._modes_of = modes_of
        self._own = cache(
            lambda modes: RulesInUse(book_of(modes) if book_of else book, key, folder)
        )
        self._sessions: OrderedDict[tuple[str, str], None] = OrderedDict()

    @classmethod
    def of(
        cls, settings: Settings, key: Callable[[], bytes], modes_of: ModesOf = lambda _tenant: None
    ) -> Self:
        room = settings.room(RedactionSettings)
        book_of = partial(rule_book_of, room)
        folder = settings.data if settings.data.is_dir() else None
        return cls(book_of(), cache(key), modes_of=modes_of, book_of=book_of, folder=folder)

    def _rules_of(self, tenant: str) -> RulesInUse:
        modes = self._modes_of(tenant)
        return self._default if modes is None else self._own(modes)

    def redact(self, lines: Sequence[bytes], tenant: str, line_bytes_max: int) -> RedactedLines:
        """Redact lines. One over the limit was cut there by the caller."""
        return outcome(self.redact_in_turns(lines, tenant, line_bytes_max))

    def redact_in_turns(
        self, lines: Sequence[bytes], tenant: str, line_bytes_max: int
    ) -> Steps[RedactedLines]:
        """Redact step by step. Raises what reading the tenant's modes raises."""
        redacted = RedactedLines(list(lines))
        rules = self._rules_of(tenant)
        if rules.screen is None:
            return redacted
        work = LineWork()
        seen: Marks = frozenset()
        quiet = True  # where one line has marks, the next ones often do
        for start in range(0, len(lines), _SCREENED_LINES):
            together = lines[start : start + _SCREENED_LINES]
            if quiet and _without_marks(rules.screen, together, line_bytes_max):
                continue
            quiet = True
            for place, line in enumerate(together, start):
                try:
                    if len(line) <= _SCREENED_BYTES:
                        marks = rules.screen.marks(line)
                    else:
                        marks = yield from _marks_of_long(rules.screen, line)
                    if marks or len(line) > line_bytes_max:
                        seen, quiet = seen | marks, False
                        work.begin(len(line))
                        whole = len(line) <= line_bytes_max
                        yield from self._look_into(
                            redacted, place, tenant, rules, marks=marks, work=work, whole=whole
                        )
                except Exception as error:  # noqa: BLE001  # whatever it is, the line does not go on
                    why = error.why if isinstance(error, LineUnfit) else "redaction itself failed"
                    if not isinstance(error, LineUnfit):
                        # Its text may quote the line.
                        log_line.warning("a line could not be redacted", why=type(error).__name__)
                    redacted.refuse(place, f"it could not be redacted: {why}", b"")
        redacted.signs = ["token_ids"] if TOKEN_IDS in seen else []
        if redacted.matches or MASKED in seen:
            redacted.signs.append("placeholders")
        return redacted

    def _look_into(
        self,
        redacted: RedactedLines,
        place: int,
        tenant: str,
        rules: RulesInUse,
        *,
        marks: Marks,
        work: LineWork,
        whole: bool,
    ) -> Steps[None]:
        line = redacted.lines[place]
        masked, counts = line, Counter[str]()
        if marks - _MASK_NOTHING or not whole:
            masked, counts = yield from _masked(rules, line, work)
        if not whole:
            redacted.lines[place] = _without_last_word(masked).ljust(len(line))
            redacted.count(masked, counts)
            return
        masked_before = MASKED in marks
        masked = self._without_token_ids(masked, counts, tenant, masked_before=masked_before)
        redacted.count(masked, counts)
        mode, rule = rules.strictest(counts)
        if mode in ("drop", "quarantine"):
            kept = masked if mode == "quarantine" else b""
            redacted.refuse(place, f"the redaction rule {rule} has the mode {mode}", kept)
        else:
            redacted.lines[place] = masked

    def mask_line(self, line: bytes) -> tuple[bytes, Counter[str]]:
        """Mask a line by the settings, and count the matches of each rule."""
        if self._default.screen is None:
            return line, Counter()
        work = LineWork()
        work.begin(len(line))
        return outcome(_masked(self._default, line, work))

    def _without_token_ids(
        self, line: bytes, counts: Counter[str], tenant: str, *, masked_before: bool
    ) -> bytes:
        """Remove token ids from a call: they decode to its text and to earlier texts."""
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


def _masked(rules: RulesInUse, line: bytes, work: LineWork) -> Steps[tuple[bytes, Counter[str]]]:
    assert rules.mask is not None
    counts: Counter[str] = Counter()
    text = line.decode("utf-8", "surrogateescape")
    masked = yield from _mask_strings(rules.mask, text, _literals(text), work, counts)
    if not is_json(line):
        masked, of_text = yield from rules.mask.mask(masked, work)
        counts += of_text
    if not counts:
        return line, counts
    return masked.encode("utf-8", "surrogateescape"), counts


def _mask_strings(
    mask: TextMask, text: str, literals: Iterator[_Literal], work: LineWork, counts: Counter[str]
) -> Steps[str]:
    parts: list[str] = []
    at = 0
    for together in _together(_named(text, literals)):
        if len(together) > 1:
            texts = [(literal.decoded, literal.name) for literal in together]
            if (yield from mask.passes(texts, work)):
                continue
        for literal in together:
            masked, found = yield from mask.mask(literal.decoded, work, literal.name)
            if found:
                counts += found
                parts += (text[at : literal.start], _encoded(masked))
                at = literal.end
    return "".join([*parts, text[at:]])


def _named(text: str, literals: Iterator[_Literal]) -> Iterator[_Literal]:
    """Choose literals that are long enough to hold something, values with their names."""
    name, label, value_start = "", "", -1
    for literal in literals:
        if literal.start == value_start and name in _NAMES_OF_PAIRS:
            label = literal.decoded
        elif name in _VALUES_OF_PAIRS:
            name = label
        if literal.end - literal.start >= _LITERAL_CHARS_MIN:
            # Not by `_replace`, which takes longer than all else here.
            yield _Literal(*literal[:3], name if literal.start == value_start else None)
        if key_ends := _KEY_ENDS.match(text, literal.end):
            name, value_start = literal.decoded, key_ends.end()


def _together(literals: Iterator[_Literal]) -> Iterator[list[_Literal]]:
    """Group short literals. A long one is alone."""
    together: list[_Literal] = []
    chars = 0
    for one in literals:
        more = len(one.decoded)
        if together and (len(together) == _LITERALS_TOGETHER or chars + more > _CHARS_TOGETHER):
            yield together
            together, chars = [], 0
        together.append(one)
        chars += more
    if together:
        yield together


def _without_marks(screen: Screen, lines: Sequence[bytes], line_bytes_max: int) -> bool:
    """Whether one scan shows that no line holds anything."""
    longest = max(map(len, lines))
    if longest > line_bytes_max or len(lines) * longest > _SCREENED_BYTES:
        return False
    try:
        return not screen.marks(b"\n".join(lines))
    except Exception:  # noqa: BLE001  # which line it is shows when each is scanned
        return False


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


def _literals(text: str) -> Iterator[_Literal]:
    """Find the strings of a JSON document, or of a text that is none up to one without an end."""
    start = text.find('"')
    while start >= 0:
        try:
            decoded, end = _lenient_decoder.raw_decode(text, start)
        except ValueError:
            match = _STRING.match(text, start)
            if match is None:
                return
            decoded, end = match[0][1:-1], match.end()
        yield _Literal(start, end, decoded)
        start = text.find('"', end)


def _encoded(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # surrogates
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)
