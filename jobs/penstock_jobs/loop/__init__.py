"""The loop: from sessions to a checkpoint that serves, again and again, by a loop file."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.core.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class LoopSettings(RoomSettings):
    """See docs/reference/settings.md."""

    VARIABLES: ClassVar = frozenset({
        "answer", "checkpoint", "cycle", "lake", "loop", "output", "parent", "parent_digest",
        "parent_uri", "seed", "shard", "shard_folder", "work",
    })  # fmt: skip

    loop_poll_seconds: float = setting(
        10.0,
        "pause between two checks of a loop runner that waits",
        "Lower it for cycles of minutes.",
        minimum=0.01,
    )
    loop_trainer_silence_seconds: float = setting(
        600.0,
        "a trainer that is unreachable for this long has failed",
        "Raise it above the longest outage to wait for.",
        minimum=0,
    )


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
        "sessions that begin this soon after a new split do not count",
        "Raise it for a fleet that takes up changes slowly.",
        minimum=0,
    )
    canary_quiet_seconds: float = setting(
        3_600.0,
        "a session without an end is over after this much silence",
        "Raise it when people come back later.",
        minimum=0,
    )
