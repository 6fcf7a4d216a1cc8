"""The comparison of two checkpoints over tasks: how often it passes what is worse by the margin or
calls it worse, and how often it passes an equal candidate, beside the plain paired t."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bench.gate_study.scores import CHANGES, SUITES, Case, Values, differences
from penstock.backends.terminal.output import say, show_table
from penstock.registry.gate.statistics import chance

ALPHA = 0.05
TASKS = (30, 50, 80, 200, 500)
ATTEMPTS = (1, 2, 4, 8)
MARGINS = (0.02, 0.05, 0.1)
#: Looked at again with so many times the samples where more than alpha passed.
_AGAIN = 20
#: Standard errors that the rate may then lie above alpha.
_ERRORS = 3.0
_BATCH = 4_000
_TOLD_EACH = 100


@dataclass(frozen=True)
class Rates:
    """Shares of the samples. `error` is the standard error of `passed` if it were alpha."""

    case: Case
    samples: int
    passed: float
    failed: float
    passed_by_t: float

    @property
    def error(self) -> float:
        return float((ALPHA * (1 - ALPHA) / self.samples) ** 0.5)

    @property
    def exceeded(self) -> bool:
        return max(self.passed, self.failed) > ALPHA + _ERRORS * self.error


def cases() -> Iterator[Case]:
    for tasks, attempts, margin, suite, change, graded in product(
        TASKS, ATTEMPTS, MARGINS, SUITES, CHANGES, (False, True)
    ):
        if suite == "settled" and (attempts > 1 or graded):
            continue  # attempts do not differ there
        yield Case(
            tasks=tasks, attempts=attempts, margin=margin, suite=suite, change=change, graded=graded
        )


def rates(case: Case, samples: int, seed: int, *, equal: bool = False) -> Rates | None:
    """None where there is no such case."""
    random = np.random.default_rng([seed, *repr(case).encode()])
    counted = np.zeros(3)
    done = 0
    while done < samples:
        found = differences(random, case, min(_BATCH, samples - done), equal=equal)
        if found is None:
            return None
        counted += _counts(found, case.margin)
        done += len(found)
    return Rates(case, done, *(float(one) for one in counted / done))


def _counts(found: Values, margin: float) -> Values:
    by_t = passes_by_t(found, margin)
    # What passes, passes the plain t as well (a test holds that): the others need not be asked.
    passed = chance(found[by_t], -1.0, -margin) <= ALPHA
    worse = -found[passes_by_t(-found, -margin)]
    failed = chance(worse, -1.0, margin) <= ALPHA
    return np.array([passed.sum(), failed.sum(), by_t.sum()])


def passes_by_t(found: Values, margin: float) -> NDArray[np.bool_]:
    """What the plain paired t says, of each row."""
    from scipy.special import stdtrit

    tasks = found.shape[1]
    error = found.std(axis=1, ddof=1) / tasks**0.5
    lower = found.mean(axis=1) - stdtrit(tasks - 1, 1 - ALPHA) * error
    return np.asarray(lower >= -margin)


def study(samples: int, seed: int) -> bool:
    """Prints its tables; whether nowhere more than alpha erred, within sampling error."""
    found = []
    asked = list(cases())
    for at, case in enumerate(asked):
        if at % _TOLD_EACH == 0:
            say(f"{at} of {len(asked)} cases")
        one = rates(case, samples, seed)
        if one is not None and max(one.passed, one.failed) > ALPHA:
            one = rates(case, samples * _AGAIN, seed + 1)
        if one is not None:
            found.append(one)
    _show_sizes(found)
    _show_power(samples, seed)
    return not any(one.exceeded for one in found)


def _show_sizes(found: list[Rates]) -> None:
    say(f"Truth: worse by just the margin. At most {ALPHA:.0%} may pass, or be called worse.")
    columns = ["tasks", "attempts", "margin", "suite", "change", "scores", "passed", "±", "failed"]
    rows = []
    for one in found:
        case = one.case
        kind = "graded" if case.graded else "solved or not"
        rows.append(
            [
                case.tasks, case.attempts, case.margin, case.suite, case.change, kind,
                f"{one.passed:.4f}", f"{one.error:.4f}", f"{one.failed:.4f}",
                f"{one.passed_by_t:.4f}", "EXCEEDED" if one.exceeded else "",
            ]
        )  # fmt: skip
    show_table([*columns, "paired t", ""], rows)
    worst = max(found, key=lambda one: one.passed)
    worst_t = max(found, key=lambda one: one.passed_by_t)
    say(f"most that passed: {worst.passed:.4f} of {worst.samples}, {worst.case}")
    say(f"most that passed by the paired t: {worst_t.passed_by_t:.4f}, {worst_t.case}")


def _show_power(samples: int, seed: int) -> None:
    say("Truth: an equal candidate. How often it passes, and by the plain paired t:")
    columns = ["suite", "tasks", "attempts", *(f"margin {one}" for one in MARGINS)]
    rows = []
    for suite, tasks, attempts in product(SUITES, TASKS, ATTEMPTS):
        if suite == "settled" and attempts > 1:
            continue
        told = []
        for margin in MARGINS:
            case = Case(
                tasks=tasks, attempts=attempts, margin=margin, suite=suite, change="sparse",
                graded=False,
            )  # fmt: skip
            one = rates(case, samples, seed, equal=True)
            assert one is not None
            told.append(f"{one.passed:.3f} ({one.passed_by_t:.3f})")
        rows.append([suite, tasks, attempts, *told])
    show_table(columns, rows)
