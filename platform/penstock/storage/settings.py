"""The settings of the object store."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class StorageSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "store_connect_seconds_max", "store_tails_bytes_max",
    })  # fmt: skip

    store_silence_seconds_max: float = setting(
        20.0,
        "an object store that sends nothing for so long is given up",
        "Raise it for a store that is slow to answer.",
        minimum=1,
    )
    store_attempts_max: int = setting(
        5,
        "tries of one request to the object store",
        "Raise it for a store that often fails for a moment.",
        minimum=1,
    )
