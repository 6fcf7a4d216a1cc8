"""Scores of two checkpoints at a suite whose truth is known.

A suite is a table of tasks with the chance (or the mean, where scores are graded) of the incumbent.
Tasks are drawn from the table, so that the mean difference of a pair of columns is the exact truth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Values = NDArray[np.float64]

_TABLE = 4_000
_GAIN = 0.05


def _beta(a: float, b: float, tasks: int) -> Values:
    from scipy.special import betaincinv

    return np.asarray(betaincinv(a, b, (np.arange(tasks) + 0.5) / tasks))


def realistic() -> Values:
    """Many tasks nearly always or nearly never solved, the rest anywhere between."""
    return _beta(0.6, 0.6, _TABLE)


def extremes() -> Values:
    """Three in ten always solved, a quarter never."""
    always, never = round(0.3 * _TABLE), round(0.25 * _TABLE)
    rest = _beta(0.8, 0.8, _TABLE - always - never)
    return np.concatenate([np.ones(always), np.zeros(never), rest])


def solved() -> Values:
    """Four in five always solved."""
    always = round(0.8 * _TABLE)
    return np.concatenate([np.ones(always), _beta(1, 1, _TABLE - always)])


def settled() -> Values:
    """Each always or never: attempts do not differ, nearly all tasks are ties."""
    return np.concatenate([np.ones(round(0.6 * _TABLE)), np.zeros(round(0.4 * _TABLE))])


SUITES: dict[str, Callable[[], Values]] = {
    "realistic": realistic, "extremes": extremes, "solved": solved, "settled": settled,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What a candidate does to the tasks: to the `usual` ones, and to a `share` of others."""

    usual: Values
    share: float
    kept: float


def everywhere(table: Values, loss: float) -> Change | None:
    """Each task becomes a little harder."""
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    if (table * (1 - table)).mean() < loss / 4:
        return None

    def harder(shift: float) -> Values:
        return np.asarray(expit(logit(table) - shift))

    def excess(shift: float) -> float:
        return float((table - harder(shift)).mean()) - loss

    return Change(harder(brentq(excess, 0, 50)), 0.0, 1.0) if excess(50) > 0 else None


def sparse(table: Values, loss: float) -> Change:
    """A few tasks are never solved any more; the others are as they were."""
    return Change(table, loss / float(table.mean()), 0.0)


def halved(table: Values, loss: float) -> Change:
    """A few are solved half as often."""
    return Change(table, 2 * loss / float(table.mean()), 0.5)


def traded(table: Values, loss: float) -> Change:
    """Small gains nearly everywhere, paid for by a few that are lost: as skewed as can be."""
    better = np.minimum(table + _GAIN, 1.0)
    gain = float((better - table).mean())
    return Change(better, (loss + gain) / float(better.mean()), 0.0)


CHANGES: dict[str, Callable[[Values, float], Change | None]] = {
    "everywhere": everywhere, "sparse": sparse, "halved": halved, "traded": traded,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    tasks: int
    attempts: int
    margin: float
    suite: str
    change: str
    graded: bool


def differences(random: Generator, case: Case, samples: int, *, equal: bool = False) -> Any:
    """Candidate minus incumbent, a row for each sample and a column for each task. The truth is
    −margin, or 0 for an equal candidate. None where a suite cannot get so much worse."""
    found = sides(random, case, samples, equal=equal)
    return None if found is None else found[0] - found[1]


def sides(
    random: Generator, case: Case, samples: int, *, equal: bool = False
) -> tuple[Values, Values] | None:
    """The means of tasks, of the candidate and of the incumbent."""
    table = SUITES[case.suite]()
    chosen = random.integers(table.size, size=(samples, case.tasks))
    before = table[chosen]
    if equal:
        after = before
    else:
        change = CHANGES[case.change](table, case.margin)
        if change is None or change.share > 1:
            return None
        lost = random.random(chosen.shape) < change.share
        after = np.where(lost, change.kept * change.usual[chosen], change.usual[chosen])
    draw = _graded if case.graded else _solved
    return draw(random, after, case.attempts), draw(random, before, case.attempts)


def _solved(random: Generator, chance: Values, attempts: int) -> Values:
    return random.binomial(attempts, np.clip(chance, 0, 1)) / attempts


def _graded(random: Generator, mean: Values, attempts: int) -> Values:
    """Between 0 and 1; where the mean is at an end, always there."""
    total = np.zeros(mean.shape)
    inside = np.clip(mean, 1e-3, 1 - 1e-3)
    ended = (mean < 1e-3) | (mean > 1 - 1e-3)
    for _ in range(attempts):
        total += np.where(ended, mean, random.beta(4 * inside, 4 * (1 - inside)))
    return total / attempts
