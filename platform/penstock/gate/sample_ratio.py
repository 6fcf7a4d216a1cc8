"""Whether a canary gets the share of users that it should. If not, something beside the model
differs (users who crash leave no session), and no comparison of the arms means anything.

The evidence is a Bayes factor: the chance of the counts when the share is unknown, over that when
it is as said. While the share is as said, it ever exceeds 1/alpha with a chance of at most alpha,
however often one looks (Lindon and Malek 2020). Phases with other shares multiply.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import Literal

#: How closely an unknown share is thought to lie around the one that was said, as a number of users
#: seen before: large and small mismatches are both found.
_CONCENTRATIONS = (30.0, 300.0, 3000.0)


@dataclass(frozen=True)
class Seen:
    """Users who were first seen in a phase, by the arm in which they were: each user counts
    once."""

    share: float
    canary: int
    current: int


@dataclass(frozen=True, kw_only=True)
class SampleRatio:
    """`p` is valid at every look: 1 / the evidence, at most 1."""

    outcome: Literal["fits", "mismatch"]
    p: float
    expected: float
    found: float
    users: int


def check(seen: Iterable[Seen], alpha: float = 0.001) -> SampleRatio:
    """`expected` and `found` are users of the canary. A share of 0 or 1 leaves nothing to see."""
    phases = [one for one in seen if 0 < one.share < 1]
    users = sum(one.canary + one.current for one in phases)
    evidence = _log_mean_exp(
        [sum(_log_factor(one, size) for one in phases) for size in _CONCENTRATIONS]
    )
    return SampleRatio(
        outcome="mismatch" if evidence >= -log(alpha) else "fits",
        p=min(1.0, exp(-evidence)) if evidence > 0 else 1.0,
        expected=sum((one.canary + one.current) * one.share for one in phases),
        found=sum(one.canary for one in phases),
        users=users,
    )


def _log_factor(seen: Seen, concentration: float) -> float:
    from scipy.special import betaln

    canary, current = concentration * seen.share, concentration * (1 - seen.share)
    unknown = betaln(canary + seen.canary, current + seen.current) - betaln(canary, current)
    said = seen.canary * log(seen.share) + seen.current * log(1 - seen.share)
    return float(unknown - said)


def _log_mean_exp(values: list[float]) -> float:
    top = max(values)
    return top + log(sum(exp(value - top) for value in values) / len(values))
