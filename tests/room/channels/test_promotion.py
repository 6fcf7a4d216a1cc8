"""Promotion through the gate, and what a channel looks like after it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.backends.terminal.output import time_text
from penstock.core.errors import InvalidInput
from penstock.registry.channels.change import ChannelPinned, PromotionConflict
from penstock.registry.channels.channel import list_channels, policy_of
from penstock.registry.channels.history import channel_changes, verdicts_of, verify_history
from penstock.registry.checkpoints.checkpoint import CheckpointUnknown, StateRefused
from penstock.registry.checkpoints.registration import withdraw
from penstock.registry.checkpoints.tables import checkpoint_move
from penstock.registry.gate.tables import verdict
from penstock.registry.gate.verdict import GateRefused, Verdict
from tests.support.channels.channels_seen import at, states, versions
from tests.support.checkpoint_factory import (
    PASS,
    POLICY,
    TENANT,
    add,
    digest_of,
    promote,
    release,
    rollback,
    says,
    set_policy,
)
from tests.support.registry_fixtures import OpenDatabase
from tests.support.servers.interleaving import Running, Stopped

# What a promotion does


def test_a_promotion_is_one_change_with_its_verdict_and_its_moves(database: Database) -> None:
    add(database, "a", "b")
    first, second = promote(database, "a", expect=None), promote(database, "b", expect="a")
    found = at(database)
    assert (found.checkpoint, found.previous, found.version) == ("b", "a", 2)
    assert (found.digest, found.uri) == (digest_of("b"), "https://models.test/b")
    assert found.since == time_text(second.at) >= time_text(first.at)
    assert states(database, "a", "b") == ["retired", "serving"]
    with database.read() as connection:
        rows = connection.execute(sa.select(verdict.c.id, verdict.c.document))
        kept = {row.id: json.loads(row.document)["outcome"] for row in rows}
    assert kept == {PASS("production", one).id: "PASS" for one in ("a", "b")}
    assert second.verdict in kept
    assert verify_history(database, TENANT, "production") is None


def test_a_checkpoint_is_named_by_its_digest_as_well(embedded: Database) -> None:
    add(embedded, "a", "b")
    assert promote(embedded, digest_of("a")).checkpoint == "a"
    assert promote(embedded, "b", expect=digest_of("a")).checkpoint == "b"


@pytest.mark.parametrize("outcome", ["FAIL", "INCONCLUSIVE", "ERROR"])
def test_only_pass_opens_the_gate(embedded: Database, outcome: Any) -> None:
    add(embedded, "a")
    with pytest.raises(GateRefused, match="The gate's verdict on a") as refused:
        promote(embedded, "a", says(outcome))
    assert refused.value.facts["verdict"] == says(outcome)("production", "a")
    assert list_channels(embedded, TENANT) == []
    assert states(embedded, "a") == ["registered"]


def test_who_overrides_is_marked_for_ever(database: Database) -> None:
    add(database, "a", "b")
    promote(database, "a", says("ERROR"), override=True)
    promote(database, "b")
    assert [one.overridden for one in channel_changes(database, TENANT, "production")] == [
        True,
        False,
    ]
    assert verdicts_of(database, TENANT, "production")[0] == {
        says("ERROR")("production", "a").id: "ERROR",
        PASS("production", "b").id: "PASS",
    }


# Compare and swap


def test_what_is_expected_and_what_is_found_are_told(embedded: Database) -> None:
    add(embedded, "a", "b")
    with pytest.raises(PromotionConflict) as early:
        promote(embedded, "a", expect="b")
    assert (early.value.facts["expected"], early.value.facts["found"]) == ("b", None)
    assert "but is at no checkpoint" in str(early.value)
    promote(embedded, "a")
    with pytest.raises(PromotionConflict, match="expected at no checkpoint, but is at a"):
        promote(embedded, "b", expect=None)
    assert at(embedded).checkpoint == "a"


@pytest.mark.parametrize("between", ["promotion", "policy", "canary"])
def test_a_verdict_does_not_outlive_the_channel_that_it_is_about(
    database: Database, between: str
) -> None:
    add(database, "a", "b", "c")
    promote(database, "a")
    changes: dict[str, Callable[[], object]] = {
        "promotion": lambda: promote(database, "c"),
        "policy": lambda: set_policy(database),
        "canary": lambda: promote(database, "c", share=0.1),
    }

    def judge(channel: str, checkpoint: str) -> Verdict:
        changes[between]()
        return PASS(channel, checkpoint)

    with pytest.raises(PromotionConflict, match="version 2"):
        promote(database, "b", judge)
    assert at(database).version == 2


def test_a_rollback_wins_over_a_promotion_that_is_under_way(open_database: OpenDatabase) -> None:
    mine, other = open_database(), open_database()
    add(mine, "a", "b", "c")
    promote(mine, "a")
    promote(mine, "b")
    judged: list[str] = []

    def automatic() -> None:
        def judge(channel: str, checkpoint: str) -> Verdict:
            judged.append(checkpoint)
            rollback(mine)
            return PASS(channel, checkpoint)

        with pytest.raises(PromotionConflict, match="expected at b, but is at a"):
            promote(other, "c", judge)

    automatic()
    assert judged == ["c"]
    assert (at(mine).checkpoint, at(mine).pinned) == ("a", True)
    with pytest.raises(ChannelPinned, match="bob rolled it back: it is worse"):
        promote(other, "c")  # it reconciles, again and again, to no end
    release(mine)
    assert promote(other, "c").checkpoint == "c"


def test_a_rollback_waits_for_a_promotion_that_is_being_written_and_undoes_it(
    open_database: OpenDatabase,
) -> None:
    mine, other = open_database(), open_database()
    add(mine, "a", "b")
    promote(mine, "a")
    writing = Stopped(mine, "INSERT INTO channel_change", lambda: promote(mine, "b"))
    undoing = Running(lambda: rollback(other))
    undoing.start()
    writing.finish()
    undoing.finish()
    assert at(mine).checkpoint == "a"
    assert states(other, "a", "b") == ["serving", "rolled_back"]


def test_a_checkpoint_that_is_withdrawn_while_it_is_judged_is_not_promoted(
    embedded: Database,
) -> None:
    add(embedded, "a")

    def judge(channel: str, checkpoint: str) -> Verdict:
        withdraw(embedded, tenant=TENANT, name="a", reason="erased data", actor="dan")
        return PASS(channel, checkpoint)

    with pytest.raises(StateRefused, match="withdrawn"):
        promote(embedded, "a", judge)
    assert versions(embedded) == 0


# States over several channels


def test_a_checkpoint_serves_as_long_as_any_channel_is_at_it(database: Database) -> None:
    add(database, "a", "b")
    for name in ("production", "staging"):
        promote(database, "a", channel=name)
    promote(database, "b")
    assert states(database, "a", "b") == ["serving", "serving"]
    with pytest.raises(StateRefused, match="a channel points at it"):
        withdraw(database, tenant=TENANT, name="a", reason="no use", actor="dan")
    promote(database, "b", channel="staging")
    assert states(database, "a", "b") == ["retired", "serving"]
    with database.read() as connection:
        moves = connection.execute(
            sa.select(checkpoint_move.c.from_state, checkpoint_move.c.to_state)
            .where(checkpoint_move.c.checkpoint == "a")
            .order_by(checkpoint_move.c.id)
        ).all()
    assert [tuple(one) for one in moves] == [
        (None, "registered"),
        ("registered", "serving"),
        ("serving", "retired"),
    ]


def test_tenants_have_channels_of_their_own(embedded: Database) -> None:
    add(embedded, "a")
    add(embedded, "a", tenant="other")
    promote(embedded, "a")
    promote(embedded, "a", tenant="other")
    assert versions(embedded) == 1
    with pytest.raises(CheckpointUnknown):
        promote(embedded, "a", tenant="third")


# Policies


def test_a_policy_makes_a_channel_and_the_same_again_is_no_change(database: Database) -> None:
    first, again = set_policy(database), set_policy(database)
    assert first == again
    found = at(database)
    assert (found.version, found.checkpoint, found.since) == (1, None, None)
    assert policy_of(database, found) == POLICY
    add(database, "a")
    assert promote(database, "a", expect=None).policy == found.policy


# Bad input


@pytest.mark.parametrize(
    "name", ["", " production", "a\nb", "x" * 129, "sha256:1", "a\x00b", "a/b", ".."]
)
def test_names_of_channels_can_be_read(embedded: Database, name: str) -> None:
    add(embedded, "a")
    with pytest.raises(InvalidInput, match="name of a channel"):
        promote(embedded, "a", channel=name)
    with pytest.raises(InvalidInput, match="name of a channel"):
        set_policy(embedded, channel=name)


@pytest.mark.parametrize("reason", ["", "  \n", "a\x00b", "\ud800", "x" * 4_001])
def test_a_reason_is_given_and_can_be_read(embedded: Database, reason: str) -> None:
    add(embedded, "a")
    with pytest.raises(InvalidInput, match="reason"):
        promote(embedded, "a", reason=reason)
    with pytest.raises(InvalidInput, match="reason"):
        rollback(embedded, reason=reason)
