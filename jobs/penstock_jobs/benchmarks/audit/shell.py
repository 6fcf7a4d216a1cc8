"""The simple commands of a shell line, and the files that its here-documents write. Pure."""

import re
import shlex
from collections.abc import Iterator

_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?(.*?)\n(.*?)^\s*\1\s*$", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r">{1,2}\s*['\"]?([^\s'\"<>&|;]+)")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"\w+=")
_WRAPPERS = {"sudo", "env", "time", "nohup", "exec", "command", "xargs", "then", "do", "else"}


def commands_in(line: str) -> Iterator[list[str]]:
    """The words of each simple command, its name first. What is quoted stays a word."""
    lexer = shlex.shlex(
        _COMMENT.sub("", _HEREDOC.sub(r" \2", line)), posix=True, punctuation_chars="();<>|&\n"
    )
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that nobody closed
        tokens = line.split()
    for token in [*tokens, "\n"]:
        if not token or token[0] not in "();|&\n" or token.startswith("&>"):
            words.append(token)
            continue
        while words and (words[0] in _WRAPPERS or _ASSIGNMENT.match(words[0])):
            del words[0]
        if words[:1] and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[2:]:
            yield from commands_in(words[2])
        elif words:
            yield [words[0].rpartition("/")[2], *words[1:]]
        words = []


def files_written(line: str) -> Iterator[tuple[str, str, bool]]:
    """Paths and texts of files that here-documents write, and whether they are added to it."""
    for match in _HEREDOC.finditer(line):
        first = line[: match.start()].rpartition("\n")[2] + match[2]
        if target := _TARGET.search(first):
            yield target[1], match[3], target[0].startswith(">>")
