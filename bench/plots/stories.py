"""A text that an agent wrote, and what became of it afterwards."""

import random
from collections.abc import Callable, Sequence

from tests.support.rewards.stories import Story

#: All of one length: what is a share of the lines is one of the characters too.
_WORDS = (
    "cursor", "digest", "filter", "handle", "kernel", "ledger", "margin", "number", "offset",
    "parcel", "record", "ticket", "update", "vector", "window",
)  # fmt: skip
_OTHER_WORDS = (
    "animal", "bottle", "candle", "dinner", "engine", "forest", "garden", "hammer", "island",
    "jungle", "kitten", "ladder", "mirror", "needle", "orange",
)  # fmt: skip
_LINES = 40

#: What became of the written lines, for a share of them or of their characters.
Fate = Callable[[Sequence[str], float], Sequence[str]]


def lines_of(seed: int, count: int = _LINES, words: Sequence[str] = _WORDS) -> list[str]:
    """Lines of code that no two seeds share."""
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        one, two, three, four, five = dice.sample(words, 5)
        found.append(f"{one}_{two} = {three}({four}.{five}, {dice.randrange(100, 1000)})")
    return found


HEAD, WRITTEN, TAIL = (lines_of(seed) for seed in range(3))
OTHER = lines_of(3, words=_OTHER_WORDS)


def text_of(*parts: Sequence[str]) -> str:
    return "".join(f"{line}\n" for part in parts for line in part)


def inserted(now: str) -> Story:
    """The agent put WRITTEN between HEAD and TAIL, and half a minute later the file is this."""
    story = Story().edit(0, text_of(HEAD, TAIL), text_of(HEAD, WRITTEN, TAIL))
    return story.look(31, now)


def after(fate: Fate, share: float) -> Story:
    return inserted(text_of(HEAD, fate(WRITTEN, share), TAIL))


def deleted(lines: Sequence[str], share: float) -> Sequence[str]:
    return lines[_count(lines, share) :]


def indented(lines: Sequence[str], share: float) -> Sequence[str]:
    chosen = _count(lines, share)
    return [*(f"        {line}" for line in lines[:chosen]), *lines[chosen:]]


def with_new_ends(lines: Sequence[str], share: float) -> Sequence[str]:
    """Each line is as it was up to a place, and from there another's."""
    return [_new_end(line, other, share) for line, other in zip(lines, OTHER, strict=False)]


def with_other_characters(lines: Sequence[str], share: float) -> Sequence[str]:
    """Here and there one, spread evenly by chance."""
    dice = random.Random(7)
    text = list(text_of(lines))
    places = [at for at, one in enumerate(text) if not one.isspace()]
    for at in dice.sample(places, round(share * len(places))):
        text[at] = dice.choice("QXZJKVWY")
    return "".join(text).splitlines()


def with_another_word(lines: Sequence[str], share: float) -> Sequence[str]:
    """In the chosen lines, the called function."""
    chosen = _count(lines, share)
    pairs = zip(lines[:chosen], OTHER, strict=False)
    return [*(f"{line[:16]}{other[16:22]}{line[22:]}" for line, other in pairs), *lines[chosen:]]


def moved(share: float) -> Story:
    """The first of the lines stand at the end of the file now."""
    chosen = _count(WRITTEN, share)
    return inserted(text_of(HEAD, WRITTEN[chosen:], TAIL, WRITTEN[:chosen]))


def _count(lines: Sequence[str], share: float) -> int:
    return round(share * len(lines))


def _new_end(line: str, other: str, share: float) -> str:
    kept = round((1 - share) * len(line))
    return line[:kept] + other[kept - len(line) :] if kept < len(line) else line
