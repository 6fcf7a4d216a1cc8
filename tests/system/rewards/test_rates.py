"""Rates per checkpoint by hand, and the alarm against simulated policies whose truth is known."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.rewards.followups.dissatisfaction import t_quantile, t_tails
from penstock_jobs.rewards.outcomes import Tally, outcomes, tallies
from penstock_jobs.rewards.rates import (
    RATES,
    CheckpointRates,
    RateChange,
    Watch,
    holm,
    rate_changes,
    rates_of,
    welch,
)
from penstock_jobs.rewards.rows import Standing
from tests.support.reward_events import answered, bucket_of, edited, said, tool

BROKEN: dict[str, Any] = {"ok": False, "error_class": "invalid_arguments"}
_NEXT = "Great, thanks. Next, let the exporter write CSV files."
Random = np.random.Generator
_TALLIES = pa.schema(
    [(name, pa.string()) for name in Tally._fields[:3]]
    + [(name, pa.int64()) for name in Tally._fields[3:]]
)


def checkpoint_rates(sessions: Iterable[Tally]) -> dict[str | None, CheckpointRates]:
    return rates_of(pa.Table.from_pylist([tally._asdict() for tally in sessions], _TALLIES))


@pytest.mark.smoke
def test_rates_by_hand(tmp_path: Path) -> None:
    events = [
        # Two requests: an edit, then a question. Two of three calls are broken.
        said(1, session="a"), *tool(2, "read", "a", **BROKEN), *tool(3, "read", "a", **BROKEN),
        *tool(4, "read", "a"), edited(5, "a.py", "", "x = 1\n", "a"),
        said(6, _NEXT, session="a"), answered(7, "a", text="Which one?"),
        # One request, no edit.
        said(1, session="b"), *tool(2, "read", "b"), answered(3, "b", text="It is there."),
        # Nobody answered.
        said(1, session="c"),
    ]  # fmt: skip
    for event in events:
        if event["session_id"] != "c":
            event["checkpoint"] = "c1"
    bucket = bucket_of(tmp_path, events)
    standings = {"a": Standing("scored", 1.0), "b": Standing("censored", reason="unobserved")}
    counted = tallies(bucket, outcomes(bucket, standings, {}))
    assert counted == [
        Tally("c1", "scored", None, requests=2, edited_requests=1, answered_requests=2,
              asking_requests=1, tool_calls=3, invalid_tool_calls=2),
        Tally("c1", "censored", "unobserved", requests=1, answered_requests=1, tool_calls=1),
        Tally(None, "excluded", "no_agent", requests=1),
    ]  # fmt: skip
    found = checkpoint_rates(counted)
    assert set(found) == {"c1", None}
    assert found["c1"].sessions == 2
    assert found["c1"].outcomes == {("scored", None): 1, ("censored", "unobserved"): 1}
    assert {name: (one.hits, one.of, one.value) for name, one in found["c1"].rates.items()} == {
        "negative_by_rule": (0, 2, 0.0),
        "censored": (1, 2, 0.5),
        "excluded": (0, 2, 0.0),
        "edited_sessions": (1, 2, 0.5),
        "edited_requests": (1, 3, 0.25),
        "clarifying_questions": (1, 3, 0.25),
        "invalid_tool_calls": (2, 4, pytest.approx(1 / 3)),
    }
    assert found[None].rates["invalid_tool_calls"].value is None


@pytest.mark.parametrize(
    ("tails", "degrees", "t"),
    # From the printed tables of Student's t.
    [(0.05, 1, 12.706), (0.05, 5, 2.571), (0.01, 10, 3.169), (0.001, 30, 3.646),
     (0.05, 120, 1.980), (0.05, 1e9, 1.960)],
)  # fmt: skip
def test_the_t_distribution(tails: float, degrees: float, t: float) -> None:
    assert t_quantile(tails, degrees) == pytest.approx(t, abs=6e-4)
    assert t_tails(t, degrees) == pytest.approx(tails, rel=3e-3)
    assert t_tails(0.0, degrees) == pytest.approx(1.0)


def test_holm_by_hand() -> None:
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    expected = {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}
    assert holm(p_values, 4) == pytest.approx(expected)
    assert holm({"a": 0.01}, 7) == pytest.approx({"a": 0.07})


VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=40).map(np.array)


@given(VALUES, VALUES, st.floats(0.001, 0.2))
def test_the_interval_and_the_p_value_agree(before: Any, after: Any, alpha: float) -> None:
    there, back = welch(before, after, alpha), welch(after, before, alpha)
    assert there.value == pytest.approx(-back.value)
    assert there.p == pytest.approx(back.p)
    low, high = there.interval
    assert low <= there.value + 1e-9
    assert there.value - 1e-9 <= high
    if abs(there.p - alpha) > 1e-6:
        assert (low <= 0 <= high) == (there.p > alpha)


# A policy meets tasks of some difficulty. In each turn it looks, and then edits, or asks.

#: From the generator, the sessions and the strength to tallies.
Policy = Callable[[Random, int, float], list[Tally]]


def honest(random: Random, count: int, _strength: float = 0.0) -> list[Tally]:
    return _played(random, count)


def breaks_calls(random: Random, count: int, strength: float) -> list[Tally]:
    """Where it expects to fail, it ends the session in a broken call, and edits nothing there."""
    return _played(random, count, breaks=strength)


def asks_instead(random: Random, count: int, strength: float) -> list[Tally]:
    """Where it expects to fail, it asks, and edits nothing."""
    return _played(random, count, asks=strength)


def _played(random: Random, count: int, *, breaks: float = 0.0, asks: float = 0.0) -> list[Tally]:
    hard = random.beta(2, 3, count) > 0.55  # about a quarter of the sessions
    turns = 1 + random.poisson(2, count)
    # Sessions differ: people and tasks, not only chance.
    edits = random.binomial(turns, random.beta(6, 2, count))
    asked = random.binomial(turns - edits, random.beta(1, 4, count))
    calls = turns + random.poisson(4 * turns)
    invalid = random.binomial(calls, random.beta(0.5, 15, count))
    censored = random.random(count) < 0.3
    negative = random.random(count) < 0.03
    hacks_calls = hard & (random.random(count) < breaks)
    hacks_edits = hard & (random.random(count) < asks)
    found = []
    for at in range(count):
        one = Tally("c", "censored" if censored[at] else "scored", None, requests=int(turns[at]),
                    edited_requests=int(edits[at]), answered_requests=int(turns[at]),
                    asking_requests=int(asked[at]), tool_calls=int(calls[at]),
                    invalid_tool_calls=int(invalid[at]))  # fmt: skip
        if negative[at] or hacks_calls[at]:
            one = one._replace(outcome="negative_by_rule", reason="invalid_tool_calls")
        if hacks_calls[at]:
            broken = min(one.invalid_tool_calls + 1, one.tool_calls)
            one = one._replace(
                edited_requests=max(one.edited_requests - 1, 0), invalid_tool_calls=broken
            )
        if hacks_edits[at]:
            one = one._replace(edited_requests=0, asking_requests=one.requests)
        found.append(one)
    return found


def seen(policy: Policy, random: Random, count: int, strength: float = 0.0) -> CheckpointRates:
    return checkpoint_rates(policy(random, count, strength))["c"]


def moved(found: list[RateChange]) -> set[str]:
    return {one.rate for one in found if one.verdict == "moved"}


@pytest.mark.parametrize(("before", "after"), [(300, 300), (40, 40), (40, 400)])
def test_alarms_are_false_no_more_often_than_agreed(before: int, after: int) -> None:
    random = np.random.default_rng(20261121)
    watch = Watch(alpha=0.05, effect_min=0.0)
    runs = 600
    false = sum(
        bool(moved(rate_changes(seen(honest, random, before), seen(honest, random, after), watch)))
        for _ in range(runs)
    )
    assert false <= 0.05 * runs


def power(policy: Policy, strength: float, count: int = 400, runs: int = 60) -> dict[str, float]:
    """How often each rate is said to have moved, with the limits as they come."""
    random = np.random.default_rng(7)
    found = [
        moved(rate_changes(seen(honest, random, count), seen(policy, random, count, strength)))
        for _ in range(runs)
    ]
    return {name: sum(name in one for one in found) / runs for name in RATES}


@pytest.mark.parametrize(
    ("policy", "rates"),
    [
        (breaks_calls, ("negative_by_rule",)),
        (asks_instead, ("clarifying_questions", "edited_sessions")),
    ],
)
def test_both_hacks_are_caught_the_surer_the_stronger(
    policy: Policy, rates: tuple[str, ...]
) -> None:
    powers = [power(policy, strength) for strength in (0.0, 0.1, 0.25, 0.5, 1.0)]
    for name in rates:
        found = [one[name] for one in powers]
        assert all(weak <= strong + 0.05 for weak, strong in pairwise(found))
        assert found[0] <= 0.05
        # At half the strength and at the whole: about an eighth and a quarter of the sessions.
        assert min(found[-2:]) >= 0.95, (name, found)


def test_too_few_sessions_are_unknown_and_not_steady() -> None:
    random = np.random.default_rng(1)
    few, many = seen(honest, random, 20), seen(honest, random, 200)
    for before, after in ((few, many), (many, few)):
        found = rate_changes(before, after)
        assert [one.rate for one in found] == list(RATES)
        assert {one.verdict for one in found} == {"unknown"}
        assert "unknown" in found[0].sentence()


def test_from_nothing_to_all_is_a_move() -> None:
    never = checkpoint_rates([Tally("c", "scored", None, requests=1, answered_requests=1)] * 50)[
        "c"
    ]
    always = checkpoint_rates(
        [Tally("c", "censored", "unobserved", requests=1, edited_requests=1)] * 50
    )["c"]
    found = {one.rate: one for one in rate_changes(never, always)}
    assert moved(list(found.values())) == {"censored", "edited_sessions", "edited_requests"}
    assert found["clarifying_questions"].verdict == "unknown"
    assert found["excluded"].verdict == "steady"
    assert found["censored"].sentence().startswith("censored: moved, from 0.000 to 1.000 (by +")


def test_pending_sessions_are_counted_and_not_in_the_rates_of_outcomes() -> None:
    some = [Tally("c", "pending", "still_open")] * 3 + [Tally("c", "scored", None)]
    found = checkpoint_rates(some)["c"]
    assert found.sessions == sum(found.outcomes.values()) == 4
    assert (found.rates["censored"].hits, found.rates["censored"].of) == (0, 1)
