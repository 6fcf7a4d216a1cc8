"""Words that hint at a label, found in a message in one pass over its words."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import TypeAlias

_STEM_LENGTHS = range(3, 11)
_PHRASE_WORDS_MAX = 4
#: Words of this many at the start tell more: "no, …", "great, now …".
_OPENING_WORDS = 5
#: Scripts that put no spaces between words (Chinese, Japanese), or hang endings on them (Korean).
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯]")

Lexicon: TypeAlias = tuple[
    dict[str, tuple[int, ...]], dict[str, tuple[int, ...]], list[re.Pattern[str]]
]


@cache
def cue_names() -> tuple[str, ...]:
    return tuple(_groups())


def find_cues(words: list[str], prose: str) -> list[tuple[int, float]]:
    """(column, value) for each group that occurs; a second block of as many columns says which of
    them occur at the very beginning."""
    phrases, stems, unspaced = _lexicon()
    count = len(cue_names())
    found: dict[int, float] = {}
    for at, word in enumerate(words):
        hits = _hits(words, at, word, phrases, stems)
        for group in hits:
            found[group] = found.get(group, 0.0) + 1.0
            if at < _OPENING_WORDS:
                found[count + group] = 1.0
    if _UNSPACED.search(prose):
        for group, pattern in enumerate(unspaced):
            for match in pattern.finditer(prose):
                found[group] = found.get(group, 0.0) + 1.0
                if match.start() < _OPENING_WORDS:
                    found[count + group] = 1.0
    return [(column, min(value, 3.0) ** 0.5) for column, value in found.items()]


def _hits(
    words: list[str],
    at: int,
    word: str,
    phrases: dict[str, tuple[int, ...]],
    stems: dict[str, tuple[int, ...]],
) -> set[int]:
    hits = set(phrases.get(word, ()))
    for length in _STEM_LENGTHS:
        if length > len(word):
            break
        hits.update(stems.get(word[:length], ()))
    phrase = word
    for more in words[at + 1 : at + _PHRASE_WORDS_MAX]:
        phrase = f"{phrase} {more}"
        hits.update(phrases.get(phrase, ()))
    return hits


@cache
def _lexicon() -> Lexicon:
    phrases: dict[str, tuple[int, ...]] = {}
    stems: dict[str, tuple[int, ...]] = {}
    unspaced: list[re.Pattern[str]] = []
    for group, cues in enumerate(_groups().values()):
        anywhere = [cue for cue in cues if _UNSPACED.search(cue)]
        unspaced.append(re.compile("|".join(map(re.escape, anywhere)) or r"(?!)"))
        for cue in cues:
            kind, key = (stems, cue[:-1]) if cue.endswith("*") else (phrases, cue)
            if group not in kind.get(key, ()):
                kind[key] = (*kind.get(key, ()), group)
    return phrases, stems, unspaced


@cache
def _groups() -> dict[str, tuple[str, ...]]:
    source = files("penstock_jobs.rewards.followups") / "cues.toml"
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    return {
        name: tuple(cue for line in lines.splitlines() for cue in re.split(", *", line) if cue)
        for name, lines in found.items()
    }
