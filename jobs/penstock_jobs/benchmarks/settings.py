"""The variables that agents and checks get, and settings that are gone."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings(RoomSettings):
    """See docs/settings.md."""

    VARIABLES: ClassVar = frozenset({
        "attempt", "check", "checkpoint", "edited", "model_url", "prompt_file", "report",
        "result", "seed", "suite", "task",
    })  # fmt: skip
