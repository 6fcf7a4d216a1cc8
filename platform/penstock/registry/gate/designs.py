"""Benchmarks that run until they are decided: the next attempts, and the level of each look
(bench/pages/sequential.md)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import ceil, sqrt
from operator import itemgetter

import msgspec
import numpy as np

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import Attempt, RecordedAttempt
from penstock.registry.checkpoints.journal import AttemptScope, Journal, append_entry, read_journal
from penstock.registry.gate.statistics import chance

#: Numerical integration of the walk: the range in deviations, and the number of points.
_LOWEST, _HIGHEST, _POINTS = -8.0, 9.0, 401
_HALVINGS = 60
_GROWTH = 1.5
#: Below this chance of a decision more attempts are a waste.
_HOPE_LEAST = 0.05
#: Equally likely positions of the final mean.
_ENDS = 39
#: A task with more errors than this is given up. Its missing attempts stay missing at later looks.
_ERRORS_MOST = 3
_TASKS_LEAST = 2

Scores = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Design:
    """`looks` are attempts per task, up to the task's cap (`caps`)."""

    looks: tuple[int, ...]
    caps: Mapping[str, int]
    #: Attempts allowed per task, even if no task needs so many.
    allowed: int
    #: How fast alpha is spent: 1 stops earlier and decides less often than 3.
    exponent: float = 2.0

    def without(self, tasks: Collection[str]) -> "Design":
        caps = {task: cap for task, cap in self.caps.items() if task not in tasks}
        return replace(self, caps=caps)

    def count(self, task: str, look: int) -> int:
        """Attempts at a task up to a look. Looks count from 1."""
        return min(self.looks[look - 1], self.caps[task])

    def level(self, look: int, alpha: float) -> float:
        """The level of a test at a look, so that all looks together err with at most alpha."""
        parts = tuple(attempts / self.looks[-1] for attempts in self.looks)
        return look_levels(parts, alpha, self.exponent)[look - 1] if look else 0.0


@lru_cache(maxsize=256)
def look_levels(parts: tuple[float, ...], alpha: float, exponent: float) -> tuple[float, ...]:
    """The one-sided level of each look. `parts` of the information grow up to 1."""
    from scipy.special import ndtr

    levels: list[float] = []
    # Positions of the walk without a crossing, their probabilities, and the time.
    at, mass, before = np.zeros(1), np.ones(1), 0.0
    for part in parts:
        step, deviation = (part - before) ** 0.5, part**0.5
        due = alpha * (part**exponent - before**exponent)
        low, height = _LOWEST * deviation, _HIGHEST * deviation
        for _ in range(
            _HALVINGS
        ):  # find the height that the walk exceeds with the probability `due`
            middle = (low + height) / 2
            if mass @ ndtr((at - middle) / step) > due:
                low = middle
            else:
                height = middle
        levels.append(float(ndtr(-height / deviation)))
        points = np.linspace(_LOWEST * deviation, height, _POINTS)
        density = np.exp(-(((points[:, None] - at) / step) ** 2) / 2) @ mass
        weights = np.full(_POINTS, (points[1] - points[0]) / (step * (2 * np.pi) ** 0.5))
        weights[[0, -1]] /= 2
        at, mass, before = points, density * weights, part
    return tuple(levels)


def make_design(tasks: Iterable[str], incumbent: Scores, *, least: int, most: int) -> Design:
    """Plan `least` to `most` attempts per task, more for tasks where the incumbent varies
    (Neyman)."""
    looks = [least]
    while looks[-1] < most:
        looks.append(min(most, max(looks[-1] + 1, ceil(looks[-1] * _GROWTH))))
    caps = {
        task: min(most, max(least, ceil(most * 2 * sqrt(_noise(incumbent.get(task, ()))))))
        for task in sorted(tasks)
    }
    top = max(caps.values(), default=least)
    return Design((*(look for look in looks if look < top), top), caps, most)


def _noise(scores: Sequence[float]) -> float:
    """The variance of one more attempt at a task, with a prior."""
    mean = (float(sum(scores)) + 0.5) / (len(scores) + 1)
    return mean * (1 - mean)


class LookProgress(msgspec.Struct, frozen=True):
    """The last complete look (0: none yet), its attempts by task, and what the next look needs, by
    number and task."""

    look: int
    numbers: Mapping[str, Sequence[int]]
    missing: Sequence[tuple[str, int]]


def look_progress(design: Design, attempts: Iterable[Attempt]) -> LookProgress:
    """The progress of a design. An error is no attempt: the next number takes its place."""
    scored: dict[str, dict[int, bool]] = {task: {} for task in design.caps}
    for attempt in attempts:
        scored.setdefault(attempt.task, {})[attempt.attempt] = attempt.error is None
    complete: dict[str, list[int]] = {task: [] for task in design.caps}
    for look in range(1, len(design.looks) + 1):
        numbers = {
            task: _attempt_numbers(scored[task], design.count(task, look)) for task in design.caps
        }
        missing = [
            (task, number)
            for task, each in numbers.items()
            for number in each
            if number not in scored[task]
        ]
        if missing:
            return LookProgress(look - 1, complete, sorted(missing, key=itemgetter(1, 0)))
        complete = numbers
    return LookProgress(len(design.looks), complete, [])


def _attempt_numbers(scored: Mapping[int, bool], count: int) -> list[int]:
    """The first attempts without errors, made or not; no more after a task is given up."""
    failed = sorted(number for number, is_scored in scored.items() if not is_scored)
    span = range(min([count + len(failed), *failed[_ERRORS_MOST:]]))
    return [number for number in span if number not in failed][:count]


def count_attempts(
    design: Design, attempts: Sequence[RecordedAttempt]
) -> tuple[int, Sequence[RecordedAttempt]]:
    """The last complete look (0: none yet), with its attempts and all errors."""
    progress = look_progress(design, [recorded.result for recorded in attempts])
    places = {(task, number) for task, each in progress.numbers.items() for number in each}
    counted = [
        recorded
        for recorded in attempts
        if recorded.result.status == "error" or recorded.result.place in places
    ]
    return progress.look, counted


def is_hopeless(
    design: Design, look: int, candidate: Scores, incumbent: Scores, *, margin: float, alpha: float
) -> bool:
    """Whether the last look would hardly decide. Stopping then gives no verdict."""
    from scipy.special import ndtri

    tasks, last = sorted(candidate.keys() & incumbent.keys()), len(design.looks)
    if len(tasks) < _TASKS_LEAST:
        return False
    values = np.array([np.mean(candidate[task]) - np.mean(incumbent[task]) for task in tasks])
    now = max(float(values.var(ddof=1)) / len(tasks), 1e-12)
    gone = sum(
        _noise(candidate[task]) * (1 / design.count(task, look) - 1 / design.count(task, last))
        for task in tasks
    )
    shared = design.looks[look - 1] / design.looks[-1]
    then = min(max(now - gone / len(tasks) ** 2, now * shared), now)
    level, mean = design.level(last, alpha), values.mean()
    ends = mean + (now - then) ** 0.5 * ndtri((np.arange(_ENDS) + 0.5) / _ENDS)
    rows = ends[:, None] + (values - mean) * (then / now) ** 0.5
    answers = (chance(rows, -1.0, -margin) <= level) | (chance(-rows, -1.0, margin) <= level)
    return float(answers.mean()) < _HOPE_LEAST


def keep_design(database: Database, scope: AttemptScope, design: Design) -> Design:
    """Record a design in the journal; returns the first that was. Raises InvalidInput if attempts
    already exist."""
    with database.write() as connection:
        journal = read_journal(connection, scope)
        if journal.design is None:
            if journal.attempts:
                what = f"A plan for {scope.checkpoint} on {scope.suite}"
                why = "it already has results there; a plan must precede the first attempt"
                raise InvalidInput(what=what, why=why)
            append_entry(connection, scope, "design", asdict(design))
            journal = read_journal(connection, scope)  # somebody else may have been first
    return design_in(journal) or design


def design_in(journal: Journal) -> Design | None:
    return msgspec.convert(journal.design, Design) if journal.design else None
