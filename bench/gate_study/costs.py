"""Guards on what costs: how often they hold for a candidate that is just at the limit.

Costs have no end, so no test is right for all of them. The gate suspects that an unseen task
costs as much more as an average task costs, or as the furthest one seen. Few tasks that cost many
times as much are told here, and not judged.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from penstock.backends.terminal.output import say, show_table
from penstock.registry.gate.amounts import MetricAmounts, SideAmounts
from penstock.registry.gate.policy import Guard
from penstock.registry.gate.requirements import measure_guard

_GUARD = Guard(suite="core", metric="cost_usd", kind="max_increase", limit=0.1)
_TASKS = (30, 80, 200)
#: Standard deviations of the logarithm, between tasks and between attempts at one.
_TAILS = ((0.5, 0.3), (1.0, 0.5), (1.0, 1.0), (1.5, 1.0))
_ATTEMPTS = 4
#: What may pass, of tails up to the second; heavier ones are told and not judged.
_JUDGED = 2
_ERRORS = 3.0
#: How many tasks cost how many times as much: each makes 10 % of all.
_FEW = {"doubled": (0.1, 2.0), "sixfold": (0.02, 6.0)}


@dataclass(frozen=True)
class CostRates:
    everywhere: float
    doubled: float
    sixfold: float
    equal: float


def rates(tasks: int, tail: tuple[float, float], samples: int, seed: int) -> CostRates:
    """The candidate costs more by just the limit: everywhere, twice as much at one task in ten, or
    six times as much at one in fifty; or it costs the same."""
    random = np.random.default_rng([seed, tasks, round(10 * tail[0]), round(10 * tail[1])])
    found = [
        sum(_holds(random, tasks, tail, kind) for _ in range(samples)) / samples
        for kind in ("everywhere", "doubled", "sixfold", "equal")
    ]
    return CostRates(*found)


def _holds(random: np.random.Generator, tasks: int, tail: tuple[float, float], kind: str) -> bool:
    level = random.lognormal(0, tail[0], tasks)
    factor = np.full(tasks, 1.1 if kind == "everywhere" else 1.0)
    if kind in _FEW:
        share, times = _FEW[kind]
        factor[random.random(tasks) < share] = times
    sides = [
        SideAmounts(
            {
                f"t{at}": [(float(one), 1.0) for one in row]
                for at, row in enumerate(
                    (level * by)[:, np.newaxis] * random.lognormal(0, tail[1], (tasks, _ATTEMPTS))
                )
            }
        )
        for by in (factor, 1.0)
    ]
    names = [f"t{at}" for at in range(tasks)]
    amounts = MetricAmounts("cost_usd", names, sides, np.inf)
    return measure_guard(_GUARD, amounts).outcome == "PASS"


def study(samples: int, seed: int) -> bool:
    samples = max(samples // 4, 100)
    say(f"A guard of 10 %, costs lognormal, {_ATTEMPTS} attempts. How often it is said to hold:")
    limit = 0.05 + _ERRORS * (0.05 * 0.95 / samples) ** 0.5
    well = True
    rows = []
    for tasks, (at, tail) in product(_TASKS, enumerate(_TAILS)):
        one = rates(tasks, tail, samples, seed)
        over = at < _JUDGED and max(one.everywhere, one.doubled) > limit
        well = well and not over
        told = [f"{each:.3f}" for each in (one.everywhere, one.doubled, one.sixfold, one.equal)]
        rows.append([tasks, f"{tail[0]} / {tail[1]}", *told, "EXCEEDED" if over else ""])
    columns = [
        "tasks",
        "log deviation: tasks / attempts",
        "everywhere",
        "doubled",
        "sixfold",
        "equal",
    ]
    show_table([*columns, ""], rows)
    return well
