"""Between which bounds a mean over tasks lies, and whether it is over a limit
(docs/research/gate-statistics.md).

Tasks are the clusters: each counts once, with the mean over its attempts, and two checkpoints are
paired by task. Where few tasks differ, a plain t test is certain that what was not observed does
not exist. Two bounds replace it, and the better one counts:

- the t bound, corrected for skew, as if one more task had lost everything, and with half a step of
  the scores added: better where much differs;
- the chance of the observed scores if a share of the tasks loses everything and the others differ
  as they did: better where little differs. Where nothing does, it is (1 - share) ** tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.gate.policy import Direction

Values = NDArray[np.float64]

#: How much of the step between scores the first bound adds, and what its suspected task weighs.
#: With 0.5 and 1.0, which theory suggests, some cases err in 5.6 % instead of 5 %.
_STEP = 0.7
_SUSPECT = 1.1
#: How many levels of the other tasks, and at most how many lost ones, the second bound tries.
_LEVELS = 8
_LOST_MOST = 60
#: A number of lost tasks that is less likely is not tried; it counts against the candidate.
_NEGLIGIBLE = 1e-12
_HALVINGS = 44
#: What counts as no distance at all.
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """`lower` and `upper` each err in alpha of all cases."""

    tasks: int
    standard_error: float
    lower: float
    upper: float
    #: How likely so good a result is if the mean is no better than the limit.
    p: float
    #: How likely so bad a result is if the mean is no worse than the limit.
    p_worse: float


@dataclass(frozen=True, kw_only=True)
class Estimate(Bounds):
    """A mean over tasks."""

    mean: float


@dataclass(frozen=True, kw_only=True)
class Comparison(Bounds):
    """Candidate minus incumbent over the tasks that both have; more is better, whatever the
    metric's direction. Swapping both turns every sign. The limit is a loss of the margin."""

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
    direction: Direction = "max",
    bounded: bool = True,
) -> Comparison:
    """Scores of attempts by task; `bounded` ones lie between 0 and 1. Tasks of one side alone are
    left out. Raises ValueError for fewer than two tasks."""
    tasks = sorted(candidate.keys() & incumbent.keys())
    # Sorted first, so that the order of attempts does not change the rounding of their mean.
    ours, theirs = (
        np.array([np.sort(np.asarray(side[task], dtype=float)).mean() for task in tasks])
        for side in (candidate, incumbent)
    )
    scale = None if bounded or not tasks else float(ours.mean() + theirs.mean()) / 2
    return compare_values(
        ours, theirs, margin=margin, alpha=alpha, direction=direction, scale=scale
    )


def compare_values(
    ours: Values,
    theirs: Values,
    *,
    margin: float,
    alpha: float,
    direction: Direction,
    scale: float | None,
) -> Comparison:
    """One value for each task and side; see `estimate`."""
    gains = ours - theirs if direction == "max" else theirs - ours
    bounds = asdict(estimate(gains, limit=-margin, alpha=alpha, scale=scale))
    bounds |= {"candidate_mean": float(ours.mean()), "incumbent_mean": float(theirs.mean())}
    bounds |= {"difference": bounds.pop("mean"), "df": ours.size - 1}
    return Comparison(margin=margin, alpha=alpha, **bounds)


def estimate(
    values: Values,
    *,
    limit: float,
    alpha: float,
    worst: float = -1.0,
    best: float = 1.0,
    scale: float | None = None,
) -> Estimate:
    """The mean of one value for each task. They lie between `worst` and `best`, or have the `scale`
    of a metric without ends. Raises ValueError for fewer than two tasks."""
    if values.size < 2 or not np.isfinite(values).all():
        raise ValueError("at least two tasks are needed, and finite values")
    mean, turned = float(values.mean()), -values
    if scale is not None:  # how far from the mean an unobserved task may lie
        reach = max(float(np.abs(values - mean).max()), abs(float(scale)), _LEAST)
        worst, best = mean - reach, mean + reach
    return Estimate(
        tasks=values.size,
        mean=mean,
        standard_error=float(values.std(ddof=1) / np.sqrt(values.size)),
        lower=lower_bound(values, worst, alpha),
        upper=-lower_bound(turned, -best, alpha),
        p=float(chance(values, worst, limit)),
        p_worse=float(chance(turned, -best, -limit)),
    )


def lower_bound(values: Values, worst: float, alpha: float) -> float:
    """The mean lies below this in at most alpha of all cases."""
    from scipy.special import stdtrit

    sample = _Sample.of(values[np.newaxis], worst)
    t = stdtrit(sample.tasks - 1, 1 - alpha)
    skewed = sample.mean - t * sample.error - (2 * t**2 + 1) / 6 * sample.skew - sample.step
    bound = float(skewed[0])
    low = max(bound, worst)
    if _lost_chance(sample, low)[0] <= alpha:  # then the second bound is higher
        high = float(sample.mean[0])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if _lost_chance(sample, middle)[0] <= alpha:
                low = middle
            else:
                high = middle
    return max(bound, low)


def chance(values: Values, worst: float, limit: float) -> Any:
    """How likely so high a mean is where the truth is `limit` at most. Along the last axis."""
    sample = _Sample.of(np.atleast_2d(values), worst)
    chances = np.minimum(_expanded_chance(sample, limit), _lost_chance(sample, limit))
    return chances if values.ndim > 1 else chances[0]


@dataclass(frozen=True)
class _Sample:
    tasks: int
    mean: Values
    #: The sum of the squared differences from the mean.
    squares: Values
    median: Values
    #: The first bound's standard error, skew and step.
    error: Values
    skew: Values
    step: Values
    worst: float

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
            squares=squares,
            median=median,
            error=np.sqrt(spread / (tasks * (tasks - 1))),
            skew=np.maximum(depth**3 - (apart**3).sum(axis=-1), 0) / spread / tasks,
            step=_STEP / tasks * np.where(total > 0, (off**2).sum(axis=-1) / known, depth),
            worst=worst,
        )


def _expanded_chance(sample: _Sample, limit: float) -> Values:
    """The alpha at which the first bound reaches the limit: its quadratic in t, solved."""
    from scipy.special import stdtr

    room = sample.mean - limit - sample.step - sample.skew / 6
    under = sample.error**2 + 4 / 3 * sample.skew * room
    t = 2 * room / (sample.error + np.sqrt(np.maximum(under, 0)))
    return np.asarray(np.where(under > 0, 1 - stdtr(sample.tasks - 1, t), 1.0))


def _lost_chance(sample: _Sample, limit: float) -> Values:
    """The greatest chance over the levels at which those tasks may stand that lost nothing."""
    top = np.maximum(np.maximum(sample.mean, sample.median), limit)
    greatest = np.zeros(sample.mean.shape)
    for part in np.linspace(0, 1, _LEVELS):
        greatest = np.maximum(greatest, _chance_at(sample, limit, limit + part * (top - limit)))
    return np.asarray(np.minimum(greatest, 1.0))


def _chance_at(sample: _Sample, limit: float, level: Values) -> Values:
    """Of so high a mean, where each task stands at the level, except for a share of lost ones that
    makes the mean the limit. The observed variance cannot come from lost tasks that nobody
    observed, so the tasks vary besides."""
    from scipy.special import gammaln, stdtr, xlog1py, xlogy

    tasks = sample.tasks
    lost = np.arange(min(tasks, _LOST_MOST) + 1)
    depth = np.maximum(level - sample.worst, _LEAST)
    # The binomial chance of each number of lost tasks; a row for each level.
    ways = gammaln(tasks + 1) - gammaln(lost + 1) - gammaln(tasks - lost + 1)
    share = np.clip((level - limit) / depth, 0, 1)[:, np.newaxis]
    shares = np.exp(ways + xlogy(lost, share) + xlog1py(tasks - lost, -share))
    likely = shares.max(axis=0, initial=0.0) > _NEGLIGIBLE
    likely[-1] = True  # stands for all numbers beyond it, which make such a mean less likely still
    shares, lost = shares[:, likely], lost[likely]
    shares[:, -1] += np.maximum(1 - shares.sum(axis=-1), 0)
    excess = tasks * (sample.mean - level)[:, np.newaxis] + lost * depth[:, np.newaxis]
    # A difference within the rounding of the sum is none.
    excess = np.where(np.abs(excess) < 1e-9 * tasks * depth[:, np.newaxis], 0.0, excess)
    # The chance that a sum of the tasks' differences exceeds its mean so much.
    deviation = np.sqrt(sample.squares * tasks / (tasks - 1))[:, np.newaxis]
    steady = deviation <= 0
    t = excess / np.where(steady, 1.0, deviation)
    tail = np.where(steady, excess <= 0, stdtr(tasks - 1, -t))
    return np.asarray((shares * tail).sum(axis=-1))
