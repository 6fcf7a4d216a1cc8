"""The statistics of hindsight where the truth is known, and how verdicts and histories are read."""

from typing import Any

import numpy as np
import pytest

from penstock.registry.channels.change import Change
from penstock_jobs.loop.foresight import (
    PAIRS_LEAST,
    Estimate,
    foresight_of,
    outcome_at,
    rank_correlation,
    share_of,
)
from penstock_jobs.loop.hindsight import OfflineGain, offline_gains, trials_of

HISTORIES = 1_000


def exact(value: float, reach: float = 0.0) -> Estimate:
    return Estimate(value, value - reach, value + reach)


def histories(pairs: int, rho: float, noise: float, count: int) -> Any:
    """Differences of neighbours in `count` histories, offline and online: qualities that correlate
    by `rho`, measured with errors. Neighbours share the errors of one checkpoint."""
    random = np.random.default_rng(7)
    quality = random.standard_normal((2, count, pairs + 1))
    quality[1] = rho * quality[0] + (1 - rho**2) ** 0.5 * quality[1]
    measured = quality + noise * random.standard_normal(quality.shape)
    return np.diff(measured, axis=2)


def misses(found: Estimate, truth: float) -> tuple[bool, bool]:
    assert found.lower is not None
    assert found.upper is not None
    return found.lower > truth, found.upper < truth


@pytest.mark.parametrize(("pairs", "rho", "noise"), [(8, 0.0, 1.0), (12, 0.8, 0.5), (30, 0.5, 1.0)])
def test_each_bound_of_a_correlation_and_of_a_share_errs_in_a_twentieth(
    pairs: int, rho: float, noise: float
) -> None:
    long_ours, long_theirs = histories(200_000, rho, noise, 1)[:, 0]
    long = rank_correlation(long_ours, long_theirs, 1.0)
    assert long is not None
    truth = long.value
    agree = np.mean(np.sign(long_ours) == np.sign(long_theirs))
    errors = np.zeros(4)
    weight = 1 + 0.5 * (pairs - 1) / pairs
    for ours, theirs in zip(*histories(pairs, rho, noise, HISTORIES), strict=True):
        rank = rank_correlation(ours, theirs, weight)
        assert rank is not None
        share = share_of(int((np.sign(ours) == np.sign(theirs)).sum()), pairs, weight)
        errors += (*misses(rank, truth), *misses(share, float(agree)))
    # Six standard errors of a rate of 5 % over these histories are 4 points.
    assert (errors / HISTORIES < 0.07).all(), errors / HISTORIES


def test_few_pairs_say_nothing_however_well_they_agree() -> None:
    pairs = [(exact(value, 0.01), exact(value, 0.01)) for value in range(1, PAIRS_LEAST)]
    found = foresight_of(pairs, len(pairs) - 1)
    assert (found.agreed, found.shown_agreed) == (PAIRS_LEAST - 1, PAIRS_LEAST - 1)
    assert (found.correlation, found.agreement) == (None, None)
    assert found.conclusion == "too few pairs"


def test_a_suite_that_says_the_reverse_misleads() -> None:
    values = np.random.default_rng(3).standard_normal(20)
    pairs = [(exact(value, 0.1), exact(-value, 0.1)) for value in values.tolist()]
    assert foresight_of(pairs, 19).conclusion == "misleads"


def test_a_metric_that_never_changes_foretells_nothing() -> None:
    found = foresight_of([(exact(0.0), exact(float(value))) for value in range(12)], 11)
    assert (found.correlation, found.compared, found.conclusion) == (None, 0, "not shown")


def test_noise_is_the_share_of_the_spread_that_errors_explain() -> None:
    values = [-1.0, 1.0, -1.0, 1.0]
    reach = 1.6449 * (np.var(values, ddof=1) / 4) ** 0.5
    found = foresight_of(
        [(exact(value, float(reach)), Estimate(value, None, 1)) for value in values], 0
    )
    assert found.noise[0] == pytest.approx(0.25)
    assert found.noise[1] is None


def test_another_margin_decides_by_the_same_bounds() -> None:
    pairs = [
        (Estimate(0.0, -0.03, 0.03), exact(0.2, 0.1)),
        (Estimate(-0.05, -0.08, -0.02), exact(-0.2, 0.1)),
        (Estimate(-0.05, None, None), exact(0.1, 0.2)),
    ]
    strict, loose = outcome_at(pairs, 0.01), outcome_at(pairs, 0.1)
    assert (strict.passed, strict.failed, strict.undecided) == (0, 1, 2)
    assert (strict.kept_out_better, strict.kept_out_better_shown) == (2, 1)
    assert (loose.passed, loose.passed_worse, loose.passed_worse_shown) == (2, 1, 1)


def test_gains_of_a_verdict_are_turned_so_that_more_is_better() -> None:
    document = {
        "incumbent": {"name": "old"},
        "requirements": [
            {"suite": "core", "metric": "score", "margin": 0.05, "difference": 0.1, "lower": 0.0,
             "upper": 0.2},
            {"suite": "core", "metric": "steps", "margin": 1.0},
        ],
        "guards": [
            {"suite": "core", "metric": "cost_usd", "kind": "max_increase", "value": 0.3,
             "lower": 0.1, "upper": 0.5},
            {"suite": "core", "metric": "asked", "kind": "max", "value": 0.3},
        ],
    }  # fmt: skip
    assert offline_gains(document) == {
        "core score": OfflineGain(Estimate(0.1, 0.0, 0.2), 0.05),
        "core cost_usd, relative": OfflineGain(Estimate(-0.3, -0.5, -0.1)),
    }
    assert offline_gains({"incumbent": None, "requirements": [{"difference": 0.1}]}) == {}


def change(version: int, at_s: int, action: str, **facts: Any) -> Change:
    told: dict[str, Any] = {"channel": "production", "tenant": "default", "actor": "ann"}
    return Change(
        **told
        | {"reason": "", "action": action, "at": at_s * 1_000_000, "version": version}
        | facts
    )


def test_a_canary_ends_with_the_next_change_and_a_watch_by_itself() -> None:
    changes = [
        change(1, 0, "promote", checkpoint="a"),
        change(2, 100, "canary", checkpoint="a", canary="b", canary_share=0.1),
        change(3, 200, "canary", checkpoint="a", canary="b", canary_share=0.5),
        change(4, 300, "promote", checkpoint="b", previous="a"),
        change(5, 350, "policy", checkpoint="b", previous="a"),
    ]
    found = trials_of(changes, now_us=400_000_000, settle_s=0.0, watch_s=1_000.0)
    assert list(found) == [("b", "a")]
    canary, watch = found["b", "a"]
    assert (canary.kind, watch.kind) == ("canary", "watch")
    ends = [period.until_us for period in canary.candidate_periods]
    assert ends == [200_000_000, 300_000_000]
    assert canary.split_us == (100_000_000, 200_000_000, 300_000_000)
    assert watch.candidate_periods[0].until_us == 1_300_000_000
