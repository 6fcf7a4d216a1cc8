"""What follows from evidence: PASS only from all of it, and nothing in place of what is missing."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.registry.gate.decision import decide
from penstock.registry.gate.evidence import SideEvidence
from penstock.registry.gate.verdict import shown_beside
from tests.support.gate_cases import (
    HOUR,
    MINUTE,
    NOW,
    POLICY,
    TASKS,
    Scores,
    checkpoint,
    even,
    evidence,
    failed,
    judged,
    look,
    side,
    suite,
)


def part(verdict: Any, name: str = "requirements", at: int = 0) -> Any:
    return verdict.document[name][at]


def mixed(lost: int = 0) -> Scores:
    """Solved but for a few, which differ from candidate to candidate."""
    return {task: [float(at >= lost)] * 2 for at, task in enumerate(TASKS)}


# The four outcomes


def test_an_equal_candidate_on_enough_tasks_passes() -> None:
    verdict = judged(even(), even())
    assert verdict.outcome == "PASS"
    found = part(verdict)
    assert found["difference"] == 0
    assert found["lower"] == pytest.approx(-0.0295, abs=1e-3)
    assert found["tasks"] == 100
    assert found["attempts_found"] == {"candidate": [2, 2], "incumbent": [2, 2]}


def test_between_both_it_is_open_and_says_what_would_decide() -> None:
    verdict = judged(mixed(lost=4), mixed(lost=2))
    assert verdict.outcome == "INCONCLUSIVE"
    decides = part(verdict)["decides"]
    assert decides["tasks"] > 100
    assert f"{decides['tasks']} tasks decide" in " ".join(verdict.document["why"])


def test_more_attempts_would_decide_where_chance_is_the_reason() -> None:
    random = Random(3)
    noisy: list[Scores] = [
        {task: [float(random.random() < 0.5) for _ in range(2)] for task in TASKS} for _ in range(2)
    ]
    found = part(judged(noisy[0], noisy[1], POLICY.replace("0.05", "0.1")))
    assert found["outcome"] == "INCONCLUSIVE"
    assert found["decides"]["attempts"] > 2


def test_few_tasks_do_not_pass_however_good() -> None:
    few = TASKS[:40]
    ours = suite(side(even(1.0, few)), side(even(0.0, few)), tasks=few)
    assert decide(evidence(ours)).outcome == "INCONCLUSIVE"
    fewest = TASKS[:3]
    ours = suite(side(even(1.0, fewest)), side(even(0.0, fewest)), tasks=fewest)
    assert decide(evidence(ours)).outcome == "INCONCLUSIVE"


# Errors, and what is not there


def test_all_errors_are_an_error() -> None:
    ours = side(even())
    broken = SideEvidence([failed(one) for one in ours.attempts])
    for pair in ((broken, ours), (ours, broken), (broken, broken)):
        verdict = judged(*pair)
        assert verdict.outcome == "ERROR"
        assert "200 of 200 attempts" in verdict.document["why"][0]


def test_errors_count_at_their_worst_and_too_many_are_an_error() -> None:
    ours = list(side(even()).attempts)
    some = SideEvidence([failed(one) if at < 10 and at % 2 else one for at, one in enumerate(ours)])
    verdict = judged(some, even())
    assert verdict.outcome == "INCONCLUSIVE"
    assert "5 of 100 tasks count at their worst" in verdict.document["why"][0]
    assert part(verdict)["candidate_mean"] == 1.0
    assert verdict.document["suites"]["core"]["candidate"]["errors"] == 5
    assert judged(some, even(), POLICY.replace("0.05", "0.1")).outcome == "PASS"
    many = SideEvidence([failed(one) if at < 51 else one for at, one in enumerate(ours)])
    assert judged(many, even()).outcome == "ERROR"
    strict = POLICY + "[evidence]\nmax_error_share = 0.02\n"
    assert judged(some, even(), strict).outcome == "ERROR"


def test_errors_are_counted_with_why_and_where() -> None:
    ours = list(side(even(attempts=1)).attempts)
    why = {0: "parse_error", 1: "RateLimitError: 429", 2: "RateLimitError: 503", 3: "parse_error",
           4: "parse_error", 5: "parse_error", 6: "disk", 7: "gone"}  # fmt: skip
    many = [failed(one, why[at]) if at in why else one for at, one in enumerate(ours)]
    strict = POLICY + "[evidence]\nmax_error_share = 0.05\n"
    [text] = judged(SideEvidence(many), even(), strict).document["why"]
    assert text.startswith("8 of 100 attempts of new on core are errors")
    assert text.endswith(
        "4 × parse_error (t-000, t-003, t-004 and 1 more); 2 × RateLimitError (t-001, t-002);"
        " 1 × disk (t-006); and 1 other errors"
    )


def test_many_attempts_at_one_task_hide_no_errors_at_others() -> None:
    ours = [
        failed(one) if one.result.task in TASKS[:20] and one.result.attempt else one
        for one in side(even()).attempts
    ]
    ours += side({TASKS[50]: [1.0] * 5_000}).attempts[2:]
    verdict = judged(SideEvidence(ours), even(), POLICY + "[evidence]\nmax_error_share = 0.05\n")
    assert verdict.outcome == "ERROR"
    assert "10.0% per task on average" in verdict.document["why"][0]


def scored(score: float | None) -> SideEvidence:
    """One attempt has a score that none can have."""
    ours = list(side(even()).attempts)
    ours[3] = replace(ours[3], result=replace(ours[3].result, score=score))
    return SideEvidence(ours)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SideEvidence(), even()),
        (even(), SideEvidence()),
        ({**even(), "other": [1.0]}, even()),
        *((scored(score), even()) for score in (float("nan"), -0.1, 1.1, None)),
    ],
)
def test_no_results_and_impossible_ones_are_an_error(
    ours: SideEvidence | Scores, theirs: SideEvidence | Scores
) -> None:
    assert judged(ours, theirs).outcome == "ERROR"


def test_a_suite_that_changed_or_an_incumbent_of_another_version_is_an_error() -> None:
    for pair in (
        (SideEvidence((), ["v0"]), side(even())),
        (side(even()), SideEvidence((), ["v0"])),
    ):
        verdict = judged(*pair)
        assert verdict.outcome == "ERROR"
        assert "another version of core (v0)" in verdict.document["why"][0]


def test_old_results_do_not_count() -> None:
    policy = POLICY + '[evidence]\nmax_age = "24h"\n'
    old, new = side(even(), at=NOW - 25 * HOUR), side(even())
    assert judged(new, new, policy).outcome == "PASS"
    for pair in ((old, new), (new, old)):
        assert judged(*pair, policy).outcome == "ERROR"
    again = SideEvidence(
        [replace(one, result=replace(one.result, attempt=9)) for one in new.attempts]
    )
    both = SideEvidence([*old.attempts, *again.attempts])
    assert judged(both, new, policy).outcome == "PASS"
    some = SideEvidence([*old.attempts[:2], *new.attempts[2:]])
    assert judged(some, new, policy).outcome == "ERROR"


def test_results_from_the_future_are_an_error() -> None:
    assert judged(side(even(), at=NOW + MINUTE), even()).outcome == "PASS"
    assert judged(side(even(), at=NOW + MINUTE + 1), even()).outcome == "ERROR"


def test_without_a_policy_that_can_be_read_nothing_passes() -> None:
    ours = suite(side(even()), side(even()))
    bare = evidence(ours, policy=POLICY)
    assert decide(replace(bare, policy=None)).outcome == "ERROR"
    assert decide(replace(bare, policy=None, policy_problem="it is broken")).outcome == "ERROR"


def test_an_unknown_suite_and_who_is_there_already_or_withdrawn_do_not_pass() -> None:
    verdict = decide(evidence(suite(SideEvidence(), SideEvidence(), version=None)))
    assert (verdict.outcome, verdict.document["why"]) == (
        "ERROR",
        ["the suite core does not exist"],
    )
    ours = suite(side(even()), side(even()))
    assert decide(evidence(ours, candidate=checkpoint("old"))).outcome == "ERROR"
    gone = checkpoint("new", "withdrawn")
    assert decide(evidence(ours, candidate=gone)).outcome == "ERROR"


# The same evidence, the same verdict


def test_the_order_of_rows_changes_nothing() -> None:
    random = Random(4)
    ours, theirs = (
        list(side({task: [random.choice([0.0, 1.0]) for _ in range(3)] for task in TASKS}).attempts)
        for _ in range(2)
    )
    first = judged(SideEvidence(ours), SideEvidence(theirs))
    for _ in range(3):
        random.shuffle(ours)
        random.shuffle(theirs)
        again = judged(SideEvidence(ours), SideEvidence(theirs))
        assert (again.id, again.text) == (first.id, first.text)


# Minimums, and the first checkpoint

MINIMUM = '[[require]]\nsuite = "core"\nminimum = 0.9\n'


def test_a_minimum_has_to_be_shown_not_met_by_luck() -> None:
    assert judged(mixed(lost=2), None, MINIMUM).outcome == "PASS"
    assert judged(mixed(lost=8), None, MINIMUM).outcome == "INCONCLUSIVE"
    assert judged(mixed(lost=30), None, MINIMUM).outcome == "FAIL"
    part = judged(mixed(lost=2), mixed(lost=8), MINIMUM).document["requirements"][0]
    assert part["margin"] is None
    assert part["difference"] == pytest.approx(0.06)
    assert part["lower"] < part["difference"] < part["upper"]


def test_a_first_checkpoint_needs_no_incumbent_but_a_minimum() -> None:
    both = MINIMUM + "margin = 0.05\n"
    verdict = judged(even(), None, both)
    assert verdict.outcome == "PASS"
    assert "only minimums" in verdict.document["notes"][0]
    assert judged(even(), None).outcome == "INCONCLUSIVE"


def test_lower_may_be_better() -> None:
    policy = '[[require]]\nsuite = "core"\nmetric = "edited"\ndirection = "min"\nmaximum = 0.1\n'
    policy += "margin = 0.05\n"
    calm, eager = side(even(), edited=False), side(even(), edited=True)
    assert judged(calm, calm, policy).outcome == "PASS"
    assert judged(eager, calm, policy).outcome == "FAIL"
    assert judged(calm, eager, policy).outcome == "PASS"


# Several requirements

TWO = """
[[require]]
suite = "core"
margin = 0.04
[[require]]
suite = "core"
metric = "edited"
direction = "max"
margin = 0.04
"""


def test_all_must_pass_without_a_correction() -> None:
    good, bad = side(even(), edited=True), side(even(), edited=False)
    verdict = judged(good, good, TWO)
    assert verdict.outcome == "PASS"
    assert part(verdict)["alpha"] == 0.05
    assert judged(bad, good, TWO).outcome == "FAIL"


def test_any_may_pass_with_a_correction_that_is_shown() -> None:
    any_of = TWO + '[gate]\ncombine = "any"\n'
    good, bad = side(even(), edited=True), side(even(), edited=False)
    verdict = judged(bad, good, any_of)
    assert verdict.outcome == "PASS"
    assert (part(verdict)["alpha"], part(verdict)["alpha_asked"]) == (0.025, 0.05)
    # Just enough tasks for one comparison are too few for one of two.
    few = TASKS[:80]
    ours, theirs = (suite(one, one, tasks=few) for one in [side(even(1, few), edited=True)] * 2)
    assert decide(evidence(ours, policy=TWO)).outcome == "PASS"
    assert decide(evidence(theirs, policy=any_of)).outcome == "INCONCLUSIVE"
    assert judged(even(), even(), any_of).outcome == "ERROR"  # one has no evidence


# Guards


def guarded(kind: str, metric: str = "completion_tokens") -> str:
    return POLICY + f'[[guard]]\nsuite = "core"\nmetric = "{metric}"\n{kind}\n'


@pytest.mark.parametrize(
    ("tokens", "outcome"),
    [(1_000, "PASS"), (1_060, "PASS"), (1_099, "INCONCLUSIVE"), (1_300, "FAIL")],
)
def test_a_guard_has_to_hold_by_what_is_shown(tokens: int, outcome: str) -> None:
    ours, theirs = side(even(), completion_tokens=tokens), side(even(), completion_tokens=1_000)
    verdict = judged(ours, theirs, guarded("max_increase = 0.10"))
    assert verdict.outcome == outcome
    assert part(verdict, "guards")["value"] == pytest.approx(tokens / 1_000 - 1)


def test_a_metric_that_nobody_measured_is_not_0() -> None:
    ours, theirs = side(even()), side(even(), completion_tokens=1_000)
    assert judged(ours, theirs, guarded("max_increase = 0.10")).outcome == "ERROR"
    some = SideEvidence([*theirs.attempts[:-1], ours.attempts[-1]])
    assert judged(some, theirs, guarded("max_increase = 0.10")).outcome == "INCONCLUSIVE"


def test_a_heavy_tail_is_seen_and_not_hidden_by_ranks() -> None:
    theirs = side(even(), cost_usd=1.0)
    ours = [
        replace(one, result=replace(one.result, cost_usd=70.0 if at < 60 else 1.0))
        for at, one in enumerate(theirs.attempts)
    ]
    assert (
        judged(SideEvidence(ours), theirs, guarded("max_increase = 0.5", "cost_usd")).outcome
        == "FAIL"
    )
    rare = [
        replace(one, result=replace(one.result, cost_usd=40.0 if at < 4 else 1.0))
        for at, one in enumerate(theirs.attempts)
    ]
    verdict = judged(SideEvidence(rare), theirs, guarded("max_increase = 0.5", "cost_usd"))
    assert verdict.outcome == "INCONCLUSIVE"


def test_limits_may_be_absolute() -> None:
    ours = side(even(), invalid_tool_calls=1, tool_calls=20)
    for limit, outcome in ((0.2, "PASS"), (0.06, "INCONCLUSIVE"), (0.01, "FAIL")):
        verdict = judged(ours, ours, guarded(f"max = {limit}", "invalid_tool_calls"))
        assert verdict.outcome == outcome
        assert part(verdict, "guards")["candidate_mean"] == pytest.approx(0.05)
    edited = side(even(), edited=True)
    assert judged(edited, edited, guarded("min = 0.9", "edited")).outcome == "PASS"


def test_a_share_of_tool_calls_weighs_each_call_alike() -> None:
    ours = [
        replace(
            one,
            result=replace(one.result, invalid_tool_calls=at % 2, tool_calls=2 if at % 2 else 98),
        )
        for at, one in enumerate(side(even()).attempts)
    ]
    verdict = judged(
        SideEvidence(ours), SideEvidence(ours), guarded("max = 0.5", "invalid_tool_calls")
    )
    assert part(verdict, "guards")["candidate_mean"] == pytest.approx(0.01)


def test_an_increase_from_nothing_needs_a_slack() -> None:
    ours = side(even(), asked=False)
    assert judged(ours, ours, guarded("max_increase = 0.1", "asked")).outcome == "INCONCLUSIVE"
    slack = guarded("max_increase = 0.1\nslack = 0.05", "asked")
    assert judged(ours, ours, slack).outcome == "PASS"
    assert judged(ours, ours, guarded("max_decrease = 0.1", "asked")).outcome == "PASS"


# Live metrics

LIVE = POLICY + '[[live]]\nmetric = "edit_persistence"\nmargin = 0.02\n'


def test_all_traffic_needs_a_canary_that_has_shown_it() -> None:
    assert judged(even(), even(), LIVE, full=False).outcome == "PASS"
    assert judged(even(), even(), LIVE).outcome == "INCONCLUSIVE"
    said = {"pass": "PASS", "breach": "FAIL", "error": "ERROR", "open": "INCONCLUSIVE"}
    for outcome, wanted in said.items():
        assert judged(even(), even(), LIVE, live=look(outcome)).outcome == wanted
    assert judged(even(), even(), LIVE, live=look("pass", at=NOW + MINUTE + 1)).outcome == "ERROR"
    other = look("pass", policy="sha256:other")
    assert judged(even(), even(), LIVE, live=other).outcome == "INCONCLUSIVE"
    aged = LIVE + '[evidence]\nmax_age = "2h"\n'
    old = look("pass", at=NOW - 3 * HOUR)
    assert judged(even(), even(), aged, live=old).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("value", "limit", "shown"),
    [
        (0.2124, 0.1, "0.21"),
        (0.1004, 0.1, "0.1004"),
        (0.0998, 0.1, "0.0998"),
        (0.1, 0.1, "0.1"),
        (0.0, 0.1, "0"),
        (0.00036, 0.02, "0.00036"),
        (12.345, 3, "12.3"),
        (99.96, 100, "99.96"),
        (123456.7, 1000, "123500"),
        (float("inf"), 1, "inf"),
    ],
)
def test_a_value_is_short_and_on_its_side_of_the_limit(
    value: float, limit: float, shown: str
) -> None:
    assert shown_beside(value, limit) == shown
