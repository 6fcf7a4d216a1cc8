"""The settings of keys."""

from dataclasses import dataclass

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class AccessSettings(RoomSettings):
    """See docs/settings.md."""

    keys_refresh_seconds: float = setting(
        5.0,
        "how long a revoked key may still be taken",
        "Lower it when a revoked key has to stop working at once.",
        minimum=0.1,
    )
