"""The settings of shards and of those who read them."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import GIB, RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class ShardSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "shard_part_bytes_target", "shard_part_rows_target", "shard_row_group_bytes_max",
        "loader_batches_max", "loader_threads",
    })  # fmt: skip

    shard_cache_bytes_max: int = setting(
        64 * GIB,
        "local copies of shard files",
        "Set it to what a training machine can spare.",
        minimum=0,
    )
