"""Values of tasks of which some are missing: between which ends each lies.

A mean over tasks has bounds as well where values are missing: each part of a bound is taken to be
as bad as any values within the ranges make it. So no completion of what is missing has a worse
bound than the one that is told (docs/research/gate-statistics.md)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_STEPS_MOST = 50
#: Keeps a ratio from being one of zeros.
_LEAST = 1e-12


@dataclass(frozen=True)
class Ranges:
    """One value for each task. It lies between `low` and `high`, which differ where something is
    missing; `seen` is what was observed of it, NaN where that is nothing."""

    low: Values
    high: Values
    seen: Values

    @classmethod
    def of(cls, values: Values) -> "Ranges":
        return cls(values, values, values)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return bool((self.low == self.high).all())

    @property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    @property
    def known(self) -> Values:
        """What was observed, of the tasks of which something was."""
        return np.asarray(self.seen[~np.isnan(self.seen)])

    @property
    def means(self) -> tuple[float, float]:
        return float(self.low.mean()), float(self.high.mean())

    def minus(self, other: "Ranges", times: float = 1.0) -> "Ranges":
        """`times` is not negative."""
        if times == 0:  # of an end that is infinite as well
            return self
        low, high = self.low - times * other.high, self.high - times * other.low
        return Ranges(low, high, self.seen - times * other.seen)

    def shifted(self, by: float) -> "Ranges":
        return Ranges(self.low + by, self.high + by, self.seen + by)

    def __neg__(self) -> "Ranges":
        return Ranges(-self.high, -self.low, -self.seen)


def squares_least(ranges: Ranges) -> float:
    """The least that the squared differences from the mean can add up to: those of the values
    that are not missing. More values never make it less."""
    fixed = ranges.low[ranges.low == ranges.high]
    return float(((fixed - fixed.mean()) ** 2).sum()) if fixed.size else 0.0


def squares_most(ranges: Ranges, least: Values, most: Values) -> Values:
    """The most that they can add up to while the mean lies from `least` to `most`.

    Values at the high ends add the most squares for their sum where the middle of the range is
    highest, so they go there in that order, the last one in part."""
    low, high, tasks = ranges.low, ranges.high, ranges.low.size
    order = np.argsort(-(low + high), kind="stable")
    wider = (high - low)[order]
    sums = low.sum() + np.concatenate([[0.0], np.cumsum(wider)])
    squares = np.concatenate([[0.0], np.cumsum((high**2 - low**2)[order])]) + (low**2).sum()
    peak = sums[int(((low + high)[order] > 0).sum())]
    top = np.interp(np.clip(peak, tasks * least, tasks * most), sums, squares)
    means = np.clip(0.0, least, most)  # of these the one nearest to 0 takes off the least
    return np.asarray(np.maximum(top - tasks * means**2, squares_least(ranges)))


def step_most(ranges: Ranges, depth: Values) -> Values:
    """The greatest mean step: the sum of the squared differences from the median over the sum of
    the differences, or the depth where nothing differs."""
    low, high = ranges.low, ranges.high
    first, last = np.median(low), np.median(high)
    most = np.maximum(high - first, last - low)
    least = np.maximum(np.maximum(low - last, first - high), 0.0)
    ratio = _LEAST
    for _ in range(_STEPS_MOST):  # Dinkelbach: grows until no choice of the ends makes it greater
        off = np.where(most + least >= ratio, most, least)
        greater = float((off**2).sum() / max(off.sum(), _LEAST))
        if greater <= ratio:
            break
        ratio = greater
    return np.maximum(depth, ratio) if not least.any() else np.full(depth.shape, ratio)
