"""The harness as a part of the evidence."""

from dataclasses import replace

import pytest

from penstock.registry.checkpoints.harness import Harness
from penstock.registry.gate.evidence import AttemptSource, SideEvidence
from tests.support.gate_cases import POLICY, even, judged, side

OURS = Harness(name="my-agent", version="1.2")
THEIRS = Harness(name="my-agent", version="1.3")
SAME = f'{POLICY}[evidence]\nharness = "same"\n'


def made_by(*harnesses: Harness | None) -> SideEvidence:
    makers = [AttemptSource("run", "my-agent", harness=harness) for harness in harnesses]
    return replace(side(even()), makers=makers)


def test_one_harness_on_both_sides_is_not_spoken_of() -> None:
    for policy in (POLICY, SAME):
        verdict = judged(made_by(OURS), made_by(OURS), policy)
        assert verdict.outcome == "PASS"
        assert "harness" not in " ".join(verdict.document["notes"])


def test_two_harnesses_are_named_and_refused_where_the_policy_says_so() -> None:
    verdict = judged(made_by(OURS), made_by(THEIRS))
    assert verdict.outcome == "PASS"
    [note] = [note for note in verdict.document["notes"] if "harness" in note]
    assert "candidate: my-agent 1.2; incumbent: my-agent 1.3" in note
    refused = judged(made_by(OURS), made_by(THEIRS), SAME)
    assert refused.outcome == "ERROR"
    assert "one known harness on both sides" in " ".join(refused.document["why"])


@pytest.mark.parametrize("sides", [(None, OURS), (OURS, None), (None, None)])
def test_an_unknown_harness_is_refused_only_where_it_must_be_the_same(
    sides: tuple[Harness | None, Harness | None],
) -> None:
    ours, theirs = (made_by(each) for each in sides)
    assert judged(ours, theirs).outcome == "PASS"
    assert judged(ours, theirs, SAME).outcome == "ERROR"


def test_the_first_checkpoint_has_no_other_harness_beside_it() -> None:
    policy = SAME.replace("margin = 0.05", "minimum = 0.5")
    assert judged(made_by(None), None, policy).outcome == "PASS"
