"""Languages, as far as rewards read them: what is a comment, and what never runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from penstock_jobs.rewards.texts.places import comment_start

#: Of languages with such comments to the end of the line: where longer ones begin and end.
_BLOCKS = {
    "//": (("/*", "*/"), ("#if 0", "#endif")),
    "--": (("/*", "*/"), ("--[[", "]]"), ("{-", "-}")),
    "<!--": (("<!--", "-->"),),
}
_PYTHON_BLOCKS = (('"""', '"""'), ("'''", "'''"))
#: No sign is longer.
_SIGN_MAX = 20
#: A condition that never holds.
_NEVER_PYTHON = re.compile(r"(?:if|elif|while)[ (]+(?:False|0)[ )]*:")
_NEVER_BRACES = re.compile(r"(?:\} *else +)?(?:if|while) *\(? *(?:false|0) *\)? *\{")


class Stretch(NamedTuple):
    """Text that does not run, from what disables it, which ends at `opened`."""

    start: int
    opened: int
    end: int


@dataclass(frozen=True)
class SourceLanguage:
    comment: str
    python: bool = False

    @cached_property
    def _blocks(self) -> tuple[tuple[str, str], ...]:
        return _PYTHON_BLOCKS if self.python else _BLOCKS.get(self.comment, ())

    @cached_property
    def _never(self) -> re.Pattern[str] | None:
        if self.python:
            return _NEVER_PYTHON
        return _NEVER_BRACES if self.comment == "//" else None

    @cached_property
    def _signs(self) -> re.Pattern[str]:
        signs = [re.escape(sign) for sign in (self.comment, *(block[0] for block in self._blocks))]
        never = [self._never.pattern] if self._never else []
        return re.compile("|".join([*signs, *never]))

    def may_disable(self, text: str, start: int, end: int) -> bool:
        """Whether a stretch that was put in could be a part of what disables text."""
        line = text.rfind("\n", 0, start) + 1
        return self._signs.search(text, max(line, start - _SIGN_MAX), end + _SIGN_MAX) is not None

    def disabled(self, text: str) -> Iterator[Stretch]:
        """The comments that begin a line, and the blocks that never run. One that lies within
        another is left out."""
        at = 0
        inside: str | None = None  # a text in Python that began in the middle of a line
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            start = end - len(text[at:end].lstrip())
            stretch = self._at(text, start, end) if inside is None else None
            if stretch is not None:
                yield stretch
                end = text.find("\n", stretch.end - 1) + 1 or len(text)
            elif self.python:
                inside = _quotes_after(text[at:end], inside)
            at = end

    def _at(self, text: str, start: int, end: int) -> Stretch | None:
        """What the line disables, if it disables anything."""
        for opens, closes in self._blocks:
            if text.startswith(opens, start):
                opened = start + len(opens)
                stop = text.find(closes, opened)
                return Stretch(start, opened, stop + len(closes) if stop >= 0 else len(text))
        if text.startswith(self.comment, start):
            return Stretch(start, start + len(self.comment), end)
        if self._never and (match := self._never.match(text, start)):
            stop = _indented_end(text, start, end) if self.python else _braces_end(text, start)
            return Stretch(start, match.end(), stop)
        return None


def _quotes_after(line: str, inside: str | None) -> str | None:
    """Within which triple quotes the text is after a line."""
    for match in re.finditer(r'"""|\'\'\'', line):
        if inside is None:
            inside = match[0]
        elif inside == match[0]:
            inside = None
    return inside


def _indented_end(text: str, start: int, end: int) -> int:
    """Where the block below a line of Python ends."""
    indent = start - (text.rfind("\n", 0, start) + 1)
    while end < len(text):
        stop = text.find("\n", end) + 1 or len(text)
        line = text[end:stop]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        end = stop
    return end


def _braces_end(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, text.index("{", start)):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


@lru_cache(maxsize=4096)
def language_of(path: str) -> SourceLanguage | None:
    """By the suffix of the file; none for prose and for what is not known."""
    comment = comment_start(path)
    return SourceLanguage(comment, python=path.lower().endswith(".py")) if comment else None
