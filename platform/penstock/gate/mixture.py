"""A bound that a random walk crosses once, at any time, with a chance of at most alpha.

An estimate whose variance is v has gathered the information 1/v. Information × (estimate − truth)
is, in the limit of many observations, Brownian motion in the information, and a mixture of
likelihood ratios over normally distributed drifts bounds that for ever (Robbins 1970; one-sided:
Howard, Ramdas, McAuliffe and Sekhon 2021).
"""

from typing import Any

import numpy as np

#: With a mixture of this width, as a part of an information, the bound is narrowest there
#: (for alpha from 0.1 to 0.001 within 2 %).
_NARROWEST = 0.13


def bound(variance: Any, *, at: float, alpha: float) -> Any:
    """How far an estimate with this variance may lie on one side of the truth. `at` is the
    information for which the bound is narrowest, and has to be chosen before the data are seen."""
    rho = _NARROWEST * at
    information = 1 / np.maximum(variance, 1e-300)
    spread = information + rho
    radius = np.sqrt(2 * spread * np.log1p(np.sqrt(spread / rho) / (2 * alpha)))
    return radius / information
