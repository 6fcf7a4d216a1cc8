"""The lake as `penstock.open` gives it: with the channels, which the lake itself does not know."""

from pathlib import Path

from penstock.channels.channel import ChannelState, channel_state
from penstock.events.event import TENANT_DEFAULT
from penstock.lake import lake
from penstock.settings import load_settings


class LakeWithChannels(lake.Lake):
    def channel(self, name: str, *, tenant: str = TENANT_DEFAULT) -> ChannelState:
        """Where a channel points now; see `penstock.assign`. Raises ChannelUnknown."""
        return channel_state(self.database, tenant, name)


def open_lake(data: str | Path | None = None) -> LakeWithChannels:
    """The lake of a data directory; settings come from its file and the environment."""
    return LakeWithChannels(load_settings(data))
