"""Secrets in what a hook tells, and what stands in their place before anything is on disk.

It knows the patterns of the service and simpler checks, and looks into texts as they are. The
service, which masks in any case, also looks into encodings and across line breaks."""

import hashlib
import os
import re
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from secret_patterns import EXAMPLE_WORDS, NO_SECRET_BEFORE, NO_SECRET_NAME, SECRETS

_KEY_BYTES = 32
#: A key and its value are looked at together where the value is no longer.
_ASSIGNED_CHARS_MAX = 512
#: A placeholder is no secret.
_PLACEHOLDER = re.compile(r"\[(?:SECRET|PERSONAL):[a-z0-9_]{1,40}:[0-9a-f]{16}\]")


class Mask:
    """Equal secrets have equal placeholders, by a key of this user beside the spool."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key: bytes | None = None

    def value(self, value: Any, name: str = "") -> Any:
        """The same with placeholders. `name` is that of the value in an object."""
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self._text(key): self.value(item, key) for key, item in value.items()}
        return value

    def _text(self, text: str, name: str = "") -> str:
        for type_, value in _secrets_in(text):
            text = text.replace(value, self._placeholder(type_, value))
        if name and 0 < len(text) <= _ASSIGNED_CHARS_MAX:
            for type_, value in _secrets_in(f'"{name}": "{text}"'):
                if value == text:
                    return self._placeholder(type_, value)
        return text

    def _placeholder(self, type_: str, value: str) -> str:
        self._key = self._key or _key_in(self._folder)
        content = value.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(content, digest_size=8, key=self._key).hexdigest()
        return f"[SECRET:{type_}:{digest}]"


def _secrets_in(text: str) -> list[tuple[str, str]]:
    """Types and values, the longest first."""
    found: dict[str, str] = {}
    lower = text.lower()
    for type_, pattern, checks, needles in SECRETS:
        if not any(needle in lower for needle in needles):
            continue
        for match in _compiled(pattern).finditer(text):
            groups = match.groupdict()
            value = groups.get("value") or groups.get("bare") or match[0]
            bare, name = bool(groups.get("bare")), groups.get("name") or ""
            before = text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
            if name and (_NO_SECRET_NAME.search(name) or _NO_SECRET_BEFORE.search(before)):
                continue
            if not _PLACEHOLDER.search(value) and _is_meant(value, checks, bare=bare):
                found.setdefault(value, type_)
    return sorted(
        ((type_, value) for value, type_ in found.items()), key=lambda each: -len(each[1])
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


_RANDOM_CHARS_MIN, _BEFORE_CHARS = 10, 16
_NO_SECRET_NAME, _NO_SECRET_BEFORE = re.compile(NO_SECRET_NAME), re.compile(NO_SECRET_BEFORE)
_EXAMPLE = re.compile(EXAMPLE_WORDS, re.IGNORECASE)
_TEMPLATE = re.compile(r"\$\{|\{\{|%\(|%s|\$\(|^\$|^<.*>$")
_PART_OF_PROGRAM = re.compile(r"://|^[/.~$-]|[(\[{]|^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
_EXPRESSION = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|->|::)[A-Za-z_$][\w$]*)*[!;]?")


def _is_meant(value: str, checks: tuple[str, ...], *, bare: bool) -> bool:
    if "no_example" in checks and (_EXAMPLE.search(value) or _TEMPLATE.search(value)):
        return False
    if "assigned" in checks and bare and _EXPRESSION.fullmatch(value) and not _is_jumbled(value):
        return False
    if "mixed" in checks or "token" in checks or ("random" in checks and not bare):
        return _is_jumbled(value)
    if "password" in checks or "strong" in checks:
        kinds = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
        of_kinds = sum(any(map(kind, value)) for kind in kinds)
        if "strong" in checks and not any(map(str.isdigit, value)):
            return False
        return of_kinds >= 3 and not _PART_OF_PROGRAM.search(value)
    return True


def _is_jumbled(value: str) -> bool:
    """Letters and digits as nobody writes words."""
    piece = max(re.split(r"[-_./:+=~]+", value), key=len)
    if len(piece) < _RANDOM_CHARS_MIN:
        piece = value
    digits = sum(one.isdigit() != other.isdigit() for one, other in pairwise(piece))
    letters = sum(map(str.isalpha, piece))
    cases = sum(
        one.isalpha() and other.isalpha() and one.isupper() != other.isupper()
        for one, other in pairwise(piece)
    )
    if digits and letters:
        return digits >= 3 or (digits == 2 and cases >= 3)
    return letters >= 16 and cases >= letters * 0.3


def _key_in(folder: Path) -> bytes:
    path = folder / "redaction.key"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f"redaction.key.{os.urandom(6).hex()}"
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, os.urandom(_KEY_BYTES))
        finally:
            os.close(file)
        try:
            with suppress(FileExistsError):
                os.link(part, path)
        finally:
            part.unlink()
    with suppress(OSError):
        if len(key := path.read_bytes()) == _KEY_BYTES:
            return key
    return os.urandom(_KEY_BYTES)
