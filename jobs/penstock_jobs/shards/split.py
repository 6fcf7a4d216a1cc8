"""What belongs together, directly or through others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Places = NDArray[np.int64]


def linked(count: int, ones: NDArray[Any], others: NDArray[Any]) -> Places:
    """For each of `count` things the least one that it is linked with, itself included, where
    `ones[i]` and `others[i]` are linked."""
    least = np.arange(count)
    while True:
        low = np.minimum(least[ones], least[others])
        after = least.copy()
        for ends in (ones, others):
            # Also for the least that it had: so whole trees are moved at once.
            np.minimum.at(after, least[ends], low)
            np.minimum.at(after, ends, low)
        while True:
            shorter = after[after]
            if np.array_equal(shorter, after):
                break
            after = shorter
        if np.array_equal(after, least):
            return least
        least = after


_TRAIN, _EVAL = "train", "eval"


def split(keys: Sequence[Sequence[str | None]], eval_share: float, seed: int) -> list[str]:
    """`train` or `eval` for each session. `keys` are columns over them: the groups, the chains,
    and what else must not be on both sides. None links with nothing."""
    count = len(keys[0])
    ones: list[int] = []
    others: list[int] = []
    for column in keys:
        first: dict[str, int] = {}
        for place, key in enumerate(column):
            if key is not None:
                ones.append(first.setdefault(key, place))
                others.append(place)
    together = linked(count, np.array(ones, np.int64), np.array(others, np.int64))
    names: dict[int, str] = {}
    for place, root in enumerate(together.tolist()):
        name = _name(keys, place)
        names[root] = min(names.get(root, name), name)
    bound = round(eval_share * 2**64)
    sides = {root: _side(name, bound, seed) for root, name in names.items()}
    return [sides[root] for root in together.tolist()]


def _name(keys: Sequence[Sequence[str | None]], place: int) -> str:
    """Of the widest that it belongs to: where a user's new session comes, it joins them."""
    for column in reversed(keys):
        if (key := column[place]) is not None:
            return key
    return ""


def _side(name: str, bound: int, seed: int) -> str:
    drawn = xxhash.xxh3_64_intdigest(f"split:{name}".encode("utf-8", "surrogatepass"), seed % 2**64)
    return _EVAL if drawn < bound else _TRAIN
