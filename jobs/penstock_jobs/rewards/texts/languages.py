"""Text of a source file that does not run: comments, strings, and code that is never reached.

What a language is follows from the file's suffix. Comments and strings are told exactly, blocks by
indentation or braces."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

_SUFFIXES: dict[str, tuple[str, ...]] = {
    "#": ("py", "rb", "sh", "bash", "zsh", "pl", "r", "yaml", "yml", "toml", "tf", "mk", "ex"),
    "//": (
        "js", "jsx", "ts", "tsx", "mjs", "java", "kt", "scala", "go", "rs", "c", "h", "cc", "cpp",
        "hpp", "cs", "swift", "php", "dart", "zig", "m", "proto", "groovy", "gradle", "vue",
        "svelte", "scss", "less",
    ),
    "--": ("sql", "lua", "hs", "elm", "ada"),
    ";": ("clj", "lisp", "el", "scm", "asm", "ini"),
    "%": ("tex", "erl", "matlab"),
    "<!--": ("html", "xml", "svg"),
    "/*": ("css",),
}  # fmt: skip
_BY_SUFFIX = {suffix: start for start, suffixes in _SUFFIXES.items() for suffix in suffixes}
_BLOCK_STYLE = ("/*", "*/", "* ")
#: Prose has no comments that begin a line, but text can be hidden in it.
_PROSE = ("md", "mdx", "markdown")

_HIDDEN = (("<!--", "-->"),)
#: Delimiters of block comments and of strings over several lines, by the sign of line comments.
_BLOCKS = {
    "#": (('"""', '"""'), ("'''", "'''")),
    "//": (("/*", "*/"), ("#if 0", "#endif"), ("`", "`"), ('"""', '"""'), *_HIDDEN),
    "--": (("/*", "*/"), ("--[[", "]]"), ("{-", "-}")),
    "<!--": _HIDDEN,
    "/*": (("/*", "*/"),),
}
_NEVER_INDENTED = r"(?:if|elif|while)[ (]+(?:not +True|False|false|0)(?= *(?:[):;]|and\b|then\b|$))"
_NEVER_BRACES = r"(?:\} *else +)?(?:if|while) *\(? *(?:false|0|!true|!1)(?= *(?:[){]|&&))"
_NEVER = {"#": _NEVER_INDENTED, "//": _NEVER_BRACES, "--": _NEVER_INDENTED}
_EXIT = r"(?:return|raise|throw)\b"
#: What no comment follows: a word of a shell or an address.
_NOT_BEFORE = {"#": r"(?<!\S)", "//": "(?<!:)"}
#: A string within one line.
_STRING = r'"(?:\\.|[^"\\\n])*"'
_SINGLE = r"|'(?:\\.|[^'\\\n])*'"
#: Languages in which a single quote may stand alone.
_NO_SINGLE = ("rs",)
_QUOTES = ('"', "'")
#: A short string disables text only if it holds more than words.
_MORE_THAN_WORDS = re.compile(r"[^\w\s.,:/-]")
_SIGN_MAX = 20
_BRACKETS = re.compile(r"[(\[{]|[)\]}]|;|\n")
_BRACES = re.compile(r"[{}]|^[ \t]*(?:case\b|default *:|#\w)", re.MULTILINE)
#: A statement goes on after a line that ends so, or before a line that begins so.
_GOES_ON = frozenset("&|+-*/,.=?:<>\\")
#: What stands above the only statement of a condition without braces.
_CONDITION = re.compile(
    r"(?:\b(?:else|do)|=>|^[ \t]*(?:\}\s*)?(?:else +)?(?:if|for|while)\b.*\))\Z", re.MULTILINE
)
#: So many characters around a statement are looked at.
_NEAR = 400


class Stretch(NamedTuple):
    """Text from `start` to `end` that does not run, for what lies between `opens` and `opened`."""

    opens: int
    opened: int
    start: int
    end: int


class SourceLanguage:
    def __init__(self, comment: str, suffix: str) -> None:
        python = suffix == "py"
        strings = _STRING if suffix in _NO_SINGLE else _STRING + _SINGLE
        self._by_braces = comment == "//"
        self._closes = dict(_HIDDEN if comment == "" else _BLOCKS.get(comment, ()))
        groups = {
            "block": "|".join(map(re.escape, self._closes)),
            "comment": (_NOT_BEFORE.get(comment, "") if not python else "") + re.escape(comment),
            "string": "" if comment in ("", "<!--") else strings,
            "never": f"^[ \t]*(?:{_NEVER[comment]})" if comment in _NEVER else "",
            "leave": rf"^[ \t]*{_EXIT}" if python or self._by_braces else "",
        }
        parts = (f"(?P<{name}>{pattern})" for name, pattern in groups.items() if pattern)
        # The first characters, told at once, spare most places a try of each part.
        firsts = {*(opens[0] for opens in self._closes), *comment[:1], *_QUOTES}
        first = f"[{re.escape(''.join(sorted(firsts)))}]"
        self._tokens = re.compile(f"(?={first}|^)(?:{'|'.join(parts)})", re.MULTILINE)
        signs = [*map(re.escape, (*self._closes, *([comment] if comment else ())))]
        signs += [groups[name].lstrip("^") for name in ("never", "leave") if groups[name]]
        self._signs = re.compile("|".join(signs), re.MULTILINE)

    def may_disable(self, text: str, start: int, end: int) -> bool:
        """Whether an inserted stretch may be part of what disables text."""
        line = text.rfind("\n", 0, start) + 1
        if text[end - 1 : end] in _QUOTES or text[start : start + 1] in _QUOTES:
            return True
        return self._signs.search(text, max(line, start - _SIGN_MAX), end + _SIGN_MAX) is not None

    def disabled(self, text: str) -> list[Stretch]:
        """Return what does not run, by `start`; without what lies in comments and strings."""
        return _disabled(self, text)

    def _found(self, text: str) -> Iterator[Stretch]:
        at = 0
        while match := self._tokens.search(text, at):
            opens, opened, kind = match.start(), match.end(), match.lastgroup
            at = opened
            if kind == "block":
                end = text.find(self._closes[match[0]], opened)
                at = end + len(self._closes[match[0]]) if end >= 0 else len(text)
                yield Stretch(opens, opened, opened, at)
            elif kind == "comment":
                at = text.find("\n", opened) + 1 or len(text)
                yield Stretch(opens, opened, opened, at)
            elif kind == "string":
                if _MORE_THAN_WORDS.search(text, opens + 1, opened - 1):
                    yield Stretch(opens, opens + 1, opens + 1, opened - 1)
            else:
                opens += len(match[0]) - len(match[0].lstrip())
                start, end = opened, opened
                if kind == "never":
                    end = at = self._block_end(text, opens, opened)
                elif self._by_braces:
                    start, end = _after_exit(text, opens, opened)
                else:
                    start = _statement_end(text, opened)
                    end = _indented_end(text, opens, start, least=0)
                if end > start:
                    yield Stretch(opens, opened, start, end)

    def _block_end(self, text: str, opens: int, opened: int) -> int:
        line = text.find("\n", opened) + 1 or len(text)
        if not self._by_braces:
            return _indented_end(text, opens, line, least=1)
        if (brace := text.find("{", opened, line)) >= 0:
            return _braces_end(text, brace + 1, depth=1)
        return _statement_end(text, text.find(")", opened, line) + 1 or opened)


@lru_cache(maxsize=128)
def _disabled(language: SourceLanguage, text: str) -> list[Stretch]:
    return sorted(language._found(text), key=lambda stretch: stretch.start)


def _indented_end(text: str, opens: int, end: int, least: int) -> int:
    """Return the end of lines that are indented deeper by at least `least`."""
    indent = opens - (text.rfind("\n", 0, opens) + 1) + least
    while end < len(text):
        stop = text.find("\n", end) + 1 or len(text)
        line = text[end:stop]
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        end = stop
    return end


def _braces_end(text: str, at: int, depth: int) -> int:
    """Return where the block ends that is open `depth` times, or its next case begins."""
    first = depth
    for match in _BRACES.finditer(text, at):
        if match[0] not in "{}":
            if depth == first == 0:
                return match.start()
            continue
        depth += 1 if match[0] == "{" else -1
        if depth == first - 1:
            return match.end() if first else match.start()
    return len(text)


def _after_exit(text: str, opens: int, opened: int) -> tuple[int, int]:
    """Return the unreachable text behind a statement that leaves its block."""
    above = text[max(opens - _NEAR, 0) : opens].rstrip()
    line = above[above.rfind("\n") + 1 :]  # perhaps the end of a condition over several lines
    if _CONDITION.search(above) or (line.endswith(")") and line.count("(") < line.count(")")):
        return opened, opened
    start = _statement_end(text, opened)
    return start, _braces_end(text, start, depth=0)


def _statement_end(text: str, at: int) -> int:
    depth = 0
    for match in _BRACKETS.finditer(text, at):
        sign = match[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth < 0:
                return match.start()
        elif not depth:
            near = text[match.end() : match.end() + _NEAR].lstrip()[:1]
            around = {text[at : match.start()].rstrip()[-1:], near}
            if sign == ";" or around.isdisjoint(_GOES_ON):
                return match.end()
    return len(text)


@lru_cache(maxsize=4096)
def comment_start(path: str) -> str | None:
    """Return how comments begin in such a file; None if unknown or prose."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix[1:].lower())


def is_comment(line: str, start: str) -> bool:
    return line.startswith(start) or (start == "//" and line.startswith(_BLOCK_STYLE))


_language = cache(SourceLanguage)


@lru_cache(maxsize=4096)
def language_of(path: str) -> SourceLanguage | None:
    suffix = PurePosixPath(path).suffix[1:].lower()
    comment = "" if suffix in _PROSE else _BY_SUFFIX.get(suffix)
    return None if comment is None else _language(comment, suffix)
