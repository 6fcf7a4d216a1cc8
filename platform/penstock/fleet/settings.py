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
    follow_check_seconds: float = setting(
        30.0,
        "how often a sidecar asks whether its engine still has what was loaded",
        "Lower it to notice sooner that an engine was restarted.",
        minimum=0.01,
    )
    follow_copies_max: int = setting(
        3,
        "copies of checkpoints that a sidecar keeps beside those that it loaded last",
        "Lower it on a small disk, raise it for quicker rollbacks.",
        minimum=0,
    )
    replica_silent_seconds: float = setting(
        60.0,
        "a replica that nobody heard of for so long is silent",
        "Raise it where sidecars are often cut off from the service.",
        minimum=0.01,
    )
    replica_report_seconds: float = setting(
        10.0,
        "how often a sidecar says what its replica has loaded, and a service counts replicas",
        "Lower it to see sooner which replicas are gone.",
        minimum=0.01,
        at_most="replica_silent_seconds",
    )
