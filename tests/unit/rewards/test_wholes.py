"""Wholes by columns say what one would say of each whole by itself."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_jobs.rewards.edit_scores import (
    NOT_DUE,
    TargetScores,
    state_numbers,
    wholes,
)


class Part(NamedTuple):
    value: float | None
    state: str
    reason: str | None
    weight: float
    due_us: int | None


STANDINGS = [("censored", "unobserved"), ("censored", "path_lost"), ("invalid", "undecodable")]
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 3.25])
PARTS = st.one_of(
    st.builds(Part, st.floats(-1, 1), st.just("scored"), st.none(), WEIGHTS, st.none()),
    st.builds(Part, st.none(), st.just("pending"), st.none(), WEIGHTS, st.integers(-9, 9)),
    st.sampled_from(STANDINGS).flatmap(
        lambda one: st.builds(Part, st.none(), st.just(one[0]), st.just(one[1]), WEIGHTS, st.none())
    ),
)


def whole(parts: list[Part]) -> Part:
    """By the words of the module."""
    if len(parts) == 1:
        return parts[0]
    weight = sum(part.weight for part in parts)
    dues = [part.due_us for part in parts if part.due_us is not None]
    if dues:
        return Part(None, "pending", None, weight, max(dues))
    scored = [(part.value, part.weight) for part in parts if part.value is not None]
    if scored:
        total = sum(each for _, each in scored)
        if total:
            mean = sum(each * value for value, each in scored) / total
        else:
            mean = sum(value for value, _ in scored) / len(scored)
        return Part(mean, "scored", None, total, None)
    counts = Counter((part.state, part.reason) for part in parts)
    state, reason = min(counts, key=lambda one: (-counts[one], str(one)))
    return Part(None, state, reason, weight, None)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.tuples(PARTS, PARTS)), min_size=1, max_size=12))
def test_of_each_whole_and_horizon(told: list[tuple[int, tuple[Part, Part]]]) -> None:
    number = state_numbers(STANDINGS)
    names = sorted({name for name, _ in told})
    of = np.array([names.index(name) for name, _ in told])
    rows = [each for _, each in told]
    found = wholes(
        TargetScores(
            np.array([[np.nan if p.value is None else p.value for p in row] for row in rows]),
            np.array([[number[p.state, p.reason] for p in row] for row in rows]),
            np.array([[p.weight for p in row] for row in rows]),
            np.array([[NOT_DUE if p.due_us is None else p.due_us for p in row] for row in rows]),
        ),
        of,
        len(names),
    )
    for at in range(len(names)):
        for horizon in range(2):
            expected = whole([row[horizon] for row, one in zip(rows, of, strict=True) if one == at])
            value, standing, weight, due_us = (column[at, horizon] for column in found)
            assert standing == number[expected.state, expected.reason]
            assert weight == pytest.approx(expected.weight)
            assert (due_us == NOT_DUE) == (expected.due_us is None)
            if expected.due_us is not None:
                assert due_us == expected.due_us
            assert np.isnan(value) == (expected.value is None)
            if expected.value is not None:
                assert value == pytest.approx(expected.value)
