"""The wholes that parts make up, for all parts of a bucket at once: by columns.

A whole is the weighted mean of its parts. As long as any part is pending, so is the whole. Else it
is scored over the parts that are; else it has the commonest state and reason of its parts. Where
all scored parts weigh nothing, each counts the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Standings that are always there, by their number.
SCORED, PENDING = 0, 1
#: Where nothing is pending, nothing is due.
NOT_DUE = np.iinfo(np.int64).min


class Standings(NamedTuple):
    """States with their reasons, by number. After the first two they are in their order, so that
    of two that are as common the first is taken."""

    states: list[str]
    reasons: list[str | None]

    @classmethod
    def of(cls, found: Sequence[tuple[str, str | None]]) -> "Standings":
        first = [("scored", None), ("pending", None)]
        rest = sorted(set(found).difference(first), key=str)
        states, reasons = zip(*first, *rest, strict=True)
        return cls(list(states), list(reasons))

    def numbers(self) -> dict[tuple[str, str | None], int]:
        return {key: at for at, key in enumerate(zip(self.states, self.reasons, strict=True))}


class Parts(NamedTuple):
    """A row a target, a column a horizon."""

    #: NaN where there is none.
    value: Floats
    #: The number of the standing.
    standing: Numbers
    weight: Floats
    #: By when it is pending no more; else NOT_DUE.
    due_us: Numbers


def wholes(parts: Parts, of: Numbers, count: int) -> Parts:
    """`of` says which of the `count` wholes each target belongs to. Sums are added up in the
    order of the targets."""
    horizons = parts.value.shape[1]
    size = count * horizons
    place = (of[:, np.newaxis] * horizons + np.arange(horizons)).ravel()
    value, standing = parts.value.ravel(), parts.standing.ravel()
    weight, due_us = parts.weight.ravel(), parts.due_us.ravel()

    scored = standing == SCORED
    counted = np.where(scored, weight, 0.0)
    worth = np.where(scored, value, 0.0)
    all_weight = np.bincount(place, weight, size)
    scored_weight = np.bincount(place, counted, size)
    scored_parts = np.bincount(place, scored, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(place, counted * worth, size) / scored_weight
        plain = np.bincount(place, worth, size) / scored_parts
    latest = np.full(size, NOT_DUE)
    np.maximum.at(latest, place, due_us)

    waits = np.bincount(place, standing == PENDING, size) > 0
    is_scored = (scored_parts > 0) & ~waits
    other = np.where(waits, PENDING, _commonest(place, standing, size))
    whole = Parts(
        np.where(is_scored, np.where(scored_weight != 0, mean, plain), np.nan),
        np.where(is_scored, SCORED, other),
        np.where(is_scored, scored_weight, all_weight),
        latest,
    )
    alone = np.bincount(place, minlength=size) == 1
    only = np.zeros(size, np.int64)
    only[place] = np.arange(len(place))
    flat = (value, standing, weight, due_us)
    columns = [
        np.where(alone, part[only], one).reshape(count, horizons)
        for part, one in zip(flat, whole, strict=True)
    ]
    return Parts(*columns)


def _commonest(place: Numbers, standing: Numbers, size: int) -> Numbers:
    """Of the standings without a value."""
    numbers = int(standing.max(initial=PENDING)) + 1
    counts = np.bincount(place * numbers + standing, minlength=size * numbers)
    counts = counts.reshape(size, numbers)
    counts[:, : PENDING + 1] = 0
    found: Numbers = counts.argmax(axis=1)
    return found
