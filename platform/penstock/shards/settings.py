"""The settings of shards and of those who read them."""

from dataclasses import dataclass

from penstock.core.settings import GIB, RoomSettings, setting

WARN, REFUSE = "warn", "refuse"


@dataclass(frozen=True, kw_only=True)
class ShardSettings(RoomSettings):
    """See docs/reference/settings.md."""

    withdrawn_shards: str = setting(
        WARN,
        "what becomes of reading a shard that holds sessions of which consent was withdrawn",
        "Set it to refuse where nobody may train on such a shard.",
        choices=(WARN, REFUSE),
    )
    shard_cache_bytes_max: int = setting(
        64 * GIB,
        "local copies of shard files",
        "Set it to what a training machine can spare.",
        minimum=0,
    )
