"""Comparison of two arms of live traffic, at any time and as often as wanted
(bench/pages/sequential.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, Literal

import numpy as np

from penstock.registry.gate.policy import Direction

Arm = Literal["current", "canary"]
ArmOutcome = Literal["pass", "breach", "undecided"]

#: The width of the mixture, as a part of the information, that makes the bound narrowest (within 2
#: % for alpha from 0.1 to 0.001).
_NARROWEST = 0.13
#: The information where an equal canary passes in half of all cases, and one that is worse by four
#: margins breaches. Bounds are narrowest there.
_TO_PASS = 8.0
_TO_BREACH = _TO_PASS / 9
#: Fewer users per arm decide nothing, since the bounds are asymptotic.
_USERS_LEAST = 30
#: The observed variance outweighs the feared one from about this many users, or more for rare
#: metrics.
_DOUBT = 50.0
#: Users that are assumed to show the largest possible variance.
_THOUGHT = 10.0
#: Concentrations of the unknown share around the expected one, as a number of earlier users: so
#: both large and small mismatches are found.
_CONCENTRATIONS = (30.0, 300.0, 3000.0)


@dataclass(frozen=True)
class UserResult:
    """Sessions of one user in one arm during one phase: their number and their sum."""

    phase: int
    arm: Arm
    cluster: str
    count: int
    total: float


@dataclass(frozen=True, kw_only=True)
class ArmRequest:
    """Is the canary worse than the current checkpoint by more than the margin?"""

    direction: Direction
    #: On the metric's scale, and above 0.
    margin: float
    #: The chance of a wrong answer. If each of several metrics may end a canary, `breach_alpha` is
    #: the chance of one of them: alpha / metrics.
    alpha: float = 0.05
    breach_alpha: float | None = None
    bounds: tuple[float, float] | None = (0.0, 1.0)
    min_clusters: int = _USERS_LEAST


@dataclass(frozen=True, kw_only=True)
class ArmComparison:
    """`pass` and `breach` are decisions. `difference` is canary − current on the metric's scale."""

    outcome: ArmOutcome
    why: str
    clusters: dict[Arm, float]
    sessions: dict[Arm, int]
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None


def on_log_scale(value: float, floor: float = 1.0) -> float:
    """The logarithm of a value, for heavy-tailed metrics. The floor excludes zeros."""
    return log(max(value, floor))


def compare_arms(cells: Iterable[UserResult], request: ArmRequest) -> ArmComparison:
    """Compare all sessions so far. Valid at any time, also if one stops at its answer."""
    cells = [cell for cell in cells if cell.count]
    sessions: dict[Arm, int] = {"current": 0, "canary": 0}
    for cell in cells:
        sessions[cell.arm] += cell.count
    clusters, difference, variance = _difference(cells, request)
    facts: dict[str, Any] = {"clusters": clusters, "sessions": sessions}
    if few := [arm for arm, users in clusters.items() if users < request.min_clusters]:
        why = f"fewer than {request.min_clusters} users in {' and '.join(few)}"
        return ArmComparison(outcome="undecided", why=why, **facts)
    below, above = bound_distances(variance, request)
    gain = difference if request.direction == "max" else -difference
    worst, best = gain - below, gain + above
    outcome: ArmOutcome = "undecided"
    why = "the margin lies within the interval"
    if worst > -request.margin:
        outcome, why = "pass", "not worse by more than the margin"
    elif best < -request.margin:
        outcome, why = "breach", "worse by more than the margin"
    lower, upper = sorted((worst, best) if request.direction == "max" else (-worst, -best))
    facts |= {"difference": difference, "lower": lower, "upper": upper}
    return ArmComparison(outcome=outcome, why=why, standard_error=variance**0.5, **facts)


def mixture_bound(variance: Any, *, at: float, alpha: float) -> Any:
    """The distance that an estimate keeps from the truth on one side. `at` must be chosen before
    seeing data."""
    rho = _NARROWEST * at
    information = 1 / np.maximum(variance, 1e-300)
    spread = information + rho
    radius = np.sqrt(2 * spread * np.log1p(np.sqrt(spread / rho) / (2 * alpha)))
    return radius / information


def bound_distances(variance: Any, request: ArmRequest) -> tuple[Any, Any]:
    scale = max(request.margin, 1e-9) ** -2
    breach_alpha = request.alpha if request.breach_alpha is None else request.breach_alpha
    return (
        mixture_bound(variance, at=_TO_PASS * scale, alpha=request.alpha),
        mixture_bound(variance, at=_TO_BREACH * scale, alpha=breach_alpha),
    )


def _difference(
    cells: Sequence[UserResult], request: ArmRequest
) -> tuple[dict[Arm, float], float, float]:
    """The effective number of users by arm, the difference canary − current, and its variance."""
    mean = np.array([cell.total / cell.count for cell in cells])
    arm = np.array([cell.arm == "canary" for cell in cells], dtype=int)
    _, user = _numbered([cell.cluster for cell in cells])
    phases, phase = _numbered([cell.phase for cell in cells])

    def sums(values: Any) -> Any:
        by_place = np.zeros((2, phases))
        np.add.at(by_place, (arm, phase), values)
        return by_place

    users = sums(1.0)
    number, own = np.maximum(users, 1), users[arm, phase]
    both = users.prod(axis=0) / np.maximum(users.sum(axis=0), 1)
    both = np.where(users.min(axis=0, initial=np.inf) >= 2, both, 0)
    shares = both / max(both.sum(), 1e-300)
    # Weights in the difference: 1 in total for the canary, −1 for the current.
    weights = (2 * arm - 1) * shares[phase] / own
    squares = [float((weights[arm == which] ** 2).sum()) for which in (0, 1)]
    current, canary = (1 / each if each else 0.0 for each in squares)
    means = sums(mean) / number
    away = (mean - means[arm, phase]) * np.sqrt(own / np.maximum(own - 1, 1))
    # A user's sum over phases and arms is one summand of the variance.
    by_user = np.bincount(user, weights=weights * away)
    more = missing_variance(users, means, sums(away**2) / number, request)
    variance = float((by_user**2).sum() + (shares**2 * more).sum())
    return {"current": current, "canary": canary}, float(weights @ mean), variance


def _numbered(names: Sequence[Any]) -> tuple[int, Any]:
    places: dict[Any, int] = {}
    numbers = [places.setdefault(name, len(places)) for name in names]
    return len(places), np.array(numbers, dtype=int)


def missing_variance(users: Any, means: Any, spreads: Any, request: ArmRequest) -> Any:
    """The variance that the observed one lacks. All arrays have the shape (arm, phase, …)."""
    worse = -request.margin if request.direction == "max" else request.margin
    canary = np.array([0.0, 1.0]).reshape(2, *[1] * (means.ndim - 1))
    level = (users * (means - worse * canary)).sum(axis=0) / np.maximum(users.sum(axis=0), 1)
    if request.bounds is not None:  # keep both arms within the bounds
        least, greatest = request.bounds
        level = np.clip(level, least + max(-worse, 0), max(greatest - max(worse, 0), least))
    at_margin = _variance_shape(level + worse * canary, request)
    # The share of the possible variance that users show. Between bounds they are assumed to show
    # all of it at first.
    free = np.maximum(users - 1, 0)
    shown = (free * spreads).sum(axis=(0, 1))
    allowed = (free * _variance_shape(means, request)).sum(axis=(0, 1))
    doubt, prior = _DOUBT, 0.0
    if request.bounds is not None:
        average = (users * at_margin).sum(axis=(0, 1))
        thought = _THOUGHT * average / np.maximum(users.sum(axis=(0, 1)), 1)
        shown, allowed = shown + thought, allowed + thought
        prior = (request.bounds[1] - request.bounds[0]) ** 2 / 4
        doubt = _DOUBT * np.minimum(prior / np.maximum(at_margin, 1e-300), 1e6)
    scale = np.where(allowed > 0, shown / np.maximum(allowed, 1e-300), 1.0)
    feared, number = scale * at_margin, np.maximum(users, 1)
    return doubt / (doubt + number) * np.maximum(feared - spreads, 0) / number + prior / number**2


def _variance_shape(means: Any, request: ArmRequest) -> Any:
    """The variance as a function of the mean: between bounds as for a rate."""
    if request.bounds is None:
        return np.ones_like(means)
    least, greatest = request.bounds
    return np.maximum(means - least, 0) * np.maximum(greatest - means, 0)


@dataclass(frozen=True)
class PhaseUsers:
    """Users by the arm in which they first appeared in a phase."""

    share: float
    canary: int
    current: int


@dataclass(frozen=True, kw_only=True)
class SampleRatio:
    """`p` is valid at every look. `expected` and `found` count users of the canary."""

    outcome: Literal["fits", "mismatch"]
    p: float
    expected: float
    found: float
    users: int


def check_sample_ratio(phases: Iterable[PhaseUsers], alpha: float = 0.001) -> SampleRatio:
    """Test whether the canary got its share of users. Phases with a share of 0 or 1 do not
    count."""
    from scipy.special import betaln

    def log_factor(phase: PhaseUsers, concentration: float) -> float:
        canary, current = concentration * phase.share, concentration * (1 - phase.share)
        unknown = betaln(canary + phase.canary, current + phase.current) - betaln(canary, current)
        expected = phase.canary * log(phase.share) + phase.current * log(1 - phase.share)
        return float(unknown - expected)

    phases = [phase for phase in phases if 0 < phase.share < 1]
    factors = [sum(log_factor(phase, size) for phase in phases) for size in _CONCENTRATIONS]
    top = max(factors)
    evidence = top + log(sum(exp(factor - top) for factor in factors) / len(factors))
    return SampleRatio(
        outcome="mismatch" if evidence >= -log(alpha) else "fits",
        p=min(1.0, exp(-evidence)) if evidence > 0 else 1.0,
        expected=sum((phase.canary + phase.current) * phase.share for phase in phases),
        found=sum(phase.canary for phase in phases),
        users=sum(phase.canary + phase.current for phase in phases),
    )
