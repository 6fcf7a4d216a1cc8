"""The names in the environment of attempts. A sandbox loads the package alone."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.core.settings import RoomSettings


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings(RoomSettings):
    """See docs/reference/settings.md."""

    VARIABLES: ClassVar = frozenset({
        "attempt", "check", "checkpoint", "edited", "model_url", "prompt_file", "report",
        "result", "seed", "variant", "session", "suite", "task",
    })  # fmt: skip
