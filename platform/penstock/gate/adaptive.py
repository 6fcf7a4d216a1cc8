"""Attempts until the verdict stands: which come next, and how strict each look at them has to be.

A design is fixed before a candidate's first attempt, and says everything: at how many attempts of
each task somebody looks, and how strict the looks are. All tasks take part from the first look on,
so that every verdict is about the whole suite. Tasks on which the incumbent always does the same
are tried less often. The candidate's own results never say where its attempts go, they only say
when to stop: so no task's mean is biased. Looks are counted in attempts alone, never in time, and a
run that was cut off goes on as if it had not been.

Looks use the test of a single sample (`comparing`), with a level of their own (`spending`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import msgspec
import numpy as np

from penstock.checkpoints.attempts import Attempt, Kept
from penstock.gate.comparing import chance
from penstock.gate.spending import levels

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
        return levels(parts, alpha, self.exponent)[look - 1]


def parse(text: str) -> Design:
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
    caps = {task: _cap(incumbent.get(task, ()), least, most) for task in sorted(tasks)}
    top = max(caps.values(), default=least)
    return Design((*(one for one in looks if one < top), top), caps, most)


def _cap(scores: Sequence[float], least: int, most: int) -> int:
    return min(most, max(least, ceil(most * 2 * sqrt(_noise(scores)))))


@dataclass(frozen=True)
class Seen:
    """What a look may see of the attempts there are: the last look that is complete (0: none yet),
    by task the numbers of its attempts, and what is missing for the next one."""

    look: int
    numbers: Mapping[str, Sequence[int]]
    missing: Sequence[tuple[str, int]]


def see(design: Design, attempts: Iterable[Attempt]) -> Seen:
    """An error stands for no attempt: the next number takes its place."""
    status: dict[str, dict[int, bool]] = {}
    for one in attempts:
        status.setdefault(one.task, {})[one.attempt] = one.error is None
    numbers: dict[str, list[int]] = {task: [] for task in design.caps}
    for look in range(1, len(design.looks) + 1):
        found = {
            task: _numbers(status.get(task, {}), design.count(task, look)) for task in design.caps
        }
        missing = [
            (task, number)
            for task, each in found.items()
            for number in each
            if number not in status.get(task, {})
        ]
        if missing or any(len(each) < design.count(task, look) for task, each in found.items()):
            return Seen(look - 1, numbers, missing)
        numbers = found
    return Seen(len(design.looks), numbers, [])


def _numbers(status: Mapping[int, bool], count: int) -> list[int]:
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
class Counted:
    """What counts of a candidate's attempts: those of the last look (0: none is complete yet). All
    errors count as such."""

    design: Design
    look: int
    attempts: Sequence[Kept]

    def level(self, alpha: float) -> float:
        return self.design.level(self.look, alpha) if self.look else 0.0

    @property
    def document(self) -> dict[str, object]:
        return {"look": self.look, "looks": self.design.looks, "exponent": self.design.exponent}


def count(design: Design, attempts: Sequence[Kept]) -> Counted:
    """Attempts that the design did not foresee do not count, nor do those of a look that is not
    complete: whoever looks at them as well has looked once too often."""
    seen = see(design, [one.result for one in attempts])
    numbers = {(task, number) for task, each in seen.numbers.items() for number in each}
    kept = [
        one
        for one in attempts
        if one.result.error is not None or (one.result.task, one.result.attempt) in numbers
    ]
    return Counted(design, seen.look, kept)


def plan_next(design: Design, attempts: Iterable[Attempt]) -> list[tuple[str, int]]:
    """The attempts up to the next look, by task and number, those first that come first. None when
    all looks were taken, or when a task is nothing but errors."""
    return sorted(see(design, attempts).missing, key=lambda one: (one[1], one[0]))


Scores = Mapping[str, Sequence[float]]


def hopeless(
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
