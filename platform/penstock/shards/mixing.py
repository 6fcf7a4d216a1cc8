"""Which source of a mixture the next group comes from. Pure, and known from the positions alone.

Each source has drawn samples in proportion to its weight, to within a group: the next is the one
that is furthest behind its share.
"""

from collections.abc import Sequence
from typing import Literal

from penstock.errors import InvalidInput

#: What happens when a source has no more groups in its epoch: the mixture ends (`stop`), goes on
#: without it until all are empty (`drop`), or begins its next epoch, and ends when each source was
#: read to its end at least once (`repeat`).
Exhausted = Literal["stop", "drop", "repeat"]


def furthest_behind(drawn: Sequence[int], weights: Sequence[float], left: Sequence[bool]) -> int:
    """The source that goes next, of those that are `left`; the first of several that are even."""
    shares = [
        (count / weight, number)
        for number, (count, weight, there) in enumerate(zip(drawn, weights, left, strict=True))
        if there
    ]
    return min(shares)[1]


def check_weights(weights: Sequence[float]) -> None:
    """Raises InvalidInput."""
    if not weights:
        raise InvalidInput(what="The mixture", why="it has no source")
    for weight in weights:
        if not 0 < weight < float("inf"):
            raise InvalidInput(what=f"The weight {weight!r}", why="a weight is a number over 0")
