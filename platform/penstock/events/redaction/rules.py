"""The rules of redaction, built in and the operator's own, and the screen.

The screen finds which rules may match some bytes. With hyperscan one scan of a line takes
microseconds. Without it the rules are tried one by one: the same answers, forty times slower."""

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import make_private_once
from penstock.core.toml_document import (
    Positive,
    parse_toml,
    read_section,
    read_text,
    refuse_unknown,
)
from penstock.events.redaction import KindModes, Mode, RedactionSettings
from penstock.events.redaction.checks import CHECKS, Candidate
from penstock.events.redaction.placeholders import Kind


class RedactionRulesInvalid(PenstockError, exit_status=2):
    """The redaction rules {file} cannot be used: {why}. Nothing is taken in without them."""


#: The version of the file's format.
VERSION = 1
#: How far before a word of a rule its match may begin.
WORD_REACH_CHARS = 16
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
#: What finite automata cannot do.
_LOOKS_AROUND = re.compile(r"\(\?(?:<?[=!]|P=|>|\(|[a-zA-Z]*-)|[*+?}]\+|\\[1-9bBAZz]")
_BUILT_IN = "rules.toml"


@dataclass(frozen=True)
class Rule:
    """The look of one kind of secret. rules.toml explains the fields."""

    id: str
    kind: Kind
    type: str
    anchor: bytes
    text: str
    checks: tuple[Callable[[Candidate], bool], ...] = ()
    #: One of them is in each match; unknown where it is empty.
    needles: tuple[str, ...] = ()
    #: The needles, in small letters, where one begins in the first `WORD_REACH_CHARS` of a match.
    words: tuple[str, ...] = ()
    joined: bool = False
    mode: Mode | None = None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Find matches. A rule with words is tried only around them: trying a pattern with many
        alternatives at each place takes long."""
        lowered = text.lower() if self.words else ""
        if len(lowered) != len(text):  # small letters may be more than one
            yield from self.pattern.finditer(text)
            return
        begin = 0
        for place in _places(lowered, self.words):
            for start in range(max(begin, place - WORD_REACH_CHARS), place + 1):
                begin = start + 1
                if (match := self.pattern.match(text, start)) is not None:
                    yield match
                    begin = match.end()
                    break

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.text, re.DOTALL)

    @cached_property
    def head(self) -> re.Pattern[str]:
        return re.compile(self.anchor.decode(), re.DOTALL)

    def accepts(self, candidate: Candidate) -> bool:
        return all(check(candidate) for check in self.checks)


class RuleBook(msgspec.Struct, frozen=True):
    """The rules in use, each with its mode."""

    rules: tuple[Rule, ...]
    modes: Mapping[str, Mode]


def _places(lowered: str, words: Sequence[str]) -> list[int]:
    places: list[int] = []
    for word in words:
        at = lowered.find(word)
        while at >= 0:
            places.append(at)
            at = lowered.find(word, at + 1)
    return sorted(places)


def rule_book(secrets: Mode, personal: Mode, own_file: Path | None = None) -> RuleBook:
    """Make the book. The operator's rules replace built-in ones of the same id. Raises
    RedactionRulesInvalid."""
    rules = {rule.id: rule for rule in built_in_rules()}
    if own_file is not None:
        rules |= {rule.id: rule for rule in _read_own(own_file, rules)}
    kinds: dict[Kind, Mode] = {"secret": secrets, "personal": personal}
    modes = {rule.id: rule.mode or kinds[rule.kind] for rule in rules.values()}
    used = tuple(rule for rule in rules.values() if modes[rule.id] != "off")
    return RuleBook(used, {rule.id: modes[rule.id] for rule in used})


def built_in_rules() -> list[Rule]:
    content = files("penstock.events.redaction").joinpath(_BUILT_IN).read_text("utf-8")
    return list(_parse(content, _BUILT_IN, {}))


def _read_own(file: Path, known: Mapping[str, Rule]) -> Iterable[Rule]:
    try:
        return list(_parse(read_text(file), str(file), known))
    except InvalidInput as error:
        why = f"{error.facts['what']}: {error.facts['why']}"
        raise RedactionRulesInvalid(file=file, why=why) from error


@dataclass(frozen=True)
class _RuleText:
    """A rule as it is written."""

    id: str
    kind: Kind = "secret"
    type: str | None = None
    anchor: str | None = None
    anchors: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    pattern: str | None = None
    needles: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    joined: bool = False
    mode: Mode | None = None


@dataclass(frozen=True)
class _RulesText:
    version: Positive
    shapes: str = ""
    rule: tuple[_RuleText, ...] = ()


def _parse(content: str, where: str, known: Mapping[str, Rule]) -> Iterable[Rule]:
    written = read_section(_RulesText, parse_toml(content, where), where)
    if written.version != VERSION:
        raise InvalidInput(what=where, why=f"its first line is not: version = {VERSION}")
    shaped = [_shaped(*row.split(" ", 1)) for row in written.shapes.splitlines()]
    for place, rule in enumerate((*shaped, *written.rule), 1):
        yield _rule(rule, f"rule {place} of {where}", known)


def _shaped(id_: str, shapes: str) -> _RuleText:
    """Make the rule of tokens that are known by how they begin."""
    anchors, patterns, needles = [], [], []
    for *begins, content in map(str.split, shapes.split(" ; ")):
        needles += begins
        for begin in begins:
            # A short beginning stands in words too; a long one may have a line break soon.
            chars = 11 if len(begin) < 4 else 6 if len(begin) < 6 else 4
            text = re.escape(begin)
            anchors.append(f"{text}{content.partition('{')[0]}{{{chars}}}")
            patterns.append((f"(?<={text})" if begin[-1] in "=/" else text) + content)
    pattern = f"(?<![A-Za-z0-9])(?:{'|'.join(patterns)})(?![A-Za-z0-9])"
    return _RuleText(
        id_, anchor="|".join(anchors), pattern=pattern, needles=tuple(needles),
        checks=("no_example",), joined=True,
    )  # fmt: skip


def _rule(written: _RuleText, where: str, known: Mapping[str, Rule]) -> Rule:
    type_ = written.type or written.id
    if not (_NAME.fullmatch(written.id) and _NAME.fullmatch(type_)):
        why = "id and type have to be small letters, digits and underscores"
        raise InvalidInput(what=where, why=why)
    if written.id in known and written == _RuleText(written.id, mode=written.mode):
        return replace(known[written.id], mode=written.mode)
    before = f"(?:{'|'.join(written.after)})" if written.after else ""
    pattern = before + (written.pattern or "")
    anchor = "|".join(written.anchors) or written.anchor or pattern
    if known:  # an operator's; tests compile those built in
        _refuse_unfit(pattern, "pattern", where)
        _refuse_unfit(anchor, "anchor", where)
    if _LOOKS_AROUND.search(anchor):
        why = "anchor, or the pattern without one, looks around, back or for the border of a word"
        raise InvalidInput(what=where, why=why)
    refuse_unknown(written.checks, CHECKS, f"checks of {where}")
    words = tuple(map(str.lower, written.words))
    return Rule(
        id=written.id,
        kind=written.kind,
        type=type_,
        anchor=anchor.encode(),
        text=pattern,
        checks=tuple(CHECKS[name] for name in written.checks),
        needles=written.needles or words,
        words=words,
        joined=written.joined,
        mode=written.mode,
    )


def _refuse_unfit(text: str, key: str, where: str) -> None:
    try:
        compiled = re.compile(text, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(what=where, why=f"{key} is no regular expression: {error}") from error
    if compiled.search("") is not None:
        raise InvalidInput(what=where, why=f"{key} matches the empty text")


def rule_book_of(settings: RedactionSettings, modes: KindModes | None = None) -> RuleBook:
    """Make the book for these modes, or for the settings alone. Raises RedactionRulesInvalid."""
    own = Path(settings.redaction_rules_file) if settings.redaction_rules_file else None
    return rule_book(*(modes or settings.modes), own)


# The screen: which rules may match some bytes

#: Marks beside the indexes of rules: encodings that may hide a secret, words that may be a text in
#: base64 or in hexadecimal digits, token ids, placeholders.
ENCODED, HIDDEN_WORD, TOKEN_IDS, MASKED = range(-1, -5, -1)

# Base64 of plain text: the high bit of each byte is 0, which leaves half of the letters in three of
# four places.
QUARTET = "[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
_HIDING = {
    ENCODED: r"\\(?:u00(?:[2-7][0-9a-fA-F]|1[bB]|[aA][dD])|u20(?:0[b-dB-D]|60)|u[fF][eE][fF]{2}"
    r"|x[2-7][0-9a-fA-F]|x1[bB]|1[0-7]{2}|0[4-7][0-7]|0?33[\[\]]|e\[)"
    r"|%(?:25)*[0-7][0-9A-Fa-f]|&(?:#[0-9]{1,5}|#[xX][0-9A-Fa-f]{1,4}|[A-Za-z]{2,9});"
    r"|\x1b[\[\]()]|\[[0-9]{1,3}(?:;[0-9]{1,3}){0,4}m|\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0",
    MASKED: r"\[(?:SECRET|PERSONAL):",
    TOKEN_IDS: r'"(?:prompt_ids|completion_ids)"',
}

Marks = frozenset[int]
NOTHING: Marks = frozenset()


class Screen(Protocol):
    def marks(self, content: bytes) -> Marks:
        """Find the indexes of rules that may match, and the marks above."""


def screen_of(rules: Sequence[Rule], folder: Path | None = None) -> Screen:
    """Make the screen. One that is compiled is kept in the folder, for the next process."""
    return _compiled_screen(tuple((rule.anchor, rule.needles) for rule in rules), folder)


@cache  # tenants with other modes have the same rules
def _compiled_screen(
    of_rules: tuple[tuple[bytes, tuple[str, ...]], ...], folder: Path | None
) -> Screen:
    anchors = [*enumerate(anchor for anchor, _ in of_rules)]
    anchors += [(mark, pattern.encode()) for mark, pattern in _HIDING.items()]
    words = _hidden_words([needles for _, needles in of_rules])
    for at in range(0, len(words), _WORDS_AT_ONCE):
        anchors.append((HIDDEN_WORD, "|".join(words[at : at + _WORDS_AT_ONCE]).encode()))
    try:
        return _ScreenAtOnce(anchors, folder)
    except ImportError:
        return _ScreenOneByOne(anchors)


#: For rules without needles.
_ANY_BASE64 = f"(?:{QUARTET}){{5}}"
#: A shorter needle would be in any image.
_NEEDLE_CHARS_MIN = 3
#: In longer patterns of Hyperscan each word takes longer to compile, in shorter ones to scan.
_WORDS_AT_ONCE = 20


def _hidden_words(needles_of_rules: Sequence[Sequence[str]]) -> list[str]:
    """Find the needles in base64, base64 of base64 and hexadecimal digits: looking for them is much
    quicker than for any text."""
    words: set[str] = set() if all(needles_of_rules) else {_ANY_BASE64}
    for needle in {needle for needles in needles_of_rules for needle in needles}:
        names = needle.isalpha() and needle.islower()
        if len(needle) < _NEEDLE_CHARS_MIN:
            continue
        for case in {needle, needle.upper(), needle.capitalize()} if names else {needle}:
            content = case.encode()
            once = set(_in_base64(content))
            twice = {word for one in once if "[" not in one for word in _in_base64(one.encode())}
            words |= {content.hex(), content.hex().upper()}
            if all(needles_of_rules):
                words |= once if names else once | twice
    return sorted(words)


def _in_base64(content: bytes) -> Iterator[str]:
    """Encode what begins at any byte of three; of a short one all letters of its ends."""
    for before in range(3):
        bits = 8 * before, 8 * (before + len(content))
        if len(content) > _NEEDLE_CHARS_MIN:
            whole = slice(-(-bits[0] // 6), bits[1] // 6)
            yield re.escape(base64.b64encode(bytes(before) + content)[whole].decode())
            continue
        places = slice(bits[0] // 6, -(-bits[1] // 6))
        filled = (
            base64.b64encode(bytes([fill]) * before + content + bytes([fill]) * 2).decode()[places]
            for fill in range(0, 256, 17)  # all values of either half of a byte
        )
        letters = ["".join(sorted(set(of_place))) for of_place in zip(*filled, strict=True)]
        yield "".join(re.escape(of) if len(of) == 1 else f"[{re.escape(of)}]" for of in letters)


class _ScreenAtOnce:
    def __init__(self, anchors: list[tuple[int, bytes]], folder: Path | None) -> None:
        self._marks, expressions = zip(*anchors, strict=True)
        self._database = _kept_database(expressions, folder) if folder else _database(expressions)
        # The memory of a scan serves one thread at a time.
        self._lock = threading.Lock()
        self._matched: list[int] = []

    def marks(self, content: bytes) -> Marks:
        with self._lock:
            self._database.scan(content, match_event_handler=self._note)
            if not self._matched:
                return NOTHING
            matched = frozenset(self._marks[number] for number in self._matched)
            self._matched.clear()
        return matched

    def _note(self, number: int, *_place: object) -> None:
        self._matched.append(number)


def _database(expressions: Sequence[bytes]) -> Any:
    import hyperscan

    compiled = hyperscan.Database()
    count = len(expressions)
    flags = [hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_MULTILINE] * count
    try:
        compiled.compile(
            expressions=list(expressions), ids=list(range(count)), elements=count, flags=flags
        )
    except hyperscan.error as error:
        why = f"an anchor is too large or not supported: {error}"
        raise RedactionRulesInvalid(file="in use", why=why) from error
    return compiled


def _kept_database(expressions: Sequence[bytes], folder: Path) -> Any:
    """Load the database that a process before has compiled, which takes half a second. Hyperscan
    refuses one that is damaged, or of another version or processor."""
    import hyperscan

    digest = hashlib.sha256(repr(expressions).encode()).hexdigest()
    file = folder / f"redaction-{digest[:16]}.screen"
    with suppress(OSError, hyperscan.error):
        loaded = hyperscan.loadb(file.read_bytes(), hyperscan.HS_MODE_BLOCK)
        loaded.scratch = hyperscan.Scratch(loaded)
        return loaded
    compiled = _database(expressions)
    with suppress(OSError):
        file.unlink(missing_ok=True)
        make_private_once(file, hyperscan.dumpb(compiled))
    return compiled


class _ScreenOneByOne:
    def __init__(self, anchors: list[tuple[int, bytes]]) -> None:
        flags = re.DOTALL | re.MULTILINE
        self._anchors = [(mark, re.compile(anchor, flags)) for mark, anchor in anchors]

    def marks(self, content: bytes) -> Marks:
        return frozenset(mark for mark, anchor in self._anchors if anchor.search(content))
