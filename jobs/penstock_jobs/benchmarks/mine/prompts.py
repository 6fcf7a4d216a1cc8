"""Prompts of tasks: what a commit or pull request says, without what only its author could know."""

import re
from collections.abc import Iterable

_MERGE = re.compile(r"\AMerge (pull request|branch|remote-tracking branch|tag)\b.*\n*")
_TRAILER = re.compile(
    r"(?mi)^(signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|reported-by|suggested-by|"
    r"change-id|cc|bug|issue|pr|pull-request|see-also|reviewed-on|git-svn-id|"
    r"claude-session|generated[- ]by|assisted-by|made-with)\s*:.*$|^\(cherry picked from .*\)$"
)
_URL = re.compile(r"<?https?://[^\s>)]+>?")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
_ROLE = re.compile(r"[:{](?:user|ghuser|cve)[:}]`[^`]*`")
_CODE_ROLE = re.compile(r"[:{](?!(?:issue|pr|pull|gh)[:}])[a-z:]+[:}]`([^`<]+)(?:\s*<[^>]*>)?`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_NUMBER = r"(?:(?:\w[\w.-]*/\w[\w.-]*)?(?:#|\bgh-)\d+|[:{](?:issue|pr|pull|gh)[:}]`[^`]*`)"
_NUMBERS = re.compile(
    r"(?i)[(\[]?(?:\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see(?: also)?|related to|"
    rf"part of|in|per|issue|bug|pr|pull request)s?:?\s*)*{_NUMBER}"
    rf"(?:(?:\s*,\s*|\s+and\s+){_NUMBER})*[)\]]?"
)
_SKIP = re.compile(r"\[(?:skip ci|ci skip)\]|(?<!\S)[(\[]\s*[)\]]")
_EMPTY_MARKS = re.compile(r"(?m)^[\s*+.,:;()\[\]-]+$")
#: What a removed number leaves at the beginning of a line.
_LEFT_OVER = re.compile(r"(?m)^(?:[:;,.]\s+)+")
#: Files that tell users what changed.
_CHANGELOG = re.compile(r"(?i)(^|/)(change(s|log)|news|history|release[-_]?notes?)[^/]*(/|\.|$)")
#: Lines of a changelog that say nothing: keys of YAML, versions, dates, rules.
_HEADING = re.compile(
    r"(?i)^\s*(---|\w+:|- \||v?\d[\w.]*.*|#+ .*|[=~^\-*_]{3,}|\.\. .*|"
    r"(un)?released.*|version .*)?\s*$"
)
#: A longer changelog is about more than the change.
_CHANGELOG_LINES_MAX = 15


def clean_message(message: str) -> str:
    """Remove trailers, numbers, hashes and addresses from a commit's message."""
    text = _MERGE.sub("", message.replace("\r", ""))
    text = _LINK.sub(r"\1", _CODE_ROLE.sub(r"`\1`", _ROLE.sub("", text)))
    for pattern in (_TRAILER, _URL, _NUMBERS, _HASH, _SKIP, _LEFT_OVER, _EMPTY_MARKS):
        text = pattern.sub("", text)
    text = re.sub(r"(?m)(?<=\S) +(?=[ ,)]|\.?$)", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def changelog_text(added: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Read what a change tells the users, from the added lines of files by path."""
    lines = [
        re.sub(r"^\s*- \|?\s*", "- ", line.rstrip())
        for path, own in added
        if _CHANGELOG.search(path)
        for line in own
        if not _HEADING.match(line)
    ]
    return clean_message("\n".join(lines)) if len(lines) <= _CHANGELOG_LINES_MAX else ""


def prompt_of(messages: Iterable[str], told: str = "") -> str:
    """Join messages and the changelog's text, each once."""
    parts: list[str] = []
    for text in (*map(clean_message, messages), told):
        plain = _plain(text)
        if plain and not any(plain in _plain(part) for part in parts):
            parts = [part for part in parts if _plain(part) not in plain]
            parts.append(text)
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
