"""Checks: functions that decide whether a match of a rule's pattern counts."""

import base64
import binascii
import ipaddress
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple


class Candidate(NamedTuple):
    """A match in its text. `value`, from `start` on, would be masked."""

    text: str
    match: re.Match[str]
    value: str
    start: int

    @property
    def name(self) -> str:
        """The name that the value is assigned to, where the pattern captures it."""
        return self.match.groupdict().get("name") or ""


def entropy_bits(value: str) -> float:
    """Measure the entropy of a character, by the frequencies in the value itself."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values()) if size else 0.0


_KNOWN_VALUES = tomllib.loads(
    files("penstock.events.redaction").joinpath("known_values.toml").read_text("utf-8")
)

# Made-up values

_EXAMPLE_WORDS = re.compile("|".join(_KNOWN_VALUES["example_words"]), re.IGNORECASE)
_TEMPLATE = re.compile(
    r"\$\{|\{\{|\}\}|<%|%\(|%s|\$\(|^\$[A-Za-z_]|^<.*>$|^%[A-Za-z_]+%$|^@[A-Za-z]"
)
_NEIGHBOURS_SHARE_MAX = 0.6
_DISTINCT_MIN = 6


def is_no_example(candidate: Candidate) -> bool:
    """Whether it is no value of documentation or tests: words, templates, runs of neighbours."""
    value = candidate.value
    if _EXAMPLE_WORDS.search(value) or _TEMPLATE.search(value):
        return False
    if len(value) < 16:
        return True
    steps = [abs(ord(b) - ord(a)) <= 1 for a, b in pairwise(value)]
    return sum(steps) < _NEIGHBOURS_SHARE_MAX * len(steps) and len(set(value)) >= _DISTINCT_MIN


# Secrets

_BETWEEN_WORDS = re.compile(r"[-_./:+=~]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DIGEST_NAME = re.compile(r"(?i)^(?:sha\d{1,3}|md5|blake2b?|xxh\d*|integrity|crc32)[-:=_]")
_TOKEN_ENTROPY_MIN = 3.0
_TOKEN_CHARS_MIN = 16


def is_mixed(candidate: Candidate) -> bool:
    """Whether letters and digits are mixed as in no word."""
    return _looks_random(candidate.value)


def _looks_random(value: str) -> bool:
    if len(value) < 12 or entropy_bits(value) < _TOKEN_ENTROPY_MIN:
        return False
    pieces = [piece for piece in _BETWEEN_WORDS.split(value) if piece]
    longest = max(pieces, key=len, default="")
    if len(longest) < 10:
        return sum(map(_is_jumbled, pieces)) >= max(2, len(pieces) - 1)
    return _is_jumbled(longest)


def _is_jumbled(piece: str) -> bool:
    digits = sum(char.isdigit() for char in piece)
    letters = sum(char.isalpha() for char in piece)
    if digits and letters:
        # A word with a number at its end, or a version before it, is still a word.
        changes = sum(a.isdigit() != b.isdigit() for a, b in pairwise(piece))
        return changes >= 3 or (changes >= 2 and _case_changes(piece) >= 3)
    return letters >= 16 and _case_changes(piece) >= letters * 0.3


def _case_changes(piece: str) -> int:
    return sum(
        a.isalpha() and b.isalpha() and a.isupper() != b.isupper() for a, b in pairwise(piece)
    )


_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_WORD_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[A-Z]")
_JUMBLE_CHARS_MIN = 8
#: Characters of the words that a name is made of, on average; random letters change sooner. With
#: capital letters, small ones and digits it is less likely a name.
_NAME_WORD_CHARS_MIN, _MIXED_WORD_CHARS_MIN = 2.6, 3.4


def is_jumble(word: str) -> bool:
    """Whether kinds of letters change sooner than in a name."""
    longest = max(_BETWEEN_WORDS.split(word), key=len)
    if len(longest) < _JUMBLE_CHARS_MIN or _HEXADECIMAL.fullmatch(longest):
        return False
    words = len(_WORD_OF_NAME.findall(longest))
    mixed = words > 4 or all(any(map(kind, longest)) for kind in _KINDS[:3])
    return len(longest) < words * (_MIXED_WORD_CHARS_MIN if mixed else _NAME_WORD_CHARS_MIN)


def is_token(candidate: Candidate) -> bool:
    value = candidate.value
    if len(value) < _TOKEN_CHARS_MIN or _DIGEST_NAME.match(value):
        return False
    if "://" in value or value.startswith(("/", "./", "../", "~/")):
        return False
    if value.isdigit():
        return False
    return bool(_UUID.fullmatch(value)) or _looks_random(value)


def is_random(candidate: Candidate) -> bool:
    """Whether it is a password by its signs, or no name is as random and no digest."""
    return bool(candidate.match["bare"]) or is_jumble(candidate.value)


def is_strong(candidate: Candidate) -> bool:
    """Whether it looks like a token or a password wherever it stands."""
    value = candidate.value
    if value.startswith(("/", "./", "~/", "$", "--")):
        return False
    if _PART_OF_PROGRAM.search(value) and not (value.isalnum() and is_jumble(value)):
        return False
    kinds = sum(any(map(kind, value)) for kind in _KINDS)
    short = kinds >= 3 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return (short and len(set(value)) >= 6) or is_token(candidate)


#: An address, a call, an item, a name with a number, or names with dots between.
_PART_OF_PROGRAM = re.compile(
    r"://|^[(\[{]|[\w)\]][(\[{]|^[A-Za-z_]+\d{0,2}$|^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$"
    r"|^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$"
)
_KINDS = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
_COMMON_PASSWORDS = frozenset(_KNOWN_VALUES["passwords"])
_WORDS_ONLY = re.compile(r"[A-Za-z]+(?:[-_. /][A-Za-z]+)*[0-9]{0,3}[!?.:]?")
_PASSWORD_DISTINCT_MIN = 5
#: Words in names, types and texts of programs that handle passwords.
_ABOUT_PASSWORDS = re.compile("|".join(sorted(_KNOWN_VALUES["about_passwords"])))
_OF_PROGRAM = re.compile(r"^(?:\.?/|~/|\$[A-Za-z_({])|[A-Za-z_.]\([^)]*\)")
#: A name that says no more than that its value is a password.
_PASSWORD_NAME = re.compile(r"(?i)(?:[a-z]*pass(?:wor[dt]|wd|phrase|code)?|pwd|psk|kennwort)?s?\d?")


def is_password(candidate: Candidate) -> bool:
    """Whether somebody may have chosen it: also words, but none of programs or about passwords."""
    value, name = candidate.value, candidate.name
    if value.lower().strip("!?.") in _COMMON_PASSWORDS or len(set(value)) < _PASSWORD_DISTINCT_MIN:
        return False
    is_sentence = " " in value and name and not name.isupper()
    if is_sentence or _OF_PROGRAM.search(value) or _DIGEST_NAME.match(value):
        return False
    if _WORDS_ONLY.fullmatch(value):
        if _PASSWORD_NAME.fullmatch(name) is None or _ABOUT_PASSWORDS.search(value.lower()):
            return False
        return not any(char in "_./" for char in value[:-1])
    return sum(any(map(kind, value)) for kind in _KINDS) >= 2


def is_said(candidate: Candidate) -> bool:
    """Whether a word in a sentence is none of a language: with a digit, or joined and the last."""
    value = candidate.value
    if any(map(str.isdigit, value)):
        return any(map(str.isalpha, value))
    return "-" in value and candidate.text[candidate.start + len(value) :][:1] in ("", "\n")


_COLUMN_OF_PASSWORDS = re.compile(r"(?i)[ `*\"]*(?:passwor[dt]|passwd|kennwort|pwd)[ `*\"\r]*")

_VALUES = re.compile(r"(?i)\bvalues\b")
_INSERT_CHARS_MAX = 2_000


def is_in_column(candidate: Candidate) -> bool:
    """Whether it stands in a table, or in a row of SQL, in a column of passwords."""
    text, start = candidate.text, candidate.start
    if text[start - 1] == "'":
        names, row = ("", *_VALUES.split(text[max(0, start - _INSERT_CHARS_MAX) : start]))[-2:]
        head = names[names.rfind("(") + 1 : names.rfind(")")].split(",")
        column = row[row.rfind("(") + 1 :].count(",")
    else:
        first = text.find("|", max(text.rfind("\n\n", 0, start), 0))
        head = text[text.rfind("\n", 0, first) + 1 : text.find("\n", first)].split("|")
        column = text.count("|", text.rfind("\n", 0, start) + 1, start)
    return column < len(head) and _COLUMN_OF_PASSWORDS.fullmatch(head[column]) is not None


_NO_SECRET_NAME = re.compile(
    rf"(?i)(?:iz(?:er|e|ation)|_?(?:{'|'.join(_KNOWN_VALUES['no_secret_names'])}))$"
)
_NO_SECRET_BEFORE = re.compile(rf"(?i)(?:{'|'.join(_KNOWN_VALUES['no_secret_before'])})[_-]?$")
_EXPRESSION = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+[!;]?|[A-Za-z_]+\d{0,2}|[A-Z]+\d{0,3}(?:_[A-Z0-9]+)+"
)
_BEFORE_CHARS = 16


def is_assigned(candidate: Candidate) -> bool:
    """Whether a value, not an expression of a program, is assigned to the name of a secret."""
    name, match = candidate.name, candidate.match
    if _NO_SECRET_NAME.search(name):
        return False
    before = candidate.text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
    if name and _NO_SECRET_BEFORE.search(before):
        return False
    if not name or match.groupdict().get("bare") is None or _is_literal(candidate):
        return True
    value = candidate.value.rstrip(".")
    # Without quotes it is one in a configuration, and an expression in a program.
    if _EXPRESSION.fullmatch(value):
        return False
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


_LINE_CHARS_MAX, _SECTION_CHARS_MAX = 160, 1000
#: A name of a program, not a word: with an underline, or with a capital letter inside.
_NAME_OF_PROGRAM = re.compile(r"\w*(?:_|[a-z][A-Z])\w*|\w+:|\w+(?:\.|->|::|\?\.)[\w.]+[!;]?")
#: What stands in a line before a value that ends it: of a configuration, of a shell, of a prompt.
_BEFORE_LAST = re.compile(
    r"[ \t]{0,32}(?:[-+>|*][ \t]{1,4}|[+>])?(?:[A-Za-z]{1,20} ){0,5}"
    r"[\"']?[A-Za-z0-9_.-]{1,80}[\"']?(?:=|:[ \t]+(?:[>|][+-]?\s+)?|(?P<spaced>[ \t]+=[ \t]+))"
)
#: An argument of a command or an address, a variable before a command, an element of XML.
_BEFORE_ARGUMENT = re.compile(r"(?:^|[\s\"'?&;])[A-Za-z0-9_.-]{1,80}=$|>$")
_BEHIND_ARGUMENT = re.compile(r"(?:[\s\"'&;]|</|\\n|$)")
_SECTION = re.compile(r"(?m)^\[[\w.: -]{1,60}\]\r?$")


def _is_literal(candidate: Candidate) -> bool:
    """Whether a value without quotes is one by its place."""
    text, start = candidate.text, candidate.start
    if _NAME_OF_PROGRAM.fullmatch(candidate.value) and not is_jumble(candidate.value):
        return False
    begin = candidate.match.start()
    line_start = max(text.rfind("\n", 0, begin) + 1, begin - _LINE_CHARS_MAX)
    before, end = text[line_start:start], start + len(candidate.value)
    if _BEHIND_ARGUMENT.match(text, end) and _BEFORE_ARGUMENT.search(before):
        return True
    after = text[end : end + _LINE_CHARS_MAX].partition("\n")[0].strip()
    last = _BEFORE_LAST.fullmatch(before) if not after or after[0] == "#" else None
    section = _SECTION.search(text, max(0, begin - _SECTION_CHARS_MAX), begin)
    return last is not None and (not last["spaced"] or section is not None)


_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]{24,}")


def is_key_block(candidate: Candidate) -> bool:
    """Whether a key block has content, not dots or words. Its first or last line may be missing."""
    cut, begin, whole = candidate.value.partition("-----BEGIN")
    body = whole.partition("-----")[2] if begin else cut
    line = _BASE64_LINE.search(body)
    return line is not None and entropy_bits(line[0]) >= _TOKEN_ENTROPY_MIN


#: Parts of the token by which documentation everywhere explains such tokens.
_EXAMPLE_JWT_PARTS = ("eyJzdWIiOiIxMjM0NTY3ODkwI", "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c")


def is_jwt(candidate: Candidate) -> bool:
    """Whether its header is the header of a JWT."""
    value = candidate.value
    if any(part in value for part in _EXAMPLE_JWT_PARTS):
        return False
    head = value.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return False
    return isinstance(header, dict) and ("alg" in header or "typ" in header)


# Personal data

_NOBODYS_DOMAINS = re.compile(
    r"(?i)(?:^|\.)(?:example\.(?:com|org|net|edu)|(?:.*\.)?(?:example|invalid|test|localhost|local)"
    r"|domain\.(?:com|tld)|email\.com|company\.com|noreply\.github\.com|users\.noreply\..*"
    r"|sentry\.io|w3\.org|schema\.org|foo\.com|bar\.com|test\.com)$"
)
_NOBODYS_MAILBOXES = frozenset(_KNOWN_VALUES["mailboxes"])
_FILE_ENDINGS = frozenset(_KNOWN_VALUES["file_endings"])


def is_email(candidate: Candidate) -> bool:
    """Whether it is somebody's address: not a repository's, an example, a decorator or an image."""
    mailbox, _, domain = candidate.value.partition("@")
    ending = domain.rpartition(".")[2].lower()
    if ending in _FILE_ENDINGS or mailbox.lower() in _NOBODYS_MAILBOXES:
        return False
    if mailbox.isdigit() or _NOBODYS_DOMAINS.search(domain):
        return False
    after = candidate.text[candidate.start + len(candidate.value) :][:1]
    return after != "="


_PHONE_GROUPS = re.compile(r"\d+")
_FICTITIOUS_PHONE = re.compile(r"555-?01\d\d$|(\d)\1{6}|1234567")


def is_phone(candidate: Candidate) -> bool:
    value, text, start = candidate.value, candidate.text, candidate.start
    digits = "".join(_PHONE_GROUPS.findall(value))
    if not 8 <= len(digits) <= 15 or _FICTITIOUS_PHONE.search(value.replace(" ", "-")):
        return False
    if _FICTITIOUS_PHONE.search(digits):
        return False
    if value[0] == "+":
        groups = _PHONE_GROUPS.findall(value)
        at_line_start = start == 0 or text[start - 1] == "\n"
        # A number in a line that a diff adds, or an offset of time zones.
        if at_line_start and len(groups) < 3 and start > 0:
            return False
        return len(groups) > 1 or len(digits) >= 10
    return value[0] == "(" or digits[0] in "23456789"


def is_card(candidate: Candidate) -> bool:
    digits = "".join(char for char in candidate.value if char.isdigit())
    groups = re.split(r"[ -]", candidate.value)
    sizes = tuple(map(len, groups))
    if sizes not in ((16,), (15,), (14,), (19,), (4, 4, 4, 4), (4, 6, 5), (4, 4, 4, 4, 3)):
        return False
    if len(set(digits)) < 4 or digits in _EXAMPLE_CARDS:
        return False
    known = {15: ("34", "37"), 14: ("30", "36", "38"), 16: ("4", "5", "6", "2", "35")}
    known[19] = ("4", "6")
    return digits.startswith(known[len(digits)]) and _luhn(digits)


#: Test cards of payment services.
_EXAMPLE_CARDS = frozenset(_KNOWN_VALUES["cards"])


def _luhn(digits: str) -> bool:
    total = 0
    for place, char in enumerate(reversed(digits)):
        number = int(char) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0


_IBAN_CHARS: dict[str, int] = _KNOWN_VALUES["iban_chars"]
_EXAMPLE_IBANS = frozenset(_KNOWN_VALUES["ibans"])


def is_iban(candidate: Candidate) -> bool:
    compact = candidate.value.replace(" ", "")
    if _IBAN_CHARS.get(compact[:2]) != len(compact) or compact in _EXAMPLE_IBANS:
        return False
    number = "".join(str(int(char, 36)) for char in compact[4:] + compact[:4])
    return int(number) % 97 == 1


_VERSION_BEFORE = re.compile(
    r"(?i)(?:version|release|ver|oid|chrome|build|section)[\"'\s:=/v]{0,4}$"
)


def is_ipv4(candidate: Candidate) -> bool:
    """Whether it may be a real machine: not documentation, loopback, a mask or a version."""
    address = ipaddress.IPv4Address(candidate.value)
    if address.is_multicast or not (address.is_global or any(address in net for net in _OWN_NETS)):
        return False
    octets = candidate.value.split(".")
    if all(int(octet) < 10 for octet in octets) or candidate.value in _RESOLVERS:
        return False
    if octets[3] == "0" and candidate.text[candidate.start + len(candidate.value) :][:1] == "/":
        return False  # a network
    before = candidate.text[max(0, candidate.start - _BEFORE_CHARS) : candidate.start]
    return not _VERSION_BEFORE.search(before)


#: Addresses of machines at home and in companies.
_OWN_NETS = [*map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))]
_RESOLVERS = ("8.8.8.8", "8.8.4.4", "1.1.1.1", "9.9.9.9")


def is_ipv6(candidate: Candidate) -> bool:
    value = candidate.value
    if value.count(":") < 3:
        return False
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError:
        return False
    documentation = value.lower().startswith(("2001:db8", "2001:0db8"))
    return not (
        documentation or address.is_loopback or address.is_multicast or int(address) < 2**64
    )


def is_mac(candidate: Candidate) -> bool:
    digits = re.sub(r"[:-]", "", candidate.value.lower())
    octets = {digits[at : at + 2] for at in range(0, 12, 2)}
    return len(octets) > 3 and not digits.startswith(("00005e", "001122", "aabbcc", "deadbe"))


CHECKS: dict[str, Callable[[Candidate], bool]] = {
    check.__name__.removeprefix("is_"): check
    for check in (
        is_no_example, is_mixed, is_token, is_random, is_password, is_said, is_in_column, is_strong,
        is_assigned, is_key_block, is_jwt, is_email, is_phone, is_card, is_iban, is_ipv4, is_ipv6,
        is_mac,
    )
}  # fmt: skip
