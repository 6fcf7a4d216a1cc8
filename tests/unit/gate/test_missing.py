"""What is missing counts at its worst for a PASS and at its best for a FAIL."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from penstock.registry.gate.decision import decide
from penstock.registry.gate.designs import make_design
from penstock.registry.gate.evidence import SideEvidence
from penstock.registry.gate.statistics import Ranges, chance, estimate, lower_bound
from penstock.registry.gate.verdict import Verdict
from tests.support.gate_cases import (
    POLICY,
    TASKS,
    Scores,
    even,
    evidence,
    failed,
    judged,
    side,
    suite,
)

EIGHTY = TASKS[:80]
WIDE = POLICY.replace("0.05", "0.1")


def without(scores: Scores, *tasks: str) -> Scores:
    return {task: each for task, each in scores.items() if task not in tasks}


def on(ours: Scores, theirs: Scores, policy: str = WIDE, **facts: Any) -> Verdict:
    """Of 80 tasks."""
    return decide(evidence(suite(side(ours), side(theirs), tasks=EIGHTY), policy=policy, **facts))


def test_one_crash_in_eighty_does_not_keep_a_great_loss_from_being_told() -> None:
    good, bad = even(tasks=EIGHTY), {**even(tasks=EIGHTY), **even(0.0, EIGHTY[:26])}
    for pair in ((without(bad, "t-070"), good), (bad, without(good, "t-070"))):
        verdict = on(*pair)
        assert verdict.outcome == "FAIL"
        [why] = verdict.document["why"]
        assert "at most 0.1 is allowed; 1 of 80 tasks counts at its best" in why
        requirement = verdict.document["requirements"][0]
        assert requirement["lower"] < requirement["difference"] < requirement["upper"] < -0.1


def test_a_good_candidate_passes_with_a_crash_in_eighty() -> None:
    good = even(tasks=EIGHTY)
    verdict = on(without(good, "t-003"), without(good, "t-007"))
    assert verdict.outcome == "PASS"
    requirement = verdict.document["requirements"][0]
    assert requirement["why"].endswith("2 of 80 tasks count at their worst")
    assert (requirement["tasks"], requirement["tasks_scored"]) == (80, 78)
    assert requirement["missing"]["candidate"] == {"tasks": 1, "attempts": 0}
    assert requirement["lower"] == pytest.approx(-0.068, abs=0.001)
    facts = verdict.document["suites"]["core"]
    assert facts["candidate"]["unscored"] == ["t-003"]
    assert facts["incumbent"]["unscored"] == ["t-007"]
    [ours, theirs] = verdict.document["notes"]
    assert ours.startswith("core: new has no score at 1 of 80 tasks (t-003)")
    assert theirs.startswith("core: old has no score at 1 of 80 tasks (t-007)")


def test_errors_and_tasks_of_one_side_alone_are_missing_alike() -> None:
    whole = side(even(tasks=EIGHTY))
    crashed = SideEvidence(
        [failed(one) if at < 2 else one for at, one in enumerate(whole.attempts)]
    )
    absent = side(without(even(tasks=EIGHTY), "t-000"))
    bounds = set()
    for ours, tasks in ((crashed, EIGHTY), (absent, EIGHTY), (absent, ())):
        verdict = decide(evidence(suite(ours, whole, tasks=tasks), policy=WIDE))
        assert verdict.outcome == "PASS"
        bounds.add(verdict.document["requirements"][0]["lower"])
    assert len(bounds) == 1


# However it is filled in

MARGINS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)


@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_stands_however_what_is_missing_is_filled_in(seed: int) -> None:
    random = Random(seed)
    count, tries = random.choice([12, 30, 60]), random.choice([1, 2, 4])
    worse = random.choice([0.0, 0.0, 0.02, 0.3, 0.8])
    tasks = TASKS[:count]
    chances = {task: random.choice([0.0, 1.0, 1.0, random.random()]) for task in tasks}

    def drawn(drop: float) -> dict[str, list[float]]:
        return {
            task: [float(random.random() < each * (random.random() >= drop)) for _ in range(tries)]
            for task, each in chances.items()
        }

    sides = drawn(worse), drawn(0.0)
    holes = {
        (random.randrange(2), random.choice(tasks), attempt)
        for _ in range(random.randint(1, 5))
        for attempt in range(random.choice([1, tries]))
    }
    margin = random.choice(MARGINS)
    policy = f'[[require]]\nsuite = "core"\nmargin = {margin}\nmin_tasks = 10\nattempts = {tries}\n'
    policy += "minimum = 0.05\n[evidence]\nmax_error_share = 1.0\n"
    shown = _verdict(sides, holes, None, tasks, policy).outcome
    for _ in range(4):
        kind = random.choice(["any", "worst", "best", "graded"])
        filled = {hole: _fill(random, kind, hole[0]) for hole in holes}
        outcome = _verdict(sides, holes, filled, tasks, policy).outcome
        if shown in {"PASS", "FAIL"}:
            assert outcome == shown, (seed, kind)


def _fill(random: Random, kind: str, which: int) -> float:
    if kind == "graded":
        return random.random()
    if kind == "any":
        return float(random.random() < 0.5)
    return float((kind == "best") == (which == 0))


def _verdict(
    sides: tuple[Mapping[str, list[float]], Mapping[str, list[float]]],
    holes: set[tuple[int, str, int]],
    filled: Mapping[tuple[int, str, int], float] | None,
    tasks: list[str],
    policy: str,
) -> Verdict:
    """Holes are errors, but where they are filled."""
    made = []
    for which, scores in enumerate(sides):
        attempts = []
        for each in side(scores).attempts:
            hole = which, each.result.task, each.result.attempt
            if hole in holes and filled is None:
                attempts.append(failed(each))
            elif hole in holes and filled is not None:
                attempts.append(replace(each, result=replace(each.result, score=filled[hole])))
            else:
                attempts.append(each)
        made.append(SideEvidence(attempts))
    return decide(evidence(suite(made[0], made[1], tasks=tasks), policy=policy))


@pytest.mark.parametrize("seed", range(3))
def test_no_completion_has_a_worse_bound(seed: int) -> None:
    random = np.random.default_rng(seed)
    tasks, missing = int(random.choice([10, 20, 50])), int(random.integers(1, 5))
    whole = [
        np.zeros(tasks),
        random.choice([-1.0, 0.0, 0.0, 0.0, 1.0], tasks),
        random.normal(0, 0.2, tasks).clip(-1, 1),
    ][seed % 3]
    low, high, seen = whole.copy(), whole.copy(), whole.copy()
    for at in range(missing):
        low[at], high[at] = [(-1.0, 1.0), (0.0, 1.0), (-1.0, 0.0), (-0.25, 0.25)][at % 4]
        seen[at] = np.nan
    bounds = estimate(Ranges(low, high, seen), limit=-0.2, alpha=0.05)
    middle = np.clip(np.median(whole), low, high)
    parts = random.beta(0.4, 0.4, (16, tasks))
    rows = np.vstack([low, high, middle, low + (high - low) * parts])
    for row in rows:
        assert lower_bound(row, -1.0, 0.05) >= bounds.lower - 1e-9
        assert -lower_bound(-row, -1.0, 0.05) <= bounds.upper + 1e-9
    assert chance(rows, -1.0, -0.2).max() <= bounds.p + 1e-9
    assert bounds.lower <= bounds.mean <= bounds.upper
    # It is not much worse than the worst end alone either.
    assert bounds.lower > lower_bound(low, -1.0, 0.05) - 0.12


def test_a_plan_goes_on_without_a_task_that_breaks_again_and_again() -> None:
    before = even(attempts=4)
    design = make_design(TASKS, even(0.5, attempts=4), least=1, most=8)
    made = side({**even(attempts=8), "t-000": [1.0] * 4})
    attempts = [failed(one) if one.result.task == "t-000" else one for one in made.attempts]
    verdict = judged(SideEvidence(attempts, design=design), before, WIDE)
    assert verdict.outcome == "PASS"
    assert verdict.document["suites"]["core"]["design"]["look"] == len(design.looks)
    requirement = verdict.document["requirements"][0]
    assert requirement["missing"]["candidate"] == {"tasks": 1, "attempts": 0}
    assert requirement["why"].endswith("1 of 100 tasks counts at its worst")
    whole = judged(replace(side(even(attempts=8)), design=design), before, WIDE)
    assert requirement["lower"] < whole.document["requirements"][0]["lower"]


# Metrics without an upper end

TOKENS = WIDE + '[[guard]]\nsuite = "core"\nmetric = "completion_tokens"\nmax_increase = 0.5\n'


def test_a_metric_without_an_end_needs_one_where_it_is_missing() -> None:
    whole = side(even(), completion_tokens=100)
    crashed = SideEvidence([*map(failed, whole.attempts[:2]), *whole.attempts[2:]])
    verdict = judged(crashed, whole, TOKENS)
    assert verdict.outcome == "INCONCLUSIVE"
    assert (
        "completion_tokens has no upper end, and 1 of 100 tasks lack it (t-000)"
        in (verdict.document["why"][0])
    )
    guard = verdict.document["guards"][0]
    assert (guard["candidate_mean"], guard["lower"], guard["upper"]) == (100, None, None)
    verdict = judged(crashed, whole, TOKENS + "most = 400\n")
    assert verdict.outcome == "PASS"
    assert "1 of 100 tasks counts at its worst" in verdict.document["guards"][0]["why"]
    verdict = judged(crashed, whole, TOKENS + "most = 90\n")
    assert verdict.outcome == "ERROR"
    assert (
        "has 100 completion_tokens, but the policy sets `most` to 90"
        in (verdict.document["why"][0])
    )
    dear = side(even(), completion_tokens=300)
    dear = SideEvidence([*map(failed, dear.attempts[:2]), *dear.attempts[2:]])
    assert judged(dear, whole, TOKENS + "most = 400\n").outcome == "FAIL"


def test_a_share_of_tool_calls_needs_the_most_calls() -> None:
    whole = side(even(), invalid_tool_calls=1, tool_calls=20)
    crashed = SideEvidence([failed(whole.attempts[0]), *whole.attempts[1:]])
    policy = WIDE + '[[guard]]\nsuite = "core"\nmetric = "invalid_tool_calls"\nmax = 0.2\n'
    verdict = judged(crashed, whole, policy)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "the most that an attempt makes" in verdict.document["why"][0]
    verdict = judged(crashed, whole, policy + "most = 50\n")
    assert verdict.outcome == "PASS"
    shown = verdict.document["guards"][0]
    for invalid, calls in ((0, 0), (0, 50), (50, 50), (7, 21)):
        facts: dict[str, Any] = {"invalid_tool_calls": invalid, "tool_calls": calls}
        first = replace(whole.attempts[0], result=replace(whole.attempts[0].result, **facts))
        filled = judged(SideEvidence([first, *whole.attempts[1:]]), whole, policy)
        assert filled.outcome == "PASS"
        assert filled.document["guards"][0]["upper"] <= shown["upper"]
        assert filled.document["guards"][0]["lower"] >= shown["lower"]


# Tasks that a policy leaves out

LEAVES = WIDE + '[[leave_out]]\nsuite = "core"\ntasks = ["t-003"]\nreason = "its image is gone"\n'


def test_a_policy_may_leave_tasks_out_with_a_reason() -> None:
    ours, theirs = without(even(tasks=EIGHTY), "t-003"), even(tasks=EIGHTY)
    verdict = on(ours, theirs, LEAVES)
    assert verdict.outcome == "PASS"
    requirement = verdict.document["requirements"][0]
    assert requirement["tasks"] == 79
    assert requirement["lower"] == pytest.approx(0.05 ** (1 / 79) - 1)
    facts = verdict.document["suites"]["core"]
    assert facts["left_out"] == [{"task": "t-003", "reason": "its image is gone"}]
    assert "unscored" not in facts["candidate"]
    assert verdict.document["notes"] == ["core: the policy leaves out t-003: its image is gone."]
    assert verdict.document["policy"] != on(ours, theirs).document["policy"]


def test_results_of_tasks_that_are_left_out_do_not_count() -> None:
    worse = {**even(tasks=EIGHTY), "t-003": [0.0, 0.0]}
    assert on(worse, even(tasks=EIGHTY), LEAVES).document["requirements"][0]["difference"] == 0
    broken = side(even(tasks=EIGHTY))
    crashed = [failed(one) if one.result.task == "t-003" else one for one in broken.attempts]
    strict = LEAVES + "[evidence]\nmax_error_share = 0.0\n"
    verdicts = [
        decide(evidence(suite(ours, broken, tasks=EIGHTY), policy=strict))
        for ours in (SideEvidence(crashed), broken)
    ]
    assert [verdict.outcome for verdict in verdicts] == ["PASS", "PASS"]
    digests = {one.document["suites"]["core"]["candidate"]["evidence"] for one in verdicts}
    assert len(digests) == 2


# Numbers where nothing is decided
