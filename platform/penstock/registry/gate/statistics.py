"""Bounds of a mean over tasks, and tests against a limit (bench/pages/gate-statistics.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.registry.gate.policy import Direction

Values = NDArray[np.float64]

#: The share of the step between scores that the first bound adds, and the weight of its suspected
#: task. With 0.5 and 1.0, which theory suggests, some cases err in 5.6 % instead of 5 %.
_STEP = 0.7
_SUSPECT = 1.1
#: How many levels of the other tasks, and at most how many lost ones, the second bound tries.
_LEVELS = 8
_LOST_MOST = 60
#: With missing values the ranges of the mean and the level are cut into parts, and the worst part
#: counts. More parts make the bounds narrower but slower.
_MEAN_PARTS = 4
_LEVEL_PARTS = 32
#: Less likely numbers of lost tasks are not tried, and count against the candidate.
_NEGLIGIBLE = 1e-12
_HALVINGS = 44
#: The smallest distance, to avoid ratios of zeros.
_LEAST = 1e-12
_STEPS_MOST = 50


class Ranges(msgspec.Struct, frozen=True):
    """One value per task, between `low` and `high`, which differ if something is missing. `seen` is
    the observed value, or NaN."""

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
        """The observed values, without NaN."""
        return np.asarray(self.seen[~np.isnan(self.seen)])

    @property
    def means(self) -> tuple[float, float]:
        return float(self.low.mean()), float(self.high.mean())

    def minus(self, other: "Ranges", times: float = 1.0) -> "Ranges":
        """Subtract `times` the other ranges; `times` is not negative."""
        if times == 0:  # also for infinite ends
            return self
        low, high = self.low - times * other.high, self.high - times * other.low
        return Ranges(low, high, self.seen - times * other.seen)

    def shifted(self, by: float) -> "Ranges":
        return Ranges(self.low + by, self.high + by, self.seen + by)

    def __neg__(self) -> "Ranges":
        return Ranges(-self.high, -self.low, -self.seen)


def squares_least(ranges: Ranges) -> float:
    """The least sum of squared differences from the mean: the complete values alone. More values
    never reduce it."""
    fixed = ranges.low[ranges.low == ranges.high]
    return float(((fixed - fixed.mean()) ** 2).sum()) if fixed.size else 0.0


def squares_most(ranges: Ranges, least: Values, most: Values) -> Values:
    """The largest sum of squared differences from the mean, for means from `least` to `most`."""
    low, high, tasks = ranges.low, ranges.high, ranges.low.size
    order = np.argsort(-(low + high), kind="stable")
    wider = (high - low)[order]
    sums = low.sum() + np.concatenate([[0.0], np.cumsum(wider)])
    squares = np.concatenate([[0.0], np.cumsum((high**2 - low**2)[order])]) + (low**2).sum()
    peak = sums[int(((low + high)[order] > 0).sum())]
    top = np.interp(np.clip(peak, tasks * least, tasks * most), sums, squares)
    means = np.clip(0.0, least, most)  # the mean nearest to 0 subtracts the least
    return np.asarray(np.maximum(top - tasks * means**2, squares_least(ranges)))


def step_most(ranges: Ranges, depth: Values) -> Values:
    """The largest mean step: squared over absolute differences from the median, or the depth if
    nothing differs."""
    low, high = ranges.low, ranges.high
    first, last = np.median(low), np.median(high)
    most = np.maximum(high - first, last - low)
    least = np.maximum(np.maximum(low - last, first - high), 0.0)
    ratio = _LEAST
    for _ in range(_STEPS_MOST):  # Dinkelbach's method: repeat until no choice of ends improves it
        off = np.where(most + least >= ratio, most, least)
        greater = float((off**2).sum() / max(off.sum(), _LEAST))
        if greater <= ratio:
            break
        ratio = greater
    return np.maximum(depth, ratio) if not least.any() else np.full(depth.shape, ratio)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """`lower` and `upper` each err in alpha of all cases."""

    tasks: int
    standard_error: float
    lower: float
    upper: float
    #: The chance of such a good result if the mean is no better than the limit.
    p: float
    #: The chance of such a bad result if the mean is no worse than the limit.
    p_worse: float


@dataclass(frozen=True, kw_only=True)
class Estimate(Bounds):
    """A mean over tasks."""

    mean: float


@dataclass(frozen=True, kw_only=True)
class Comparison(Bounds):
    """Candidate minus incumbent over common tasks; more is better in either direction. Swapping
    both turns all signs. The limit is a loss of the margin."""

    candidate_mean: float
    incumbent_mean: float
    difference: float
    df: int
    margin: float
    alpha: float


def compare(
    candidate: Mapping[str, Sequence[float]],
    incumbent: Mapping[str, Sequence[float]],
    *,
    margin: float,
    alpha: float,
) -> Comparison:
    """Compare scores of attempts by task. Only common tasks count. Raises ValueError for fewer than
    two."""
    tasks = sorted(candidate.keys() & incumbent.keys())
    # Sorted, so that rounding does not depend on the order of attempts.
    ours, theirs = (
        np.array([np.sort(np.asarray(side[task], dtype=float)).mean() for task in tasks])
        for side in (candidate, incumbent)
    )
    both = Ranges.of(ours), Ranges.of(theirs)
    return compare_values(*both, margin=margin, alpha=alpha, direction="max", scale=None)


def compare_values(
    ours: Ranges,
    theirs: Ranges,
    *,
    margin: float,
    alpha: float,
    direction: Direction,
    scale: tuple[float, float] | None,
) -> Comparison:
    """Compare one value per task and side; see `estimate`. The means cover tasks observed on both
    sides."""
    gains = ours.minus(theirs) if direction == "max" else theirs.minus(ours)
    seen = ~np.isnan(gains.seen)
    bounds = asdict(estimate(gains, limit=-margin, alpha=alpha, scale=scale))
    bounds |= {"candidate_mean": float(ours.seen[seen].mean())}
    bounds |= {"incumbent_mean": float(theirs.seen[seen].mean())}
    bounds |= {"difference": bounds.pop("mean"), "df": gains.seen.size - 1}
    return Comparison(margin=margin, alpha=alpha, **bounds)


def estimate(
    values: Ranges,
    *,
    limit: float,
    alpha: float,
    worst: float = -1.0,
    best: float = 1.0,
    scale: tuple[float, float] | None = None,
) -> Estimate:
    """Estimate the mean of one value per task. Values lie between `worst` and `best`, or have a
    `scale`: the range of a metric without ends."""
    known = values.known
    if known.size < 2 or not np.isfinite(known).all():
        raise ValueError("at least two tasks are needed, and finite values")
    facts: dict[str, Any] = {"tasks": values.seen.size, "mean": float(known.mean())}
    facts["standard_error"] = float(known.std(ddof=1) / np.sqrt(known.size))
    if not values.bounded:  # some value is unbounded
        return Estimate(**facts, lower=-np.inf, upper=np.inf, p=1.0, p_worse=1.0)
    sample, turned = _sample_of(values, worst, scale), _sample_of(-values, -best, scale)
    p, p_worse = (float(_chance(*each).max()) for each in ((sample, limit), (turned, -limit)))
    facts |= {"lower": _lower(sample, alpha), "upper": -_lower(turned, alpha)}
    return Estimate(**facts, p=p, p_worse=p_worse)


def lower_bound(values: Values | Ranges, worst: float, alpha: float) -> float:
    """A bound that the mean lies below in at most alpha of all cases."""
    ranges = values if isinstance(values, Ranges) else Ranges.of(values)
    return _lower(_sample_of(ranges, worst, None), alpha)


def chance(values: Values | Ranges, worst: float, limit: float) -> Any:
    """The chance of such a high mean if the truth is at most `limit`. Works along the last axis."""
    if isinstance(values, Ranges):
        return float(_chance(_sample_of(values, worst, None), limit).max())
    chances = _chance(_Sample.of(np.atleast_2d(values), worst), limit)
    return chances if values.ndim > 1 else chances[0]


def _sample_of(values: Ranges, worst: float, scale: tuple[float, float] | None) -> "_Sample":
    if not values.whole:
        return _Sample.worst_of(values, worst, scale)
    if scale is not None:  # the furthest distance of an unobserved task from the mean
        mean = float(values.low.mean())
        worst = mean - max(float(np.abs(values.low - mean).max()), abs(scale[0]), _LEAST)
    return _Sample.of(values.low[np.newaxis], worst)


def _lower(sample: "_Sample", alpha: float) -> float:
    from scipy.special import stdtrit

    t = stdtrit(sample.tasks - 1, 1 - alpha)
    skewed = sample.mean - t * sample.error - (2 * t**2 + 1) / 6 * sample.skew - sample.step
    low = np.maximum(skewed, sample.worst)
    higher = _lost_chance(sample, low) <= alpha  # there the second bound is higher
    if higher.any():
        high = np.where(higher, sample.mean, low)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            within = _lost_chance(sample, middle) <= alpha
            low, high = np.where(within, middle, low), np.where(within, high, middle)
    return float(np.maximum(skewed, low).min())


def _chance(sample: "_Sample", limit: float) -> Values:
    return np.minimum(_expanded_chance(sample, limit), _lost_chance(sample, limit))


class _Sample(msgspec.Struct, frozen=True):
    """The inputs of the bounds, one value per row. A row is a sample, or stands for all completions
    with means in one part of the range, with the worst of each value."""

    tasks: int
    mean: Values
    #: The least and the largest sum of squared differences from the mean.
    squares: tuple[Values, Values]
    #: The highest level that the second bound tries.
    top: Values
    #: The first bound's standard error, skew and step.
    error: Values
    skew: Values
    step: Values
    #: The worst possible value: its least and its largest.
    worst: Any
    worst_most: Any
    #: Whether the second bound must hold for all levels between those that it tries.
    between: bool = False

    @classmethod
    def of(cls, rows: Values, worst: float) -> "_Sample":
        tasks = rows.shape[-1]
        mean = rows.mean(axis=-1)
        apart = rows - mean[:, np.newaxis]
        squares = (apart**2).sum(axis=-1)
        depth = np.maximum(mean - worst, _LEAST)  # of the worst possible value below the mean
        median = np.median(rows, axis=-1)
        off = np.abs(rows - median[:, np.newaxis])
        total = off.sum(axis=-1)
        known = np.where(total > 0, total, 1.0)
        spread = np.maximum(squares, _SUSPECT * depth**2)
        return cls(
            tasks=tasks,
            mean=mean,
            squares=(squares, squares),
            top=np.maximum(mean, median),
            error=np.sqrt(spread / (tasks * (tasks - 1))),
            skew=np.maximum(depth**3 - (apart**3).sum(axis=-1), 0) / spread / tasks,
            step=_STEP / tasks * np.where(total > 0, (off**2).sum(axis=-1) / known, depth),
            worst=worst,
            worst_most=worst,
        )

    @classmethod
    def worst_of(cls, values: Ranges, worst: float, scale: tuple[float, float] | None) -> "_Sample":
        """One row for each part of the range of the mean."""
        tasks, (lowest, highest) = values.low.size, values.means
        edges = np.linspace(lowest, highest, _MEAN_PARTS + 1)
        least, most = edges[:-1], edges[1:]
        worsts: tuple[Any, Any] = worst, worst
        depth = np.maximum(most - worst, _LEAST)
        if scale is not None:
            sizes = abs(scale[0]), abs(scale[1])
            far = max(values.high.max() - lowest, highest - values.low.min(), *sizes, _LEAST)
            worsts, depth = (least - far, most - min(sizes)), np.full(least.shape, far)
        few, many = squares_least(values), squares_most(values, least, most)
        cubes = -((values.low - most[:, np.newaxis]) ** 3).sum(axis=-1)
        narrow = np.maximum(few, _SUSPECT * np.maximum(least - worsts[1], _LEAST) ** 2)
        wide = np.maximum(many, _SUSPECT * depth**2)
        skew = depth**3 / np.maximum(few, _SUSPECT * depth**2)
        skew += cubes / np.where(cubes > 0, narrow, wide)
        return cls(
            tasks=tasks,
            mean=least,
            squares=(np.full(least.shape, few), many),
            top=np.maximum(most, np.median(values.high)),
            error=np.sqrt(wide / (tasks * (tasks - 1))),
            skew=np.maximum(skew, 0) / tasks,
            step=_STEP / tasks * step_most(values, depth),
            worst=worsts[0],
            worst_most=worsts[1],
            between=True,
        )


def _expanded_chance(sample: _Sample, limit: Any) -> Values:
    """The alpha at which the first bound reaches the limit: its quadratic in t, solved."""
    from scipy.special import stdtr

    room = sample.mean - limit - sample.step - sample.skew / 6
    under = sample.error**2 + 4 / 3 * sample.skew * room
    t = 2 * room / (sample.error + np.sqrt(np.maximum(under, 0)))
    return np.asarray(np.where(under > 0, 1 - stdtr(sample.tasks - 1, t), 1.0))


def _lost_chance(sample: _Sample, limit: Any) -> Values:
    """The largest chance over the levels of tasks that lost nothing."""
    top = np.maximum(sample.top, limit)
    greatest = np.zeros(sample.mean.shape)
    parts = np.linspace(0, 1, _LEVEL_PARTS if sample.between else _LEVELS)
    levels = [np.asarray(limit + part * (top - limit)) for part in parts]
    if sample.between:  # vectorized for speed
        greatest = _chance_at(sample, limit, np.array(levels), np.array([*levels[1:], top]))
        return np.asarray(np.minimum(greatest.max(axis=0), 1.0))
    for level in levels:
        greatest = np.maximum(greatest, _chance_at(sample, limit, level, level))
    return np.asarray(np.minimum(greatest, 1.0))


def _chance_at(sample: _Sample, limit: Any, level: Values, above: Values) -> Values:
    """The chance of such a high mean, if all tasks are at the level except for lost ones that
    reduce the mean to the limit."""
    from scipy.special import gammaln, stdtr, xlog1py, xlogy

    tasks = sample.tasks
    lost = np.arange(min(tasks, _LOST_MOST) + 1)
    # The binomial chance of each number of lost tasks.
    ways = gammaln(tasks + 1) - gammaln(lost + 1) - gammaln(tasks - lost + 1)
    depth = np.maximum(level - sample.worst, _LEAST)
    share = np.clip((level - limit) / depth, 0, 1)[..., np.newaxis]
    shares = np.exp(ways + xlogy(lost, share) + xlog1py(tasks - lost, -share))
    likely = shares.reshape(-1, lost.size).max(axis=0, initial=0.0) > _NEGLIGIBLE
    likely[-1] = True  # stands for all larger numbers, which make such a mean even less likely
    shares, lost = shares[..., likely], lost[likely]
    shares[..., -1] += np.maximum(1 - shares.sum(axis=-1), 0)
    depth = np.maximum(above - sample.worst_most, _LEAST)[..., np.newaxis]
    excess = tasks * (sample.mean - above)[..., np.newaxis] + lost * depth
    # Ignore differences within the rounding of the sum.
    excess = np.where(np.abs(excess) < 1e-9 * tasks * depth, 0.0, excess)
    # The chance that the sum of differences exceeds its mean by this much. More variance makes a
    # large excess likelier, and a shortfall less likely.
    few, many = (each[:, np.newaxis] for each in sample.squares)
    deviation = np.sqrt(np.where(excess > 0, many, few) * tasks / (tasks - 1))
    steady = deviation <= 0
    t = excess / np.where(steady, 1.0, deviation)
    tail = np.where(steady, excess <= 0, stdtr(tasks - 1, -t))
    return np.asarray((shares * tail).sum(axis=-1))
