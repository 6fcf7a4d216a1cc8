"""The settings of keys."""

from dataclasses import dataclass

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class AccessSettings(RoomSettings):
    keys_refresh_seconds: float = setting(
        5.0, "a revoked key may work so long", "Lower it when it has to stop sooner.", minimum=0.1
    )
