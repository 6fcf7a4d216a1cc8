"""Whether an offline metric foretells an online one, over pairs of checkpoints. Pure.

Neighbouring pairs share a checkpoint, and so its errors of measurement: their differences are not
independent. Intervals are wider by as much as that can matter."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atanh, isnan, nan, sqrt, tanh
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

#: Standard errors from an estimate to a bound that errs in 5 % of all cases. Intervals err in 10 %.
REACH = 1.6449
#: With fewer pairs nothing is said about a metric.
PAIRS_LEAST = 8
#: The largest product of the correlations of neighbouring differences, offline and online: −½ each.
_NEIGHBOURS = 0.25

Conclusion = Literal["foretells", "misleads", "not shown", "too few pairs"]


@dataclass(frozen=True)
class Estimate:
    """A value with its bounds, which err in 5 % each. Without bounds nobody knows how exact it
    is.

    Of a gain of a candidate over its incumbent more is better, whatever the metric."""

    value: float
    lower: float | None
    upper: float | None

    @property
    def sign(self) -> int:
        return (self.value > 0) - (self.value < 0)

    @property
    def shown(self) -> int:
        """The sign, if the interval excludes 0; otherwise 0."""
        return int((self.lower or 0) > 0) - int((self.upper or 0) < 0)

    @property
    def error(self) -> float:
        """The standard error, as the interval tells it."""
        if self.lower is None or self.upper is None:
            return nan
        return (self.upper - self.lower) / 2 / REACH


class Foresight(msgspec.Struct, frozen=True, kw_only=True):
    """`agreed` of `compared` pairs have the same sign offline and online; `shown_agreed` of `shown`
    do where both intervals exclude 0. `noise` is the share of the spread of differences that errors
    of measurement explain, offline and online."""

    pairs: int
    agreed: int
    compared: int
    agreement: Estimate | None
    shown_agreed: int
    shown: int
    correlation: Estimate | None
    noise: tuple[float | None, float | None]
    conclusion: Conclusion


class MarginOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of the gate with another margin, and what users met.

    `passed_worse` candidates were worse online, `kept_out_better` ones were better; `…_shown`
    counts those whose interval excludes 0."""

    margin: float
    passed: int
    failed: int
    undecided: int
    passed_worse: int
    passed_worse_shown: int
    kept_out_better: int
    kept_out_better_shown: int


GainPair = tuple[Estimate, Estimate]


def foresight_of(pairs: Sequence[GainPair], links: int) -> Foresight:
    """Compare offline and online gains. `links` of the pairs share a checkpoint with another."""
    signs = [(offline.sign, online.sign) for offline, online in pairs]
    both = [offline == online for offline, online in signs if offline and online]
    shown = [(offline.shown, online.shown) for offline, online in pairs]
    known = [offline == online for offline, online in shown if offline and online]
    weight = 1 + 2 * _NEIGHBOURS * links / max(len(pairs), 1)
    correlation = agreement = None
    if len(pairs) >= PAIRS_LEAST:
        ours, theirs = ([gain.value for gain in side] for side in zip(*pairs, strict=True))
        correlation = rank_correlation(ours, theirs, weight)
        agreement = share_of(sum(both), len(both), weight) if both else None
    conclusion: Conclusion = "not shown" if len(pairs) >= PAIRS_LEAST else "too few pairs"
    if correlation is not None and correlation.shown > 0:
        conclusion = "foretells"
    elif correlation is not None and correlation.shown < 0:
        conclusion = "misleads"
    return Foresight(
        pairs=len(pairs),
        agreed=sum(both),
        compared=len(both),
        agreement=agreement,
        shown_agreed=sum(known),
        shown=len(known),
        correlation=correlation,
        noise=(_noise([pair[0] for pair in pairs]), _noise([pair[1] for pair in pairs])),
        conclusion=conclusion,
    )


def rank_correlation(
    ours: Sequence[float], theirs: Sequence[float], weight: float
) -> Estimate | None:
    """Spearman's correlation, with Bonett and Wright's interval. None if one side is constant.

    `weight` pairs say as much as one independent pair."""
    ranks = [_ranks(side) for side in (ours, theirs)]
    if min(np.ptp(side) for side in ranks) == 0:
        return None
    value = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    free = len(ours) / weight - 3
    if free <= 0:
        return Estimate(value, -1.0, 1.0)
    # A correlation of 1 in a few pairs is not known exactly.
    most = 1 - 1 / len(ours) ** 2
    reach = REACH * sqrt((1 + value**2 / 2) / free)
    at = atanh(min(max(value, -most), most))
    return Estimate(value, tanh(at - reach), tanh(at + reach))


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def share_of(hits: int, count: int, weight: float) -> Estimate:
    """A share with Wilson's interval."""
    value, size, square = hits / count, count / weight, REACH**2
    middle = (value + square / (2 * size)) / (1 + square / size)
    reach = REACH / (1 + square / size)
    reach *= sqrt(value * (1 - value) / size + square / (4 * size**2))
    return Estimate(value, max(middle - reach, 0.0), min(middle + reach, 1.0))


def _noise(gains: Sequence[Estimate]) -> float | None:
    values, errors = [gain.value for gain in gains], [gain.error for gain in gains]
    spread = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    if spread == 0 or isnan(sum(errors)):
        return None
    return min(float(np.mean(np.square(errors))) / spread, 1.0)


def outcome_at(pairs: Sequence[GainPair], margin: float) -> MarginOutcome:
    """Decide all pairs anew, as if the gate had allowed a loss of `margin`."""
    passed: list[Estimate] = []
    kept_out: list[Estimate] = []
    failed = 0
    for offline, online in pairs:
        lower, upper = offline.lower, offline.upper
        (passed if lower is not None and lower >= -margin else kept_out).append(online)
        failed += upper is not None and upper < -margin
    return MarginOutcome(
        margin=margin,
        passed=len(passed),
        failed=failed,
        undecided=len(kept_out) - failed,
        passed_worse=sum(gain.sign < 0 for gain in passed),
        passed_worse_shown=sum(gain.shown < 0 for gain in passed),
        kept_out_better=sum(gain.sign > 0 for gain in kept_out),
        kept_out_better_shown=sum(gain.shown > 0 for gain in kept_out),
    )
