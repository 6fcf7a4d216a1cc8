"""Which checkpoint serves a key, where a channel splits its traffic."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.channels.channels import ChannelState
from penstock.channels.errors import NothingServed
from penstock.errors import InvalidInput

#: Keys fall into so many parts, evenly.
_PARTS = 2**53


@dataclass(frozen=True)
class Assignment:
    checkpoint: str
    arm: Literal["current", "canary"]


def place_of(salt: str, key: str) -> float:
    """Where a key stands between 0 and 1: the same for ever, everywhere."""
    digest = hashlib.sha256(f"{salt}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _PARTS / _PARTS


def choose_arm(
    channel: str, key: str, *, current: str, canary: str | None, share: float
) -> Assignment:
    """A key that is in the canary stays there as its share grows; each canary draws anew."""
    if canary is not None and place_of(f"{channel}\0{canary}", key) < share:
        return Assignment(canary, "canary")
    return Assignment(current, "current")


def assign(channel: ChannelState | Mapping[str, Any], key: str) -> Assignment:
    """Which checkpoint serves a key: a user, a session, whatever should stay with one model.
    `channel` is what `Lake.channel` gives, or the JSON of `GET /v1/channels/{name}`. Raises
    NothingServed before the first promotion, InvalidInput."""
    name, current, canary, share = _split_of(channel)
    if current is None:
        raise NothingServed(channel=name)
    _check_key(key)
    return choose_arm(name, key, current=current, canary=canary, share=share)


def _check_key(key: object) -> None:
    """Else all users of whom nobody knows the name would be one user."""
    if not isinstance(key, str):
        why = f"it is a text, as of a user or a session, and not {key!r}"
        raise InvalidInput(what="The key", why=why)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(what=f"The key {key!r}", why="it is no Unicode text") from error


def _split_of(
    channel: ChannelState | Mapping[str, Any],
) -> tuple[str, str | None, str | None, float]:
    if isinstance(channel, ChannelState):
        share = channel.canary_share
        return channel.name, channel.checkpoint, channel.canary, share or 0.0
    try:
        name, current = channel["channel"], channel["checkpoint"]
        canary, share = channel["canary"], channel["canary_share"]
    except KeyError as error:
        why = f"it has no {error}; it is the answer to GET /v1/channels/NAME, whole"
        raise InvalidInput(what="The channel", why=why) from None
    except TypeError:
        why = f"it is {channel!r}, and not the answer to GET /v1/channels/NAME"
        raise InvalidInput(what="The channel", why=why) from None
    share = 0.0 if share is None else share
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise InvalidInput(what="The channel", why=f"its canary_share is {share!r}")
    return name, current, canary, share
