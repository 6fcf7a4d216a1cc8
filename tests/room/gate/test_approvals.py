"""What the gate says where a policy asks for people."""

from penstock.backends.database.engine import Database
from penstock.registry.channels.promotion import judge
from penstock.registry.gate.evidence import GivenApproval, approve
from tests.support.checkpoint_factory import TENANT, add, promote, release, rollback, set_policy
from tests.support.gate_cases import HOUR, NOW, POLICY, even, judged

ASKS = POLICY + "\n[approval]\npeople = 2\n"
ANN, BOB = (GivenApproval(name, "read its sessions", NOW - HOUR) for name in ("ann", "bob"))


def test_too_few_people_keep_a_checkpoint_out() -> None:
    verdict = judged(even(), even(), ASKS, approvals=[ANN])
    assert verdict.outcome == "INCONCLUSIVE"
    [why] = verdict.document["why"]
    assert why.startswith("approval: 1 of 2 people approved")
    assert "penstock gate approve new --channel production" in why


def test_enough_people_let_it_pass() -> None:
    verdict = judged(even(), even(), ASKS, approvals=[ANN, BOB])
    assert verdict.outcome == "PASS"
    given = verdict.document["approval"]["approvals"]
    assert [each["actor"] for each in given] == ["ann", "bob"]


def test_what_is_older_than_evidence_may_be_does_not_count() -> None:
    rules = ASKS + '[evidence]\nmax_age = "2h"\n'
    old = GivenApproval("bob", "long ago", NOW - 3 * HOUR)
    assert judged(even(), even(), rules, approvals=[ANN, old]).outcome == "INCONCLUSIVE"
    assert judged(even(), even(), rules, approvals=[ANN, BOB]).outcome == "PASS"


def test_approvals_are_kept_by_person_and_end_with_a_rollback(database: Database) -> None:
    add(database, "old", "new")
    promote(database, "old")
    set_policy(database, ASKS)

    def approvals() -> list[str]:
        document = judge(database, TENANT, "production", "new").document
        return [each["actor"] for each in document["approval"]["approvals"]]

    def say(actor: str) -> None:
        place = {"tenant": TENANT, "channel": "production", "checkpoint": "new"}
        approve(database, **place, actor=actor, reason="looked at it")

    for actor in ("bob", "ann", "bob"):
        say(actor)
    assert approvals() == ["ann", "bob"]
    promote(database, "new")
    rollback(database)
    release(database)
    assert approvals() == []
    say("ann")
    assert approvals() == ["ann"]
