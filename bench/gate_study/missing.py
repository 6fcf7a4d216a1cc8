"""Tasks without a score: how often the gate passes what is worse by the margin, or calls it worse,
while it does not know some tasks, and how often it passes a good candidate."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.random import Generator

from bench.gate_study.scores import CHANGES, SUITES, Case, Values, sides
from penstock.backends.terminal.output import say, show_table
from penstock.registry.gate.statistics import Ranges, chance

ALPHA = 0.05
#: Standard errors that a rate may lie above alpha.
_ERRORS = 3.0
_BATCH = 2_000
#: Of the samples of other studies: bounds over what is missing cost many times as much.
_SHARE = 4
#: Of whom tasks are missing: at random, or just those that tell most against the candidate, or for
#: it. The candidate's crash, the incumbent's, or both of a task.
Choice = Literal["random", "hides losses", "hides gains"]
Side = Literal["candidate", "incumbent", "both"]


@dataclass(frozen=True)
class Gaps:
    tasks: int
    choice: Choice
    side: Side


@dataclass(frozen=True)
class MissingRates:
    case: Case
    gaps: Gaps
    samples: int
    passed: float
    failed: float

    @property
    def exceeded(self) -> bool:
        error = float((ALPHA * (1 - ALPHA) / self.samples) ** 0.5)
        return max(self.passed, self.failed) > ALPHA + _ERRORS * error


def cases() -> Iterator[tuple[Case, Gaps]]:
    for tasks, attempts, margin, suite, change in product(
        (30, 80, 200), (1, 4), (0.05, 0.1), SUITES, CHANGES
    ):
        if suite == "settled" and attempts > 1:
            continue  # attempts do not differ there
        case = Case(
            tasks=tasks, attempts=attempts, margin=margin, suite=suite, change=change, graded=False
        )
        for choice, side in (
            ("random", "candidate"), ("hides losses", "candidate"), ("hides losses", "both"),
            ("hides gains", "incumbent"),
        ):  # fmt: skip
            yield case, Gaps(max(tasks // 80, 1), choice, side)  # type: ignore[arg-type]


def rates(
    case: Case, gaps: Gaps, samples: int, seed: int, *, better: float | None = None
) -> MissingRates | None:
    """The candidate is worse by the margin, or equal or better by so much. None where a suite
    cannot get so much worse."""
    random = np.random.default_rng([seed, *repr((case, gaps, better)).encode()])
    counted, done = np.zeros(2), 0
    while done < samples:
        drawn = _draw(random, case, min(_BATCH, samples - done), better)
        if drawn is None:
            return None
        counted += _counts(random, drawn, gaps, case.margin)
        done += len(drawn[0])
    return MissingRates(case, gaps, done, *(float(each) for each in counted / done))


def _draw(
    random: Generator, case: Case, samples: int, better: float | None
) -> tuple[Values, Values] | None:
    if better is None:
        return sides(random, case, samples)
    if better == 0:
        return sides(random, case, samples, equal=True)
    drawn = sides(random, replace(case, margin=better), samples)
    return None if drawn is None else drawn[::-1]


def _counts(random: Generator, drawn: tuple[Values, Values], gaps: Gaps, margin: float) -> Values:
    ours, theirs = drawn
    order = random.random(ours.shape)
    if gaps.choice != "random":
        order += 10 * (ours - theirs) * (1 if gaps.choice == "hides losses" else -1)
    missing = np.argsort(order, axis=1).argsort(axis=1) < gaps.tasks
    lacks = [missing & (gaps.side in {side, "both"}) for side in ("candidate", "incumbent")]
    low = np.where(lacks[0], 0.0, ours) - np.where(lacks[1], 1.0, theirs)
    high = np.where(lacks[0], 1.0, ours) - np.where(lacks[1], 0.0, theirs)
    seen = np.where(missing, np.nan, ours - theirs)
    # What stands for each completion stands for those at the ends.
    passed = chance(low, -1.0, -margin) <= ALPHA
    failed = chance(-high, -1.0, margin) <= ALPHA
    counts = np.zeros(2)
    for at in np.flatnonzero(passed | failed):
        ranges = Ranges(low[at], high[at], seen[at])
        chances = chance(ranges, -1.0, -margin), chance(-ranges, -1.0, margin)
        counts += np.array(chances) <= ALPHA
    return counts


def study(samples: int, seed: int) -> bool:
    """Prints its tables; whether nowhere more than alpha erred, within sampling error."""
    samples = max(samples // _SHARE, 1)
    found = [rates(case, gaps, samples, seed) for case, gaps in cases()]
    judged = [each for each in found if each is not None]
    say(f"Truth: worse by just the margin, and tasks are missing. At most {ALPHA:.0%} may pass.")
    columns = ["tasks", "attempts", "margin", "suite", "change", "missing", "passed", "failed", ""]
    rows = [
        [
            each.case.tasks, each.case.attempts, each.case.margin, each.case.suite,
            each.case.change, f"{each.gaps.tasks}, {each.gaps.choice}, {each.gaps.side}",
            f"{each.passed:.4f}", f"{each.failed:.4f}", "EXCEEDED" if each.exceeded else "",
        ]
        for each in judged
    ]  # fmt: skip
    show_table(columns, rows)
    for name in ("passed", "failed"):
        worst = max(judged, key=lambda each: getattr(each, name))
        say(f"most that {name}: {getattr(worst, name):.4f} in {len(judged)} cases, {worst}")
    _show_power(samples, seed)
    return not any(each.exceeded for each in judged)


def _show_power(samples: int, seed: int) -> None:
    say("Truth: a good candidate at 80 tasks. How often it passes with so many tasks missing:")
    rows = []
    for suite, attempts, margin in product(SUITES, (1, 4), (0.05, 0.1)):
        if suite == "settled" and attempts > 1:
            continue
        case = Case(
            tasks=80, attempts=attempts, margin=margin, suite=suite, change="everywhere",
            graded=False,
        )  # fmt: skip
        for better in (0.0, 0.05):
            told = []
            for tasks in (0, 1, 2, 4):
                one = rates(case, Gaps(tasks, "random", "candidate"), samples, seed, better=better)
                told.append("" if one is None else f"{one.passed:.3f}")
            rows.append([suite, attempts, margin, f"{better:+g}", *told])
    show_table(["suite", "attempts", "margin", "truth", "0", "1 of 80", "2", "4"], rows)
