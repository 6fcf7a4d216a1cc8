"""The settings of canaries."""

from dataclasses import dataclass

from penstock.core.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class CanarySettings(RoomSettings):
    canary_look_seconds: float = setting(
        60.0,
        "pause between two looks at live metrics",
        "Lower it to notice a bad canary sooner.",
        minimum=0,
    )
    canary_settle_seconds: float = setting(
        60.0,
        "sessions that begin so soon after a new split do not count",
        "Raise it for a fleet that takes up changes slowly.",
        minimum=0,
    )
    canary_quiet_seconds: float = setting(
        3_600.0,
        "a session without an end that was quiet so long is over",
        "Raise it when people come back later.",
        minimum=0,
    )
