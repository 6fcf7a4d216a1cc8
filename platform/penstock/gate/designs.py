"""Benchmarks that run until they are decided: which attempts come next, how strict each look is.

A design is fixed before a candidate's first attempt: at how many attempts of each task somebody
looks, and how strict the looks are. The database keeps one for a checkpoint at a version of a
suite, for ever. All tasks take part from the first look on, so that every verdict is about the
whole suite. Tasks on which the incumbent always does the same are tried less often. The
candidate's own results never say where its attempts go, they only say when to stop: so no task's
mean is biased. Looks are counted in attempts, never in time: an interrupted run goes on as if
nothing had happened.

A look uses the test of a single sample (`statistics`), with a level of its own. The levels follow
Lan and DeMets: a look at the part t of all information may have spent alpha · t^exponent by then.
The bound of each look follows from those before by the joint distribution of Brownian motion at
these parts. Looks that resemble each other more than that err less.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import ceil, sqrt
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.attempt import Attempt, AttemptScope, RecordedAttempt
from penstock.checkpoints.scores import read_attempts
from penstock.database.engine import Database, insert_new, now_us
from penstock.errors import InvalidInput
from penstock.gate.statistics import chance
from penstock.gate.tables import benchmark_design

#: The integral over where the walk may stand: from so many deviations below, at so many points.
_LOWEST, _HIGHEST = -8.0, 9.0
_POINTS = 401
_HALVINGS = 60


def look_levels(parts: Sequence[float], alpha: float, exponent: float) -> tuple[float, ...]:
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


#: From look to look there are more attempts by this factor.
_GROWTH = 1.5
#: How fast alpha is spent: with 1 it stops earlier and decides less often, with 3 the other way.
_EXPONENT = 2.0
#: With a smaller chance that either answer still comes, attempts are spent for nothing.
_HOPE_LEAST = 0.05
_ENDS = 39
#: A task with more errors than this is given up: the next look never comes.
_ERRORS_MOST = 3


@dataclass(frozen=True)
class Design:
    """`looks` are attempts at each task that has not had its most yet (`caps`)."""

    looks: tuple[int, ...]
    caps: Mapping[str, int]
    #: How many attempts at a task were allowed, whether any task needs so many or not.
    allowed: int
    exponent: float = _EXPONENT

    @property
    def text(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()

    def count(self, task: str, look: int) -> int:
        """How many attempts at a task the look sees. Looks count from 1."""
        return min(self.looks[look - 1], self.caps[task])

    @property
    def most(self) -> int:
        """All attempts there may be."""
        return sum(self.count(task, len(self.looks)) for task in self.caps)

    def level(self, look: int, alpha: float) -> float:
        """With which level a test is made at a look, so that all looks err with at most alpha.

        Two looks resemble each other at least as much as their numbers of attempts say: what tasks
        differ by, the incumbent's own noise, and tasks that had their most before are the same
        in both. Who resembles more errs less.
        """
        parts = [one / self.looks[-1] for one in self.looks]
        return look_levels(parts, alpha, self.exponent)[look - 1]


def parse_design(text: str) -> Design:
    return msgspec.json.decode(text, type=Design)


def make_design(
    tasks: Iterable[str], incumbent: Mapping[str, Sequence[float]], *, least: int, most: int
) -> Design:
    """From `least` to `most` attempts at a task. `incumbent` are its scores by task, where there
    are any: attempts go where its results vary (Neyman), seen with some doubt, since a candidate
    may vary where it does not."""
    looks = [least]
    while looks[-1] < most:
        looks.append(min(most, max(looks[-1] + 1, ceil(looks[-1] * _GROWTH))))
    caps = {task: _attempts_most(incumbent.get(task, ()), least, most) for task in sorted(tasks)}
    top = max(caps.values(), default=least)
    return Design((*(one for one in looks if one < top), top), caps, most)


def _attempts_most(scores: Sequence[float], least: int, most: int) -> int:
    return min(most, max(least, ceil(most * 2 * sqrt(_noise(scores)))))


@dataclass(frozen=True)
class LookProgress:
    """What a look may see of the attempts there are: the last look that is complete (0: none yet),
    by task the numbers of its attempts, and what is missing for the next one."""

    look: int
    numbers: Mapping[str, Sequence[int]]
    missing: Sequence[tuple[str, int]]


def look_progress(design: Design, attempts: Iterable[Attempt]) -> LookProgress:
    """An error stands for no attempt: the next number takes its place."""
    status: dict[str, dict[int, bool]] = {}
    for one in attempts:
        status.setdefault(one.task, {})[one.attempt] = one.error is None
    numbers: dict[str, list[int]] = {task: [] for task in design.caps}
    for look in range(1, len(design.looks) + 1):
        found = {
            task: _attempt_numbers(status.get(task, {}), design.count(task, look))
            for task in design.caps
        }
        missing = [
            (task, number)
            for task, each in found.items()
            for number in each
            if number not in status.get(task, {})
        ]
        if missing or any(len(each) < design.count(task, look) for task, each in found.items()):
            return LookProgress(look - 1, numbers, missing)
        numbers = found
    return LookProgress(len(design.looks), numbers, [])


def _attempt_numbers(status: Mapping[int, bool], count: int) -> list[int]:
    """The first attempts that are no errors, whether they were made or not."""
    found: list[int] = []
    number = errors = 0
    while len(found) < count and errors <= _ERRORS_MOST:
        if status.get(number, True):
            found.append(number)
        else:
            errors += 1
        number += 1
    return found


@dataclass(frozen=True)
class CountedAttempts:
    """What counts of a candidate's attempts: those of the last look (0: none is complete yet). All
    errors count as such."""

    design: Design
    look: int
    attempts: Sequence[RecordedAttempt]

    def level(self, alpha: float) -> float:
        return self.design.level(self.look, alpha) if self.look else 0.0

    @property
    def document(self) -> dict[str, object]:
        return {"look": self.look, "looks": self.design.looks, "exponent": self.design.exponent}


def count_attempts(design: Design, attempts: Sequence[RecordedAttempt]) -> CountedAttempts:
    """Attempts that the design did not foresee do not count, nor do those of a look that is not
    complete: whoever looks at them as well has looked once too often."""
    seen = look_progress(design, [one.result for one in attempts])
    numbers = {(task, number) for task, each in seen.numbers.items() for number in each}
    kept = [
        one
        for one in attempts
        if one.result.error is not None or (one.result.task, one.result.attempt) in numbers
    ]
    return CountedAttempts(design, seen.look, kept)


def next_attempts(design: Design, attempts: Iterable[Attempt]) -> list[tuple[str, int]]:
    """The attempts up to the next look, by task and number, those first that come first. None when
    all looks were taken, or when a task is nothing but errors."""
    return sorted(look_progress(design, attempts).missing, key=lambda one: (one[1], one[0]))


Scores = Mapping[str, Sequence[float]]


def is_hopeless(
    design: Design, look: int, candidate: Scores, incumbent: Scores, *, margin: float, alpha: float
) -> bool:
    """Whether the last look would hardly show more: what is left of the noise does not come from
    the candidate's attempts. Whoever stops for this has no verdict, so that it cannot be a wrong
    one. Scores are those that the look sees."""
    from scipy.special import ndtri

    tasks, last = sorted(candidate), len(design.looks)
    values = np.array([np.mean(candidate[task]) - np.mean(incumbent[task]) for task in tasks])
    now = max(float(values.var(ddof=1)) / len(tasks), 1e-12)
    gone = sum(
        _noise(candidate[task]) * (1 / design.count(task, look) - 1 / design.count(task, last))
        for task in tasks
    )
    shared = design.looks[look - 1] / design.looks[-1]
    then = min(max(now - gone / len(tasks) ** 2, now * shared), now)
    level, mean = design.level(last, alpha), values.mean()
    # Where the mean may come to lie, as likely each, and the tasks around it.
    ends = mean + (now - then) ** 0.5 * ndtri((np.arange(_ENDS) + 0.5) / _ENDS)
    rows = ends[:, None] + (values - mean) * (then / now) ** 0.5
    answers = (chance(rows, -1.0, -margin) <= level) | (chance(-rows, -1.0, margin) <= level)
    return float(answers.mean()) < _HOPE_LEAST


def _noise(scores: Sequence[float]) -> float:
    """The variance of one more attempt at a task, seen with some doubt."""
    mean = (float(sum(scores)) + 0.5) / (len(scores) + 1)
    return mean * (1 - mean)


def keep_design(database: Database, place: AttemptScope, design: Design) -> Design:
    """The design that counts: this one, or the one that was there before. Raises InvalidInput where
    there are attempts already, which somebody may have looked at."""
    with database.write() as connection:
        if (known := read_design(connection, place)) is not None:
            return known
        if read_attempts(connection, place):
            what = f"A plan for {place.checkpoint} on {place.suite}"
            why = "it has results there already, and a plan has to stand before the first attempt"
            raise InvalidInput(what=what, why=why)
        row = asdict(place) | {"document": design.text, "made_at": now_us()}
        if insert_new(connection, benchmark_design, row):
            return design
        known = read_design(connection, place)
    assert known is not None
    return known


def read_design(connection: Connection, place: AttemptScope) -> Design | None:
    mine = benchmark_design.c
    query = sa.select(mine.document).where(
        *(mine[name] == value for name, value in asdict(place).items())
    )
    text = connection.scalar(query)
    return None if text is None else parse_design(text)
