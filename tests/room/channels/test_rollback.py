"""Rollback past the gate: to the last good one, pinned until it is released."""

import pytest

from penstock.backends.database.engine import Database
from penstock.registry.channels.change import (
    AlreadyServing,
    ChannelPinned,
    ChannelUnknown,
    NothingToRollBackTo,
    NotPinned,
)
from penstock.registry.checkpoints.checkpoint import CheckpointUnknown, StateRefused
from penstock.registry.checkpoints.registration import withdraw
from tests.support.channels.channels_seen import states
from tests.support.checkpoint_factory import TENANT, add, promote, release, rollback, set_policy


def test_a_rollback_goes_to_the_last_good_one_and_pins(database: Database) -> None:
    add(database, "a", "b", "c", "d")
    for name in ("a", "b", "c"):
        promote(database, name)
    back = rollback(database)
    assert (back.checkpoint, back.previous, back.pinned, back.verdict) == ("b", "c", True, None)
    assert rollback(database).checkpoint == "a"  # neither c nor b
    with pytest.raises(NothingToRollBackTo, match="no usable checkpoint served before a"):
        rollback(database)
    release(database)
    promote(database, "d")
    assert rollback(database).checkpoint == "a"
    assert states(database, "a", "b", "c", "d") == ["serving", *["rolled_back"] * 3]


def test_what_was_rolled_back_elsewhere_is_no_good_one(embedded: Database) -> None:
    add(embedded, "a", "b", "c")
    for name in ("a", "b", "c"):
        promote(embedded, name, channel="staging")
    for name in ("a", "b"):
        promote(embedded, name)
    rollback(embedded)
    assert states(embedded, "b") == ["rolled_back"]
    assert rollback(embedded, channel="staging").checkpoint == "a"


def test_what_was_withdrawn_is_no_good_one(database: Database) -> None:
    add(database, "a", "b", "c")
    for name in ("a", "b", "c"):
        promote(database, name)
    withdraw(database, tenant=TENANT, name="b", reason="erased data", actor="dan")
    assert rollback(database).checkpoint == "a"
    with pytest.raises(StateRefused, match="withdrawing is final"):
        rollback(database, to="b")


def test_a_rollback_to_a_named_one_that_served_or_a_parent(embedded: Database) -> None:
    add(embedded, "root", "stranger")
    add(embedded, "a", parent="root")
    add(embedded, "b", parent="a")
    promote(embedded, "b")
    with pytest.raises(NothingToRollBackTo, match="stranger never served on it"):
        rollback(embedded, to="stranger")
    assert rollback(embedded, to="root").checkpoint == "root"
    assert rollback(embedded, to="b").checkpoint == "b"  # a person says so
    with pytest.raises(AlreadyServing):
        rollback(embedded, to="b")
    with pytest.raises(CheckpointUnknown):
        rollback(embedded, to="nobody")


def test_a_canary_that_never_had_all_traffic_cannot_be_gone_back_to(embedded: Database) -> None:
    add(embedded, "a", "b")
    promote(embedded, "a")
    promote(embedded, "b", share=0.1)
    with pytest.raises(NothingToRollBackTo, match="b never served"):
        rollback(embedded, to="b")


def test_there_is_nothing_to_roll_back_to(embedded: Database) -> None:
    with pytest.raises(ChannelUnknown):
        rollback(embedded)
    set_policy(embedded)
    with pytest.raises(NothingToRollBackTo, match="it has no checkpoint yet"):
        rollback(embedded)
    add(embedded, "a")
    promote(embedded, "a")
    with pytest.raises(NothingToRollBackTo):
        rollback(embedded)


def test_a_pin_holds_until_it_is_released(embedded: Database) -> None:
    add(embedded, "a", "b", "c")
    promote(embedded, "a")
    with pytest.raises(NotPinned):
        release(embedded)
    promote(embedded, "b")
    rollback(embedded)
    with pytest.raises(ChannelPinned):
        promote(embedded, "c", share=0.1)
    forced = promote(embedded, "c", override=True)
    assert (forced.overridden, forced.pinned) == (True, True)
    assert not release(embedded).pinned
    assert not promote(embedded, "b").overridden
