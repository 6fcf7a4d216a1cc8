"""How strict each of several looks has to be, so that all of them together err with at most alpha.

Lan and DeMets: a look at the part t of all information may have spent alpha · t^exponent by then.
The bound of each look follows from those before by the joint distribution of Brownian motion at
these parts. Looks that resemble each other more than that err less.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

#: The integral over where the walk may stand: from so many deviations below, at so many points.
_LOWEST, _HIGHEST = -8.0, 9.0
_POINTS = 401
_HALVINGS = 60


def levels(parts: Sequence[float], alpha: float, exponent: float) -> tuple[float, ...]:
    """The one-sided level of each look. `parts` grow up to 1."""
    return _levels(tuple(parts), alpha, exponent)


@lru_cache(maxsize=256)
def _levels(parts: tuple[float, ...], alpha: float, exponent: float) -> tuple[float, ...]:
    from scipy.special import ndtr

    found: list[float] = []
    #: Where the walk may stand without having crossed yet, how likely, and when.
    at, mass, before = np.zeros(1), np.ones(1), 0.0
    for part in parts:
        step, deviation = (part - before) ** 0.5, part**0.5
        due = alpha * (part**exponent - before**exponent)
        height = _height(at, mass, step, due, deviation)
        found.append(float(ndtr(-height / deviation)))
        points = np.linspace(_LOWEST * deviation, height, _POINTS)
        density = np.exp(-(((points[:, None] - at) / step) ** 2) / 2) @ mass
        weights = np.full(_POINTS, (points[1] - points[0]) / (step * (2 * np.pi) ** 0.5))
        weights[[0, -1]] /= 2
        at, mass, before = points, density * weights, part
    return tuple(found)


def _height(at: Any, mass: Any, step: float, due: float, deviation: float) -> float:
    """Over which the walk is next with the chance that is due."""
    from scipy.special import ndtr

    low, high = _LOWEST * deviation, _HIGHEST * deviation
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if mass @ ndtr((at - middle) / step) > due:
            low = middle
        else:
            high = middle
    return high
