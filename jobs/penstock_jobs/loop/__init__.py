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
        "how often a runner of a loop looks for what it waits for",
        "Lower it for cycles of minutes.",
        minimum=0.01,
    )
    loop_trainer_silence_seconds: float = setting(
        600.0,
        "a trainer that cannot be reached for so long has failed",
        "Raise it above the longest outage to wait for.",
        minimum=0,
    )
