"""Channels: promotion, rollback, their history, and the notices of each change."""

from dataclasses import dataclass

from penstock.core.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class ChannelSettings(RoomSettings):
    """See docs/reference/settings.md."""

    channel_waiters_max: int = setting(
        2_000,
        "requests of a process that may wait for changes of channels; one tenant gets half",
        "Raise it when more engines follow through one process.",
        minimum=0,
    )
