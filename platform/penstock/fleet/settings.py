"""The settings of engines that follow a channel."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class FleetSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "follow_retry_seconds", "follow_retry_seconds_max", "replica_forget_seconds",
        "replicas_max",
        "follow_check_seconds",
        "replica_report_seconds",
    })  # fmt: skip

    VARIABLES: ClassVar = frozenset({
        "apply", "chain", "channel", "checkpoint", "digest", "folder", "form", "loaded", "part",
        "replica", "version",
    })  # fmt: skip

    follow_command_seconds_max: float = setting(
        1_800.0,
        "time of one run of the command that loads a checkpoint",
        "Raise it for checkpoints that take longer to load.",
        minimum=0.1,
    )
    follow_copies_max: int = setting(
        3,
        "copies of checkpoints that a sidecar keeps beside those that it loaded last",
        "Lower it on a small disk, raise it for quicker rollbacks.",
        minimum=0,
    )
    replica_silent_seconds: float = setting(
        60.0,
        "a replica that nobody heard of for so long is silent; it reports six times as often",
        "Lower it to see sooner who is gone; raise it where sidecars are often cut off.",
        minimum=0.01,
    )

    @property
    def replica_report_seconds(self) -> float:
        """How often a sidecar reports, and a service counts replicas: several reports may be lost
        before a replica counts as silent."""
        return self.replica_silent_seconds / 6
