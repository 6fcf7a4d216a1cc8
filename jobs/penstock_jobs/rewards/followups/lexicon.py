"""Lists of words that hint at something: where they occur in a text.

A list is a TOML file of groups. `stem*` stands for every word that begins so. Phrases of several
words match in sequence. Scripts without spaces match anywhere."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import repeat
from typing import NamedTuple

WORD = re.compile(r"[\w'’]+")
_STEM_LENGTHS = range(3, 11)
_PHRASE_WORDS_MAX = 4
#: Scripts that put no spaces between words (Chinese, Japanese), or hang endings on them (Korean).
_UNSPACED = re.compile("[぀-ヿ㐀-鿿가-힯]")
#: Words that are looked up again and again. Above it the memory is emptied.
_WORDS_REMEMBERED = 1 << 16


class Hit(NamedTuple):
    """A group occurs, by its number. `at` and `words` count words, in an unspaced script
    characters."""

    group: int
    at: int
    words: int
    unspaced: bool = False


class _KnownWord(NamedTuple):
    groups: tuple[int, ...]
    #: The second words of the phrases that begin with it.
    seconds: frozenset[str]


_UNKNOWN = _KnownWord((), frozenset())


@dataclass(frozen=True)
class Lexicon:
    """Which groups a word or phrase belongs to, by number."""

    names: tuple[str, ...]
    phrases: dict[str, tuple[int, ...]]
    stems: dict[str, tuple[int, ...]]
    #: The words of each group that may stand anywhere.
    unspaced: tuple[re.Pattern[str], ...]
    #: The words that a phrase of several begins with, and their second words.
    openers: dict[str, frozenset[str]]
    _known: dict[str, _KnownWord | None] = field(default_factory=dict, repr=False)

    def hits(self, words: Sequence[str], text: str) -> list[Hit]:
        """`words` are those of the text, in small letters."""
        hits = []
        # Most words say nothing: they are passed over as quickly as can be.
        for at, known in enumerate(map(self._known.get, words, repeat(_UNKNOWN))):
            if known is None:
                continue
            word = self._look_up(words[at]) if known is _UNKNOWN else known
            if word is None:
                continue
            following = words[at + 1 : at + _PHRASE_WORDS_MAX] if word.seconds else ()
            # Most openers stand alone: no phrase is put together for them.
            if not following or following[0] not in word.seconds:
                hits += [Hit(group, at, 1) for group in word.groups]
                continue
            groups = dict.fromkeys(word.groups, 1)
            phrase = words[at]
            for length, last in enumerate(following, 2):
                phrase = f"{phrase} {last}"
                groups |= dict.fromkeys(self.phrases.get(phrase, ()), length)
            hits += [Hit(group, at, length) for group, length in groups.items()]
        if not text.isascii() and _UNSPACED.search(text):
            for group, pattern in enumerate(self.unspaced):
                for match in pattern.finditer(text):
                    hits.append(Hit(group, match.start(), len(match[0]), unspaced=True))
        return hits

    def _look_up(self, word: str) -> _KnownWord | None:
        if len(self._known) >= _WORDS_REMEMBERED:
            self._known.clear()
        lengths = (length for length in _STEM_LENGTHS if length <= len(word))
        stems = (self.stems.get(word[:length], ()) for length in lengths)
        groups = frozenset(self.phrases.get(word, ())).union(*stems)
        seconds = self.openers.get(word, frozenset())
        known = _KnownWord(tuple(groups), seconds) if groups or seconds else None
        self._known[word] = known
        return known


@cache
def lexicon(file: str) -> Lexicon:
    """A list beside this module."""
    source = files("penstock_jobs.rewards.followups") / file
    groups = tomllib.loads(source.read_text(encoding="utf-8"))
    phrases: dict[str, tuple[int, ...]] = {}
    stems: dict[str, tuple[int, ...]] = {}
    unspaced: list[re.Pattern[str]] = []
    for group, lines in enumerate(groups.values()):
        cues = [cue for line in lines.splitlines() for cue in re.split(", *", line) if cue]
        anywhere = [cue for cue in cues if _UNSPACED.search(cue)]
        unspaced.append(re.compile("|".join(map(re.escape, anywhere)) or r"(?!)"))
        for cue in cues:
            kind, key = (stems, cue[:-1]) if cue.endswith("*") else (phrases, cue)
            if group not in kind.get(key, ()):
                kind[key] = (*kind.get(key, ()), group)
    openers: defaultdict[str, set[str]] = defaultdict(set)
    for phrase in phrases:
        first, *more = phrase.split(" ")
        if more:
            openers[first].add(more[0])
    seconds = {word: frozenset(following) for word, following in openers.items()}
    return Lexicon(tuple(groups), phrases, stems, tuple(unspaced), seconds)
