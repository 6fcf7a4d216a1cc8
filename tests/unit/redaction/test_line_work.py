"""What hostile lines cost: looked at a bounded number of times, and in turns. Work is counted, not
timed: some of these texts took minutes and more."""

import base64
import json
import random
from collections.abc import Sequence
from functools import cache

import pytest

from penstock.events.redaction import SourceRule, line_redaction
from penstock.events.redaction import text_views as line_work
from penstock.events.redaction.line_redaction import LineRedactor, RedactedLines
from penstock.events.redaction.placeholders import PLACEHOLDER
from penstock.events.redaction.rules import Marks, Rule, rule_book, screen_of
from penstock.events.redaction.text_masks import MATCHES_MAX, TooManyMatches
from penstock.events.redaction.text_views import CORE_CHARS, LineWork, TooMuchWork, outcome
from tests.support.planted_secrets import ENCODINGS, SHAPED, aws_key

LINE_CHARS = 300_000
LIMIT = 1 << 24
AWS = "AK" + "IA"


def event(text: str) -> bytes:
    fields = {"session_id": "s", "ts": "2026-11-21T10:00:00Z", "type": "x_test"}
    return json.dumps(fields | {"payload": {"text": text}}).encode()


def repeated(text: str, chars: int = LINE_CHARS) -> str:
    return (text * (chars // len(text) + 1))[:chars]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@cache
def hostile_lines() -> dict[str, bytes]:
    words = [encoded(f"word {number} and so on") for number in range(500)]
    nested = repeated("plain text with nothing in it ", LINE_CHARS // 4)
    for _ in range(5):
        nested = encoded(nested)
    json_texts = [json.dumps({"a": f"x\n{number}"}) for number in range(20_000)]
    return {
        "base64 words": event(repeated(" ".join(words))),
        "base64 lines": event(repeated("\n".join(words))),
        "base64 of base64": event(nested),
        "base64 with anchors": event(repeated(encoded(f"password= {AWS}AAAA") + " ")),
        "assignments": event(repeated("token=")),
        "unended values": event(repeated("pwd=")),
        "phones": event(repeated("+1" + "2" * 60 + "x ")),
        "addresses": event(repeated("a:a:a:a:a:a:a" + "b" * 24 + "_ ")),
        "percent": event(repeated("%41%42")),
        "percent of percent": event(repeated("%2541")),
        "back-slashes": b'{"a":"' + (AWS + "AAAA" + repeated("\\")).encode(),
        "escaped quotes": (AWS + 'AAAA "' + repeated('\\"')).encode(),
        "a quote and spaces": event(f"{AWS}AAAA'" + repeated(" ")),
        "line breaks": event(f"{AWS}AAAA" + repeated("a\n")),
        "one word": event(f"{AWS}AAAA" + repeated("a")),
        "letters of all kinds": event(f"{AWS}AAAA" + repeated("é中😀", LINE_CHARS // 8)),
        "JSON texts": json.dumps({"payload": json_texts, "x": AWS + "AAAA"}).encode(),
        "empty texts": b'["%bAAAA",%b]' % (AWS.encode(), b",".join([b'""'] * 100_000)),
        "secret names": json.dumps({f"password_{n}": f"h7kQ92{n}" for n in range(9_000)}).encode(),
        "deep JSON": b"[" * 200_000 + b'"%bAAAA"' % AWS.encode() + b"]" * 200_000,
        "forged placeholders": event(repeated("[SECRET:aws_key:0123456789abcdef]")),
        "beginnings of placeholders": event(repeated("[SECRET:")),
        "private keys": event(repeated("-----BEGIN PRIVATE " + "KEY-----nrnr+A")),
    }


class CountingScreen:
    def __init__(self, rules: Sequence[Rule]) -> None:
        self._screen = screen_of(rules)
        self.scans = self.scanned = self.of_turn = 0

    def marks(self, content: bytes) -> Marks:
        self.scans += 1
        self.scanned += len(content)
        self.of_turn += len(content)
        return self._screen.marks(content)


@pytest.mark.parametrize("shape", hostile_lines())
def test_a_hostile_line_is_looked_at_a_few_times_and_in_turns(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screens: list[CountingScreen] = []

    def counting(rules: Sequence[Rule], _folder: object) -> CountingScreen:
        screens.append(CountingScreen(rules))
        return screens[0]

    monkeypatch.setattr(line_redaction, "screen_of", counting)
    redactor = LineRedactor(rule_book("mask", "mask"), lambda: b"k")
    line = hostile_lines()[shape]
    of_turns = []
    for _ in redactor.redact_in_turns([line], "default", LIMIT):
        of_turns.append(screens[0].of_turn)
        screens[0].of_turn = 0
    assert screens[0].scanned < 12 * len(line)
    assert max(of_turns) < 300_000
    if shape == "base64 words":
        assert screens[0].scans < len(line) / 1_000


def redacted_after(line: bytes) -> tuple[RedactedLines, int]:
    """With how many turns others had."""
    steps = LineRedactor(rule_book("mask", "mask"), lambda: b"k").redact_in_turns(
        [line], "default", LIMIT
    )
    for turns in range(1_000_000):
        try:
            next(steps)
        except StopIteration as end:
            redacted: RedactedLines = end.value
            return redacted, turns
    raise AssertionError


def test_a_line_that_wants_more_work_than_its_size_allows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anchors = " ".join(encoded(f"token= {AWS}AAAA pwd= 1.1.1.1 a1@b.cc") for _ in range(1_000))
    line = event(anchors)
    assert redacted_after(line)[0].refused == []
    monkeypatch.setattr(line_work, "_ANY_LINE_CHARS", 0)
    monkeypatch.setattr(line_work, "LOOKS_MAX", 4)
    redacted, _ = redacted_after(line)
    assert redacted.lines == [b""]
    assert redacted.refused[0].reason == f"it could not be redacted: {TooMuchWork.why}"


def test_work_is_counted_for_each_line() -> None:
    work = LineWork()
    work.begin(1_000)
    while work.left_chars > line_work.TURN_CHARS:
        outcome(work.spend(1_000))
    with pytest.raises(TooMuchWork):
        outcome(work.spend(line_work.TURN_CHARS))
    work.begin(1_000)
    outcome(work.spend(line_work.TURN_CHARS))


@pytest.mark.parametrize("separator", [" ", "\n"])
def test_a_text_may_have_so_many_matches_and_no_more(separator: str) -> None:
    mails = [f"anna.k{number}@firma.de" for number in range(MATCHES_MAX + 1)]
    redacted, _ = redacted_after(event(separator.join(mails[:-1])))
    assert redacted.matches[SourceRule("", "email")] == MATCHES_MAX
    redacted, _ = redacted_after(event(separator.join(mails)))
    assert redacted.lines == [b""]
    assert redacted.refused[0].reason == f"it could not be redacted: {TooManyMatches.why}"


# What is in long texts


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_masked_wherever_it_stands_in_a_long_text(encoding: str) -> None:
    dice = random.Random(encoding)
    filler = repeated("some words of no importance, and then more\n", 3 * CORE_CHARS)
    for place in (CORE_CHARS - 20, len(filler)):
        secret = dice.choice(SHAPED)(dice)
        hidden = ENCODINGS[encoding](secret, dice)
        redacted, _ = redacted_after(event(f"{filler[:place]} {hidden} {filler[place:]}"))
        after = json.loads(redacted.lines[0])["payload"]["text"]
        assert hidden not in after, place
        assert secret not in after
        assert secret[-12:] not in after
        assert redacted.matches.total() == 1
        kept = PLACEHOLDER.sub("", after)
        assert abs(len(kept) - len(filler)) < 2 * len(hidden) + 200


@pytest.mark.parametrize("line_chars", [0, 76])
def test_secrets_are_masked_in_a_long_file_in_base64(line_chars: int) -> None:
    dice = random.Random(line_chars)
    parts = []
    secrets = [aws_key(dice) for _ in range(20)]
    for secret in secrets:
        parts.append(repeated("nothing to be seen here. ", dice.randrange(6_000, 9_000)))
        parts.append(secret)
    content = encoded(" ".join(parts))
    if line_chars:
        content = "\n".join(
            content[at : at + line_chars] for at in range(0, len(content), line_chars)
        )
    redacted, _ = redacted_after(event(f"file: {content}"))
    assert redacted.matches == {SourceRule("", "aws_key"): len(secrets)}
    after = json.loads(redacted.lines[0])["payload"]["text"]
    # The end of the file may be a short piece, which is encoded again with its placeholders.
    assert len(PLACEHOLDER.findall(after)) >= len(secrets) - 1
    for piece in PLACEHOLDER.split(after.removeprefix("file: ").replace("\n", "")):
        for shift in range(4):
            shifted = piece[shift:]
            decoded = base64.b64decode(shifted[: len(shifted) // 4 * 4] or b"")
            assert not any(secret.encode() in decoded for secret in secrets)
