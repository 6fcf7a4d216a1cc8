"""Which checkpoint serves a key: the same for ever, in the share that was asked for."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.registry.channels.change import ChannelUnknown, NothingServed
from penstock.registry.channels.channel import channel_state
from tests.support.checkpoint_factory import TENANT, add, promote, rollback, set_policy
from tests.support.lakes import hand_lake

_KEYS = [f"user-{number}" for number in range(20_000)]


def channel(canary: str | None = "new", share: float | None = 0.2, **more: Any) -> dict[str, Any]:
    """As `GET /v1/channels/{name}` answers."""
    return {
        "channel": "production",
        "version": 3,
        "checkpoint": "old",
        "canary": canary,
        "canary_share": share,
    } | more


def in_canary(**facts: Any) -> set[str]:
    return {key for key in _KEYS if penstock.assign(channel(**facts), key).arm == "canary"}


def deviation(share: float) -> float:
    """Of the number of keys in the canary, if each were drawn by itself."""
    return math.sqrt(len(_KEYS) * share * (1 - share))


def test_the_choice_never_changes() -> None:
    chosen = {key: penstock.assign(channel(), key).checkpoint for key in _KEYS[:12]}
    assert [key for key, found in chosen.items() if found == "new"] == ["user-4", "user-5"]
    assert chosen == {key: penstock.assign(channel(), key).checkpoint for key in _KEYS[:12]}


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.5, 0.9])
def test_the_share_is_honoured(share: float) -> None:
    found = len(in_canary(share=share))
    assert abs(found - share * len(_KEYS)) < 4 * deviation(share)


def test_a_key_stays_in_a_canary_that_grows() -> None:
    shares = [in_canary(share=share) for share in (0.05, 0.25, 0.5, 0.999)]
    for smaller, larger in pairwise(shares):
        assert smaller < larger


def test_another_canary_draws_anew() -> None:
    first, second = in_canary(canary="new", share=0.2), in_canary(canary="newer", share=0.2)
    assert abs(len(first & second) - 0.04 * len(_KEYS)) < 4 * deviation(0.04)
    other = {
        key
        for key in _KEYS
        if penstock.assign(channel(channel="beta", share=0.2), key).arm == "canary"
    }
    assert abs(len(first & other) - 0.04 * len(_KEYS)) < 4 * deviation(0.04)


def test_what_is_no_channel_is_refused() -> None:
    with pytest.raises(InvalidInput, match="canary"):
        penstock.assign({"channel": "production", "checkpoint": "old"}, "user-1")
    with pytest.raises(NothingServed):
        penstock.assign(channel(checkpoint=None), "user-1")
    wrong: list[Any] = [None, "production", channel(share=math.nan), channel(canary_share="0.5")]
    for one in wrong:
        with pytest.raises(InvalidInput, match="The channel"):
            penstock.assign(one, "user-1")


@pytest.mark.parametrize("key", [None, 5, b"user-1", "\ud800"])
def test_a_key_is_a_text(key: Any) -> None:
    with pytest.raises(InvalidInput, match="The key"):
        penstock.assign(channel(), key)


def test_the_state_and_its_json_choose_alike(database: Database) -> None:
    set_policy(database)
    with pytest.raises(NothingServed):
        penstock.assign(channel_state(database, TENANT, "production"), "user-1")
    add(database, "old", "new")
    promote(database, "old")
    promote(database, "new", share=0.2)
    found = channel_state(database, TENANT, "production")
    same = msgspec.to_builtins(found)
    for key in _KEYS[:500]:
        assert penstock.assign(found, key) == penstock.assign(same, key)
        assert penstock.assign(found, key) == penstock.assign(channel(), key)
    rollback(database)
    assert penstock.assign(channel_state(database, TENANT, "production"), "user-1").arm == "current"


def test_a_lake_opens_its_channels(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as hand:
        add(hand.lake.database, "old", "new")
        promote(hand.lake.database, "old")
        promote(hand.lake.database, "new", share=0.2)
    with penstock.open(tmp_path) as lake:
        assert penstock.assign(lake.channel("production"), "user-4").checkpoint == "new"
        with pytest.raises(ChannelUnknown):
            lake.channel("production", tenant="bolt")
