"""What belongs together, directly or through others."""

from typing import Any

import numpy as np
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
