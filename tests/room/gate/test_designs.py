"""Attempts until the verdict stands: the same again after an interruption, and no more errors."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gate_study.adaptive import Case, run
from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import Attempt, RecordedAttempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.gate.designs import (
    Design,
    count_attempts,
    is_hopeless,
    keep_design,
    look_levels,
    look_progress,
    make_design,
)
from tests.support.gate_cases import TASKS, even, judged, side

ALPHA = 0.05
NOISY = {f"t-{at}": [0.0, 1.0, 0.0, 1.0] for at in range(4)}
QUIET = {f"q-{at}": [1.0, 1.0, 1.0, 1.0] for at in range(4)}


def plan(most: int = 8, least: int = 1) -> Design:
    return make_design([*NOISY, *QUIET], NOISY | QUIET, least=least, most=most)


def made(wanted: Sequence[tuple[str, int]], error: str | None = None) -> list[Attempt]:
    score = None if error else 1.0
    return [Attempt(task=task, attempt=number, score=score, error=error) for task, number in wanted]


def test_levels_spend_alpha_and_no_more() -> None:
    parts = (0.125, 0.25, 0.375, 0.625, 1.0)
    found = np.array(look_levels(parts, ALPHA, 2.0))
    assert (np.diff(found) > 0).all()
    assert found[-1] < ALPHA
    random = np.random.default_rng(1)
    steps = np.sqrt(np.diff(parts, prepend=0))
    walks = np.cumsum(random.normal(size=(400_000, 5)) * steps, axis=1) / np.sqrt(parts)
    from scipy.special import ndtri

    crossed = walks > -ndtri(found)
    assert crossed.any(axis=1).mean() == pytest.approx(ALPHA, abs=0.002)
    assert crossed[:, 0].mean() == pytest.approx(ALPHA * 0.125**2, abs=0.0005)
    assert look_levels((1.0,), ALPHA, 2.0)[0] == pytest.approx(ALPHA)


def test_attempts_go_where_results_vary() -> None:
    found = plan()
    assert found.looks == (1, 2, 3, 5, 8)
    assert {found.caps[task] for task in NOISY} == {8}
    assert {found.caps[task] for task in QUIET} == {5}
    assert sum(found.count(task, 5) for task in found.caps) == 4 * 8 + 4 * 5
    assert make_design(NOISY, {}, least=2, most=2).looks == (2,)
    assert set(make_design(QUIET, {}, least=1, most=4).caps.values()) == {4}
    assert set(make_design(QUIET, QUIET, least=6, most=8).caps.values()) == {6}
    assert msgspec.convert(asdict(found), Design) == found


@given(st.integers(0, 40), st.randoms(use_true_random=False))
def test_cut_off_anywhere_it_goes_on_as_it_would_have(done: int, random: object) -> None:
    found = plan()
    known: list[Attempt] = []
    while len(known) < done:
        wanted = look_progress(found, known).missing
        random.shuffle(wanted)  # type: ignore[attr-defined]
        known += made(wanted[: done - len(known)])
    seen = look_progress(found, known)
    whole = made(sorted({(one.task, one.attempt) for one in known}))
    assert look_progress(found, whole) == seen
    if seen.look:
        assert {task: list(each) for task, each in seen.numbers.items()} == {
            task: list(range(found.count(task, seen.look))) for task in found.caps
        }


def test_an_error_is_no_attempt() -> None:
    found = plan()
    first = look_progress(found, []).missing
    known = made(first[1:]) + made(first[:1], "the sandbox broke")
    assert look_progress(found, known).look == 0
    assert look_progress(found, known).missing == [(first[0][0], 1)]
    known += made([(first[0][0], 1)])
    assert look_progress(found, known).look == 1
    assert look_progress(found, known).numbers[first[0][0]] == [1]
    broken = made(first[1:]) + made([(first[0][0], at) for at in range(4)], "broken")
    assert look_progress(found, broken).look == 1  # it is given up, and the others go on
    assert first[0][0] not in {task for task, _ in look_progress(found, broken).missing}


def test_what_the_plan_did_not_foresee_does_not_count() -> None:
    found = plan()
    wanted = look_progress(found, []).missing
    more = made([*wanted, ("t-0", 1), ("t-0", 30), ("other", 0)]) + made([("t-1", 2)], "broken")
    kept = [RecordedAttempt(one, "run", 1) for one in more]
    look, counted = count_attempts(found, kept)
    assert look == 1
    assert [one.result for one in counted] == [*more[: len(wanted)], more[-1]]
    assert found.level(0, ALPHA) == 0 < found.level(look, ALPHA) < 0.001


def test_the_gate_is_as_strict_as_the_look() -> None:
    design = make_design(TASKS, even(0.5, attempts=4), least=1, most=8)
    candidate = side(even(attempts=1))
    before = even(attempts=4)
    assert judged(candidate, before).outcome == "PASS"
    early = judged(replace(candidate, design=design), before)
    assert early.outcome == "INCONCLUSIVE"
    assert early.document["suites"]["core"]["design"]["look"] == 1
    requirement = early.document["requirements"][0]
    assert (requirement["alpha_asked"], requirement["alpha"]) == (0.05, design.level(1, 0.05))
    late = judged(replace(side(even(attempts=8)), design=design), before)
    assert late.outcome == "PASS"
    none = judged(replace(side(even(attempts=1, tasks=TASKS[:50])), design=design), before)
    assert none.outcome == "INCONCLUSIVE"
    assert "has not reached its first look" in none.document["why"][0]


def test_it_gives_up_where_the_noise_is_not_its_own() -> None:
    tasks = [f"t-{at}" for at in range(40)]
    design = make_design(tasks, {}, least=1, most=8)
    ours = {task: [float(at % 2)] * 2 for at, task in enumerate(tasks)}
    theirs = {task: [float(at // 2 % 2)] * 4 for at, task in enumerate(tasks)}
    assert is_hopeless(design, 2, ours, theirs, margin=0.02, alpha=ALPHA)
    assert not is_hopeless(design, 1, ours, ours, margin=0.15, alpha=ALPHA)


@pytest.mark.parametrize(
    "case",
    [Case(suite="realistic", change="everywhere", tasks=80, loss=0.05)],
    ids=lambda one: f"{one.suite} {one.tasks}",
)
def test_what_is_worse_by_the_margin_passes_as_rarely_as_asked(case: Case) -> None:
    found = run(case, 400, 7, hope=False)
    assert found is not None
    assert not found.exceeded


def test_a_design_is_kept_once_and_before_all_else(database: Database) -> None:
    place = AttemptScope("default", "core", "v1", "new")
    first, second = plan(), plan(most=4)
    assert keep_design(database, place, first) == first
    assert keep_design(database, place, second) == first
    other = replace(place, checkpoint="tried")
    with database.write() as connection:
        record_attempts(connection, other, "r", made([("t-0", 0)]))
    with pytest.raises(InvalidInput, match="precede the first attempt"):
        keep_design(database, other, first)
