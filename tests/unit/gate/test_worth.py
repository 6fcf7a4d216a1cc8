"""Worth: a score reduced by its tokens."""

import pytest

from penstock.core.errors import InvalidInput
from penstock.registry.gate.policy import parse
from tests.support.gate_cases import TASKS, even, judged, side

POLICY = """
[[require]]
suite = "core"
metric = "worth"
halved_by = 10000
margin = 0.05
"""


def test_the_same_score_with_fewer_tokens_is_worth_more() -> None:
    frugal, lavish = (side(even(), completion_tokens=tokens) for tokens in (2_500, 10_000))
    [part] = judged(frugal, lavish, POLICY).document["requirements"]
    assert (part["candidate_mean"], part["incumbent_mean"]) == pytest.approx((0.8, 0.5))
    assert part["outcome"] == "PASS"
    assert judged(lavish, frugal, POLICY).outcome == "FAIL"


def test_nothing_solved_is_worth_nothing_however_cheap() -> None:
    [part] = judged(
        side(even(0.0), completion_tokens=1), side(even(), completion_tokens=90_000), POLICY
    ).document["requirements"]
    assert part["candidate_mean"] == 0
    assert part["incumbent_mean"] == pytest.approx(0.1)


def test_an_attempt_without_tokens_counts_at_its_worst() -> None:
    silent = side({TASKS[0]: [1.0, 1.0]})
    told = side({task: [1.0, 1.0] for task in TASKS[1:]}, completion_tokens=2_500)
    some = type(told)([*silent.attempts, *told.attempts])
    [part] = judged(some, told, POLICY).document["requirements"]
    assert part["tasks_scored"] == len(TASKS) - 1


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (POLICY.replace("halved_by = 10000", ""), "halved_by belongs to the metric worth"),
        (POLICY.replace('"worth"', '"score"'), "halved_by belongs to the metric worth"),
        (POLICY.replace("10000", "0"), "halved_by"),
        (f'{POLICY}[[guard]]\nsuite = "core"\nmetric = "worth"\nmin = 0.2\n', "guard completion"),
    ],
)
def test_what_makes_no_worth_is_refused(policy: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse(policy, "the policy")
