"""Channels and checkpoints as tests look at them."""

from datetime import datetime

from penstock.backends.database.engine import Database
from penstock.registry.channels.change import ChannelState, ChannelUnknown
from penstock.registry.channels.channel import channel_state
from penstock.registry.checkpoints.registration import find
from tests.support.checkpoint_factory import TENANT


def changed_us(state: ChannelState) -> int:
    """When it was changed, in microseconds since 1970."""
    return round(datetime.fromisoformat(state.changed_at).timestamp() * 1_000_000)


def at(database: Database, name: str = "production") -> ChannelState:
    return channel_state(database, TENANT, name)


def versions(database: Database, name: str = "production") -> int:
    try:
        return at(database, name).version
    except ChannelUnknown:
        return 0


def states(database: Database, *names: str) -> list[str]:
    return [find(database, TENANT, name).state for name in names]
