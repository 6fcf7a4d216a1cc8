"""Plans and drawings: what they say is what happens."""

import numpy as np
import pytest

from bench.gate_study.paired import rates
from bench.gate_study.scores import Case
from penstock.registry.gate.amounts import amounts_by_task, plain_amounts
from penstock.registry.gate.power import (
    ASSUMED,
    MissingShares,
    missing_shares,
    power,
    spread_of,
    tasks_for,
)
from tests.support.gate_cases import TASKS, even, failed, side


@pytest.mark.parametrize(("attempts", "margin"), [(4, 0.02), (4, 0.05), (2, 0.1)])
def test_the_power_that_is_told_is_the_one_that_is_simulated(attempts: int, margin: float) -> None:
    case = Case(
        tasks=80, attempts=attempts, margin=margin, suite="realistic", change="sparse", graded=False
    )
    simulated = rates(case, 3_000, seed=2, equal=True)
    assert simulated is not None
    told = power(80, ASSUMED.deviation(attempts), margin=margin, alpha=0.05)
    assert told == pytest.approx(simulated.passed, abs=0.06)


def test_variance_is_taken_apart_into_chance_and_what_differs() -> None:
    random = np.random.default_rng(1)
    base = random.uniform(0.2, 0.8, 3_000)
    moved = base + random.choice([-0.1, 0.1], base.size)
    sides = [
        {f"t{at}": list(random.binomial(1, each, 4).astype(float)) for at, each in enumerate(one)}
        for one in (moved, base)
    ]
    found = spread_of(sides[0], sides[1])
    assert found is not None
    chance = float((base * (1 - base)).mean() + (moved * (1 - moved)).mean())
    assert found.within == pytest.approx(chance, rel=0.05)
    assert found.between == pytest.approx(0.01, abs=0.006)
    alone = spread_of(sides[1], sides[1])
    assert alone is not None
    assert alone.between == 0
    assert alone.within == pytest.approx(chance, rel=0.06)


def test_what_it_takes_suffices_and_one_less_does_not() -> None:
    needed = tasks_for(0.2, margin=0.05, alpha=0.05)
    assert needed is not None
    assert power(needed, 0.2, margin=0.05, alpha=0.05) >= 0.8
    assert power(needed - 1, 0.2, margin=0.05, alpha=0.05) < 0.8
    assert tasks_for(0.0, margin=0.02, alpha=0.05) == 149  # 0.98 ** 149 < 0.05
    assert tasks_for(0.2, margin=0.02, alpha=0.05, difference=-0.02) is None


def test_shares_of_what_is_missing_are_those_that_were_recorded() -> None:
    whole = list(side(even(tasks=TASKS[:80], attempts=4)).attempts)
    crashed = [failed(one) if at < 4 or at % 40 == 39 else one for at, one in enumerate(whole)]
    scores = [
        plain_amounts(amounts_by_task([one for one in each if one.result.error is None], "score"))
        for each in (whole, crashed)
    ]
    found = missing_shares([whole, crashed], scores, TASKS[:80])
    assert found.unscored == 1 / 80
    assert found.errors == pytest.approx(8 / (2 * 79 * 4))
    assert found.mean == 1.0
    assert missing_shares([], [], TASKS) == MissingShares()
