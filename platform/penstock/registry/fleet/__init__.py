"""Fleets: the engines that follow a channel, and what each has loaded."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.core.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class FleetSettings(RoomSettings):
    """See docs/reference/settings.md."""

    VARIABLES: ClassVar = frozenset({
        "apply", "chain", "channel", "checkpoint", "digest", "folder", "form", "loaded", "part",
        "replica", "version",
    })  # fmt: skip

    follow_command_seconds_max: float = setting(
        1_800.0,
        "longest run of the command that loads a checkpoint, in seconds",
        "Raise it for large checkpoints.",
        minimum=0.1,
    )
    follow_copies_max: int = setting(
        3,
        "copies of earlier checkpoints that a sidecar keeps",
        "Lower it on a small disk, raise it for quicker rollbacks.",
        minimum=0,
    )
    replica_silent_seconds: float = setting(
        60.0,
        "seconds without a report until a replica counts as silent; it reports six times as often",
        "Lower it to notice lost replicas sooner.",
        minimum=0.01,
    )

    @property
    def replica_report_seconds(self) -> float:
        """Seconds between two reports of a sidecar, so that several may be lost before it is
        silent."""
        return self.replica_silent_seconds / 6
