"""Canaries: a share of the traffic beside what the channel is at."""

import pytest

from penstock.backends.database.engine import Database
from penstock.backends.terminal.output import time_text
from penstock.core.errors import InvalidInput
from penstock.registry.channels.change import AlreadyServing
from tests.support.channels.channels_seen import at, states
from tests.support.checkpoint_factory import (
    POLICY,
    add,
    digest_of,
    promote,
    release,
    rollback,
    set_policy,
)


def test_a_canary_grows_and_takes_over(database: Database) -> None:
    add(database, "a", "b")
    promote(database, "a")
    first = promote(database, "b", share=0.05)
    told = (first.action, first.checkpoint, first.canary, first.canary_share)
    assert told == ("canary", "a", "b", 0.05)
    found = at(database)
    assert (found.canary_digest, found.canary_uri) == (digest_of("b"), "https://models.test/b")
    with pytest.raises(AlreadyServing, match="as a canary"):
        promote(database, "b", share=0.05)
    promote(database, "b", share=0.5)
    assert states(database, "a", "b") == ["serving", "serving"]
    full = promote(database, "b")
    assert (full.checkpoint, full.canary, full.canary_share) == ("b", None, None)
    assert states(database, "a", "b") == ["retired", "serving"]
    assert at(database).since == time_text(full.at)


def test_weights_keep_their_number_while_they_serve(database: Database) -> None:
    add(database, "a", "b", "c")
    changes = [
        set_policy(database),
        promote(database, "a"),
        set_policy(database, POLICY + "# the same weights"),
        promote(database, "b", share=0.05),
        promote(database, "b", share=0.5),
        promote(database, "b"),
        set_policy(database),
        promote(database, "c", share=0.1),
        rollback(database),
        release(database),
        rollback(database),
    ]
    numbers = [(one.checkpoint_version, one.canary_version) for one in changes]
    expected = [(None, None), (2, None), (2, None), (2, 4), (2, 4), (4, None), (4, None)]
    assert numbers == [*expected, (4, 8), (4, None), (4, None), (11, None)]
    found = at(database)
    assert (found.version, found.checkpoint, found.checkpoint_version) == (11, "a", 11)


def test_a_rollback_with_a_canary_ends_the_canary(database: Database) -> None:
    add(database, "a", "b", "c")
    promote(database, "a")
    promote(database, "b")
    promote(database, "c", share=0.25)
    back = rollback(database)
    assert (back.checkpoint, back.previous, back.canary, back.pinned) == ("b", "a", None, True)
    assert states(database, "a", "b", "c") == ["retired", "serving", "rolled_back"]
    assert rollback(database).checkpoint == "a"


def test_another_canary_takes_the_place_of_one(embedded: Database) -> None:
    add(embedded, "a", "b", "c")
    promote(embedded, "a")
    promote(embedded, "b", share=0.25)
    promote(embedded, "c", share=0.05)
    assert states(embedded, "a", "b", "c") == ["serving", "retired", "serving"]
    with pytest.raises(AlreadyServing, match="a rollback ends its canary c"):
        promote(embedded, "a")


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), float("inf")])
def test_a_share_lies_between_none_and_all(embedded: Database, share: float) -> None:
    add(embedded, "a", "b")
    with pytest.raises(InvalidInput, match="promote one first"):
        promote(embedded, "a", share=0.1)
    promote(embedded, "a")
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        promote(embedded, "b", share=share)
