"""The truth of `bench run --until-decided`: how often it lets a worse candidate pass, how often it
decides, and what it saves beside all attempts at all tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.random import Generator

from bench.gate_study.scores import CHANGES, SUITES, Change, Values
from penstock.backends.terminal.output import say, show_table
from penstock.registry.gate.designs import Design, is_hopeless, make_design
from penstock.registry.gate.statistics import chance

ALPHA = 0.05
#: Looked at again with so many times the samples where more than alpha passed.
_AGAIN = 10
#: Standard errors that the rate may then lie above alpha.
_ERRORS = 3.0
#: For each case of the tables of what is saved.
_SAVED_SAMPLES = 300


@dataclass(frozen=True, kw_only=True)
class Case:
    """The candidate is worse by `loss` (better, where it is negative)."""

    suite: str
    change: str
    tasks: int
    loss: float
    margin: float = 0.05
    least: int = 1
    most: int = 8
    incumbent_attempts: int = 4
    graded: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """Shares of runs, and attempts at a task on average; `fixed` is all attempts at once."""

    case: Case
    samples: int
    passed: float
    failed: float
    attempts: float
    fixed_passed: float
    fixed_failed: float

    @property
    def exceeded(self) -> bool:
        error = (ALPHA * (1 - ALPHA) / self.samples) ** 0.5
        return bool(max(self.passed, self.failed) > ALPHA + _ERRORS * error)


def cases() -> Iterator[Case]:
    """Worse by just the margin."""
    for suite, change, tasks, most in product(SUITES, CHANGES, (30, 80, 200, 500), (2, 4, 8)):
        yield Case(suite=suite, change=change, tasks=tasks, loss=0.05, most=most, graded=most == 4)


def study(samples: int, seed: int) -> bool:
    """Prints its tables; whether nowhere more than alpha erred, within sampling error."""
    found = []
    for case in cases():
        one = run(case, samples // 4, seed, hope=False)
        if one is not None and max(one.passed, one.failed) > ALPHA:
            one = run(case, samples // 4 * _AGAIN, seed + 1, hope=False)
        if one is not None:
            found.append(one)
    say(f"Truth: worse by just the margin. At most {ALPHA:.0%} may pass, or be called worse.")
    _show(found)
    worst = max(found, key=lambda one: one.passed)
    say(f"most that passed: {worst.passed:.4f} of {worst.samples}, {worst.case}")
    say("What is saved, for an equal candidate, a better one, and one that is much worse:")
    saved = (
        run(Case(suite=suite, change="everywhere", tasks=tasks, loss=loss), _SAVED_SAMPLES, seed)
        for suite, tasks, loss in product(SUITES, (30, 80, 200, 500), (0.0, -0.05, 0.15))
    )
    _show([one for one in saved if one is not None])
    return not any(one.exceeded for one in found)


def _show(found: Sequence[Result]) -> None:
    columns = ["suite", "change", "tasks", "loss", "at most", "passed", "failed", "attempts"]
    rows = [
        [
            one.case.suite, one.case.change, one.case.tasks, one.case.loss, one.case.most,
            f"{one.passed:.3f} ({one.fixed_passed:.3f})",
            f"{one.failed:.3f} ({one.fixed_failed:.3f})",
            f"{one.attempts:.1f}", "EXCEEDED" if one.case.loss == one.case.margin and one.exceeded
            else "",
        ]
        for one in found
    ]  # fmt: skip
    show_table([*columns, ""], rows)
    say("In brackets: with all attempts at once.")


def run(case: Case, samples: int, seed: int, *, hope: bool = True) -> Result | None:
    """Without `hope` nothing ends because it is hopeless: that ends no run with an answer, and its
    errors are some of these. None where a suite cannot get so much worse."""
    random = np.random.default_rng([seed, *repr(case).encode()])
    drawn = []
    for _ in range(samples):
        one = draw(random, case)
        if one is None:
            return None
        drawn.append(one)
    outcomes, attempts = until_decided(case, drawn, hope=hope)
    passed, failed = tests(case, np.stack([one.all_attempts for one in drawn]), ALPHA)
    return Result(
        case=case,
        samples=samples,
        passed=float((outcomes == 1).mean()),
        failed=float((outcomes == -1).mean()),
        attempts=float(attempts.mean()) / case.tasks,
        fixed_passed=float(passed.mean()),
        fixed_failed=float(failed.mean()),
    )


@dataclass(frozen=True)
class Drawn:
    """One run: its design, and the differences by task that each look sees."""

    design: Design
    looks: Sequence[Any]
    all_attempts: Any
    #: By task: of the candidate's attempts, and of the incumbent's.
    scores: Any
    before: Any


def draw(random: Generator, case: Case) -> Drawn | None:
    table, change = _tables(case.suite, case.change, abs(case.loss))
    chosen = random.integers(table.size, size=case.tasks)
    solves = others = table[chosen]
    if case.loss != 0:
        if change is None or change.share > 1:
            return None
        lost = random.random(case.tasks) < change.share
        others = np.where(lost, change.kept * change.usual[chosen], change.usual[chosen])
    if case.loss < 0:
        solves, others = others, solves
    before = _scores(random, solves, case.incumbent_attempts, case.graded)
    names = [f"{task:04}" for task in range(case.tasks)]
    plan = make_design(
        names, dict(zip(names, before, strict=True)), least=case.least, most=case.most
    )
    scores = _scores(random, others, case.most, case.graded)
    sums = np.cumsum(scores, axis=1)
    every = np.arange(case.tasks)
    looks = []
    for look in range(1, len(plan.looks) + 1):
        counts = np.array([plan.count(name, look) for name in names])
        looks.append(sums[every, counts - 1] / counts - before.mean(axis=1))
    return Drawn(plan, looks, sums[:, -1] / case.most - before.mean(axis=1), scores, before)


def until_decided(case: Case, drawn: Sequence[Drawn], *, hope: bool) -> tuple[Any, Any]:
    """1 for a pass, −1 for a fail, 0 for neither; and how many attempts it took."""
    outcomes = np.zeros(len(drawn))
    attempts = np.array([float(sum(one.design.caps.values())) for one in drawn])
    # Designs differ in their last look, so in their levels: each look of each length at once.
    for looks in sorted({one.design.looks for one in drawn}):
        mine = np.array([at for at, one in enumerate(drawn) if one.design.looks == looks])
        for look in range(1, len(looks) + 1):
            if not mine.size:
                break
            level = drawn[mine[0]].design.level(look, ALPHA)
            values = np.stack([drawn[at].looks[look - 1] for at in mine])
            passed, failed = tests(case, values, level)
            outcomes[mine] = passed.astype(int) - failed
            over = passed | failed
            if hope and look < len(looks):
                over[~over] = [_hopeless(case, drawn[at], look) for at in mine[~over]]
            for at in mine[over]:
                plan = drawn[at].design
                attempts[at] = sum(plan.count(task, look) for task in plan.caps)
            mine = mine[~over]
    return outcomes, attempts


@cache
def _tables(suite: str, change: str, loss: float) -> tuple[Values, Change | None]:
    table = SUITES[suite]()
    return table, CHANGES[change](table, loss) if loss else None


def _hopeless(case: Case, one: Drawn, look: int) -> bool:
    plan = one.design
    seen = {
        name: scores[: plan.count(name, look)]
        for name, scores in zip(plan.caps, one.scores, strict=True)
    }
    before = dict(zip(plan.caps, one.before, strict=True))
    return is_hopeless(plan, look, seen, before, margin=case.margin, alpha=ALPHA)


def tests(case: Case, values: Any, level: float) -> tuple[Any, Any]:
    """Those that pass and those that fail, as the gate decides it."""
    passed = chance(values, -1.0, -case.margin) <= level
    return passed, (chance(-values, -1.0, case.margin) <= level) & ~passed


def _scores(random: Generator, mean: Values, attempts: int, graded: bool) -> Any:
    """A row for each task."""
    means = np.clip(mean, 0, 1)[:, None]
    if not graded:
        return random.binomial(1, means, (len(mean), attempts)).astype(float)
    inside = np.clip(means, 1e-3, 1 - 1e-3)
    drawn = random.beta(4 * inside, 4 * (1 - inside), (len(mean), attempts))
    return np.where((means < 1e-3) | (means > 1 - 1e-3), means, drawn)
