"""Words that hint at a label, found in a message in one pass over its words."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

_STEM_LENGTHS = range(3, 11)
_PHRASE_WORDS_MAX = 4
#: Words of this many at the start tell more: "no, …", "great, now …".
_OPENING_WORDS = 5
#: Scripts that put no spaces between words (Chinese, Japanese), or hang endings on them (Korean).
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯]")

#: Words that are looked up again and again.
_WORDS_REMEMBERED = 1 << 16


class Lexicon(NamedTuple):
    """Which groups a cue belongs to."""

    phrases: dict[str, tuple[int, ...]]
    #: Beginnings of words.
    stems: dict[str, tuple[int, ...]]
    #: By group, what may stand anywhere.
    unspaced: list[re.Pattern[str]]
    #: The words that a phrase of several begins with.
    openers: frozenset[str]


@cache
def cue_names() -> tuple[str, ...]:
    return tuple(_groups())


def find_cues(words: list[str], prose: str) -> list[tuple[int, float]]:
    """(column, value) for each group that occurs; a second block of as many columns says which of
    them occur at the very beginning."""
    lexicon = _lexicon()
    count = len(cue_names())
    found: dict[int, float] = {}
    for at, word in enumerate(words):
        hits = _of_word(word)
        if word in lexicon.openers:
            hits = hits.union(_of_phrases(words[at : at + _PHRASE_WORDS_MAX]))
        for group in hits:
            found[group] = found.get(group, 0.0) + 1.0
            if at < _OPENING_WORDS:
                found[count + group] = 1.0
    if _UNSPACED.search(prose):
        for group, pattern in enumerate(lexicon.unspaced):
            for match in pattern.finditer(prose):
                found[group] = found.get(group, 0.0) + 1.0
                if match.start() < _OPENING_WORDS:
                    found[count + group] = 1.0
    return [(column, min(value, 3.0) ** 0.5) for column, value in found.items()]


@lru_cache(_WORDS_REMEMBERED)
def _of_word(word: str) -> frozenset[int]:
    """The groups of the word, and of what it begins with."""
    lexicon = _lexicon()
    hits = set(lexicon.phrases.get(word, ()))
    for length in _STEM_LENGTHS:
        if length > len(word):
            break
        hits.update(lexicon.stems.get(word[:length], ()))
    return frozenset(hits)


def _of_phrases(words: list[str]) -> Iterator[int]:
    """The groups of the phrases of several words that these begin with."""
    phrases = _lexicon().phrases
    phrase = words[0]
    for more in words[1:]:
        phrase = f"{phrase} {more}"
        yield from phrases.get(phrase, ())


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
    openers = frozenset(phrase.split(" ")[0] for phrase in phrases if " " in phrase)
    return Lexicon(phrases, stems, unspaced, openers)


@cache
def _groups() -> dict[str, tuple[str, ...]]:
    source = files("penstock_jobs.rewards.followups") / "cues.toml"
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    return {
        name: tuple(cue for line in lines.splitlines() for cue in re.split(", *", line) if cue)
        for name, lines in found.items()
    }
