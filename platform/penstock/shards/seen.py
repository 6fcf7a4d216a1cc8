"""A set of 64-bit digests that only grows: eight bytes for each, however many there are."""

from collections.abc import Iterable

import numpy as np
import xxhash


def digests_of(texts: Iterable[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], np.uint64)


class Seen:
    """Two texts of ten million have the same digest once in 400,000 times."""

    def __init__(self) -> None:
        #: Sorted, each at least twice as long as the next.
        self._levels: list[np.ndarray] = []

    def add(self, digests: np.ndarray) -> int | None:
        """Which is the first that was there already, if any."""
        ordered = np.argsort(digests, kind="stable")
        own = digests[ordered]
        again = np.zeros(len(own), bool)
        again[ordered[1:][own[1:] == own[:-1]]] = True
        for level in self._levels:
            at = np.minimum(np.searchsorted(level, digests), len(level) - 1)
            again |= level[at] == digests
        if len(own):
            self._levels.append(own)
        while len(self._levels) > 1 and len(self._levels[-2]) < 2 * len(self._levels[-1]):
            pair = self._levels.pop(), self._levels.pop()
            self._levels.append(np.sort(np.concatenate(pair), kind="stable"))
        return int(again.argmax()) if again.any() else None
