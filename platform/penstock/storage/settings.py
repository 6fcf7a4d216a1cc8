"""The object store has no settings any more, only names that were."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings


@dataclass(frozen=True, kw_only=True)
class StorageSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "store_connect_seconds_max", "store_tails_bytes_max",
        "store_silence_seconds_max",
        "store_attempts_max",
    })  # fmt: skip
