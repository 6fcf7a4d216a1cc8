"""Split: which sessions a shard keeps for evaluation. Pure.

A group, a chain and the user or repository that the recipe names are never on both sides. Where
these overlap, all that is linked is on one side. The seed and the least name decide which. So a
side does not depend on the order of sessions, and a new session moves only those that it links.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray


def split(keys: Sequence[Sequence[str | None]], eval_share: float, seed: int) -> list[str]:
    """`train` or `eval` for each session. `keys` are columns over the sessions, narrow ones first:
    sessions with an equal key are on one side. None links with nothing."""
    count = len(keys[0])
    ones: list[int] = []
    others: list[int] = []
    for column in keys:
        first: dict[str, int] = {}
        for place, key in enumerate(column):
            if key is not None:
                ones.append(first.setdefault(key, place))
                others.append(place)
    roots = linked(count, np.array(ones, np.int64), np.array(others, np.int64)).tolist()
    names: dict[int, str] = {}
    for place, root in enumerate(roots):
        name = _name(keys, place)
        names[root] = min(names.get(root, name), name)
    bound = round(eval_share * 2**64)
    sides = {root: _side(name, bound, seed) for root, name in names.items()}
    return [sides[root] for root in roots]


def linked(count: int, ones: NDArray[Any], others: NDArray[Any]) -> NDArray[np.int64]:
    """For each of `count` things the least that it is linked with, directly or through others;
    `ones[i]` and `others[i]` are linked."""
    least = np.arange(count)
    while True:
        low = np.minimum(least[ones], least[others])
        after = least.copy()
        for ends in (ones, others):
            # Also for the least that it had: so whole trees are moved at once.
            np.minimum.at(after, least[ends], low)
            np.minimum.at(after, ends, low)
        while not np.array_equal(after[after], after):
            after = after[after]
        if np.array_equal(after, least):
            return least
        least = after


def _name(keys: Sequence[Sequence[str | None]], place: int) -> str:
    """By the widest key, so that a new session of a user joins the others."""
    return next((key for column in reversed(keys) if (key := column[place]) is not None), "")


def _side(name: str, bound: int, seed: int) -> str:
    lot = xxhash.xxh3_64_intdigest(f"split:{name}".encode("utf-8", "surrogatepass"), seed % 2**64)
    return "eval" if lot < bound else "train"
