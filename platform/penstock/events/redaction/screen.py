"""The screen: which rules may match some bytes.

With hyperscan one scan of a line takes microseconds; without it the rules are tried one by one,
with the same answers, forty times slower."""

import re
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from penstock.events.redaction.rules import RedactionRulesInvalid, Rule

#: Marks beside those of rules: what may hide a secret, token ids, and what was masked before.
ESCAPED, PERCENT, BASE64, TOKEN_IDS, MASKED = -1, -2, -3, -4, -5

# Base64 of plain text: the high bit of each byte is 0, which leaves half of the letters in three of
# four places.
QUARTET = "[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
_HIDING = {
    ESCAPED: r"\\(?:u00[2-7][0-9a-fA-F]|x[2-7][0-9a-fA-F])",
    PERCENT: r"%(?:25)?(?:40|3[AaDd]|2[FfBb])|(?:%[2-7][0-9A-Fa-f]){2}",
    BASE64: f"(?:{QUARTET}){{5}}",
    MASKED: r"\[(?:SECRET|PERSONAL):",
    TOKEN_IDS: r'"(?:prompt_ids|completion_ids)"',
}

Marks = frozenset[int]
NOTHING: Marks = frozenset()


class Screen(Protocol):
    #: Whether content without marks has none either when it is cut at its line breaks.
    takes_lines: bool

    def marks(self, content: bytes) -> Marks:
        """Places of rules that may match, and the marks above."""


#: What an anchor may say of the ends of all that is scanned; `^` and `$` are of each line.
_OF_THE_ENDS = re.compile(rb"\\[AZz]|\(\?[a-zA-Z]*-")


def screen_of(rules: Sequence[Rule]) -> Screen:
    return _compiled(tuple(rule.anchor for rule in rules))


@cache
def _compiled(of_rules: tuple[bytes, ...]) -> Screen:
    """To compile them takes 100 ms, and tenants with other modes have the same rules."""
    anchors = dict(enumerate(of_rules))
    anchors |= {mark: pattern.encode() for mark, pattern in _HIDING.items()}
    try:
        return _ScreenAtOnce(anchors)
    except ImportError:
        return _ScreenOneByOne(anchors)


class _ScreenAtOnce:
    def __init__(self, anchors: dict[int, bytes]) -> None:
        import hyperscan

        self.takes_lines = not any(map(_OF_THE_ENDS.search, anchors.values()))
        self._marks = list(anchors)
        self._database: Any = hyperscan.Database()
        try:
            self._database.compile(
                expressions=list(anchors.values()),
                ids=list(range(len(anchors))),
                elements=len(anchors),
                flags=[hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_MULTILINE] * len(anchors),
            )
        except hyperscan.error as error:
            why = f"an anchor is too large or not supported: {error}"
            raise RedactionRulesInvalid(file="in use", why=why) from error
        # The memory of a scan serves one thread at a time.
        self._lock = threading.Lock()
        self._matched: list[int] = []

    def marks(self, content: bytes) -> Marks:
        with self._lock:
            self._database.scan(content, match_event_handler=self._note)
            if not self._matched:
                return NOTHING
            matched = frozenset(self._marks[number] for number in self._matched)
            self._matched.clear()
        return matched

    def _note(self, number: int, *_place: object) -> None:
        self._matched.append(number)


class _ScreenOneByOne:
    takes_lines = False  # an anchor may look around here, and see the next line

    def __init__(self, anchors: dict[int, bytes]) -> None:
        self._anchors = {mark: re.compile(anchor, re.DOTALL) for mark, anchor in anchors.items()}

    def marks(self, content: bytes) -> Marks:
        return frozenset(mark for mark, anchor in self._anchors.items() if anchor.search(content))
