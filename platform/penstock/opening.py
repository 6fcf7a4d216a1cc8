"""What `penstock.open` gives: the lake, and the channels beside it, of which the lake itself knows
nothing."""

from pathlib import Path

from penstock.channels.channel import ChannelState, channel_state
from penstock.events.event import TENANT_DEFAULT
from penstock.lake import lake
from penstock.settings import load_settings


class Lake(lake.Lake):
    def channel(self, name: str, *, tenant: str = TENANT_DEFAULT) -> ChannelState:
        """Where a channel points now; see `penstock.assign`. Raises ChannelUnknown."""
        return channel_state(self.database, tenant, name)


def open_lake(data: str | Path | None = None) -> Lake:
    """The lake of a data directory; settings come from its file and the environment."""
    return Lake(load_settings(data))
