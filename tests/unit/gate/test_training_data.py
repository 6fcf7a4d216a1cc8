"""What a candidate learned and should not have: a check of its own, which warns or blocks."""

import pytest

from penstock.registry.checkpoints.lineage import MarkedTraining
from tests.support.gate_cases import POLICY, even, judged

SHARDS = ("sha256:1",)


@pytest.mark.parametrize(
    ("training", "rules", "outcome"),
    [
        (MarkedTraining(2, 0, SHARDS), "", "PASS"),
        (MarkedTraining(0, 3, SHARDS), "", "PASS"),
        (MarkedTraining(2, 0, SHARDS), 'erased = "block"', "FAIL"),
        (MarkedTraining(0, 3, SHARDS), 'erased = "block"', "PASS"),
        (MarkedTraining(0, 3, SHARDS), 'withdrawn = "block"', "FAIL"),
        (MarkedTraining(2, 3, SHARDS), 'withdrawn = "block"\nerased = "warn"', "FAIL"),
    ],
)
def test_it_warns_or_blocks_as_the_policy_says(
    training: MarkedTraining, rules: str, outcome: str
) -> None:
    policy = f"{POLICY}[data]\n{rules}\n"
    verdict = judged(even(), even(), policy, training=training)
    assert verdict.outcome == outcome
    data = verdict.document["data"]
    assert (data["outcome"], data["shards"]) == (outcome, ["sha256:1"])
    assert (data["erased"], data["withdrawn"]) == (training.erased, training.withdrawn)
    said = verdict.document["why"] if outcome == "FAIL" else verdict.document["notes"]
    assert any(data["why"] in line for line in said)


def test_what_is_blocked_fails_whichever_requirement_is_met() -> None:
    other = '[[require]]\nsuite = "core"\nmargin = 0.04\n'
    policy = f'{POLICY}{other}[gate]\ncombine = "any"\n[data]\nerased = "block"\n'
    assert judged(even(), even(), policy).outcome == "PASS"
    assert judged(even(), even(), policy, training=MarkedTraining(1, 0)).outcome == "FAIL"
